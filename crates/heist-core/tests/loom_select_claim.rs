//! Every interleaving of a goroutine that waits at two channels with the parties that want to end
//! the wait: `wait_queue.rs` and `status.rs`, in the steps of a select.
//!
//! Mutations it catches, each tried on `wait_queue.rs` or on the steps below:
//! - a claim that always succeeds (two channels deliver to one wait),
//! - the waiter woken before its message is moved (it reads data that is being written),
//! - the waiter reads its entries without the lock (a waker may be removing them),
//! - the waiter leaves without removing the other entry (a waker that finds it uses a frame that is
//!   gone),
//! - the locks released before the goroutine waits (the wake-up is lost).
#![cfg(loom)]

mod race;

use heist_core::status::{Status, StatusWord, Ticket};
use heist_core::sync::{AtomicU32, Ordering};
use heist_core::wait_queue::{Claim, Claimed, Entry, WaitQueue};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex, Notify};
use loom::thread;
use race::{check, race};

/// A channel with room for one message.
struct Chan {
    receivers: WaitQueue<Wait>,
    buffer: Option<u32>,
}

/// One wait. It lives on the stack of the waiter, as its entries do.
struct Wait {
    world: *const World,
    ticket: Ticket,
    fired: UnsafeCell<*const Entry<Self>>,
}

// SAFETY: `fired` is written by the claimer and read after the wake-up; loom checks.
unsafe impl Sync for Wait {}

impl Claim for Wait {
    fn claim(&self) -> bool {
        // SAFETY: the world outlives every wait.
        unsafe { &*self.world }.status.claim(self.ticket)
    }

    fn is_open(&self) -> bool {
        // SAFETY: as above.
        unsafe { &*self.world }.status.is_waiting(self.ticket)
    }
}

struct World {
    status: StatusWord,
    chans: [Mutex<Chan>; 2],
    woken: Notify,
    /// How often the wait was ended.
    n_ended: AtomicU32,
}

// SAFETY: everything is used under locks, or by one thread after another, which loom checks.
unsafe impl Send for World {}
// SAFETY: as above.
unsafe impl Sync for World {}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Got {
    Message(u32),
    Nothing,
}

fn full_fence() {
    heist_core::sync::fence(Ordering::SeqCst);
}

impl World {
    fn new() -> Arc<Self> {
        let chan = || Mutex::new(Chan { receivers: WaitQueue::new(), buffer: None });
        let world = Self {
            status: StatusWord::new(),
            chans: [chan(), chan()],
            woken: Notify::new(),
            n_ended: AtomicU32::new(0),
        };
        world.status.transition(Status::Dead, Status::Runnable);
        world.status.transition(Status::Runnable, Status::Running);
        Arc::new(world)
    }

    /// Wakes a wait that was claimed, as the last thing that is done with it.
    fn wake(&self, claimed: &Claimed<Wait>) {
        // SAFETY: the waiter sleeps until it is woken; loom checks.
        unsafe { claimed.wait().as_ref() }
            .fired
            .with_mut(|fired| unsafe { *fired = claimed.entry() });
        self.ready();
    }

    /// Hands a goroutine that was claimed to the thread that runs it next.
    fn ready(&self) {
        self.n_ended.fetch_add(1, Ordering::Release);
        self.woken.notify();
    }

    /// Sends to a channel: to a waiting receiver, or into the buffer.
    fn send(&self, to: usize, message: u32) {
        let mut chan = self.chans[to].lock().unwrap();
        let receiver = chan.receivers.claim_first();
        let Some(receiver) = receiver else {
            chan.buffer = Some(message);
            return;
        };
        drop(chan);
        // SAFETY: claimed, so only this thread writes to the place; loom checks.
        unsafe { &*receiver.place().cast::<UnsafeCell<u32>>() }
            .with_mut(|place| unsafe { *place = message });
        self.wake(&receiver);
    }

    /// Closes a channel: a waiter is woken without a message.
    fn close(&self, which: usize) {
        let everybody = self.chans[which].lock().unwrap().receivers.claim_all();
        everybody.wake_last_first(|claimed| self.wake(&claimed));
    }

    /// A canceller or a clock: ends the wait, if there is one, without a channel.
    fn cancel(&self) -> bool {
        let Some(ticket) = self.status.waiting() else { return false };
        let won = self.status.claim(ticket);
        if won {
            self.ready();
        }
        won
    }

    /// The select: waits at the channels `at`, which may be one and the same, until the wait is
    /// ended.
    fn select(&self, at: [usize; 2]) -> Got {
        let wait = Wait {
            world: self,
            ticket: self.status.next_ticket(),
            fired: UnsafeCell::new(std::ptr::null()),
        };
        let places = [UnsafeCell::new(0), UnsafeCell::new(0)];
        let entries: [_; 2] = std::array::from_fn(|i| {
            Entry::new(&raw const wait, (&raw const places[i]).cast_mut().cast())
        });
        // In one order, each once.
        let mut locked: Vec<_> = (0..2)
            .filter(|chan| at.contains(chan))
            .map(|chan| (chan, self.chans[chan].lock().unwrap()))
            .collect();
        if let Some(message) = locked.iter_mut().find_map(|(_, chan)| chan.buffer.take()) {
            return Got::Message(message);
        }
        for (entry, at) in entries.iter().zip(at) {
            let chan = locked.iter_mut().find(|(chan, _)| *chan == at).unwrap();
            // SAFETY: the entries stay here until they are removed.
            unsafe { chan.1.receivers.push(entry) };
        }
        // What follows is the commit function, on another stack.
        assert_eq!(self.status.begin_wait(full_fence), wait.ticket);
        drop(locked);

        while self.n_ended.load(Ordering::Acquire) == 0 {
            self.woken.wait();
        }
        self.status.transition(Status::Runnable, Status::Running);
        // SAFETY: awake, so the claimer is done; loom checks.
        let fired = wait.fired.with(|fired| unsafe { *fired });
        for (entry, at) in entries.iter().zip(at) {
            if !std::ptr::eq(entry, fired) {
                let mut chan = self.chans[at].lock().unwrap();
                if entry.is_listed() {
                    // SAFETY: it is in this queue.
                    unsafe { chan.receivers.remove(entry) };
                }
            }
        }
        // The frame ends here. Loom reports any later use of it.
        entries.iter().for_each(|entry| entry.assign(std::ptr::null(), std::ptr::null_mut()));
        let done = entries.iter().position(|entry| std::ptr::eq(entry, fired));
        // SAFETY: as above.
        let message = done.map(|done| places[done].with_mut(|place| unsafe { *place }));
        match message {
            Some(message) if message != 0 => Got::Message(message),
            _ => Got::Nothing,
        }
    }

    /// The messages left in the channels, at which no goroutine waits any more.
    fn left(&self) -> u32 {
        self.chans
            .iter()
            .map(|chan| {
                let chan = chan.lock().unwrap();
                assert!(chan.receivers.is_empty(), "an entry was left behind");
                chan.buffer.unwrap_or(0)
            })
            .sum()
    }
}

/// SE-18: of two senders at two channels one is chosen, and the message of the other is kept.
#[test]
fn one_of_two_channels_is_chosen() {
    check(|starts| {
        let world = World::new();
        let other = Arc::clone(&world);
        let second = thread::spawn(move || other.send(1, 20));
        let (selects, sends) = (Arc::clone(&world), Arc::clone(&world));
        let (got, ()) = race(starts, move || selects.select([0, 1]), move || sends.send(0, 10));
        second.join().unwrap();
        let Got::Message(message) = got else { panic!("a message was lost") };
        assert_eq!(message + world.left(), 30, "each message is received or kept, once");
        assert!(world.n_ended.load(Ordering::Relaxed) <= 1);
    });
}

/// SE-16: the same channel twice in one select: one entry is claimed, the other is removed.
#[test]
fn one_channel_twice_is_claimed_once() {
    check(|starts| {
        let world = World::new();
        let (selects, sends) = (Arc::clone(&world), Arc::clone(&world));
        let (got, ()) = race(starts, move || selects.select([0, 0]), move || sends.send(0, 10));
        assert_eq!((got, world.left()), (Got::Message(10), 0));
    });
}

/// SE-18: a canceller, or a clock, against a sender: the claim decides; a message that was not
/// taken is kept.
#[test]
fn a_canceller_and_a_sender_decide_once() {
    check(|starts| {
        let world = World::new();
        let (selects, sends, cancels) =
            (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
        let canceller = thread::spawn(move || cancels.cancel());
        let (got, ()) = race(starts, move || selects.select([0, 1]), move || sends.send(1, 10));
        let expected = if canceller.join().unwrap() { Got::Nothing } else { Got::Message(10) };
        assert_eq!(got, expected);
        assert_eq!(world.left(), if got == Got::Nothing { 10 } else { 0 });
    });
}

/// SE-18: the close of one channel against a send at the other.
#[test]
fn a_close_and_a_sender_decide_once() {
    check(|starts| {
        let world = World::new();
        let (selects, sends, closes) = (Arc::clone(&world), Arc::clone(&world), Arc::clone(&world));
        let closer = thread::spawn(move || closes.close(0));
        let (got, ()) = race(starts, move || selects.select([0, 1]), move || sends.send(1, 10));
        closer.join().unwrap();
        assert_eq!(world.left(), if got == Got::Nothing { 10 } else { 0 });
    });
}

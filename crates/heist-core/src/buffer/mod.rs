//! The buffers of channels, and how their fast paths agree with the waiters.
//!
//! A channel is a buffer plus, under a lock, the queues of waiters. Sending into a buffer with room
//! and receiving from one with messages takes no lock. A goroutine that must wait takes it.
//!
//! # The protocol
//! Senders agree on the word `tail`, receivers on the word `head`: each message is claimed by one
//! compare-and-swap there. The low bits of the same words say that the fast path is closed:
//!
//! - `AWAITED` in `tail`: receivers wait, so a sender must take the lock and hand its message over;
//! - `AWAITED` in `head`: senders wait, so a receiver must take the lock and move the message of
//!   one of them in;
//! - `CLOSED` in `tail`: nothing may be sent any more.
//!
//! The bits change only with the lock held. A receiver that wants to wait, and holds the lock, sets
//! `AWAITED` in `tail` by a compare-and-swap from exactly the value at which it saw the buffer
//! empty. A sender that wants to wait sets it in `head` from exactly the value at which it saw it
//! full.
//!
//! # Watchers
//! Some waiters only learn that an operation has become possible. They are announced by the same
//! bits, and woken afterwards: a thread that finds only watchers behind the lock clears the bit,
//! moves its message in (or out) and then wakes them. A [`Meeting`] does not announce them: a
//! message is there when a sender waits, which takes the lock anyway and wakes them after it has
//! queued.
//!
//! # Why no wake-up is lost
//! Say a receiver waits. Its compare-and-swap succeeded, so in the order in which `tail` changed
//! every earlier message is at or below `head`, and every later sender finds a word that says
//! `AWAITED`. The sender fails its compare-and-swap, takes the lock and finds the receiver in the
//! queue. There is no moment between the check and the wait at which a message could be missed,
//! because the check and the announcement are one step on one word. The same holds for senders with
//! `head`. Nothing here needs an order between two different words, so there are no fences.
//!
//! # Invariants, whenever the lock is free
//! - `AWAITED` in `tail` if and only if receivers, or watchers of messages, are queued, and then
//!   the buffer is empty.
//! - `AWAITED` in `head` if and only if senders, or watchers of room, are queued, and then the
//!   buffer is full.
//! - `AWAITED` and `CLOSED` are never set together. A close sets `CLOSED` first, then wakes every
//!   waiter with `Closed`. In the other order, a message could be sent to a receiver that is being
//!   woken without one.
//!
//! # Order of messages
//! No sender can overtake a waiting sender: the buffer is full, and stays so, because a receiver
//! puts the first sender's message in with the same step that takes one out. So messages come out
//! in the order in which their sends began to take effect, waiting ones included.
//!
//! The models `loom_buffer_ring` and `loom_buffer_blocks` run the protocol.
//!
//! GO: chan.go chansend, chanrecv.

mod blocks;
mod meeting;
mod ring;

pub use blocks::{Blocks, Spare};
pub use meeting::Meeting;
pub use ring::Ring;

use crate::sync::spin_loop;

/// The result of sending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Put {
    /// The message is in the buffer.
    Done,
    /// There is no room.
    Full,
    /// Receivers wait: take the lock.
    Attend,
    /// The channel is closed.
    Closed,
    /// The spare must be filled first.
    Starved,
}

/// The result of receiving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Take {
    /// A message was moved out.
    Done,
    /// There is none.
    Empty,
    /// Senders wait: take the lock.
    Attend,
    /// There is none, and there will be none: the channel is closed.
    Closed,
}

/// A buffer. Any thread may call `put` and `take` at any time. Other changes need the lock of the
/// channel.
pub trait Buffer<T> {
    /// Whether it holds no message at any time: sender and receiver meet.
    const MEETS: bool = false;

    /// The memory that the caller has to allocate or free, because the buffer is used where neither
    /// is allowed.
    type Spare: Default;

    /// Fills the spare. Allocates.
    fn provide(spare: &mut Self::Spare);

    /// Whether the next message can be put in with that spare. The caller holds the lock, and
    /// receivers are announced.
    fn suffices(&self, _: &Self::Spare) -> bool {
        true
    }

    /// Moves a message in. The buffer owns it if the result is [`Put::Done`]; otherwise the caller
    /// still does.
    ///
    /// # Safety
    /// `message` points to a message that the caller owns.
    unsafe fn put(&self, message: *const T, spare: &mut Self::Spare) -> Put;

    /// Moves a message out, to `into`, if the result is [`Take::Done`]. Memory that has to be freed
    /// is left in `spent`.
    ///
    /// # Safety
    /// `into` is valid for a write.
    unsafe fn take(&self, into: *mut T, spent: &mut Self::Spare) -> Take;

    /// Announces that receivers wait. False if there is a message. The caller holds the lock, and
    /// the channel is not closed.
    #[must_use]
    fn await_message(&self) -> bool;

    /// Notes that no receivers wait any more. The caller holds the lock.
    /// Has no effect if none were announced.
    fn no_receivers(&self);

    /// Announces that senders wait. False if there is room. The caller holds the lock, and the
    /// channel is not closed.
    #[must_use]
    fn await_room(&self) -> bool;

    /// Notes that no senders wait any more. The caller holds the lock.
    fn no_senders(&self);

    /// Moves the oldest message to `into`, and `incoming`, of a sender that waits, behind the
    /// youngest. The caller holds the lock, and senders are announced.
    ///
    /// # Safety
    /// `into` is valid for a write; `incoming` points to a message, which the buffer owns
    /// afterwards.
    unsafe fn rotate(&self, incoming: *const T, into: *mut T);

    /// Refuses messages from now on. The caller holds the lock.
    fn close(&self);

    /// Whether it was closed.
    fn is_closed(&self) -> bool;

    /// How many messages there are, at some moment during the call.
    fn len(&self) -> usize;

    /// Whether there is none, at some moment during the call.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many fit, or None if there is no bound.
    fn capacity(&self) -> Option<usize>;

    /// Changes whenever a buffer from which nothing could be received may have changed to one from
    /// which something can.
    fn receive_stamp(&self) -> u64;

    /// Changes whenever a buffer into which nothing could be sent may have changed to one into
    /// which something can.
    fn send_stamp(&self) -> u64;
}

/// In `tail`: no more messages.
const CLOSED: u64 = 1;
/// In `tail`: receivers wait; in `head`: senders do.
const AWAITED: u64 = 2;
const FLAGS: u64 = CLOSED | AWAITED;
/// The next position.
const ONE: u64 = 4;

/// Lets the kernel run another thread. The buffer does not know how, so the caller passes it in.
pub type Pause = fn();

/// A short wait for a thread that is between claiming a slot and being done with it. That thread is
/// inside the runtime, so only the kernel can stop it.
struct Backoff {
    step: u32,
}

impl Backoff {
    const fn new() -> Self {
        Self { step: 0 }
    }

    /// After a lost race: the winner has finished already.
    #[inline]
    fn lost(&mut self) {
        self.step = (self.step + 1).min(4);
        self.spin();
    }

    /// Waits for another thread's next step.
    #[inline]
    fn wait(&mut self, pause: Pause) {
        if self.step > 6 {
            return pause();
        }
        self.step += 1;
        self.spin();
    }

    #[inline]
    fn spin(&self) {
        // A model needs only one hint that another thread must make progress.
        let turns = if cfg!(loom) { 1 } else { 1u32 << self.step };
        for _ in 0..turns {
            spin_loop();
        }
    }
}

//! Who waits for a direction of a descriptor that somebody else uses.
//!
//! The protocol is `heist_core::fd_lock`; this adds the sleeping. An entry lives on the stack of
//! who waits. It is put in and taken out under the queue's lock, and who takes it out does not
//! touch it after releasing that. First come, first served.

use super::error;
use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::Seal;
use crate::sched::life::cancel::{self, Why};
use crate::sched::life::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use crate::sys::lock::Lock;
use crate::sys::poll::Bell;
use heist_core::fd_lock::{FdLock, Taken, Unlocked, Way};
use heist_core::list::{Link, Linked, List};
use heist_core::lock_rank::Rank;
use heist_core::timer_heap::NEVER;
use std::cell::Cell;
use std::io;
use std::ptr::NonNull;

/// What became of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Queued,
    Granted,
    Closed,
    /// Taken out for a goroutine that a canceller had woken already.
    Dropped,
}

struct Entry {
    link: Link<Entry>,
    waiter: Waiter,
    outcome: Cell<Outcome>,
}

// SAFETY: `link` is used by the list alone.
unsafe impl Linked for Entry {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

// SAFETY: an entry is used under the lock of its queue.
unsafe impl Send for Entry {}

impl Entry {
    /// Gives up: takes the entry out of its queue if nobody has. The lock is held.
    fn leave(&self, waiting: &mut List<Self>) {
        if self.outcome.get() == Outcome::Queued {
            let _ = waiting.take_first(u32::MAX, |other| std::ptr::eq(other, self));
        }
    }
}

/// What the lock of a descriptor's queues protects.
pub(super) struct Queues {
    waiting: [List<Entry>; 2],
    /// Rung for a thread that waits for the descriptor itself; made when a thread first does.
    bells: [Option<Bell>; 2],
}

impl Queues {
    pub(super) const fn new() -> Lock<Self> {
        let queues = Self { waiting: [List::new(), List::new()], bells: [None, None] };
        Lock::new(Rank::PollDesc, queues)
    }

    /// The bell of a direction.
    pub(super) fn bell(&mut self, way: Way) -> io::Result<&Bell> {
        let bell = &mut self.bells[way as usize];
        match bell {
            Some(bell) => Ok(bell),
            None => Ok(bell.insert(Bell::new()?)),
        }
    }

    /// Rings the bell of a direction, if a thread ever waited there.
    pub(super) fn ring(&self, way: Way) {
        if let Some(bell) = &self.bells[way as usize] {
            bell.ring();
        }
    }
}

/// Waits until the direction is the caller's, at the latest until `until_ns`.
#[cold]
pub(super) fn lock(
    fd_lock: &FdLock,
    queues: &Lock<Queues>,
    way: Way,
    until_ns: u64,
) -> io::Result<()> {
    let Some(rt) = current::enter() else { return lock_as_thread(fd_lock, queues, way, until_ns) };
    let rt = cancel::check(park::chaos_point(rt));
    let gp = rt.goroutine();
    let waiter = Waiter::Goroutine(NonNull::from(gp), gp.status.next_ticket());
    let entry = Entry { link: Link::new(), waiter, outcome: Cell::new(Outcome::Queued) };
    let mut guard = queues.lock();
    let taken = fd_lock.queue(way);
    if taken != Taken::Busy {
        drop(guard);
        let turn = (taken == Taken::Yes).then(|| Turn { fd_lock, queues, way });
        drop(rt);
        std::mem::forget(turn);
        return done(taken);
    }
    // SAFETY: the entry stays on this goroutine's stack until it is taken out.
    unsafe { guard.waiting[way as usize].push_back(NonNull::from(&entry)) };
    std::mem::forget(guard);
    let arg = std::ptr::from_ref(queues).cast_mut().cast();
    // SAFETY: the lock is held by this thread and its guard forgotten; a canceller that is faster
    // makes the goroutine wait for the lock below.
    let (rt, woken) =
        unsafe { park::park_until(rt, WaitReason::IoWait, Seal::Open, release, arg, until_ns) };
    if woken != Woken::Ready {
        let mut guard = queues.lock();
        entry.leave(&mut guard.waiting[way as usize]);
        drop(guard);
        drop(rt);
        if woken == Woken::TimedOut {
            return Err(error::timeout());
        }
        cancel::unwind(Why::Cancelled);
    }
    let granted = entry.outcome.get() == Outcome::Granted;
    let turn = granted.then(|| Turn { fd_lock, queues, way });
    drop(rt);
    std::mem::forget(turn);
    outcome(entry.outcome.get())
}

/// A turn that was got inside the runtime. To leave that may unwind, if the stack has run out in there; then the
/// turn is the next one's.
struct Turn<'a> {
    fd_lock: &'a FdLock,
    queues: &'a Lock<Queues>,
    way: Way,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If it was the last use of a closed descriptor, that stays until its value is dropped.
        if self.fd_lock.unlock(self.way) == Unlocked::Queued {
            let _ = pass_on(self.fd_lock, self.queues, self.way);
        }
    }
}

/// The goroutine is off its stack: others may find it.
unsafe fn release(_: NonNull<G>, queues: *mut ()) -> bool {
    // SAFETY: the goroutine that parks holds the lock on this thread and forgot the guard; it keeps
    // the queues alive until it is woken, which needs the lock.
    unsafe { (*queues.cast::<Lock<Queues>>()).unlock_forgotten() };
    true
}

fn lock_as_thread(
    fd_lock: &FdLock,
    queues: &Lock<Queues>,
    way: Way,
    until_ns: u64,
) -> io::Result<()> {
    let thread = ThreadWaiter::new();
    let waiter = Waiter::Thread(&raw const thread);
    let entry = Entry { link: Link::new(), waiter, outcome: Cell::new(Outcome::Queued) };
    let mut guard = queues.lock();
    let taken = fd_lock.queue(way);
    if taken != Taken::Busy {
        drop(guard);
        return done(taken);
    }
    // SAFETY: the entry stays on this thread's stack until it is taken out, before it is woken.
    unsafe { guard.waiting[way as usize].push_back(NonNull::from(&entry)) };
    drop(guard);
    if until_ns != NEVER && !thread.sleep_until(until_ns) {
        let mut guard = queues.lock();
        let gives_up = entry.outcome.get() == Outcome::Queued;
        entry.leave(&mut guard.waiting[way as usize]);
        drop(guard);
        if gives_up {
            return Err(error::timeout());
        }
    }
    // Also if its time is over: somebody has taken the entry out and is about to wake it.
    thread.sleep();
    outcome(entry.outcome.get())
}

pub(super) fn done(taken: Taken) -> io::Result<()> {
    match taken {
        Taken::Yes => Ok(()),
        Taken::Closed => Err(error::closed()),
        Taken::TooMany => panic!("too many concurrent operations on a single file or socket"),
        Taken::Busy => heist_core::throw!("net: a busy descriptor was not waited for"),
    }
}

fn outcome(outcome: Outcome) -> io::Result<()> {
    match outcome {
        Outcome::Granted => Ok(()),
        Outcome::Closed => Err(error::closed()),
        Outcome::Queued | Outcome::Dropped => {
            heist_core::throw!("net: woken out of a descriptor's queue without a reason")
        }
    }
}

/// Gives a direction that somebody queues for to the first who still wants it.
#[cold]
pub(super) fn pass_on(fd_lock: &FdLock, queues: &Lock<Queues>, way: Way) -> Unlocked {
    let rt = current::enter();
    let mut guard = queues.lock();
    let Some(waiter) = next(&mut guard.waiting[way as usize], Outcome::Granted) else {
        return fd_lock.unlock_empty(way);
    };
    fd_lock.passed_on(way, !guard.waiting[way as usize].is_empty());
    drop(guard);
    // SAFETY: taken out of the queue and, if a goroutine, claimed.
    unsafe { wake(&waiter, rt.as_ref()) };
    Unlocked::Done
}

/// The descriptor is closed: wakes all who queue for it, with an error.
pub(super) fn refuse_all(queues: &Lock<Queues>, rt: Option<&InRuntime>) {
    for way in [Way::Read, Way::Write] {
        loop {
            let mut guard = queues.lock();
            let Some(waiter) = next(&mut guard.waiting[way as usize], Outcome::Closed) else {
                break;
            };
            drop(guard);
            // SAFETY: taken out of the queue and, if a goroutine, claimed.
            unsafe { wake(&waiter, rt) };
        }
    }
}

/// Takes out the first who still waits, and claims it.
fn next(waiting: &mut List<Entry>, outcome: Outcome) -> Option<Waiter> {
    while let Some(entry) = waiting.pop_front() {
        // SAFETY: an entry in the queue is valid while its lock is held, which it is.
        let entry = unsafe { entry.as_ref() };
        entry.outcome.set(outcome);
        match entry.waiter {
            Waiter::Thread(thread) => return Some(Waiter::Thread(thread)),
            Waiter::Goroutine(gp, ticket) => {
                // SAFETY: records are never unmapped.
                if unsafe { gp.as_ref() }.status.claim(ticket) {
                    return Some(Waiter::Goroutine(gp, ticket));
                }
                entry.outcome.set(Outcome::Dropped);
            }
        }
    }
    None
}

/// # Safety
/// The waiter was taken out of the queue, by this caller alone, and claimed if it is a goroutine.
unsafe fn wake(waiter: &Waiter, rt: Option<&InRuntime>) {
    match waiter {
        // SAFETY: claimed by the caller's promise.
        Waiter::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, *gp) },
        // SAFETY: it still waits, and is woken once.
        Waiter::Thread(_) => unsafe { waiter.wake(rt) },
    }
}

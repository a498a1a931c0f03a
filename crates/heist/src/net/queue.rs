//! The queue for a direction of a descriptor that is in use.
//!
//! The protocol is `heist_core::fd_lock`; this file adds the waiting, in first-in, first-out order.

use super::error;
use crate::current::{self, InRuntime};
use crate::sys::lock::Lock;
use crate::sys::poll::Bell;
use crate::wait::{
    self, Ended, Entry, FutureWait, GivingUp, Terms, WaitQueue, WaitReason, Wake, WakeAll,
};
use heist_core::fd_lock::{FdLock, Taken, Unlocked, Way};
use heist_core::lock_rank::Rank;
use std::io;
use std::ptr::null_mut;
use std::task::{Poll, Waker};

/// The data that the lock of a descriptor's queues protects.
pub(super) struct Queues {
    waiting: [WaitQueue; 2],
    /// Rung for a thread that waits for the descriptor itself. A bell is made when a thread first
    /// waits.
    bells: [Option<Bell>; 2],
}

impl Queues {
    pub(super) const fn new() -> Lock<Self> {
        let queues = Self { waiting: [WaitQueue::new(), WaitQueue::new()], bells: [None, None] };
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

/// Waits until the caller holds the direction, at the latest until `until_ns`.
#[cold]
pub(super) fn lock(
    fd_lock: &FdLock,
    queues: &Lock<Queues>,
    way: Way,
    until_ns: u64,
) -> io::Result<()> {
    let terms = Terms::new(WaitReason::IoWait).until(until_ns);
    let rt = terms.enter();
    let guard = queues.lock();
    let taken = fd_lock.queue(way);
    if taken != Taken::Busy {
        drop(guard);
        let turn = (taken == Taken::Yes).then(|| Turn { fd_lock, queues, way });
        drop(rt);
        std::mem::forget(turn);
        return done(taken);
    }
    if rt.as_ref().is_some_and(wait::is_cancelled_but_spared) {
        // As in a wait for the other end: it may never come to its turn.
        drop(guard);
        drop(rt);
        return Err(error::cancelled());
    }
    let giving_up = rt.as_ref().and_then(GivingUp::if_panicking);
    let (rt, ended) = wait::sleep_in(
        rt,
        guard,
        terms,
        null_mut(),
        // SAFETY: the entry stays on the stack of `sleep_in` until it is removed.
        |queues, entry| unsafe { queues.waiting[way as usize].push(entry) },
        // SAFETY: it was queued here.
        |queues, entry| unsafe { queues.waiting[way as usize].remove(entry) },
    );
    let unwinds = giving_up.is_none();
    drop(giving_up);
    if ended == Ended::Cancelled && unwinds {
        wait::unwind(rt);
    }
    let turn = (ended == Ended::Done).then(|| Turn { fd_lock, queues, way });
    drop(rt);
    std::mem::forget(turn);
    match ended {
        Ended::Done => Ok(()),
        Ended::Closed => Err(error::closed()),
        Ended::TimedOut => Err(error::timeout()),
        Ended::Cancelled => Err(error::cancelled()),
        Ended::Changed => {
            heist_core::throw!("net: woken out of a descriptor's queue without a reason")
        }
    }
}

/// As [`lock`], as a future, which is pinned.
#[cold]
pub(super) fn poll_lock(
    fd_lock: &FdLock,
    queues: &Lock<Queues>,
    way: Way,
    wait: &FutureWait,
    waker: &Waker,
) -> Poll<io::Result<()>> {
    if wait.is_queued() {
        return match wait.poll(queues, waker) {
            None => Poll::Pending,
            Some(Ended::Done) => Poll::Ready(Ok(())),
            Some(_) => Poll::Ready(Err(error::closed())),
        };
    }
    wait.prepare(waker);
    let rt = current::enter();
    let mut guard = queues.lock();
    let taken = fd_lock.queue(way);
    if taken == Taken::Busy {
        let push = |entry: &Entry| {
            // SAFETY: the future is pinned, and leaves the queue when it is dropped.
            unsafe { guard.waiting[way as usize].push(entry) };
            true
        };
        // SAFETY: as above.
        unsafe { wait.queue(null_mut(), push) };
    }
    drop(guard);
    drop(rt);
    if taken == Taken::Busy { Poll::Pending } else { Poll::Ready(done(taken)) }
}

/// Ends the wait of a future. True if it was given the direction.
pub(super) fn leave(queues: &Lock<Queues>, way: Way, wait: &FutureWait) -> bool {
    let left = wait.leave(queues, |queues, entry| {
        // SAFETY: it was queued here.
        unsafe { queues.waiting[way as usize].remove(entry) };
    });
    left == Some(Ended::Done)
}

/// A direction that was taken inside the runtime. Leaving the runtime may unwind, if the stack
/// overflowed inside; then the direction is passed on to the next waiter.
struct Turn<'a> {
    fd_lock: &'a FdLock,
    queues: &'a Lock<Queues>,
    way: Way,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // If this was the last use of a closed descriptor, the descriptor stays open until its
        // value is dropped.
        if self.fd_lock.unlock(self.way) == Unlocked::Queued {
            let _ = pass_on(self.fd_lock, self.queues, self.way);
        }
    }
}

pub(super) fn done(taken: Taken) -> io::Result<()> {
    match taken {
        Taken::Yes => Ok(()),
        Taken::Closed => Err(error::closed()),
        Taken::TooMany => panic!("too many concurrent operations on a single file or socket"),
        Taken::Busy => heist_core::throw!("net: a busy descriptor was not waited for"),
    }
}

/// Passes a direction on to the first waiter in its queue that has not given up.
#[cold]
pub(super) fn pass_on(fd_lock: &FdLock, queues: &Lock<Queues>, way: Way) -> Unlocked {
    let rt = current::enter();
    let mut guard = queues.lock();
    let waiting = &mut guard.waiting[way as usize];
    let Some(next) = waiting.claim_first() else {
        return fd_lock.unlock_empty(way);
    };
    fd_lock.passed_on(way, !waiting.is_empty());
    drop(guard);
    next.wake(Ended::Done, rt.as_ref());
    Unlocked::Done
}

/// Wakes every waiter in the queues of a closed descriptor, with an error.
pub(super) fn refuse_all(queues: &Lock<Queues>, rt: Option<&InRuntime>) {
    for way in [Way::Read, Way::Write] {
        let waiting = queues.lock().waiting[way as usize].claim_all();
        waiting.wake_all(Ended::Closed, rt);
    }
}

//! Who waits at a channel: goroutines and plain threads, in the queues of `heist_core::wait_queue`.
//!
//! A wait is one [`Wait`] and one [`Entry`] for each channel it waits at, all on the waiter's own stack. To
//! claim it is, for a goroutine, to claim the ticket of its status word; for a thread there is a word in the
//! wait.
//!
//! GO: runtime2.go sudog, chan.go waitq.

use crate::current::InRuntime;
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::{Commit, Seal};
use crate::sched::life::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use heist_core::status::Ticket;
use heist_core::timer_heap::NEVER;
use heist_core::wait_queue::{self, Claim};
use std::cell::Cell;
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicBool, Ordering};

/// How the claimer ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The message was moved, to or from the entry's place; for those who watch: could be.
    Done,
    /// The channel was closed.
    Closed,
    /// What it waits for has changed: it should look again.
    Changed,
}

/// What ended a sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Awoken {
    Claimed,
    Cancelled,
    TimedOut,
}

enum Who {
    Goroutine(NonNull<G>, Ticket),
    Thread(ThreadWaiter, AtomicBool),
}

/// One wait of a goroutine or a thread.
pub(super) struct Wait {
    who: Who,
    /// The entry whose channel ended it; written by the claimer.
    fired: Cell<*const Entry>,
    outcome: Cell<Outcome>,
}

// SAFETY: the cells are written by the claimer alone, before it wakes the waiter, who reads them.
unsafe impl Sync for Wait {}

impl Wait {
    /// The next wait of the calling goroutine, or of the calling thread.
    #[inline]
    pub(super) fn new(rt: Option<&InRuntime>) -> Self {
        let who = match rt.map(InRuntime::goroutine) {
            Some(gp) => Who::Goroutine(NonNull::from(gp), gp.status.next_ticket()),
            None => Who::Thread(ThreadWaiter::new(), AtomicBool::new(false)),
        };
        Self { who, fired: Cell::new(null()), outcome: Cell::new(Outcome::Done) }
    }

    /// The entry that ended it, and how. Once it was claimed.
    #[inline]
    pub(super) fn ended_by(&self) -> (*const Entry, Outcome) {
        (self.fired.get(), self.outcome.get())
    }
}

impl Claim for Wait {
    #[inline]
    fn claim(&self) -> bool {
        match &self.who {
            // SAFETY: records are never unmapped.
            Who::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.claim(*ticket),
            // ORDERING: AcqRel, for what the waiter wrote before and the claimer writes after.
            Who::Thread(_, claimed) => !claimed.swap(true, Ordering::AcqRel),
        }
    }

    fn is_open(&self) -> bool {
        match &self.who {
            // SAFETY: records are never unmapped.
            Who::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.is_waiting(*ticket),
            // ORDERING: Acquire, for what the claimer did before.
            Who::Thread(_, claimed) => !claimed.load(Ordering::Acquire),
        }
    }
}

impl Wait {
    /// Sleeps until somebody claims it, at the latest until `deadline_ns`. `commit` releases the locks
    /// under which it was queued.
    ///
    /// # Safety
    /// The wait was made with this `rt`. `commit` releases locks that this thread holds, and if it
    /// uses what is on the caller's stack, not after it has released the last one.
    #[inline(always)]
    pub(super) unsafe fn sleep(
        &self,
        rt: Option<InRuntime>,
        reason: WaitReason,
        commit: Commit,
        arg: *mut (),
        deadline_ns: u64,
    ) -> (Option<InRuntime>, Awoken) {
        match (&self.who, rt) {
            (Who::Goroutine(..), Some(rt)) => {
                // SAFETY: by the caller's promise. A canceller may be faster than the commit: the
                // goroutine takes every lock again before it does anything else.
                let (rt, woken) =
                    unsafe { park::park_until(rt, reason, Seal::Open, commit, arg, deadline_ns) };
                let awoken = match woken {
                    Woken::Ready => Awoken::Claimed,
                    Woken::Cancelled => Awoken::Cancelled,
                    Woken::TimedOut => Awoken::TimedOut,
                };
                (Some(rt), awoken)
            }
            (Who::Thread(thread, _), None) => {
                // SAFETY: by the caller's promise. Who releases locks does not look at the goroutine.
                unsafe { commit(NonNull::dangling(), arg) };
                (None, self.sleep_as_thread(thread, deadline_ns))
            }
            _ => heist_core::throw!("Wait::sleep: a goroutine and a thread are mixed up"),
        }
    }

    #[inline(never)]
    fn sleep_as_thread(&self, thread: &ThreadWaiter, deadline_ns: u64) -> Awoken {
        if deadline_ns == NEVER {
            thread.sleep();
        } else if !thread.sleep_until(deadline_ns) {
            if self.claim() {
                return Awoken::TimedOut;
            }
            // Somebody was faster, and is about to wake it.
            thread.sleep();
        }
        Awoken::Claimed
    }
}

/// The place of a wait in the queue of a channel.
pub(super) type Entry = wait_queue::Entry<Wait>;

/// An entry of a select, which is put to use later.
pub(super) const fn idle_entry() -> Entry {
    Entry::new(null(), std::ptr::null_mut())
}

/// A wait that the holder of this has claimed and must wake.
#[must_use]
pub(super) struct Claimed(wait_queue::Claimed<Wait>);

impl Claimed {
    /// Where its message is or goes to.
    #[inline]
    pub(super) fn place<T>(&self) -> *mut T {
        self.0.place().cast()
    }

    /// Wakes it.
    #[inline]
    pub(super) fn wake(self, outcome: Outcome, rt: Option<&InRuntime>) {
        // SAFETY: the waiter sleeps until it is woken.
        let wait = unsafe { self.0.wait().as_ref() };
        wait.fired.set(self.0.entry());
        wait.outcome.set(outcome);
        match &wait.who {
            // SAFETY: claimed by whoever made this value, and nobody has queued it since.
            Who::Goroutine(gp, _) => unsafe { park::ready_anywhere(rt, *gp) },
            // SAFETY: it sleeps, or is about to, and only the claimer wakes it.
            Who::Thread(thread, _) => unsafe { Waiter::Thread(thread).wake(rt) },
        }
    }
}

/// A queue of entries, first come first served. Lives inside the lock of its channel.
pub(super) struct WaitQueue(wait_queue::WaitQueue<Wait>);

impl WaitQueue {
    pub(super) const fn new() -> Self {
        Self(wait_queue::WaitQueue::new())
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether somebody is there whose wait nobody has ended.
    pub(super) fn has_open(&self) -> bool {
        self.0.has_open()
    }

    /// Appends an entry.
    ///
    /// # Safety
    /// It is in no queue, and stays where it is until it was taken out.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &Entry) {
        // SAFETY: passed on.
        unsafe { self.0.push(entry) };
    }

    /// Takes `entry` out, wherever it is.
    ///
    /// # Safety
    /// It is in this queue.
    #[inline]
    pub(super) unsafe fn remove(&mut self, entry: &Entry) {
        // SAFETY: passed on.
        unsafe { self.0.remove(entry) };
    }

    /// Takes out the first whose wait can be claimed. Those before it are out too: somebody else ended
    /// their wait.
    #[inline]
    pub(super) fn claim_first(&mut self) -> Option<Claimed> {
        self.0.claim_first().map(Claimed)
    }

    /// Takes everybody out and wakes them: what they watch for has happened.
    #[inline]
    pub(super) fn tell(&mut self, rt: Option<&InRuntime>) {
        if !self.is_empty() {
            self.tell_all(rt);
        }
    }

    #[cold]
    fn tell_all(&mut self, rt: Option<&InRuntime>) {
        self.claim_all().wake(Outcome::Done, rt);
    }

    /// Takes everybody out, to be woken once the lock is released.
    pub(super) fn claim_all(&mut self) -> AllClaimed {
        AllClaimed(self.0.claim_all())
    }
}

/// Waits that the holder of this has claimed and must wake.
#[must_use]
pub(super) struct AllClaimed(wait_queue::AllClaimed<Wait>);

impl AllClaimed {
    /// Wakes them, the first one last.
    pub(super) fn wake(self, outcome: Outcome, rt: Option<&InRuntime>) {
        self.0.for_each(|claimed| Claimed(claimed).wake(outcome, rt));
    }
}

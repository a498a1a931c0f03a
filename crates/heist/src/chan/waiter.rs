//! Who waits at a channel: goroutines and plain threads, in queues from which any can be taken out.
//!
//! A wait is one [`Wait`] and one [`Entry`] for each channel it waits at, all on the waiter's own
//! stack. The entries are queued and taken out under their channel's lock.
//!
//! # The claim
//! Several may want to end a wait at the same time: two channels of a select, a deadline, a
//! canceller. Whoever claims it owns the outcome; for a goroutine that is the ticket of its status
//! word, for a thread a word in the wait. Claiming comes first, moving a message after it, waking last:
//! until it is woken the waiter cannot run, so its stack is the claimer's to write to. Whoever fails
//! to claim has moved nothing.
//!
//! # How long an entry lives
//! An entry that is found in a queue, under the lock, is valid: its owner takes the same lock before it
//! leaves, to take it out or to see that it is out. Without the lock it is valid for the claimer only,
//! until it wakes the waiter.
//!
//! GO: runtime2.go sudog, chan.go waitq.

use crate::current::InRuntime;
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::{Commit, Seal};
use crate::sched::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use heist_core::status::Ticket;
use heist_core::timer_heap::NEVER;
use std::cell::Cell;
use std::ptr::{NonNull, null};
use std::sync::atomic::{AtomicBool, Ordering};

/// How the claimer ended the wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The message was moved, to or from the entry's place; or, if it has none, could be.
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

    #[inline]
    fn claim(&self) -> bool {
        match &self.who {
            // SAFETY: records are never unmapped.
            Who::Goroutine(gp, ticket) => unsafe { gp.as_ref() }.status.claim(*ticket),
            // ORDERING: AcqRel, for what the waiter wrote before and the claimer writes after.
            Who::Thread(_, claimed) => !claimed.swap(true, Ordering::AcqRel),
        }
    }

    /// Sleeps until somebody claims it, at the latest until `deadline_ns`. `commit` releases the locks
    /// under which it was queued.
    ///
    /// # Safety
    /// The wait was made with this `rt`. `commit` releases locks that this thread holds, and if it
    /// uses what is on the caller's stack, not after it has released the last one.
    #[inline]
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
                let (rt, woken) = unsafe {
                    park::park_until(rt, reason, Seal::Open, commit, arg, Some(deadline_ns))
                };
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
                if deadline_ns == NEVER {
                    thread.sleep();
                } else if !thread.sleep_until(deadline_ns) {
                    if self.claim() {
                        return (None, Awoken::TimedOut);
                    }
                    // Somebody was faster, and is about to wake it.
                    thread.sleep();
                }
                (None, Awoken::Claimed)
            }
            _ => heist_core::throw!("Wait::sleep: a goroutine and a thread are mixed up"),
        }
    }
}

/// The place of a wait in the queue of a channel.
pub(super) struct Entry {
    next: Cell<*const Entry>,
    prev: Cell<*const Entry>,
    listed: Cell<bool>,
    wait: Cell<*const Wait>,
    /// Where the message is or goes to; null for one who only wants to know.
    place: Cell<*mut ()>,
}

impl Entry {
    #[inline]
    pub(super) const fn new(wait: *const Wait, place: *mut ()) -> Self {
        Self {
            next: Cell::new(null()),
            prev: Cell::new(null()),
            listed: Cell::new(false),
            wait: Cell::new(wait),
            place: Cell::new(place),
        }
    }

    /// An entry of a select, which is put to use later.
    pub(super) const fn idle() -> Self {
        Self::new(null(), std::ptr::null_mut())
    }

    pub(super) fn assign(&self, wait: *const Wait, place: *mut ()) {
        self.wait.set(wait);
        self.place.set(place);
    }

    /// Whether it is in a queue. Under the lock of its channel.
    #[inline]
    pub(super) fn is_listed(&self) -> bool {
        self.listed.get()
    }
}

/// A wait that the holder of this has claimed and must wake.
#[must_use]
pub(super) struct Claimed {
    entry: NonNull<Entry>,
}

impl Claimed {
    /// Where its message is or goes to.
    #[inline]
    pub(super) fn place<T>(&self) -> *mut T {
        // SAFETY: the waiter sleeps until it is woken, which consumes this.
        unsafe { self.entry.as_ref() }.place.get().cast()
    }

    /// Wakes it.
    #[inline]
    pub(super) fn wake(self, outcome: Outcome, rt: Option<&InRuntime>) {
        // SAFETY: as above.
        let wait = unsafe { &*self.entry.as_ref().wait.get() };
        wait.fired.set(self.entry.as_ptr());
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
#[doc(alias = "waitq")]
pub(super) struct WaitQueue {
    first: *const Entry,
    last: *const Entry,
}

// SAFETY: the entries are used under the lock of the channel, or by who has claimed their waits.
unsafe impl Send for WaitQueue {}

impl WaitQueue {
    pub(super) const fn new() -> Self {
        Self { first: null(), last: null() }
    }

    #[inline]
    pub(super) const fn is_empty(&self) -> bool {
        self.first.is_null()
    }

    /// Whether somebody is there who has or wants a message. Others only want to know.
    pub(super) fn has_operation(&self) -> bool {
        let mut at = self.first;
        // SAFETY: queued entries are valid.
        while let Some(entry) = unsafe { at.as_ref() } {
            if !entry.place.get().is_null() {
                return true;
            }
            at = entry.next.get();
        }
        false
    }

    /// Appends an entry.
    ///
    /// # Safety
    /// It is in no queue, and stays where it is until it was taken out.
    #[inline]
    pub(super) unsafe fn push(&mut self, entry: &Entry) {
        if entry.listed.replace(true) {
            heist_core::throw!("WaitQueue::push: the entry is queued already");
        }
        entry.next.set(null());
        entry.prev.set(self.last);
        // SAFETY: queued entries are valid.
        match unsafe { self.last.as_ref() } {
            Some(last) => last.next.set(entry),
            None => self.first = entry,
        }
        self.last = entry;
    }

    /// Takes `entry` out, wherever it is.
    ///
    /// # Safety
    /// It is in this queue.
    #[inline]
    pub(super) unsafe fn remove(&mut self, entry: &Entry) {
        if !entry.listed.replace(false) {
            heist_core::throw!("WaitQueue::remove: the entry is not queued");
        }
        let (prev, next) = (entry.prev.get(), entry.next.get());
        // SAFETY: neighbours of a queued entry are queued, and queued entries are valid.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.first = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.last = prev,
        }
    }

    fn pop(&mut self) -> Option<NonNull<Entry>> {
        let first = NonNull::new(self.first.cast_mut())?;
        // SAFETY: it is the first of this queue.
        unsafe { self.remove(first.as_ref()) };
        Some(first)
    }

    /// Takes out the first whose wait can be claimed. Those before it are out too: somebody else ended
    /// their wait, or they only wanted to know and are woken.
    #[inline]
    pub(super) fn claim_first(&mut self, rt: Option<&InRuntime>) -> Option<Claimed> {
        while let Some(entry) = self.pop() {
            // SAFETY: it was queued until now and the lock is held.
            let here = unsafe { entry.as_ref() };
            // SAFETY: as above; the wait lives as long as its entries.
            if unsafe { &*here.wait.get() }.claim() {
                let claimed = Claimed { entry };
                if !here.place.get().is_null() {
                    return Some(claimed);
                }
                claimed.wake(Outcome::Done, rt);
            }
        }
        None
    }

    /// Takes everybody out, to be woken once the lock is released.
    pub(super) fn claim_all(&mut self) -> AllClaimed {
        let mut all = AllClaimed { last: null() };
        while let Some(entry) = self.pop() {
            // SAFETY: as in `claim_first`.
            let here = unsafe { entry.as_ref() };
            // SAFETY: as in `claim_first`.
            if unsafe { &*here.wait.get() }.claim() {
                here.prev.set(all.last);
                all.last = entry.as_ptr();
            }
        }
        all
    }
}

/// Waits that the holder of this has claimed and must wake.
#[must_use]
pub(super) struct AllClaimed {
    last: *const Entry,
}

impl AllClaimed {
    /// Wakes them, the first one last: so it is the one that runs next, and the others follow from the
    /// last to the second, as in Go.
    pub(super) fn wake(mut self, outcome: Outcome, rt: Option<&InRuntime>) {
        while let Some(entry) = NonNull::new(self.last.cast_mut()) {
            // SAFETY: claimed, and not woken yet.
            self.last = unsafe { entry.as_ref() }.prev.get();
            Claimed { entry }.wake(outcome, rt);
        }
    }
}

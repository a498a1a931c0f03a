//! Waiting: how a goroutine, or a plain thread, sleeps until something of the API happens.
//!
//! The API modules (channels, select, locks, descriptors, joins, timers) say what they wait for and
//! where they are queued. This room does the rest: the parking, the claim, the deadline, the
//! cancellation, and the wait of a plain thread.
//!
//! # What enters
//! The caller's evidence of being inside the runtime (`Option<InRuntime>`; `None` is a plain
//! thread), the [`Terms`] of the wait, and the guard of the lock that protects the queue. Each wait
//! begins at a [`park_point`]: there chaos mode may disturb the goroutine, and a cancelled one
//! unwinds with nothing held.
//!
//! # What leaves
//! The evidence, maybe of another M, and how the wait [`Ended`]. [`wait_in`] unwinds a cancelled
//! goroutine itself; [`sleep_in`] leaves that to a caller that has to restore its state first and
//! then calls [`unwind`].
//!
//! # The protocol of a queued wait
//! 1. The waiter takes the lock of the queue, finds nothing to take, and queues an [`Entry`] of its
//!    [`Wait`]. Both are on its own stack.
//! 2. It leaves its stack. Then its status says that it waits, and only then is the lock released.
//!    So a waker that finds the entry can wake the waiter.
//! 3. A waker takes the lock, removes the entry and claims the wait. Of all claims, by wakers, the
//!    clock and a canceller, exactly one succeeds. A waker whose claim fails has handed over
//!    nothing, and takes the next entry. A waker whose claim succeeds writes the result into the
//!    waiter's frame, which stays valid until the waiter is woken, and wakes it as the last step,
//!    preferably without the lock.
//! 4. A waiter that the clock or a canceller has woken takes the lock again and removes its entry,
//!    if no waker has. Therefore an entry that is found in a queue, under the lock, is valid.
//!
//! `heist_core::wait_queue` is the queue, `loom_select_claim` runs it against several wakers.
//!
//! # The protocol of a published wait
//! A join and a descriptor have no queue: one waiter at most, published in a word (`published.rs`).
//! The wait is sealed until the word is written: before that, only a reader of the word can wake
//! the goroutine.
//!
//! # Futures
//! A future waits in the same queues, with an entry inside the future (`future.rs`).
//!
//! # What must not be touched from outside
//! Goroutine records, tickets, commit functions and seals. A module above this one names none of
//! them; `goroutine` is the exception, because a join handle owns a record.
//!
//! GO: proc.go gopark; sema.go; runtime2.go sudog.

mod both;
mod future;
mod published;
mod record;
mod wakers;

pub(crate) use crate::gmp::g::WaitReason;
pub(crate) use crate::sched::futures::parker::Parker;
pub(crate) use crate::sched::life::cancel::GivingUp;
pub(crate) use crate::sched::waiter::Waiter;
pub(crate) use both::Both;
pub(crate) use future::FutureWait;
pub(crate) use published::{wait_for_end, wait_for_event, wait_for_fork, wait_for_wake};
pub(crate) use record::{AllClaimed, Claimed, Entry, HeldLocks, Wait, WaitQueue, Wake, idle_entry};
pub(crate) use wakers::{WakeAll, Wakers};

use crate::current::InRuntime;
use crate::sampler::waits;
use crate::sched::life::cancel::{self, Shield, Why};
use crate::sched::life::park;
use crate::sys::lock::Guard;
use crate::sys::registers::here;
use heist_core::timer_heap::NEVER;

/// How a wait ended. A waker reports one of the first three.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Ended {
    /// The waiter got what it waited for.
    Done,
    /// The waiter can never get it.
    Closed,
    /// Something has changed: the waiter should check again.
    Changed,
    /// The deadline came first.
    TimedOut,
    /// A canceller came first: the goroutine withdraws what it announced, then unwinds.
    Cancelled,
}

impl Ended {
    /// Whether the wait ended without a waker.
    #[inline]
    pub(crate) const fn gave_up(self) -> bool {
        matches!(self, Self::TimedOut | Self::Cancelled)
    }
}

/// The terms of a wait: its reason, as reports name it, and its deadline.
#[derive(Clone, Copy)]
pub(crate) struct Terms {
    reason: WaitReason,
    /// In the time of `sys::clock`; `NEVER` means no deadline.
    deadline_ns: u64,
    /// The caller cannot be unwound here: cancellation does not end the wait.
    shielded: bool,
}

impl Terms {
    /// No deadline.
    #[inline]
    pub(crate) const fn new(reason: WaitReason) -> Self {
        Self { reason, deadline_ns: NEVER, shielded: false }
    }

    /// Adds a deadline.
    #[inline]
    pub(crate) const fn until(self, deadline_ns: u64) -> Self {
        Self { deadline_ns, ..self }
    }

    /// Adds a deadline, if there is one.
    pub(crate) const fn until_some(self, deadline_ns: Option<u64>) -> Self {
        match deadline_ns {
            Some(deadline_ns) => self.until(deadline_ns),
            None => self,
        }
    }

    /// Makes the wait one that cancellation does not end.
    pub(crate) const fn shielded(self) -> Self {
        Self { shielded: true, ..self }
    }

    /// Shields the goroutine from cancellation, if the terms demand it, for as long as it is
    /// parked.
    #[inline(always)]
    fn shield(self, rt: &InRuntime) -> Option<Shield<'static>> {
        if self.shielded { Some(Shield::raise(rt.goroutine())) } else { None }
    }

    /// Enters the runtime for a wait with these terms.
    #[inline(always)]
    pub(crate) fn enter(self) -> Option<InRuntime> {
        let rt = crate::current::enter();
        if self.shielded { rt } else { park_point(rt) }
    }
}

/// Lets chaos mode disturb a caller that may wait, and unwinds it if it was cancelled.
#[inline]
pub(crate) fn park_point(rt: Option<InRuntime>) -> Option<InRuntime> {
    rt.map(|rt| cancel::check(park::chaos_point(rt)))
}

/// Waits until a waker ends the wait, the deadline comes or, unless it is shielded, the goroutine
/// is cancelled. `push` queues the entry, with `place` for the result, under the lock of `guard`.
/// The lock is released while the caller waits, and is not held afterwards. If the waiter gives up
/// and no waker has removed the entry, `leave` removes it and corrects the counts of the object.
#[inline(always)]
pub(crate) fn sleep_in<T>(
    rt: Option<InRuntime>,
    guard: Guard<'_, T>,
    terms: Terms,
    place: *mut (),
    push: impl FnOnce(&mut T, &Entry),
    leave: impl FnOnce(&mut T, &Entry),
) -> (Option<InRuntime>, Ended) {
    queue_and_park(rt, guard, terms, place, push, leave, |rt| rt)
}

/// As [`sleep_in`], and unwinds if the goroutine was cancelled.
#[inline(always)]
pub(crate) fn wait_in<T>(
    rt: Option<InRuntime>,
    guard: Guard<'_, T>,
    terms: Terms,
    place: *mut (),
    push: impl FnOnce(&mut T, &Entry),
    leave: impl FnOnce(&mut T, &Entry),
) -> (Option<InRuntime>, Ended) {
    queue_and_park(rt, guard, terms, place, push, leave, |rt| unwind(rt))
}

/// Inlined, as is all code between a switch and the user's code; see `park_until`.
#[inline(always)]
fn queue_and_park<T>(
    rt: Option<InRuntime>,
    mut guard: Guard<'_, T>,
    terms: Terms,
    place: *mut (),
    push: impl FnOnce(&mut T, &Entry),
    leave: impl FnOnce(&mut T, &Entry),
    cancelled: impl FnOnce(Option<InRuntime>) -> Option<InRuntime>,
) -> (Option<InRuntime>, Ended) {
    let wait = Wait::new(rt.as_ref());
    let entry = Entry::new(&raw const wait, place);
    push(&mut guard, &entry);
    let lock = guard.into_lock();
    // SAFETY: this thread holds the lock and forgot the guard. The guard's lifetime keeps the lock
    // alive until this call returns.
    let (rt, gave_up) = unsafe { wait.park(rt, terms, lock) };
    let Some(ended) = gave_up else { return (rt, wait.ended()) };
    let mut data = lock.lock();
    if entry.is_listed() {
        leave(&mut data, &entry);
    }
    if entry.is_listed() {
        heist_core::throw!("wait::sleep_in: an entry outlives its wait");
    }
    drop(data);
    (if ended == Ended::Cancelled { cancelled(rt) } else { rt }, ended)
}

/// Waits in no queue: until the deadline, or forever if there is none. A cancelled goroutine
/// unwinds.
pub(crate) fn wait_alone(rt: Option<InRuntime>, terms: Terms) {
    let wait = Wait::new(rt.as_ref());
    // SAFETY: there is no lock to release, and no other thread knows of the wait.
    let (rt, ended) = unsafe { wait.sleep(rt, terms, &()) };
    match ended {
        Ended::TimedOut => drop(rt),
        Ended::Cancelled => unwind(rt),
        _ => heist_core::throw!("wait::wait_alone: woken by a waker"),
    }
}

/// Leaves the runtime and unwinds the goroutine, whose wait was cancelled.
#[cold]
#[inline(never)]
pub(crate) fn unwind(rt: Option<InRuntime>) -> ! {
    drop(rt);
    cancel::unwind(Why::Cancelled)
}

/// Leaves the runtime while the caller holds something. A goroutine whose stack overflowed inside
/// the runtime unwinds here; then `give_back` is called.
pub(crate) fn leave_holding(rt: Option<InRuntime>, give_back: impl FnMut()) {
    struct Held<F: FnMut()>(F);
    impl<F: FnMut()> Drop for Held<F> {
        fn drop(&mut self) {
            (self.0)();
        }
    }
    let held = Held(give_back);
    drop(rt);
    std::mem::forget(held);
}

/// Whether the caller is a goroutine that was cancelled and can be unwound.
pub(crate) fn is_cancelled(rt: Option<&InRuntime>) -> bool {
    let goroutine = rt.map(InRuntime::goroutine);
    goroutine.is_some_and(|gp| cancel::forbids_waiting(gp) && !cancel::is_spared(gp))
}

/// Whether the caller was cancelled and is not unwound, because it is running destructors at its
/// end or is shielded.
pub(crate) fn is_cancelled_but_spared(rt: &InRuntime) -> bool {
    rt.goroutine().is_cancelled() && cancel::is_spared(rt.goroutine())
}

/// Whether releases of contended mutexes are profiled.
#[inline]
pub(crate) fn mutex_profile_is_on() -> bool {
    waits::mutex_fraction() != 0
}

/// The caller releases a mutex for which `n` others have waited `waited_ns` in total since the last
/// release.
#[cold]
#[inline(never)]
pub(crate) fn mutex_released(rt: &InRuntime, n: u64, waited_ns: u64) {
    waits::mutex_released(rt, here(), n, waited_ns);
}

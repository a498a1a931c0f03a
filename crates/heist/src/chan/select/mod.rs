//! Waiting for the first of several operations that can be done.
//!
//! # Steps
//! 1. Every case is tried once without waiting, in a fresh random order (or in order, if biased).
//!    The first that can be done is done. The macros do this with the channels alone, before they
//!    make cases.
//! 2. If there is a default and no case could be done, the default is taken, provided that there
//!    was a moment at which really none could be done: a case may have become ready after it was
//!    tried. Each channel has a stamp that changes when it may have become ready. The stamps are
//!    read before the tries and compared after them. If none has changed, no case was ready at the
//!    moment between the two. The same check is made when the time of a default is over.
//! 3. Otherwise the locks of all channels are taken, in the order of their addresses, each once. If
//!    an operation has become possible meanwhile, the select starts again at step 1. An entry is
//!    put into every queue, again in a random order: of two cases of one channel, the first in the
//!    queue is chosen. The goroutine parks; its commit function releases the locks.
//! 4. The thread that claims the wait does the operation of that entry. The woken goroutine removes
//!    the other entries, one lock after the other.
//!
//! A select cannot send to itself: it is in no queue while it tries, and does not try while it is
//! in a queue.
//!
//! # Why the commit function may use the stack
//! Between the release of the first lock and that of the last, the goroutine may have been claimed
//! and be running elsewhere. It cannot leave the frame with the list of locks, though: it takes
//! each lock again to remove its entry, except the lock of the claimed entry, which was released
//! before the claim. The commit function does not read the list after it has released the last
//! lock.
//!
//! GO: select.go selectgo, sellock, selparkcommit, selectnbrecv.

mod attempt;
pub(super) mod case;
pub(super) mod dynamic;
mod expansion;
mod later;
pub(super) mod macros;

use super::never;
use super::queues::{Interest, Queues, Watchers};
use super::state::Patience;
use crate::current::{self, InRuntime};
use crate::sys::clock;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Entry, HeldLocks, Terms, Wait, WaitReason};
use heist_core::rng::Rng;
use heist_core::timer_heap::NEVER;
use std::ptr::null;
use std::sync::atomic::{AtomicU64, Ordering};

/// One of the operations of a select.
pub(super) trait Case {
    /// Does the operation if it can be done now. True if it was done, or failed for good; otherwise
    /// false, and the caller is still in the runtime.
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool;

    /// Whether it could be done now, or would fail for good.
    fn is_ready(&self) -> bool;

    /// Changes when the case may have become ready.
    fn stamp(&self) -> u64;

    /// The lock of its channel; None if it is never ready.
    fn lock(&self) -> Option<&Lock<Queues>>;

    /// Whether an operation of the other side waits, or this one fails for good. The caller holds
    /// the lock.
    fn is_met(&self, queues: &Queues, interest: Interest) -> bool;

    /// Queues the entry. False if the operation can be done. The caller holds the lock.
    ///
    /// # Safety
    /// The wait and the case are not moved until the entry is removed.
    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, interest: Interest) -> bool;

    /// Claims the watchers of the other side: the entry is queued. The caller holds the lock.
    fn claim_watchers(&self, queues: &mut Queues) -> Watchers;

    /// Removes the entry if it is queued. The caller holds the lock.
    fn delist(&self, queues: &mut Queues, interest: Interest);

    /// The latest time at which to try again. The caller holds the lock.
    fn deadline_ns(&self) -> u64;

    /// The entry.
    fn entry(&self) -> *const Entry;

    /// Completes the operation after the wait was claimed at this entry. False if the operation
    /// must be tried again.
    fn complete(&mut self, ended: Ended) -> bool;

    /// Drops a result that was not taken.
    fn forget(&mut self);
}

/// A case of any type, in the form that the select uses.
pub struct Handle<'a>(&'a mut dyn Case, Interest);

impl Handle<'_> {
    #[inline]
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool {
        match self.1 {
            Interest::Do => self.0.attempt(rt),
            Interest::Know => {
                // Checking for readiness enters the runtime by itself.
                drop(rt.take());
                let ready = self.0.is_ready();
                *rt = current::enter();
                ready
            }
        }
    }
}

/// Whether the first ready case is chosen, or any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Preference {
    Any,
    First,
}

/// Up to this many cases, nothing is allocated.
const SMALL: usize = 8;

/// Go's limit.
const MAX_CASES: usize = 1 << 16;

/// The order in which cases are written.
const IN_ORDER: [u16; SMALL] = [0, 1, 2, 3, 4, 5, 6, 7];

/// Does one of the operations and returns its index. None if the time is over before one can be
/// done.
fn select(cases: &mut [Handle<'_>], preference: Preference, patience: Patience) -> Option<usize> {
    let n = cases.len();
    with_order(n, |order| {
        try_all(order, preference, |case, rt| cases[case].attempt(rt))
            .or_else(|| select_slow(order, cases, preference, patience))
    })
}

/// As [`select`], for cases that have been tried once.
#[cold]
#[inline(never)]
fn select_tried(
    cases: &mut [Handle<'_>],
    preference: Preference,
    patience: Patience,
) -> Option<usize> {
    with_order(cases.len(), |order| select_slow(order, cases, preference, patience))
}

/// Calls `use_it` with the numbers of `n` cases, in the order in which they are written.
fn with_order<R>(n: usize, use_it: impl FnOnce(&mut [u16]) -> R) -> R {
    if n <= SMALL {
        return use_it(&mut { IN_ORDER }[..n]);
    }
    assert!(n <= MAX_CASES, "select: more than 65536 cases; use several selects");
    use_it(&mut (0..=u16::MAX).take(n).collect::<Vec<_>>())
}

/// The rest of a select whose first attempt did no operation.
fn select_slow(
    order: &mut [u16],
    cases: &mut [Handle<'_>],
    preference: Preference,
    patience: Patience,
) -> Option<usize> {
    let Patience::Until(deadline_ns) = patience else {
        return try_at_one_moment(order, cases, preference);
    };
    loop {
        if deadline_ns != NEVER && deadline_ns <= clock::now_ns() {
            return try_at_one_moment(order, cases, preference);
        }
        if cases.is_empty() {
            never::wait(WaitReason::SelectNoCases, patience);
        } else if let Some(done) = wait(order, cases, preference, deadline_ns) {
            return Some(done);
        }
        if let Some(done) = try_all(order, preference, |case, rt| cases[case].attempt(rt)) {
            return Some(done);
        }
    }
}

/// Tries all cases until one is done, or there was a moment at which none could be done.
fn try_at_one_moment(
    order: &mut [u16],
    cases: &mut [Handle<'_>],
    preference: Preference,
) -> Option<usize> {
    if cases.len() < 2 {
        // A single case was not ready at the moment at which it was tried.
        return None;
    }
    let mut small = [0; SMALL];
    let mut large = Vec::new();
    let stamps = if cases.len() <= SMALL {
        &mut small[..cases.len()]
    } else {
        large.resize(cases.len(), 0);
        &mut large[..]
    };
    loop {
        for (stamp, case) in stamps.iter_mut().zip(&*cases) {
            *stamp = case.0.stamp();
        }
        if let Some(done) = try_all(order, preference, |case, rt| cases[case].attempt(rt)) {
            return Some(done);
        }
        if stamps.iter().zip(&*cases).all(|(stamp, case)| case.0.stamp() == *stamp) {
            return None;
        }
    }
}

/// Tries one case after the other. Each is drawn when it is needed, because mostly the first is
/// ready.
#[inline]
fn try_all(
    order: &mut [u16],
    preference: Preference,
    mut attempt: impl FnMut(usize, &mut Option<InRuntime>) -> bool,
) -> Option<usize> {
    let mut rt = current::enter();
    for next in 0..order.len() {
        let left = order.len() - next;
        if preference == Preference::Any && left > 1 {
            order.swap(next, next + draw_below(rt.as_ref(), left as u32));
        }
        let case = usize::from(order[next]);
        if attempt(case, &mut rt) {
            return Some(case);
        }
    }
    None
}

#[inline]
fn draw_below(rt: Option<&InRuntime>, bound: u32) -> usize {
    let drawn = match rt {
        // SAFETY: it is the M of this thread, and drawing calls no other code.
        Some(rt) => unsafe { rt.m().draw(|rng| rng.below(bound)) },
        None => draw_on_thread(bound),
    };
    drawn as usize
}

/// Random numbers for a thread that has no P.
#[cold]
fn draw_on_thread(bound: u32) -> u32 {
    static SEED: AtomicU64 = AtomicU64::new(0);
    Rng::new(SEED.fetch_add(1, Ordering::Relaxed)).below(bound)
}

/// Shuffles the cases, unless the first is preferred.
fn shuffle(order: &mut [u16], preference: Preference, rt: Option<&InRuntime>) {
    if preference == Preference::Any {
        for next in 0..order.len().saturating_sub(1) {
            order.swap(next, next + draw_below(rt, (order.len() - next) as u32));
        }
    }
}

/// Waits until one of the operations is done, and returns its index, or until they should be tried
/// again.
fn wait(
    order: &mut [u16],
    cases: &mut [Handle<'_>],
    preference: Preference,
    deadline_ns: u64,
) -> Option<usize> {
    let mut small = [null(); SMALL];
    let mut large = Vec::new();
    let locks = if cases.len() <= SMALL {
        &mut small[..]
    } else {
        large.resize(cases.len(), null());
        &mut large[..]
    };
    let locks = Locks::of(cases, locks);
    let rt = wait::park_point(current::enter());
    shuffle(order, preference, rt.as_ref());
    let wait = Wait::new(rt.as_ref());
    locks.take();
    // Before the cases are queued: one of them may be a watcher, which must not be woken by another
    // case of the same select. The watchers check when they get the lock, and by then the entries
    // are queued.
    let mut later = Watchers::NONE;
    for (case, interest, queues) in queued(order, cases) {
        if interest == Interest::Do {
            // SAFETY: the locks are held, and there is one reference at a time.
            let watchers = case.claim_watchers(unsafe { &mut *queues });
            // On a plain thread, the waker of a future may do anything: not under the locks.
            if rt.is_some() { watchers.wake(rt.as_ref()) } else { later.add(watchers) }
        }
    }
    // SAFETY: the wait and the cases stay here until every entry is removed.
    let enlisted = unsafe { enlist_all(order, cases, &raw const wait, deadline_ns) };
    let Some(deadline_ns) = enlisted else {
        // SAFETY: this thread has just taken the locks.
        unsafe { HeldLocks::release(&raw const locks) };
        later.wake(rt.as_ref());
        return None;
    };
    let terms = Terms::new(WaitReason::Select).until(deadline_ns);
    let (rt, ended) = if rt.is_none() {
        // SAFETY: this thread has just taken the locks.
        unsafe { HeldLocks::release(&raw const locks) };
        later.wake(None);
        // SAFETY: the wait is this thread's, and there is no lock to release.
        unsafe { wait.sleep(rt, terms, &()) }
    } else {
        // SAFETY: this thread holds the locks; see "Why the commit function may use the stack".
        unsafe { wait.sleep(rt, terms, &locks) }
    };
    // Null if the wait was not claimed at an entry.
    let fired = wait.fired();
    for Handle(case, interest) in cases.iter().filter(|case| case.0.entry() != fired) {
        if let Some(lock) = case.lock() {
            case.delist(&mut lock.lock(), *interest);
        }
    }
    let done = cases.iter().position(|case| case.0.entry() == fired);
    // Before the runtime is left, which may unwind: the message has been moved.
    let done = done.filter(|&done| match cases[done].1 {
        Interest::Do => cases[done].0.complete(ended),
        Interest::Know => ended != Ended::Changed,
    });
    if ended == Ended::Cancelled {
        wait::unwind(rt);
    }
    done
}

/// The cases that have a channel, in `order`, each with the data that the lock of its channel
/// protects.
fn queued<'a>(
    order: &'a [u16],
    cases: &'a [Handle<'_>],
) -> impl Iterator<Item = (&'a dyn Case, Interest, *mut Queues)> {
    order.iter().filter_map(|&case| {
        let Handle(case, interest) = &cases[usize::from(case)];
        Some((&**case as &dyn Case, *interest, case.lock()?.data_ptr()))
    })
}

/// Queues every case, and returns the time until which to wait. Returns None, with no case queued,
/// if one can be done. The caller holds all locks. Of two cases of one channel, the first that is
/// queued is chosen, hence `order`.
///
/// # Safety
/// The wait and the cases are not moved until the entries are removed.
unsafe fn enlist_all(
    order: &[u16],
    cases: &[Handle<'_>],
    wait: *const Wait,
    mut deadline_ns: u64,
) -> Option<u64> {
    let cases = || queued(order, cases);
    // SAFETY: the locks are held, so no other thread uses the data that they protect; here and
    // below there is one reference at a time.
    if cases().any(|(case, interest, queues)| case.is_met(unsafe { &*queues }, interest)) {
        return None;
    }
    for (n, (case, interest, queues)) in cases().enumerate() {
        // SAFETY: as above; the rest is the caller's promise.
        if !unsafe { case.enlist(&mut *queues, wait, interest) } {
            for (case, interest, queues) in cases().take(n) {
                // SAFETY: as above.
                case.delist(unsafe { &mut *queues }, interest);
            }
            return None;
        }
        deadline_ns = deadline_ns.min(case.deadline_ns());
    }
    Some(deadline_ns)
}

/// The locks of all channels of a select, in the order of their addresses, each once. The search
/// for leaks reads it (`leaks::waits`).
#[repr(C)]
struct Locks {
    first: *const *const Lock<Queues>,
    n: usize,
}

impl Locks {
    fn of(cases: &[Handle<'_>], into: &mut [*const Lock<Queues>]) -> Self {
        let mut n = 0;
        for lock in cases.iter().filter_map(|case| case.0.lock()) {
            let lock = std::ptr::from_ref(lock);
            match into[..n].binary_search(&lock) {
                Ok(_) => {}
                Err(place) => {
                    into.copy_within(place..n, place + 1);
                    into[place] = lock;
                    n += 1;
                }
            }
        }
        Self { first: into.as_ptr(), n }
    }

    fn take(&self) {
        for i in 0..self.n {
            // SAFETY: the list outlives this, and the channels outlive the select.
            let lock = unsafe { &**self.first.add(i) };
            if i == 0 {
                std::mem::forget(lock.lock());
            } else {
                lock.lock_another();
            }
        }
    }
}

// SAFETY: nothing of the list is used after the last lock is released.
unsafe impl HeldLocks for Locks {
    unsafe fn release(this: *const Self) {
        // SAFETY: the list is there until the last lock is released.
        let Self { first, n } = unsafe { &*this };
        let (first, n) = (*first, *n);
        for i in 0..n {
            // SAFETY: as in `take`, until the last one is released.
            let lock = unsafe { &**first.add(i) };
            if i == 0 {
                // SAFETY: by the caller's promise; its guard was forgotten.
                unsafe { lock.unlock_forgotten() };
            } else {
                // SAFETY: by the caller's promise.
                unsafe { lock.unlock_another() };
            }
        }
    }
}

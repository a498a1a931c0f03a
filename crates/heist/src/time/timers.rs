//! The timers of a P.
//!
//! There is one kind of timer: wake this goroutine from a wait until this time. An entry is the
//! time and the goroutine. The goroutine's record holds the time too, from before a wait begins
//! until it is over. When an entry is due and the goroutine waits until exactly that time, the
//! entry claims it like any other waker; if not, another waker was faster, and the entry does
//! nothing. Records of goroutines are never unmapped, so an entry may outlive its wait, and need
//! not be removed. It may then find a later wait until the same time. That wait is due as well, if
//! it is of the same runtime. But a record may belong to another runtime by then, whose goroutines
//! this runtime must not touch, so the check includes the runtime. The claim holds only if the wait
//! did not end since the check (`StatusWord::claim_if`).
//!
//! The scheduler adds the entry after the goroutine began to wait. If it were added earlier, a
//! timer that is due at once would find that the goroutine does not wait, and be lost.
//!
//! # Ordering
//! The heap is under its lock. `earliest` is stored before the lock is released and read without
//! it: by the P's holder, which added the timers or took the P over from the M that did, and by
//! other Ms through the fences of the way to sleep (docs/design/timers.md).
//!
//! GO: time.go timers.add, check, run.

use crate::gmp::G;
use crate::gmp::g::Woken;
use crate::sched::Sched;
use crate::sys::lock::Lock;
use crate::sys::memory::Pages;
use heist_core::list::List;
use heist_core::lock_rank::Rank;
use heist_core::policy::timers::Sleep;
use heist_core::sync::{AtomicU64, Ordering};
use heist_core::timer_heap::{Entry, NEVER, Siblings, TimerHeap};
use std::ptr::NonNull;

/// The goroutine that a timer wakes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sleeper(NonNull<G>);

impl Sleeper {
    fn g(&self) -> &G {
        // SAFETY: records are never unmapped.
        unsafe { self.0.as_ref() }
    }

    /// Whether the goroutine, if it waits, waits in this runtime until `when`.
    fn is_meant(&self, when: u64, home: *const Sched) -> bool {
        let g = self.g();
        g.due() == when && std::ptr::eq(g.sched.get(), home)
    }

    /// Claims the goroutine, if no other waker was faster, and appends it to `woken`.
    fn wake(&self, when: u64, home: *const Sched, woken: &mut List<G>) {
        let g = self.g();
        if g.status.claim_if(|| self.is_meant(when, home)) {
            g.woken.set(Woken::TimedOut);
            g.prefetch_stack();
            // SAFETY: just claimed, so it is in no queue.
            unsafe { woken.push_back(self.0) };
        }
    }
}

/// Whether the wait of an entry is over. An entry is made after the commit of its wait, so a wait
/// that has not begun is not taken for one that is over.
fn is_stale(entry: &Entry<Sleeper>, home: *const Sched) -> bool {
    entry.what.g().status.waiting().is_none() || !entry.what.is_meant(entry.when, home)
}

// SAFETY: a sleeper is an address; the goroutine is used only after a claim.
unsafe impl Send for Sleeper {}

/// This many are taken out of the heap before the first of them is claimed. Their records and
/// stacks have not been touched while they slept, so they are prefetched together, not one after
/// another.
const DUE_AT_ONCE: usize = 16;

type Heap = TimerHeap<Sleeper, Pages<Siblings<Sleeper>>>;

// Four entries are a cache line.
const _: () = assert!(size_of::<Siblings<Sleeper>>() == 64);

/// The timers of one P.
pub(crate) struct Timers {
    heap: Lock<Heap, AtomicU64>,
    /// The latest end of the short sleeps, and of the tiny ones, whose timers are here.
    short_until: AtomicU64,
    tiny_until: AtomicU64,
}

impl Timers {
    pub(crate) fn new() -> Self {
        let heap = TimerHeap::new(Pages::new());
        Self {
            heap: Lock::with_beside(Rank::Timers, heap, AtomicU64::new(NEVER)),
            short_until: AtomicU64::new(0),
            tiny_until: AtomicU64::new(0),
        }
    }

    /// When the first one is due; it may be of a wait that is over.
    #[inline]
    pub(crate) fn earliest(&self) -> u64 {
        self.heap.beside().load(Ordering::Relaxed)
    }

    /// The latest end of the short sleeps whose timers are here. A hint.
    pub(crate) fn short_until(&self) -> u64 {
        self.short_until.load(Ordering::Relaxed)
    }

    /// The latest end of the tiny sleeps whose timers are here. A hint.
    #[inline]
    pub(crate) fn tiny_until(&self) -> u64 {
        self.tiny_until.load(Ordering::Relaxed)
    }

    /// Notes that a goroutine begins to sleep until `when`. Only the holder of the P calls this.
    pub(crate) fn expect(&self, sleep: Sleep, when: u64) {
        let later = |than: &AtomicU64| {
            than.store(when.max(than.load(Ordering::Relaxed)), Ordering::Relaxed);
        };
        if sleep <= Sleep::Short {
            later(&self.short_until);
        }
        if sleep == Sleep::Tiny {
            later(&self.tiny_until);
        }
    }

    /// The number of entries, including those of waits that are over.
    pub(crate) fn len(&self) -> usize {
        self.heap.lock().len()
    }

    /// Adds a timer for a goroutine that began to wait until `when`. False if there is no memory.
    #[must_use]
    pub(crate) fn add(&self, when: u64, gp: NonNull<G>, home: *const Sched) -> bool {
        let mut heap = self.heap.lock();
        if heap.wants_cleaning() {
            heap.clean(|entry| is_stale(entry, home));
        }
        let added = heap.push(Entry { when, what: Sleeper(gp) });
        self.publish(&heap);
        added
    }

    /// Takes over all timers of another P, which is being removed. False if there is no memory for
    /// them.
    #[must_use]
    pub(crate) fn take_over(&self, other: &Self) -> bool {
        // One lock after the other: two locks of the same rank are never held together.
        let mut taken = {
            let mut heap = other.heap.lock();
            let taken = std::mem::replace(&mut *heap, TimerHeap::new(Pages::new()));
            other.publish(&heap);
            taken
        };
        let mut heap = self.heap.lock();
        let all = heap.append(&mut taken);
        self.publish(&heap);
        all
    }

    /// Claims the goroutines whose time has come and appends them to `woken`. They are runnable and
    /// in no queue; the caller must queue them.
    pub(crate) fn run_due(&self, now: u64, home: *const Sched, woken: &mut List<G>) {
        if self.earliest() > now {
            return;
        }
        let mut heap = self.heap.lock();
        let mut due = [None; DUE_AT_ONCE];
        loop {
            let mut n = 0;
            while n < DUE_AT_ONCE
                && let Some(entry) = heap.pop_due(now)
            {
                G::prefetch(entry.what.0.as_ptr(), 2);
                due[n] = Some(entry);
                n += 1;
            }
            for entry in due[..n].iter().flatten() {
                entry.what.wake(entry.when, home, woken);
            }
            if n < DUE_AT_ONCE {
                break;
            }
        }
        self.publish(&heap);
    }

    /// When the first timer of a wait that is not over is due.
    pub(crate) fn earliest_live(&self, home: *const Sched) -> u64 {
        if self.earliest() == NEVER {
            return NEVER;
        }
        let mut heap = self.heap.lock();
        let earliest = heap.earliest_live(|entry| is_stale(entry, home));
        self.publish(&heap);
        earliest
    }

    fn publish(&self, heap: &Heap) {
        self.heap.beside().store(heap.earliest(), Ordering::Relaxed);
    }
}

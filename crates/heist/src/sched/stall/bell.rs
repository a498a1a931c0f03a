//! `Bell`: how others reach sysmon when it sleeps.

use super::sysmon;
use crate::gmp::P;
use crate::sched::Sched;
use crate::sys::clock;
use crate::sys::futex::Kernel;
use heist_core::note::Futex;
use heist_core::policy::SYSMON_NAP_WANTED_NS;
use heist_core::policy::sysmon::Demand;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// How others reach sysmon when it sleeps.
pub(crate) struct Bell {
    /// It sleeps for good.
    asleep: AtomicU32,
    /// It naps; set to end the nap.
    nap: AtomicU32,
    /// Until when it naps.
    until_ns: AtomicU64,
    /// Whether it naps because every P rests.
    at_rest: AtomicU32,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            asleep: AtomicU32::new(0),
            nap: AtomicU32::new(0),
            until_ns: AtomicU64::new(0),
            at_rest: AtomicU32::new(0),
        }
    }

    /// Something will have to be looked at at this moment.
    #[cold]
    pub(crate) fn ring_before(&self, when_ns: u64) {
        self.ring();
        // ORDERING: the caller has fenced after it wrote what is to be seen; `nap` publishes, fences
        // and looks.
        if self.until_ns.load(Ordering::SeqCst) > when_ns {
            self.until_ns.store(0, Ordering::Relaxed);
            // ORDERING: SeqCst pairs with `nap`: a nap that begins after this does not begin.
            self.nap.store(1, Ordering::SeqCst);
            Kernel.wake(&self.nap);
        }
    }

    /// Whether it naps because every P rested. Exact for who holds a P.
    #[inline]
    pub(crate) fn is_at_rest(&self) -> bool {
        // ORDERING: Relaxed: `nap` writes it, fences and looks whether all Ps rest; the caller's P was
        // taken from those by a read-modify-write before this.
        self.at_rest.load(Ordering::Relaxed) != 0
    }

    /// Naps until `until_ns` or what `earlier` answers after that was published.
    pub(super) fn nap(&self, until_ns: u64, at_rest: bool, earlier: impl FnOnce() -> u64) {
        self.at_rest.store(at_rest.into(), Ordering::Relaxed);
        // ORDERING: see `ring_before`.
        self.nap.store(0, Ordering::SeqCst);
        self.until_ns.store(until_ns, Ordering::SeqCst);
        heist_core::sync::fence(Ordering::SeqCst);
        let until_ns = until_ns.min(earlier());
        // Whoever rings for a later moment need not. Who has read the old value rings in vain.
        self.until_ns.store(until_ns, Ordering::Relaxed);
        let left = until_ns.saturating_sub(clock::now_ns());
        if left != 0 {
            Kernel.wait(&self.nap, 0, Some(Duration::from_nanos(left)));
        }
        self.until_ns.store(0, Ordering::Relaxed);
        self.at_rest.store(0, Ordering::Relaxed);
    }

    /// A P is no longer at rest: somebody must watch it.
    #[inline]
    pub(crate) fn ring(&self) {
        // ORDERING: SeqCst pairs with `sleep`: it says so before it counts the Ps at rest.
        if self.asleep.load(Ordering::SeqCst) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            Kernel.wake(&self.asleep);
        }
    }

    /// Sleeps until rung, unless `still` answers false.
    pub(super) fn sleep(&self, still: impl FnOnce() -> bool) {
        // ORDERING: see `ring`.
        self.asleep.store(1, Ordering::SeqCst);
        if still() {
            // ORDERING: Acquire pairs with `ring`.
            while self.asleep.load(Ordering::Acquire) != 0 {
                Kernel.wait(&self.asleep, 1, None);
            }
        } else {
            self.asleep.store(0, Ordering::Relaxed);
        }
    }
}

/// A goroutine runs, or goes on, where a known hog was to be followed by another: sysmon, which
/// relied on that, is to look soon.
pub(super) fn expect_no_hog(sched: &Sched) {
    // ORDERING: as everybody's who rings.
    heist_core::sync::fence(Ordering::SeqCst);
    sched.stall.bell.ring_before(clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS));
}

/// The goroutine on `pp` begins a blocking call. If sysmon takes its rest with the program, and
/// would not see the call for long, it is woken: at most once for each time that all Ps rested.
pub(super) fn watch_call(sched: &Sched, pp: &P) {
    if sched.stall.bell.is_at_rest() {
        let Demand { here, others_free, .. } = sysmon::demand_for(sched, pp);
        if here || !others_free {
            sched.stall.bell.ring_before(0);
        }
    }
}

/// A goroutine came back from a blocking call and found no P. Those who have one may well block in
/// their turn, and nobody announces that: sysmon is to look, at once if it takes its rest with the
/// program, else soon.
pub(super) fn watch_crowd(sched: &Sched) {
    // ORDERING: as everybody's who rings.
    heist_core::sync::fence(Ordering::SeqCst);
    let at_rest = sched.stall.bell.is_at_rest();
    let soon = clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS);
    sched.stall.bell.ring_before(if at_rest { 0 } else { soon });
}

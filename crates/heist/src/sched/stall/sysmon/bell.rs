//! `Bell`: how other threads wake sysmon.

use crate::gmp::P;
use crate::sched::Sched;
use crate::sys::clock;
use crate::sys::futex::Kernel;
use heist_core::note::Futex;
use heist_core::policy::SYSMON_NAP_WANTED_NS;
use heist_core::policy::sysmon::Demand;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use std::time::Duration;

/// Where sysmon naps and sleeps, and how other threads wake it.
pub(crate) struct Bell {
    /// 1 while sysmon sleeps without a timeout; cleared to wake it.
    asleep: AtomicU32,
    /// 0 while sysmon naps; set to 1 to end the nap.
    nap: AtomicU32,
    /// Until when sysmon naps; 0 if it does not.
    until_ns: AtomicU64,
    /// Whether sysmon naps because every P is idle.
    all_idle: AtomicU32,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self {
            asleep: AtomicU32::new(0),
            nap: AtomicU32::new(0),
            until_ns: AtomicU64::new(0),
            all_idle: AtomicU32::new(0),
        }
    }

    /// Wakes sysmon if it sleeps, or naps beyond `when_ns`: something has to be looked at then.
    #[cold]
    pub(crate) fn ring_before(&self, when_ns: u64) {
        self.ring();
        // ORDERING: SeqCst pairs with `nap`, which publishes the end of the nap, fences and looks.
        // The caller wrote what sysmon is to see and then fenced; for `watch_call` that is the
        // SeqCst read-modify-write by which its P was taken from the idle ones.
        if self.until_ns.load(Ordering::SeqCst) > when_ns {
            self.until_ns.store(0, Ordering::Relaxed);
            // ORDERING: SeqCst pairs with `nap`: if sysmon has published its nap and does not sleep
            // yet, it does not begin to.
            self.nap.store(1, Ordering::SeqCst);
            Kernel.wake(&self.nap);
        }
    }

    /// Whether sysmon naps because every P was idle. Exact if the caller holds a P.
    #[inline]
    pub(crate) fn naps_while_idle(&self) -> bool {
        // ORDERING: Relaxed: `nap` writes it, fences, and looks whether all Ps are idle; the
        // caller's P was taken from the idle ones by a read-modify-write before this.
        self.all_idle.load(Ordering::Relaxed) != 0
    }

    /// Naps until `until_ns`, or until the moment that `earlier` returns if that is sooner.
    /// `earlier` is called after `until_ns` was published.
    pub(super) fn nap(&self, until_ns: u64, all_idle: bool, earlier: impl FnOnce() -> u64) {
        self.all_idle.store(all_idle.into(), Ordering::Relaxed);
        // ORDERING: see `ring_before`.
        self.nap.store(0, Ordering::SeqCst);
        self.until_ns.store(until_ns, Ordering::SeqCst);
        heist_core::sync::fence(Ordering::SeqCst);
        let until_ns = until_ns.min(earlier());
        // A thread that wants sysmon to look later than this need not ring. One that has read the
        // old value rings in vain.
        self.until_ns.store(until_ns, Ordering::Relaxed);
        let left = until_ns.saturating_sub(clock::now_ns());
        if left != 0 {
            Kernel.wait(&self.nap, 0, Some(Duration::from_nanos(left)));
        }
        self.until_ns.store(0, Ordering::Relaxed);
        self.all_idle.store(0, Ordering::Relaxed);
    }

    /// Wakes sysmon if it sleeps: a P is no longer idle and must be watched.
    #[inline]
    pub(crate) fn ring(&self) {
        // ORDERING: SeqCst pairs with `sleep`, which sets `asleep` before it counts the idle Ps.
        if self.asleep.load(Ordering::SeqCst) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            Kernel.wake(&self.asleep);
        }
    }

    /// Sleeps until the bell rings, unless `still` returns false.
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

/// Makes sysmon look soon. It relied on a known hog being followed by another one, but another
/// goroutine runs there now, or the hog continues.
pub(in crate::sched::stall) fn expect_no_hog(sched: &Sched) {
    // ORDERING: see `ring_before`: what sysmon is to see was written before.
    heist_core::sync::fence(Ordering::SeqCst);
    sched.stall.bell.ring_before(clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS));
}

/// Wakes sysmon, if needed, when the goroutine on `pp` begins a blocking call. If sysmon naps
/// because all Ps were idle, it would not see the call for long. It is woken at most once for each
/// time that all Ps were idle.
pub(in crate::sched::stall) fn watch_call(sched: &Sched, pp: &P) {
    if sched.stall.bell.naps_while_idle() {
        let Demand { here, others_free, .. } = super::demand_for(sched, pp);
        if here || !others_free {
            sched.stall.bell.ring_before(0);
        }
    }
}

/// Makes sysmon look after a goroutine came back from a blocking call and found no P. The
/// goroutines that have one may well block in their turn, which is not announced. sysmon looks at
/// once if it naps because all Ps were idle, otherwise soon.
pub(in crate::sched::stall) fn watch_crowd(sched: &Sched) {
    // ORDERING: see `ring_before`: what sysmon is to see was written before.
    heist_core::sync::fence(Ordering::SeqCst);
    let all_idle = sched.stall.bell.naps_while_idle();
    let soon = clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS);
    sched.stall.bell.ring_before(if all_idle { 0 } else { soon });
}

//! How the CPU time that the program could have used was spent.
//!
//! A P that exists for a second is a second of CPU time, used or not. A P becomes idle and busy
//! under the scheduler lock, so the idle time is exact and nothing is counted while a P is in use.
//!
//! GO: mstats.go cpuStats.

use crate::current;
use crate::sched::Sched;
use crate::sys::clock;

/// CPU time by what it was used for, in nanoseconds, at one moment.
pub(super) struct CpuTime {
    /// All CPU time.
    pub(super) total_ns: u64,
    /// Idle Ps.
    pub(super) idle_ns: u64,
    /// Returning memory to the system, by a thread without a P.
    pub(super) scavenge_ns: u64,
}

impl CpuTime {
    pub(super) fn read(sched: &Sched) -> Self {
        let scavenge_ns = sched.stats.scavenge_ns.get();
        // The thread must not be preempted while it holds the lock.
        let _rt = current::enter();
        let locked = sched.lock.lock();
        let now = clock::now_ns();
        Self {
            total_ns: locked.proc_time.total_ns(now) + scavenge_ns,
            idle_ns: locked.idle_ps.rested_ns(now),
            scavenge_ns,
        }
    }

    /// The rest: goroutines, the search for them, and the scheduler.
    pub(super) const fn user_ns(&self) -> u64 {
        self.total_ns.saturating_sub(self.idle_ns + self.scavenge_ns)
    }
}

//! How long threads have waited for the runtime's own locks.
//!
//! The times are of all runtimes of the process, because runtimes share some of the locks. A short
//! wait, which ends while the thread still spins, is not counted: reading the clock would cost as
//! much as the wait.
//!
//! GO: lockMetrics, /sync/mutex/wait/total:seconds.

use crate::sys::lock;
use heist_core::lock_rank::Rank;

/// The waits by rank, in nanoseconds.
pub(super) struct LockWaits([u64; Rank::COUNT]);

impl LockWaits {
    pub(super) fn read() -> Self {
        Self(lock::waited_ns())
    }

    /// For locks of this rank.
    pub(super) const fn of(&self, rank: Rank) -> u64 {
        self.0[rank as usize]
    }

    /// For all of them.
    pub(super) fn total(&self) -> u64 {
        self.0.iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use std::sync::mpsc;
    use std::time::Duration;

    /// MT-12: a thread waits for the scheduler lock, which another thread holds. The wait is in the
    /// metric of this lock and in the total.
    #[test]
    fn waits_for_internal_locks_are_counted() {
        const HELD: Duration = Duration::from_millis(20);
        // SAFETY: there are no goroutines.
        let rt = unsafe { Runtime::builder().procs(1).build() }.expect("it starts");
        let read = |what: &str| {
            rt.metrics().get(&format!("/heist/locks/wait/{what}:nanoseconds")).expect("it is there")
        };
        let before = (read("sched"), read("total"));
        let (tell, wait) = mpsc::channel();
        std::thread::scope(|threads| {
            let sched = rt.sched();
            threads.spawn(move || {
                let locked = sched.lock.lock();
                let _ = tell.send(());
                while !sched.lock.is_contended() {
                    std::thread::yield_now();
                }
                // The waiting thread sleeps, or is about to.
                std::thread::sleep(HELD);
                drop(locked);
            });
            wait.recv().expect("it is locked");
            drop(rt.metrics());
        });
        let waited = (read("sched") - before.0, read("total") - before.1);
        assert!(waited.0 >= HELD.as_nanos() as u64, "{waited:?}");
        assert!(waited.1 >= waited.0, "{waited:?}");
    }
}

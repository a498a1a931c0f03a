//! How long threads have waited for the runtime's own locks.
//!
//! Of all runtimes of the process: several share some of the locks. A short wait, which ends while the
//! thread still spins, is not counted: to look at the clock would cost as much as the wait.
//!
//! GO: lockMetrics, /sync/mutex/wait/total:seconds.

use crate::sys::lock;
use heist_core::lock_rank::Rank;

const NAMES: [(Rank, &str); Rank::COUNT] = [
    (Rank::World, "/heist/locks/wait/world:nanoseconds"),
    (Rank::Sched, "/heist/locks/wait/sched:nanoseconds"),
    (Rank::Timers, "/heist/locks/wait/timers:nanoseconds"),
    (Rank::FreeGs, "/heist/locks/wait/free-gs:nanoseconds"),
    (Rank::Stacks, "/heist/locks/wait/stacks:nanoseconds"),
    (Rank::AllGs, "/heist/locks/wait/all-gs:nanoseconds"),
    (Rank::WaitQueue, "/heist/locks/wait/wait-queue:nanoseconds"),
    (Rank::Timer, "/heist/locks/wait/timer:nanoseconds"),
    (Rank::PollDesc, "/heist/locks/wait/poll-desc:nanoseconds"),
    (Rank::Yielded, "/heist/locks/wait/yielded:nanoseconds"),
    (Rank::Condvar, "/heist/locks/wait/condvar:nanoseconds"),
];

/// The name and the time of each kind of lock, and of all of them.
pub(super) fn read() -> impl Iterator<Item = (&'static str, u64)> {
    let each = NAMES.map(|(rank, name)| (name, lock::waited_ns(rank)));
    let total = each.iter().map(|(_, waited_ns)| waited_ns).sum();
    std::iter::once(("/heist/locks/wait/total:nanoseconds", total)).chain(each)
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use std::sync::mpsc;
    use std::time::Duration;

    /// MT-12: somebody waits for the scheduler lock, which another holds: the wait is in the metric of
    /// this lock and in the total.
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
                // The other thread sleeps, or is about to.
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

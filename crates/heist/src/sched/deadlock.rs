//! Finding out that nothing will ever happen again.
//!
//! Somebody waits in [`Runtime::run`](crate::Runtime::run) for a goroutine that can never run: every
//! goroutine is parked, no timer is due, nobody waits for the network, and there is no other thread
//! in the process that could wake one of them.
//!
//! sysmon asks when all Ps have rested for a while, before it goes to sleep for good. The threads
//! of the runtime are then all asleep, so nothing changes while it looks: whatever could change
//! something would be a thread that is not the runtime's, and one such thread is enough to be
//! silent. A false alarm would be worse than none.
//!
//! GO: proc.go checkdead.

use super::Sched;
use crate::gmp::described::Described;
use crate::gmp::{g, pool};
use crate::sys::{notify, stderr, thread};
use heist_core::policy;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;

/// Threads of a runtime that run no goroutines: sysmon and the helper.
const SYSTEM_THREADS: u32 = 2;

/// Most goroutines named in the report.
const REPORT_MAX: u32 = 1000;

impl Sched {
    /// Ends the process with a report if nothing can ever happen again.
    pub(crate) fn check_dead(&self) {
        if self.is_dead() {
            self.die();
        }
    }

    fn is_dead(&self) -> bool {
        // ORDERING: Acquire pairs with `Runner::new`: a goroutine that is alive because of it is
        // seen too.
        let runners = self.runners.load(Ordering::Acquire);
        if !self.config.deadlock_detection || runners == 0 || self.poll.has_waiters() {
            return false;
        }
        // Not those that are still being made: each would excuse a thread that is not ours.
        let n_ms = {
            let locked = self.lock.lock();
            locked.n_ms - locked.n_starting
        };
        let threads = thread::count();
        let ours = n_ms + SYSTEM_THREADS + runners + notify::idle_readers();
        if !policy::nobody_else(threads, ours) {
            return false;
        }
        if self.earliest_timer() != NEVER || self.idle.count_all() != self.procs() {
            return false;
        }
        let mut n_waiting = 0;
        let mut n_other = 0;
        pool::for_each(|gp| {
            if self.is_mine(gp) && !gp.has_flag(g::UNBORN) {
                if gp.status.get() == Status::Waiting {
                    n_waiting += 1;
                } else {
                    n_other += 1;
                }
            }
        });
        n_waiting != 0 && n_other == 0
    }

    fn die(&self) -> ! {
        stderr::report(format_args!("fatal error: all goroutines are asleep - deadlock!\n"));
        let mut n = 0;
        pool::for_each(|gp| {
            if self.is_mine(gp) && !gp.has_flag(g::UNBORN) {
                n += 1;
                if n <= REPORT_MAX {
                    stderr::report(format_args!("\n{}", Described::at(gp, self.minute_now())));
                }
            }
        });
        if n > REPORT_MAX {
            stderr::report(format_args!("\n...{} more goroutines\n", n - REPORT_MAX));
        }
        stderr::exit_now(2)
    }
}

/// A thread that waits in `Runtime::run`: it does nothing else until that returns.
pub(crate) struct Runner<'a>(&'a Sched);

impl<'a> Runner<'a> {
    pub(crate) fn new(sched: &'a Sched) -> Self {
        // ORDERING: Release: see `is_dead`. It is counted before its goroutine is.
        sched.runners.fetch_add(1, Ordering::Release);
        Self(sched)
    }
}

impl Drop for Runner<'_> {
    fn drop(&mut self) {
        self.0.runners.fetch_sub(1, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use crate::Runtime;
    use crate::sync::WaitGroup;
    use std::sync::Arc;

    /// DL-14: threads that are counted but not made yet do not stand for threads that are not the
    /// runtime's and could wake somebody, such as the one that runs this test.
    #[test]
    fn threads_being_made_excuse_nobody() {
        // SAFETY: the goroutine holds nothing.
        let rt = Arc::new(unsafe { Runtime::builder().procs(1).build() }.expect("it starts"));
        let gate = WaitGroup::new();
        gate.add(1);
        let waits = {
            let (rt, gate) = (Arc::clone(&rt), gate.clone());
            std::thread::spawn(move || rt.run(|| gate.wait()))
        };
        let sched = rt.sched();
        while sched.n_live() != 1 || sched.idle.count_all() != 1 {
            std::thread::yield_now();
        }
        let make = |n: i32| {
            let mut locked = sched.lock.lock();
            locked.n_ms = locked.n_ms.wrapping_add_signed(n);
            locked.n_starting = locked.n_starting.wrapping_add_signed(n);
        };
        for _ in 0..100 {
            make(1000);
            assert!(!sched.is_dead(), "this thread could wake it");
            make(-1000);
        }
        gate.done();
        waits.join().expect("it ends");
    }
}

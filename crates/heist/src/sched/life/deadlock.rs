//! Finding out that the program is deadlocked: nothing will ever happen again.
//!
//! A thread waits in [`Runtime::run`](crate::Runtime::run) for a goroutine that can never run:
//! every goroutine is parked, no timer is set, no goroutine waits for the network, and there is no
//! other thread in the process that could wake one of them.
//!
//! sysmon checks when all Ps have been idle for a while, before it goes to sleep indefinitely. Most
//! likely nothing changes during the check. But a goroutine may come back from a blocking call, or
//! the clock may wake one that sleeps. Such a goroutine may wake another one, which was already
//! seen waiting, and may itself wait by the time it is looked at. For that it needs a P. So the
//! check counts only if no P was taken meanwhile; otherwise sysmon checks again later. Nothing else
//! could change anything but a thread that is not the runtime's. If there is one such thread, no
//! deadlock is reported. A false alarm would be worse than none.
//!
//! GO: proc.go checkdead.

use super::shutdown;
use crate::gmp::described::Described;
use crate::gmp::flags::Flag;
use crate::gmp::pool;
use crate::sched::Sched;
use crate::sched::outside;
use crate::sys::{bystanders, notify, signal, stderr, thread};
use heist_core::policy;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;

/// Threads of a runtime that run no goroutines: sysmon and the helper.
const SYSTEM_THREADS: u32 = 2;

/// How long the report may take.
const REPORT_MAX_SECONDS: u32 = 20;
/// The largest number of goroutines that the report names.
const REPORT_MAX: u32 = 1000;

/// Ends the process with a report if nothing can ever happen again. Returns false if a P was in use
/// or was taken during the check, which then says nothing.
pub(crate) fn check_dead(sched: &Sched) -> bool {
    let Some(before) = n_taken_while_idle(sched) else { return false };
    let dead = is_dead(sched);
    if n_taken_while_idle(sched) != Some(before) {
        return false;
    }
    if dead {
        die(sched);
    }
    true
}

/// How often a P was taken, or None if one is not idle.
fn n_taken_while_idle(sched: &Sched) -> Option<u64> {
    let locked = sched.lock.lock();
    (sched.rest.idle().count_all() == sched.procs()).then(|| locked.idle_ps.n_taken())
}

/// Whether nothing can ever happen again, provided that no goroutine runs during the check.
fn is_dead(sched: &Sched) -> bool {
    if !sched.config.deadlock_detection || sched.outside.has_waiters() {
        return false;
    }
    // A bystander that begins or ends meanwhile does not count.
    let bystanders = bystanders::count();
    let threads_before = thread::count();
    // Threads that have not begun do not count: each would hide a thread that is not the runtime's.
    let n_ms = {
        let locked = sched.lock.lock();
        locked.roster.n_running()
    };
    if outside::earliest_timer(sched) != NEVER || sched.rest.idle().count_all() != sched.procs() {
        return false;
    }
    let mut n_waiting = 0;
    let mut n_other = 0;
    // A thread that awaits a goroutine sleeps as long as the goroutine waits. When the goroutine
    // has ended, the thread may not have run yet, but it will, and may do anything.
    let mut runners = sched.life.exit_waiters.load(Ordering::Relaxed);
    pool::for_each(|gp| {
        if sched.is_mine(gp) && !gp.flags.has(Flag::UNBORN) {
            // An abandoned goroutine never ends either, so the thread that waits in `run` for it
            // never wakes.
            if gp.status.get() == Status::Waiting || gp.flags.has(Flag::ABANDONED) {
                n_waiting += 1;
                runners += u32::from(gp.flags.has(Flag::AWAITED));
            } else {
                n_other += 1;
            }
        }
    });
    if runners == 0 || n_waiting == 0 || n_other != 0 {
        return false;
    }
    // Threads are counted before and after, so that a thread that came meanwhile is seen, and so is
    // one that did something and left.
    let bystanders = bystanders.min(bystanders::count());
    let system = SYSTEM_THREADS + sched.recorder.idle_collectors();
    let ours = n_ms + system + runners + notify::idle_readers() + bystanders;
    policy::only_ours(threads_before, ours) && policy::only_ours(thread::count(), ours)
}

fn die(sched: &Sched) -> ! {
    stderr::report(format_args!("fatal error: all goroutines are asleep - deadlock!\n"));
    // The report reads debug information. No goroutine holds the allocator's lock: all wait.
    #[cfg(debug_assertions)]
    crate::current::allow_allocation();
    signal::end_process_after(REPORT_MAX_SECONDS, 2);
    let mut n = 0;
    pool::for_each(|gp| {
        if sched.is_mine(gp) && !gp.flags.has(Flag::UNBORN) {
            n += 1;
            if n <= REPORT_MAX {
                stderr::report(format_args!("\n{}", Described::with_stack(sched, gp)));
            }
        }
    });
    if n > REPORT_MAX {
        stderr::report(format_args!("\n...{} more goroutines\n", n - REPORT_MAX));
    }
    stderr::exit_now(2)
}

/// Waits until no goroutine is left. The calling thread then ends the process.
pub(crate) fn stay_to_the_end(sched: &Sched) {
    sched.life.exit_waiters.fetch_add(1, Ordering::Relaxed);
    shutdown::wait_until_empty(sched);
}

#[cfg(test)]
mod tests {
    use super::is_dead;
    use crate::Runtime;
    use crate::sched::life::n_live;
    use crate::sync::WaitGroup;
    use std::sync::Arc;

    /// DL-14: threads that are counted but not made yet do not make up for threads that are not the
    /// runtime's and could wake a goroutine, such as the one that runs this test.
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
        while n_live(sched) != 1 || sched.rest.idle().count_all() != 1 {
            std::thread::yield_now();
        }
        let make = |n: i32| sched.lock.lock().roster.pretend(n);
        for _ in 0..100 {
            make(1000);
            assert!(!is_dead(sched), "this thread could wake it");
            make(-1000);
        }
        gate.done();
        waits.join().expect("it ends");
    }
}

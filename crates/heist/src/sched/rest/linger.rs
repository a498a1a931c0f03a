//! Lingering: a spinner that found nothing waits a little before it sleeps.
//!
//! A sleep and a wake-up cost the waker a system call, and the work waits tens of microseconds
//! until a sleeping CPU runs. If work comes again and again after short pauses, it is cheaper to
//! stay awake. The sleeps show how long that is worth it: a short sleep should have been avoided,
//! so the next linger is longer; a long sleep was right, so the next linger is shorter. A program
//! with long pauses pays for one microsecond each time.
//!
//! If goroutines wait for the network and the linger is longer than the shortest, the M gives its
//! CPU again and again to any thread that waits for one. With as many Ps as CPUs, that may be the
//! thread for whose work the M lingers: the client of a server, or another M that lost its CPU in
//! the middle of its queue. If no thread waits for a CPU, the call returns at once. A client that
//! can finish its turn sends many requests, and none of them has to wake an M.

use crate::sched::Sched;
use crate::sched::run::Found;
use crate::sched::{outside, run};
use crate::sys::clock;
use heist_core::policy;
use heist_core::sync::{AtomicU64, Ordering};

/// How long to linger. A hint: Ms that linger read it and Ms that wake up change it, in any order.
#[derive(Debug)]
pub(crate) struct Linger(AtomicU64);

impl Linger {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(policy::LINGER_MIN_NS))
    }

    /// Adapts the time to the length of a sleep that has ended.
    pub(crate) fn learn(&self, slept_ns: u64) {
        let next = policy::next_linger(self.0.load(Ordering::Relaxed), slept_ns);
        self.0.store(next, Ordering::Relaxed);
    }
}

/// How many pauses are between two looks. A look takes a cache line away from a busy P, so there
/// are not too many of them.
const PAUSES_PER_LOOK: u32 = 8;

/// Checks for a while whether work appears. An M lingers once per search: a busy P whose `run_next`
/// is never there to be taken must not keep a thief awake.
pub(crate) fn linger(sched: &Sched) -> Found {
    let linger_ns = sched.rest.linger.0.load(Ordering::Relaxed);
    let gives_way = linger_ns > policy::LINGER_MIN_NS && sched.outside.has_waiters();
    let until = clock::now_ns() + linger_ns;
    let until = until.min(outside::earliest_timer_hint(sched));
    loop {
        if gives_way {
            std::thread::yield_now();
        } else {
            (0..PAUSES_PER_LOOK).for_each(|_| std::hint::spin_loop());
        }
        if run::has_work_to_take(sched) {
            return Found::Retry;
        }
        if clock::now_ns() >= until {
            // A thread that had the CPU meanwhile may have sent something.
            return if gives_way { Found::Retry } else { Found::Nothing };
        }
    }
}

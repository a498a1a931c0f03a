//! Lingering: a spinner that found nothing waits a little before it sleeps.
//!
//! Going to sleep and being woken costs the waker a system call and the work tens of microseconds
//! until a sleeping CPU runs. If work comes again and again after short pauses, it is cheaper to
//! stay awake. How long it is worth it shows when an M is woken: a short sleep was one too many, so
//! the next linger is longer; a long one was right, so it is shorter. A program that rests pays for
//! a microsecond.
//!
//! Who lingers for longer while goroutines wait for the network gives its CPU to any thread that waits
//! for one, again and again. With as many Ps as CPUs that thread may well be the one for whose work it
//! lingers: the client of a server, or another M that was driven from its CPU in the middle of its
//! queue. If nobody waits, the call returns at once. A client that is let finish sends many requests,
//! of which none has to wake anybody.

use crate::sched::Sched;
use crate::sched::run::Found;
use crate::sched::{outside, run};
use crate::sys::clock;
use heist_core::policy;
use heist_core::sync::{AtomicU64, Ordering};

/// How long to linger. A hint: it is read and written by whoever goes to sleep or wakes up.
#[derive(Debug)]
pub(crate) struct Linger(AtomicU64);

impl Linger {
    pub(crate) fn new() -> Self {
        Self(AtomicU64::new(policy::LINGER_MIN_NS))
    }

    /// An M was woken after so long a sleep.
    pub(crate) fn learn(&self, slept_ns: u64) {
        let next = policy::next_linger(self.0.load(Ordering::Relaxed), slept_ns);
        self.0.store(next, Ordering::Relaxed);
    }
}

/// Pauses between two looks. A look takes the cache line of a busy P away from it, so it is not
/// done all the time.
const PAUSES_PER_LOOK: u32 = 8;

/// Looks for a while whether work appears. Once per search: a busy P whose `run_next` is never
/// there to be taken must not keep a thief awake.
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
            // Whoever had the CPU may have sent something.
            return if gives_way { Found::Retry } else { Found::Nothing };
        }
    }
}

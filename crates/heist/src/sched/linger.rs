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

use super::Sched;
use super::find_runnable::Found;
use crate::gmp::P;
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

impl Sched {
    /// Looks for a while whether work appears. Once per search: a busy P whose `run_next` is never
    /// there to be taken must not keep a thief awake.
    pub(crate) fn linger(&self) -> Found {
        let linger_ns = self.linger.0.load(Ordering::Relaxed);
        let gives_way = linger_ns > policy::LINGER_MIN_NS && self.poll.has_waiters();
        let until = clock::now_ns() + linger_ns;
        let until = until.min(self.earliest_timer_hint());
        loop {
            if gives_way {
                std::thread::yield_now();
            } else {
                (0..PAUSES_PER_LOOK).for_each(|_| std::hint::spin_loop());
            }
            if self.has_work_to_take() {
                return Found::Retry;
            }
            if clock::now_ns() >= until {
                // Whoever had the CPU may have sent something.
                return if gives_way { Found::Retry } else { Found::Nothing };
            }
        }
    }

    /// Whether there is something else to do than to wait.
    pub(super) fn has_work_to_take(&self) -> bool {
        self.global_len().get() != 0
            || self.stop.pending()
            || self.all_ps().any(|pp| self.can_rob(pp))
    }

    /// Whether a P has something that this runtime's policy lets others take.
    pub(crate) fn can_rob(&self, pp: &P) -> bool {
        let steal = &self.config.steal;
        !self.idle.idle.contains(pp.id)
            && (pp.queue.has_stealable(steal) || steal.share.of(pp.yielded.len()) != 0)
    }

    /// The same, but for `run_next`.
    pub(crate) fn can_rob_ring(&self, pp: &P) -> bool {
        let share = &self.config.steal.share;
        !self.idle.idle.contains(pp.id)
            && (share.of(pp.queue.ring_len()) != 0 || share.of(pp.yielded.len()) != 0)
    }
}

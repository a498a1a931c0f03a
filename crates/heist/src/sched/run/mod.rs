//! Running goroutines: which one runs next, and the queues that it comes from.
//!
//! A goroutine enters when it becomes runnable (`queue`, `lanes`). It leaves when an M executes it
//! (`execute`); the M searches from near to far (`find`, `steal`). Other rooms touch the
//! queues only under the scheduler lock or while the world is stopped: `rest` takes from the global
//! queue before an M sleeps and finds the M of a frozen goroutine there, `threads` queues
//! goroutines that were held back and moves the work of a P that gets no thread, and `world` moves
//! the work of a P that is removed.

mod execute;
mod find;
mod lanes;
mod latency;
mod queue;
mod steal;

pub(crate) use execute::{recycle, run, run_bound};
pub(crate) use find::{Found, Next, next_local, take_batch};
pub(crate) use lanes::{
    has_work_for, pop_frozen, push_frozen, push_locked, suit_turns, wake_reserved,
};
pub(crate) use latency::maybe_sample_outside;
pub(crate) use queue::{inject, inject_without_p, push_global, push_local, push_next, queue_woken};
pub(crate) use steal::{has_stealable_ring, has_stealable_work, has_work_to_take, is_stealable};

use heist_core::sync::{AtomicU32, Ordering};

/// The state of this room. The queues themselves are at the Ps and behind the scheduler lock.
pub(crate) struct Run {
    /// How many goroutines of the idle class run.
    idle_running: AtomicU32,
}

impl Run {
    pub(super) fn new() -> Self {
        Self { idle_running: AtomicU32::new(0) }
    }

    /// Whether a goroutine of the idle class runs.
    #[inline]
    pub(crate) fn is_idle_class_running(&self) -> bool {
        self.idle_running.load(Ordering::Relaxed) != 0
    }

    /// Counts a goroutine of the idle class that begins to run.
    fn idle_class_begins(&self) {
        self.idle_running.fetch_add(1, Ordering::Relaxed);
    }

    /// Discounts a goroutine of the idle class that no longer runs.
    pub(crate) fn idle_class_ends(&self) {
        self.idle_running.fetch_sub(1, Ordering::Relaxed);
    }
}

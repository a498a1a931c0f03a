//! Running goroutines: what runs next, and the queues that it comes from.
//!
//! A goroutine enters when it becomes runnable (`queue`, `lanes`). It leaves when an M executes it (`execute`), which
//! looks for it from near to far (`find`, `steal`). No other room takes a goroutine out of a queue or puts one in.

pub(crate) mod execute;
pub(crate) mod find;
pub(crate) mod lanes;
pub(crate) mod latency;
pub(crate) mod queue;
pub(crate) mod steal;
#[cfg(test)]
mod steal_tests;

pub(crate) use lanes::{
    has_work_for, pop_idle, pop_stopped, push_locked, push_stopped, suit_turns, wake_reserved,
};
pub(crate) use latency::maybe_sample_outside;
pub(crate) use queue::{inject, inject_without_p, push_global, push_next, queue_woken};
pub(crate) use steal::{can_rob, has_loot, has_ring_loot, has_work_to_take};

use heist_core::sync::{AtomicU32, Ordering};

/// What the room knows besides the queues themselves, which are at the Ps and behind the scheduler lock.
pub(crate) struct Run {
    /// Goroutines of the idle class that run.
    idle_running: AtomicU32,
    /// Goroutines of the idle class that are runnable. Written under the scheduler lock.
    idle_waiting: AtomicU32,
}

impl Run {
    pub(super) fn new() -> Self {
        Self { idle_running: AtomicU32::new(0), idle_waiting: AtomicU32::new(0) }
    }

    /// Whether a goroutine of the idle class runs.
    #[inline]
    pub(crate) fn is_idle_class_running(&self) -> bool {
        self.idle_running.load(Ordering::Relaxed) != 0
    }

    /// Whether a goroutine of the idle class is runnable.
    pub(crate) fn is_idle_class_waiting(&self) -> bool {
        self.idle_waiting.load(Ordering::Relaxed) != 0
    }

    /// A goroutine of the idle class begins to run.
    fn idle_class_begins(&self) {
        self.idle_running.fetch_add(1, Ordering::Relaxed);
    }

    /// A goroutine of the idle class stops running.
    pub(crate) fn idle_class_ends(&self) {
        self.idle_running.fetch_sub(1, Ordering::Relaxed);
    }
}

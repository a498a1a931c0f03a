//! How long goroutines wait for a processor after they became runnable.
//!
//! One in eight times that a goroutine becomes runnable at a P, the moment is stored in one of the
//! P's few slots, and the goroutine is marked with the number of the slot. The M that runs it next,
//! on any P, takes the moment out and counts the time in the histogram of its own P. A goroutine
//! that is not sampled costs an increment when it becomes runnable and a look at its record when it
//! runs; there is no room for a moment in the record itself.
//!
//! If all slots are taken, no goroutine is sampled: more than 64 wait here, and the samples
//! represent them.
//!
//! GO: casgstatus, gTrackingPeriod, sched.timeToRun.

use heist_core::sync::{AtomicU64, Ordering};
use heist_core::time_histogram::TimeHistogram;

/// Moments that a P stores at a time.
pub(crate) const SLOTS: u32 = 8;

/// The slots and the histogram of one P.
#[derive(Debug)]
pub(crate) struct Latencies {
    /// When the sampled goroutines became runnable, by `sys::stopwatch`; zero if the slot is free.
    since: [AtomicU64; SLOTS as usize],
    /// Written by the holder of the P.
    pub(crate) histogram: TimeHistogram,
}

impl Latencies {
    pub(crate) fn new() -> Self {
        Self { since: std::array::from_fn(|_| AtomicU64::new(0)), histogram: TimeHistogram::new() }
    }

    /// Stores this moment, if there is room. Returns the slot.
    pub(crate) fn keep(&self, now: u64) -> Option<u32> {
        let free = |slot: &&AtomicU64| {
            slot.load(Ordering::Relaxed) == 0
                && slot.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed).is_ok()
        };
        let slot = self.since.iter().enumerate().find(|(_, slot)| free(slot))?;
        Some(slot.0 as u32)
    }

    /// Takes a moment out.
    pub(crate) fn take(&self, slot: u32) -> u64 {
        self.since[slot as usize].swap(0, Ordering::Relaxed)
    }
}

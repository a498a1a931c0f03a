//! The count behind a stop of the world: how many Ps have not stopped yet.
//!
//! # The protocol
//! The stopper, with the scheduler lock held, [begins](StopCount::begin) with one for each P, and
//! counts those that are idle or wait for a thread itself. From then on a thread that would release
//! a P, make it idle, give it to another or search with it looks at [`pending`](StopCount::pending)
//! first, and under the lock counts the P instead. The stopper sleeps until none is left.
//!
//! # Invariants
//! - The count changes only under the scheduler lock; it is an atomic because the stopper sleeps on
//!   it.
//! - A P is counted once: it is marked, under the same lock, and counting a marked one throws.
//! - A thread that reads `pending` without the lock may see it late. That delays a stop and loses
//!   nothing: the stopper asks again until the count is zero.
//!
//! # Ordering
//! Everything a P's last holder wrote is visible to the stopper through the lock.
//!
//! GO: proc.go stopTheWorldWithSema, sched.gcwaiting, sched.stopwait.

use crate::sync::{AtomicU32, Ordering};

/// Whether the world stops, and how many Ps are left to stop.
#[derive(Debug)]
pub struct StopCount {
    pending: AtomicU32,
    left: AtomicU32,
}

impl StopCount {
    /// The world runs.
    #[must_use]
    pub fn new() -> Self {
        Self { pending: AtomicU32::new(0), left: AtomicU32::new(0) }
    }

    /// Whether the world stops or has stopped.
    #[inline]
    #[must_use]
    #[doc(alias = "gcwaiting")]
    pub fn pending(&self) -> bool {
        self.pending.load(Ordering::Relaxed) != 0
    }

    /// Begins to stop `procs` Ps. With the scheduler lock held.
    pub fn begin(&self, procs: u32) {
        if self.pending() || self.left() != 0 {
            crate::throw!("StopCount::begin: the world is stopping already");
        }
        self.left.store(procs, Ordering::Relaxed);
        self.pending.store(1, Ordering::Relaxed);
    }

    /// Counts one P that has stopped. True if it was the last. With the scheduler lock held.
    #[must_use]
    pub fn count(&self) -> bool {
        let left = self.left();
        if !self.pending() || left == 0 {
            crate::throw!("StopCount::count: more Ps stop than there are");
        }
        self.left.store(left - 1, Ordering::Relaxed);
        left == 1
    }

    /// How many Ps are left to stop.
    #[must_use]
    #[doc(alias = "stopwait")]
    pub fn left(&self) -> u32 {
        self.left.load(Ordering::Relaxed)
    }

    /// The word to sleep on until none is left.
    #[must_use]
    pub const fn word(&self) -> &AtomicU32 {
        &self.left
    }

    /// Ends the stop: the world runs again. With the scheduler lock held.
    pub fn end(&self) {
        if !self.pending() || self.left() != 0 {
            crate::throw!("StopCount::end: the world has not stopped");
        }
        self.pending.store(0, Ordering::Relaxed);
    }
}

impl Default for StopCount {
    fn default() -> Self {
        Self::new()
    }
}

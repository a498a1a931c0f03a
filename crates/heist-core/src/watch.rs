//! The watch: an M that watches sleeps for a short time and then looks for goroutines for which no
//! M was woken.
//!
//! # The protocol
//! Submitter: pushes into `run_next`, which is a full fence, then reads the flag; if it is set, it
//! wakes no M.
//!
//! Watcher: clears the flag, full fence, then checks all queues.
//!
//! Both write, fence and read what the other wrote, so one of them sees the other: either the
//! submitter finds the flag cleared and wakes an M, or the watcher finds the goroutine. The model
//! `loom_watch` runs it.

use crate::sync::{AtomicU32, Ordering, fence};
use crossbeam_utils::CachePadded;

/// The flag.
#[derive(Debug)]
pub struct Watch(CachePadded<AtomicU32>);

impl Watch {
    /// No M watches.
    #[must_use]
    pub fn new() -> Self {
        Self(CachePadded::new(AtomicU32::new(0)))
    }

    /// Whether an M watches. The caller has pushed into `run_next` before.
    #[inline]
    #[must_use]
    pub fn is_on(&self) -> bool {
        // ORDERING: SeqCst, as the push before it: they cannot be reordered.
        self.0.load(Ordering::SeqCst) != 0
    }

    /// Begins a watch by the caller. False if another M watches.
    #[must_use]
    pub fn begin(&self) -> bool {
        self.0.compare_exchange(0, 1, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    }

    /// Ends the watch of the caller, which checks all queues after this.
    pub fn end(&self) {
        // ORDERING: pairs with the push before `is_on`.
        self.0.store(0, Ordering::SeqCst);
        fence(Ordering::SeqCst);
    }
}

impl Default for Watch {
    fn default() -> Self {
        Self::new()
    }
}

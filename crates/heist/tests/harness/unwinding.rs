//! For goroutines that are to be unwound: what they wait for, and whether their destructors ran.

use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Counts how often it is dropped.
pub struct Counted(pub Arc<AtomicUsize>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// A group that is never done.
pub fn open() -> WaitGroup {
    let group = WaitGroup::new();
    group.add(1);
    group
}

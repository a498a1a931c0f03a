//! Threads that never wake a goroutine, such as those of the debug server.
//!
//! The search for deadlocks counts the threads of the process: an unknown one could wake a
//! goroutine. It does not have to fear these.

use std::sync::atomic::{AtomicU32, Ordering};

static COUNT: AtomicU32 = AtomicU32::new(0);

/// While it lives, the calling thread is counted.
#[derive(Debug)]
pub(crate) struct Bystander(());

impl Bystander {
    /// Counts the calling thread. It must not have done anything yet that a goroutine can wait for,
    /// and it must exist: a thread that is counted but does not run would hide another one.
    pub(crate) fn new() -> Self {
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Bystander {
    fn drop(&mut self) {
        COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many there are.
pub(crate) fn count() -> u32 {
    COUNT.load(Ordering::Relaxed)
}

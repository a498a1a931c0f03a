//! `Endings`: how the thread that waits for the last goroutine learns that one has ended.
//!
//! Goroutines that end are counted where they end, by plain stores, because that is frequent. The
//! wait for the last one is rare, so an end is announced only once a thread has declared that it
//! watches.
//!
//! # The protocol
//! A goroutine ends:
//! 1. it counts itself as ended, by any store,
//! 2. light fence,
//! 3. reads `watched`; if that is set, it raises `count` and wakes the watcher.
//!
//! The watcher:
//! 1. sets `watched`, once,
//! 2. heavy fence,
//! 3. in a loop: reads `count`, adds up the live goroutines, and if any is left, sleeps while
//!    `count` is unchanged.
//!
//! # Why the last end is not missed
//! The heavy fence acts as a full fence of both threads (see `m_word` for the pair). Either the
//! store of an end came before it, and the watcher adds it up; or the read of `watched` comes after
//! it, sees the watcher, and raises `count`. If the watcher read `count` before that, it does not
//! sleep, or is woken; if it read the raised one, Acquire, it sees the store that came before the
//! raise, which is Release. Without the fence of the ending side the two can miss each other, and
//! the watcher sleeps forever. The model `loom_endings` runs it, with full fences.

use crate::note::Futex;
use crate::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// The endings that a watcher has seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u32);

/// The endings of goroutines, for one watcher.
#[derive(Debug)]
pub struct Endings {
    count: AtomicU32,
    watched: AtomicU32,
}

impl Endings {
    /// Endings without a watcher.
    #[must_use]
    pub fn new() -> Self {
        Self { count: AtomicU32::new(0), watched: AtomicU32::new(0) }
    }

    /// Announces every end from now on.
    pub fn watch(&self, heavy_fence: impl FnOnce()) {
        self.watched.store(1, Ordering::Relaxed);
        heavy_fence();
    }

    /// The ends that have been announced so far. The caller reads it before it adds up the live
    /// goroutines.
    #[must_use]
    pub fn seen(&self) -> Seen {
        // ORDERING: Acquire pairs with `tell`: a thread that has seen the count sees the end it
        // announces.
        Seen(self.count.load(Ordering::Acquire))
    }

    /// Sleeps until an end is announced that was not seen yet, or until the timeout. May return
    /// early.
    pub fn sleep(&self, futex: &impl Futex, seen: Seen, timeout: Option<Duration>) {
        futex.wait(&self.count, seen.0, timeout);
    }

    /// Announces that a goroutine has ended, which was counted before this call.
    #[inline]
    pub fn tell(&self, futex: &impl Futex, light_fence: impl FnOnce()) {
        light_fence();
        if self.watched.load(Ordering::Relaxed) != 0 {
            self.wake(futex);
        }
    }

    #[cold]
    fn wake(&self, futex: &impl Futex) {
        // ORDERING: Release: see `seen`.
        self.count.fetch_add(1, Ordering::Release);
        futex.wake(&self.count);
    }
}

impl Default for Endings {
    fn default() -> Self {
        Self::new()
    }
}

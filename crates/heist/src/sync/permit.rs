//! The permits of a semaphore, as values.

use super::Semaphore;
use std::sync::Arc;

/// Permits of a [`Semaphore`]. Dropping them gives them back.
#[must_use = "permits that are not kept are given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    pub(super) semaphore: &'a Semaphore,
    pub(super) n: usize,
}

impl SemaphorePermit<'_> {
    /// How many.
    #[must_use]
    pub const fn n(&self) -> usize {
        self.n
    }

    /// Drops the guard without giving the permits back. [`Semaphore::release`] gives them back.
    pub const fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}

/// Permits of a [`Semaphore`] that own a reference to it, so they can be moved into a goroutine.
/// Dropping them gives them back.
#[must_use = "permits that are not kept are given back at once"]
#[derive(Debug)]
pub struct OwnedSemaphorePermit {
    pub(super) semaphore: Arc<Semaphore>,
    pub(super) n: usize,
}

impl OwnedSemaphorePermit {
    /// How many.
    #[must_use]
    pub const fn n(&self) -> usize {
        self.n
    }

    /// Drops the guard without giving the permits back. [`Semaphore::release`] gives them back.
    ///
    /// # Examples
    /// ```
    /// let semaphore = std::sync::Arc::new(heist::sync::Semaphore::new(2));
    /// semaphore.acquire_owned(2).forget();
    /// assert_eq!(semaphore.available(), 0);
    /// semaphore.release(2);
    /// ```
    pub fn forget(mut self) {
        // The drop gives no permits back, and releases the reference to the semaphore.
        self.n = 0;
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}

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

    /// Keeps them taken. [`Semaphore::release`] gives them back.
    pub const fn forget(self) {
        std::mem::forget(self);
    }
}

impl Drop for SemaphorePermit<'_> {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}

/// Permits of a [`Semaphore`] that go where they are moved. Dropping them gives them back.
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

    /// Keeps them taken. [`Semaphore::release`] gives them back.
    ///
    /// # Examples
    /// ```
    /// let semaphore = std::sync::Arc::new(heist::sync::Semaphore::new(2));
    /// semaphore.acquire_owned(2).forget();
    /// assert_eq!(semaphore.available(), 0);
    /// semaphore.release(2);
    /// ```
    pub fn forget(mut self) {
        // None are left to give back, and the share of the semaphore is not leaked.
        self.n = 0;
    }
}

impl Drop for OwnedSemaphorePermit {
    fn drop(&mut self) {
        self.semaphore.release(self.n);
    }
}

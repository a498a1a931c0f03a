//! A weighted semaphore.
//!
//! GO: golang.org/x/sync/semaphore.

use super::permit::{OwnedSemaphorePermit, SemaphorePermit};
use super::permits::Permits;
use crate::context::{Context, ContextError};
use crate::time::{deadline_after, deadline_at};
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Limits how much of a resource is in use at a time. Each user says how much it needs.
///
/// Requests are served in the order in which they were made: one for many permits is not overtaken
/// by smaller ones that come later, so it does not starve.
///
/// # Examples
/// ```
/// use heist::sync::{Semaphore, WaitGroup};
/// use std::sync::Arc;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let memory = Arc::new(Semaphore::new(100));
/// let group = WaitGroup::new();
/// for size in [10, 60, 30, 100, 5] {
///     let permit = memory.acquire_owned(size); // Waits until that much is free.
///     group.go(move || {
///         // Use it.
///         drop(permit);
///     });
/// }
/// group.wait();
/// assert_eq!(memory.available(), 100);
/// # });
/// ```
#[doc(alias = "Weighted")]
pub struct Semaphore {
    pub(super) permits: Permits,
}

impl Semaphore {
    /// A semaphore with `size` permits, all of them free.
    ///
    /// # Panics
    /// If it is more than 2^63 - 1.
    #[must_use]
    pub const fn new(size: usize) -> Self {
        Self { permits: Permits::new(size) }
    }

    /// The total number of permits.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.permits.size()
    }

    /// How many permits are free at this moment.
    #[must_use]
    #[doc(alias = "available_permits")]
    pub fn available(&self) -> usize {
        self.permits.available()
    }

    /// Waits until `n` permits are free and all earlier requests are served, and takes them.
    /// Dropping the returned value gives them back.
    ///
    /// If there are fewer than `n` permits in total, it waits forever, and delays no other request,
    /// as in Go.
    ///
    /// # Examples
    /// ```
    /// let semaphore = heist::sync::Semaphore::new(3);
    /// let permit = semaphore.acquire(2);
    /// assert_eq!(semaphore.available(), 1);
    /// drop(permit);
    /// assert_eq!(semaphore.available(), 3);
    /// ```
    #[inline]
    #[doc(alias = "Acquire")]
    pub fn acquire(&self, n: usize) -> SemaphorePermit<'_> {
        let _ = self.permits.take(n, None);
        SemaphorePermit { semaphore: self, n }
    }

    /// Takes `n` permits if they are free and there are no waiters.
    ///
    /// # Examples
    /// ```
    /// let semaphore = heist::sync::Semaphore::new(3);
    /// let two = semaphore.try_acquire(2).unwrap();
    /// assert!(semaphore.try_acquire(2).is_none());
    /// drop(two);
    /// assert!(semaphore.try_acquire(2).is_some());
    /// ```
    #[inline]
    #[must_use = "permits that are not kept are given back at once"]
    #[doc(alias = "TryAcquire")]
    pub fn try_acquire(&self, n: usize) -> Option<SemaphorePermit<'_>> {
        self.permits.take_free(n).then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), but waits for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let semaphore = heist::sync::Semaphore::new(1);
    /// let held = semaphore.acquire(1);
    /// assert!(semaphore.acquire_timeout(1, Duration::from_millis(1)).is_none());
    /// ```
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_timeout(&self, n: usize, timeout: Duration) -> Option<SemaphorePermit<'_>> {
        let taken = self.permits.take(n, Some(deadline_after(timeout)));
        taken.then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), but waits at most until `deadline`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    /// let semaphore = heist::sync::Semaphore::new(1);
    /// let held = semaphore.acquire_deadline(1, Instant::now()).unwrap();
    /// assert!(semaphore.acquire_deadline(1, Instant::now()).is_none());
    /// ```
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_deadline(&self, n: usize, deadline: Instant) -> Option<SemaphorePermit<'_>> {
        let taken = self.permits.take(n, Some(deadline_at(deadline)));
        taken.then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), but fails when the context is done. If the context is done
    /// already, it fails even if permits are free. A request for more permits than the total waits
    /// until the context is done.
    ///
    /// # Errors
    /// How the context was cancelled.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use heist::context::{self, ContextError};
    /// use std::time::Duration;
    /// let semaphore = heist::sync::Semaphore::new(1);
    /// let (ctx, _canceller) = context::background().with_timeout(Duration::from_millis(1));
    /// let error = semaphore.acquire_context(&ctx, 2).unwrap_err();
    /// assert_eq!(error, ContextError::DeadlineExceeded);
    /// # });
    /// ```
    pub fn acquire_context(
        &self,
        ctx: &Context,
        n: usize,
    ) -> Result<SemaphorePermit<'_>, ContextError> {
        if let Some(error) = ctx.err() {
            return Err(error);
        }
        if let Some(permit) = self.try_acquire(n) {
            return Ok(permit);
        }
        if n > self.size() {
            return Err(ctx.wait());
        }
        let granted = self.permits.wait_unless(n, &ctx.done());
        let permit = granted.then(|| SemaphorePermit { semaphore: self, n });
        match (permit, ctx.err()) {
            (Some(permit), None) => Ok(permit),
            // Permits that were granted meanwhile are given back.
            (_, Some(error)) => Err(error),
            (None, None) => Err(ctx.wait()),
        }
    }

    /// As [`acquire_context`](Self::acquire_context), with a permit that can be moved into a
    /// goroutine.
    ///
    /// # Errors
    /// How the context was cancelled.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (ctx, canceller) = heist::context::background().with_cancel();
    /// let semaphore = std::sync::Arc::new(heist::sync::Semaphore::new(1));
    /// let permit = semaphore.acquire_owned_context(&ctx, 1)?;
    /// heist::go(move || drop(permit)).join().unwrap();
    /// canceller.cancel();
    /// assert!(semaphore.acquire_owned_context(&ctx, 1).is_err());
    /// # Ok::<(), heist::context::ContextError>(())
    /// # }).unwrap();
    /// ```
    pub fn acquire_owned_context(
        self: &Arc<Self>,
        ctx: &Context,
        n: usize,
    ) -> Result<OwnedSemaphorePermit, ContextError> {
        self.acquire_context(ctx, n)?.forget();
        Ok(OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// As [`acquire`](Self::acquire), with a permit that can be moved into a goroutine.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let semaphore = std::sync::Arc::new(heist::sync::Semaphore::new(1));
    /// let permit = semaphore.acquire_owned(1);
    /// heist::go(move || drop(permit)).join().unwrap();
    /// assert_eq!(semaphore.available(), 1);
    /// # });
    /// ```
    pub fn acquire_owned(self: &Arc<Self>, n: usize) -> OwnedSemaphorePermit {
        let _ = self.permits.take(n, None);
        OwnedSemaphorePermit { semaphore: Arc::clone(self), n }
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), with a permit that can be moved into a
    /// goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_owned_timeout(
        self: &Arc<Self>,
        n: usize,
        timeout: Duration,
    ) -> Option<OwnedSemaphorePermit> {
        let taken = self.permits.take(n, Some(deadline_after(timeout)));
        taken.then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// As [`acquire_deadline`](Self::acquire_deadline), with a permit that can be moved into a
    /// goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_owned_deadline(
        self: &Arc<Self>,
        n: usize,
        deadline: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let taken = self.permits.take(n, Some(deadline_at(deadline)));
        taken.then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that can be moved into a goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn try_acquire_owned(self: &Arc<Self>, n: usize) -> Option<OwnedSemaphorePermit> {
        self.permits.take_free(n).then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// Gives back permits that were taken and [forgotten](SemaphorePermit::forget).
    ///
    /// # Panics
    /// If more permits would be free than the total.
    ///
    /// # Examples
    /// ```
    /// let semaphore = heist::sync::Semaphore::new(2);
    /// semaphore.acquire(2).forget();
    /// assert_eq!(semaphore.available(), 0);
    /// semaphore.release(2);
    /// assert_eq!(semaphore.available(), 2);
    /// ```
    #[doc(alias = "Release")]
    #[doc(alias = "add_permits")]
    pub fn release(&self, n: usize) {
        self.permits.release(n);
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("size", &self.size())
            .field("available", &self.available())
            .finish()
    }
}

//! A weighted semaphore.
//!
//! # The word
//! How many permits are free, and one bit that says whether somebody waits. Without that bit an
//! acquisition is one compare-and-swap. With it nobody takes permits but under the lock of the
//! queue, in the order of the queue: whoever needs many is not overtaken by those who need few.
//!
//! Permits are taken for a waiter by whoever releases them, when the waiter is claimed. A waiter
//! that gives up has taken none, and lets those behind it have what it could not get.
//!
//! # Ordering
//! Taking permits is Acquire and releasing them is Release. Where they are handed to a waiter, the
//! lock and the wake-up order memory.
//!
//! GO: golang.org/x/sync/semaphore.

use super::wait_list::{self, Caller, ChosenList, Ended, Entry, Shield, Wait, WaitList};
use crate::chan;
use crate::context::{Context, ContextError};
use crate::current::{self, InRuntime};
use crate::gmp::g::WaitReason;
use crate::scope::{ScopedJoinHandle, scope};
use crate::sys::lock::Lock;
use crate::time::{deadline_after, deadline_at};
use heist_core::list::DoubleList;
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// Somebody waits.
const QUEUED: u64 = 1;
/// The place of the count.
const PERMIT: u64 = 2;

/// Limits how much of something is in use at a time. Each user says how much it needs.
///
/// Requests are served in the order in which they came: one for many permits is not overtaken by
/// smaller ones that come later, so it does not starve.
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
///     let permit = memory.acquire_owned(size); // Waits until so much is free.
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
    size: usize,
    word: AtomicU64,
    waiters: Lock<WaitList>,
}

// SAFETY: the list holds pointers to waiters' stacks, used under its lock.
unsafe impl Sync for Semaphore {}
// SAFETY: as above; a semaphore that moves has no waiters.
unsafe impl Send for Semaphore {}

impl Semaphore {
    /// So many permits, all of them free.
    ///
    /// # Panics
    /// If it is more than 2^63 - 1.
    #[must_use]
    pub const fn new(size: usize) -> Self {
        assert!(size as u64 <= u64::MAX / PERMIT, "semaphore: too many permits");
        Self {
            size,
            word: AtomicU64::new(size as u64 * PERMIT),
            waiters: Lock::new(Rank::WaitQueue, DoubleList::new()),
        }
    }

    /// How many permits there are in all.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// How many permits are free at this moment.
    #[must_use]
    #[doc(alias = "available_permits")]
    pub fn available(&self) -> usize {
        (self.word.load(Ordering::Relaxed) / PERMIT) as usize
    }

    /// Waits until `n` permits are free and everybody who came before is served, and takes them.
    /// Dropping what is returned gives them back.
    ///
    /// If there are fewer than `n` permits in all, it waits for ever, and holds up nobody, as in Go.
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
        let _ = self.take(n, None);
        SemaphorePermit { semaphore: self, n }
    }

    /// Takes `n` permits if they are free and nobody waits.
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
        self.take_free(n).then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), waiting at most so long.
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
        let taken = self.take(n, Some(deadline_after(timeout)));
        taken.then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), waiting at most until then.
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
        let taken = self.take(n, Some(deadline_at(deadline)));
        taken.then(|| SemaphorePermit { semaphore: self, n })
    }

    /// As [`acquire`](Self::acquire), but fails when the context is done. If it is done already, it fails
    /// though permits may be free; one that asks for more than there are waits until it is.
    ///
    /// While it has to wait, a goroutine does it for the caller.
    ///
    /// # Errors
    /// How the context was cancelled.
    ///
    /// # Panics
    /// Outside a runtime, if it has to wait.
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
        if n > self.size {
            return Err(ctx.wait());
        }
        let (granted, grants) = chan::bounded(1);
        scope(|scope| {
            let _waiter = CancelOnDrop(scope.go(move || granted.send(self.acquire(n))));
            let permit = crate::select! {
                recv(grants) -> permit => permit.ok(),
                recv(ctx.done()) -> _ => None,
            };
            match (permit, ctx.err()) {
                (Some(permit), None) => Ok(permit),
                // What was granted meanwhile is given back.
                (_, Some(error)) => Err(error),
                (None, None) => Err(ctx.wait()),
            }
        })
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
        let _ = self.take(n, None);
        OwnedSemaphorePermit { semaphore: Arc::clone(self), n }
    }

    /// As [`acquire_timeout`](Self::acquire_timeout), with a permit that can be moved into a goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_owned_timeout(
        self: &Arc<Self>,
        n: usize,
        timeout: Duration,
    ) -> Option<OwnedSemaphorePermit> {
        let taken = self.take(n, Some(deadline_after(timeout)));
        taken.then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// As [`acquire_deadline`](Self::acquire_deadline), with a permit that can be moved into a goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn acquire_owned_deadline(
        self: &Arc<Self>,
        n: usize,
        deadline: Instant,
    ) -> Option<OwnedSemaphorePermit> {
        let taken = self.take(n, Some(deadline_at(deadline)));
        taken.then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// As [`try_acquire`](Self::try_acquire), with a permit that can be moved into a goroutine.
    #[must_use = "permits that are not kept are given back at once"]
    pub fn try_acquire_owned(self: &Arc<Self>, n: usize) -> Option<OwnedSemaphorePermit> {
        self.take_free(n).then(|| OwnedSemaphorePermit { semaphore: Arc::clone(self), n })
    }

    /// Gives back permits that were taken and [forgotten](SemaphorePermit::forget).
    ///
    /// # Panics
    /// If more would be free than there are in all.
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
        let more = |word: u64| {
            let free = (word / PERMIT).checked_add(n as u64)?;
            (free <= self.size as u64).then(|| (free * PERMIT) | (word & QUEUED))
        };
        match self.word.fetch_update(Ordering::Release, Ordering::Relaxed, more) {
            Ok(before) if before & QUEUED == 0 => {}
            Ok(_) => self.serve_from_outside(),
            Err(_) => panic!("semaphore: released more than held"),
        }
    }

    #[inline]
    fn take_free(&self, n: usize) -> bool {
        let less = |word: u64| {
            let needed = (n as u64).checked_mul(PERMIT)?;
            // A word with somebody who waits is odd, and not for newcomers.
            (word & QUEUED == 0).then(|| word.checked_sub(needed)).flatten()
        };
        self.word.fetch_update(Ordering::Acquire, Ordering::Relaxed, less).is_ok()
    }

    /// False if the deadline came first.
    #[inline]
    fn take(&self, n: usize, deadline_ns: Option<u64>) -> bool {
        self.take_free(n) || self.wait(n, deadline_ns)
    }

    #[cold]
    #[inline(never)]
    fn wait(&self, n: usize, deadline_ns: Option<u64>) -> bool {
        if n > self.size {
            return wait_in_vain(deadline_ns);
        }
        let mut caller = Caller::enter(Shield::Down);
        let entry = Entry::new(n as u64);
        let mut waiters = self.waiters.lock();
        // From here on nobody takes permits but under the lock.
        self.word.fetch_or(QUEUED, Ordering::Relaxed);
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { waiters.push_back(NonNull::from(&entry)) };
        // What was released just before is served here: perhaps to the caller, which does not wait
        // yet and need not be woken.
        let others = self.serve(&mut waiters);
        let ended = if entry.is_waiting() {
            drop(waiters);
            others.wake(caller.rt());
            let waiters = self.waiters.lock();
            if entry.is_waiting() {
                let wait = Wait { deadline_ns, ..Wait::new(WaitReason::Semaphore) };
                caller.wait(waiters, &entry, wait, |waiters| entry.leave(waiters))
            } else {
                drop(waiters);
                self.served_at_once(n, &caller)
            }
        } else {
            drop(waiters);
            others.wake(caller.rt());
            self.served_at_once(n, &caller)
        };
        if ended == Ended::Served {
            caller.leave_holding(|| self.release(n));
            return true;
        }
        // Those behind it may need less.
        let mut waiters = self.waiters.lock();
        let others = self.serve(&mut waiters);
        drop(waiters);
        others.wake(caller.rt());
        if ended == Ended::Cancelled {
            caller.unwind();
        }
        false
    }

    /// The caller was served while it queued and did not wait yet. If it was cancelled meanwhile, perhaps
    /// before that, it gives the permits up.
    fn served_at_once(&self, n: usize, caller: &Caller) -> Ended {
        if !caller.is_cancelled() {
            return Ended::Served;
        }
        self.word.fetch_add(n as u64 * PERMIT, Ordering::Release);
        Ended::Cancelled
    }

    #[cold]
    fn serve_from_outside(&self) {
        let rt = current::enter();
        let rt: Option<&InRuntime> = rt.as_ref();
        let mut waiters = self.waiters.lock();
        let chosen = self.serve(&mut waiters);
        drop(waiters);
        chosen.wake(rt);
    }

    /// Gives permits to whoever is first, as long as there are enough for it. Somebody waits, so
    /// only the holder of the lock takes permits.
    fn serve(&self, waiters: &mut WaitList) -> ChosenList {
        let mut all = ChosenList::new();
        loop {
            // Acquire, for those who are served: they come after who released.
            let free = self.word.load(Ordering::Acquire) / PERMIT;
            let Some(needs) = wait_list::first_note(waiters) else {
                self.word.fetch_and(!QUEUED, Ordering::Relaxed);
                return all;
            };
            if needs > free {
                return all;
            }
            if let Some(Some(chosen)) = wait_list::choose(waiters) {
                self.word.fetch_sub(needs * PERMIT, Ordering::Relaxed);
                all.push(chosen);
            }
        }
    }
}

/// A goroutine that waits for somebody who may give up.
struct CancelOnDrop<'scope, T>(ScopedJoinHandle<'scope, T>);

impl<T> Drop for CancelOnDrop<'_, T> {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

/// Waits for more permits than there are: until the deadline, or for ever. In no queue of the semaphore, where
/// it would hold up others.
fn wait_in_vain(deadline_ns: Option<u64>) -> bool {
    static DOOMED: Lock<WaitList> = Lock::new(Rank::WaitQueue, DoubleList::new());
    let mut caller = Caller::enter(Shield::Down);
    let entry = Entry::new(0);
    let mut doomed = DOOMED.lock();
    // SAFETY: the entry stays on this stack until it is taken out.
    unsafe { doomed.push_back(NonNull::from(&entry)) };
    let wait = Wait { deadline_ns, ..Wait::new(WaitReason::Semaphore) };
    match caller.wait(doomed, &entry, wait, |doomed| entry.leave(doomed)) {
        Ended::TimedOut => false,
        Ended::Cancelled => caller.unwind(),
        Ended::Served => heist_core::throw!("wait_in_vain: somebody came"),
    }
}

impl fmt::Debug for Semaphore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Semaphore")
            .field("size", &self.size)
            .field("available", &self.available())
            .finish()
    }
}

/// Permits of a [`Semaphore`]. Dropping them gives them back.
#[must_use = "permits that are not kept are given back at once"]
#[derive(Debug)]
pub struct SemaphorePermit<'a> {
    semaphore: &'a Semaphore,
    n: usize,
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
    semaphore: Arc<Semaphore>,
    n: usize,
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

//! Waiting until a condition may hold.
//!
//! # The protocol
//! A new waiter, which still holds the mutex, takes the lock of the queue and counts itself. Then
//! it releases the mutex, goes to the end of the queue and parks; the lock is released when the
//! waiter can be woken. A notifier wakes the first waiter in the queue. So a notification that
//! comes after the mutex was released waits for the lock, finds the waiter, and goes to the waiter
//! that has waited longest.
//!
//! A waiter that gives up removes itself from the queue. A waiter that was notified and cannot take
//! the mutex again, because it was cancelled, notifies the next one in its place.
//!
//! The count of waiters is read without the lock: a notifier that changed the condition under the
//! mutex sees every waiter that had found it not to hold. The model `loom_condvar` runs the
//! protocol, with the lock released and taken again between drawing a place in the queue and
//! parking, which allows more interleavings.
//!
//! The lock has its own rank, because releasing the mutex may take the lock of the mutex's queue.
//!
//! GO: sema.go notifyList. There tickets are numbers, because a waiter enters the list only after
//! it released the mutex, and a notifier searches the list for the number.

use super::mutex::MutexGuard;
use crate::current;
use crate::sys::lock::Lock;
use crate::time::{deadline_after, deadline_at};
use crate::wait::{self, AllClaimed, Ended, Terms, WaitQueue, WaitReason, Wake};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Lets the holder of a [`Mutex`](super::Mutex) wait until it is notified that a condition may have
/// changed.
///
/// Waiters are notified in the order in which they began to wait. There are no spurious wake-ups,
/// but another goroutine may have taken the mutex first and changed the condition again, so check
/// the condition in a loop, or let [`wait_while`](Self::wait_while) do it.
///
/// A condition variable may be used with several mutexes, though that is rarely wise.
///
/// # Examples
/// ```
/// use heist::sync::{Condvar, Mutex};
/// use std::sync::Arc;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let shared = Arc::new((Mutex::new(Vec::new()), Condvar::new()));
/// let (queue, filled) = &*shared;
/// let taker = {
///     let shared = Arc::clone(&shared);
///     heist::go(move || {
///         let (queue, filled) = &*shared;
///         filled.wait_while(queue.lock(), |queue| queue.is_empty()).pop()
///     })
/// };
/// queue.lock().push(7);
/// filled.notify_one();
/// assert_eq!(taker.join().unwrap(), Some(7));
/// # });
/// ```
#[doc(alias = "Cond")]
pub struct Condvar {
    waiters: Lock<WaitQueue>,
    /// How many waiters are in the queue, or about to be. Written under the lock.
    n_waiting: AtomicU32,
}

impl Condvar {
    /// A condition variable without waiters.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: Lock::new(Rank::Condvar, WaitQueue::new()), n_waiting: AtomicU32::new(0) }
    }

    /// Releases the mutex, waits to be notified, and takes the mutex again.
    ///
    /// A goroutine that is cancelled meanwhile unwinds without the mutex.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// std::thread::scope(|s| {
    ///     s.spawn(|| {
    ///         *ready.lock() = true;
    ///         changed.notify_one();
    ///     });
    ///     let mut guard = ready.lock();
    ///     while !*guard {
    ///         guard = changed.wait(guard);
    ///     }
    /// });
    /// ```
    #[doc(alias = "Wait")]
    pub fn wait<'a, T: ?Sized>(&self, guard: MutexGuard<'a, T>) -> MutexGuard<'a, T> {
        self.wait_for(guard, Terms::new(WaitReason::Cond)).0
    }

    /// Waits while `condition` holds. It is called with the mutex held.
    pub fn wait_while<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> MutexGuard<'a, T> {
        while condition(&mut guard) {
            guard = self.wait(guard);
        }
        guard
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let (_guard, timed_out) = condvar.wait_timeout(mutex.lock(), Duration::from_millis(1));
    /// assert!(timed_out.timed_out());
    /// ```
    pub fn wait_timeout<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_for(guard, Terms::new(WaitReason::Cond).until(deadline_after(timeout)))
    }

    /// As [`wait_while`](Self::wait_while), for at most `timeout`. If it timed out, the condition
    /// may still hold.
    pub fn wait_timeout_while<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        timeout: Duration,
        condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_while_until_ns(guard, deadline_after(timeout), condition)
    }

    /// As [`wait`](Self::wait), at most until `deadline`.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::{Duration, Instant};
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let (_guard, timed_out) = condvar.wait_until(mutex.lock(), soon);
    /// assert!(timed_out.timed_out() && Instant::now() >= soon);
    /// ```
    pub fn wait_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_for(guard, Terms::new(WaitReason::Cond).until(deadline_at(deadline)))
    }

    /// As [`wait_while`](Self::wait_while), at most until `deadline`. If it timed out, the
    /// condition may still hold.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::{Duration, Instant};
    /// let (count, changed) = (Mutex::new(3), Condvar::new());
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// let (count, result) = changed.wait_while_until(count.lock(), |count| *count > 2, soon);
    /// assert!(result.timed_out() && *count == 3);
    /// let (_, result) = changed.wait_while_until(count, |count| *count > 3, soon);
    /// assert!(!result.timed_out());
    /// ```
    pub fn wait_while_until<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        condition: impl FnMut(&mut T) -> bool,
        deadline: Instant,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        self.wait_while_until_ns(guard, deadline_at(deadline), condition)
    }

    fn wait_while_until_ns<'a, T: ?Sized>(
        &self,
        mut guard: MutexGuard<'a, T>,
        deadline_ns: u64,
        mut condition: impl FnMut(&mut T) -> bool,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let terms = Terms::new(WaitReason::Cond).until(deadline_ns);
        while condition(&mut guard) {
            let (again, result) = self.wait_for(guard, terms);
            guard = again;
            if result.timed_out() {
                let result = WaitTimeoutResult(condition(&mut guard));
                return (guard, result);
            }
        }
        (guard, WaitTimeoutResult(false))
    }

    fn wait_for<'a, T: ?Sized>(
        &self,
        guard: MutexGuard<'a, T>,
        terms: Terms,
    ) -> (MutexGuard<'a, T>, WaitTimeoutResult) {
        let rt = terms.enter();
        let mutex = guard.into_mutex();
        let waiters = self.waiters.lock();
        // Before the mutex is released: a thread that then changes the condition under the mutex
        // sees the count.
        self.count(1);
        mutex.raw.unlock_within(rt.as_ref());
        let (rt, ended) = wait::wait_in(
            rt,
            waiters,
            terms,
            null_mut(),
            // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
            |waiters, entry| unsafe { waiters.push(entry) },
            |waiters, entry| {
                // SAFETY: it was queued here.
                unsafe { waiters.remove(entry) };
                self.count(-1);
            },
        );
        let pass_on = PassOn { condvar: (ended == Ended::Done).then_some(self) };
        drop(rt);
        let guard = mutex.lock();
        std::mem::forget(pass_on);
        (guard, WaitTimeoutResult(ended == Ended::TimedOut))
    }

    /// Changes the number of waiters by `more`. The caller holds the lock.
    fn count(&self, more: i32) {
        let n = self.n_waiting.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.n_waiting.store(n, Ordering::Relaxed);
    }

    /// Wakes the waiter that has waited longest, if there is one.
    #[inline]
    #[doc(alias = "Signal")]
    pub fn notify_one(&self) {
        if self.n_waiting.load(Ordering::Relaxed) != 0 {
            self.notify_slow(1);
        }
    }

    /// Wakes every waiter.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// let (open, changed) = (Mutex::new(false), Condvar::new());
    /// std::thread::scope(|s| {
    ///     for _ in 0..3 {
    ///         s.spawn(|| drop(changed.wait_while(open.lock(), |open| !*open)));
    ///     }
    ///     *open.lock() = true;
    ///     changed.notify_all();
    /// });
    /// ```
    #[inline]
    #[doc(alias = "Broadcast")]
    pub fn notify_all(&self) {
        if self.n_waiting.load(Ordering::Relaxed) != 0 {
            self.notify_slow(u32::MAX);
        }
    }

    #[cold]
    fn notify_slow(&self, n: u32) {
        let rt = current::enter();
        let mut waiters = self.waiters.lock();
        let mut served = AllClaimed::new();
        while served.len() < n
            && let Some(first) = waiters.take_first()
        {
            self.count(-1);
            // A waiter that is giving up by itself is not notified.
            if let Some(waiter) = first {
                served.push(waiter);
            }
        }
        drop(waiters);
        served.wake_in_order(|waiter| waiter.wake(Ended::Done, rt.as_ref()));
    }
}

/// Notifies the next waiter if the one that was notified unwinds before it has the mutex.
struct PassOn<'a> {
    condvar: Option<&'a Condvar>,
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        if let Some(condvar) = self.condvar {
            condvar.notify_one();
        }
    }
}

impl Default for Condvar {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Condvar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let n_waiting = self.n_waiting.load(Ordering::Relaxed);
        f.debug_struct("Condvar").field("waiting", &n_waiting).finish()
    }
}

/// Whether a wait with a timeout ended because the time was over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether the wait timed out.
    #[must_use]
    pub const fn timed_out(self) -> bool {
        self.0
    }
}

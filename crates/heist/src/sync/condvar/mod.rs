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

mod guard;
mod notified;

pub use guard::CondvarGuard;
pub(super) use notified::{Notified, PassOn};

use super::mutex::MutexGuard;
use super::raw_mutex::RawMutex;
use crate::current::{self, InRuntime};
use crate::sys::lock::Lock;
use crate::time::{deadline_after, deadline_at};
use crate::wait::{self, AllClaimed, Ended, Entry, Terms, Wait, WaitQueue, WaitReason, WakeAll};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::mem::ManuallyDrop;
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
    /// The guard is passed by value, as std does it, and returned; or as `&mut guard`, as
    /// parking_lot does it, and stays where it is. All methods here take it in both ways. A
    /// reference that is to be used again afterwards is passed as `&mut *guard`.
    ///
    /// A goroutine that is cancelled meanwhile unwinds without the mutex. If the guard was passed
    /// as a reference, it takes the mutex first, because the guard is dropped by the unwinding.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// let (ready, changed) = (Mutex::new(false), Condvar::new());
    /// std::thread::scope(|s| {
    ///     s.spawn(|| {
    ///         *ready.lock() = true;
    ///         changed.notify_all();
    ///     });
    ///     let mut guard = ready.lock();
    ///     while !*guard {
    ///         guard = changed.wait(guard);
    ///     }
    ///     drop(guard);
    ///     // The same with a reference.
    ///     let mut guard = ready.lock();
    ///     while !*guard {
    ///         changed.wait(&mut guard);
    ///     }
    /// });
    /// ```
    #[doc(alias = "Wait")]
    pub fn wait<G: CondvarGuard>(&self, guard: G) -> G::Waited {
        self.wait_on(guard, Terms::new(WaitReason::Cond)).0.waited()
    }

    /// Waits while `condition` holds. It is called with the mutex held.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// let (queue, filled) = (Mutex::new(vec![7]), Condvar::new());
    /// let mut queue = queue.lock();
    /// filled.wait_while(&mut queue, |queue| queue.is_empty());
    /// assert_eq!(queue.pop(), Some(7));
    /// ```
    pub fn wait_while<G: CondvarGuard>(
        &self,
        mut guard: G,
        mut condition: impl FnMut(&mut G::Value) -> bool,
    ) -> G::Waited {
        while condition(guard.value()) {
            guard = self.wait_on(guard, Terms::new(WaitReason::Cond)).0;
        }
        guard.waited()
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
    pub fn wait_timeout<G: CondvarGuard>(&self, guard: G, timeout: Duration) -> G::TimedWaited {
        let terms = Terms::new(WaitReason::Cond).until(deadline_after(timeout));
        let (guard, result) = self.wait_on(guard, terms);
        guard.timed_waited(result)
    }

    /// The same as [`wait_timeout`](Self::wait_timeout), under the name that it has in parking_lot.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Condvar, Mutex};
    /// use std::time::Duration;
    /// let (mutex, condvar) = (Mutex::new(()), Condvar::new());
    /// assert!(condvar.wait_for(&mut mutex.lock(), Duration::from_millis(1)).timed_out());
    /// ```
    pub fn wait_for<G: CondvarGuard>(&self, guard: G, timeout: Duration) -> G::TimedWaited {
        self.wait_timeout(guard, timeout)
    }

    /// As [`wait_while`](Self::wait_while), for at most `timeout`. If it timed out, the condition
    /// may still hold.
    pub fn wait_timeout_while<G: CondvarGuard>(
        &self,
        guard: G,
        timeout: Duration,
        condition: impl FnMut(&mut G::Value) -> bool,
    ) -> G::TimedWaited {
        self.wait_while_until_ns(guard, deadline_after(timeout), condition)
    }

    /// The same as [`wait_timeout_while`](Self::wait_timeout_while), under the name and with the
    /// order of arguments that it has in parking_lot.
    pub fn wait_while_for<G: CondvarGuard>(
        &self,
        guard: G,
        condition: impl FnMut(&mut G::Value) -> bool,
        timeout: Duration,
    ) -> G::TimedWaited {
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
    pub fn wait_until<G: CondvarGuard>(&self, guard: G, deadline: Instant) -> G::TimedWaited {
        let terms = Terms::new(WaitReason::Cond).until(deadline_at(deadline));
        let (guard, result) = self.wait_on(guard, terms);
        guard.timed_waited(result)
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
    pub fn wait_while_until<G: CondvarGuard>(
        &self,
        guard: G,
        condition: impl FnMut(&mut G::Value) -> bool,
        deadline: Instant,
    ) -> G::TimedWaited {
        self.wait_while_until_ns(guard, deadline_at(deadline), condition)
    }

    fn wait_while_until_ns<G: CondvarGuard>(
        &self,
        mut guard: G,
        deadline_ns: u64,
        mut condition: impl FnMut(&mut G::Value) -> bool,
    ) -> G::TimedWaited {
        let terms = Terms::new(WaitReason::Cond).until(deadline_ns);
        let mut result = WaitTimeoutResult(false);
        while condition(guard.value()) {
            if result.timed_out() {
                return guard.timed_waited(result);
            }
            (guard, result) = self.wait_on(guard, terms);
        }
        guard.timed_waited(WaitTimeoutResult(false))
    }

    fn wait_on<G: CondvarGuard>(&self, guard: G, terms: Terms) -> (G, WaitTimeoutResult) {
        let rt = terms.enter();
        // While the mutex is free, nothing may drop the guard.
        let guard = ManuallyDrop::new(guard);
        let (rt, ended) = match rt {
            Some(rt) => self.wait_as_goroutine(rt, guard.raw(), terms),
            None => (None, self.wait_as_thread(guard.raw(), terms)),
        };
        drop(rt);
        if G::STAYS {
            // The caller's guard is dropped even if the caller is unwound, so the mutex must be
            // held by then.
            guard.raw().lock_shielded(WaitReason::Mutex);
        }
        if ended == Ended::Cancelled {
            wait::unwind(None);
        }
        if !G::STAYS {
            let pass_on = PassOn::new((ended == Ended::Done).then_some(self));
            guard.raw().lock(WaitReason::Mutex);
            std::mem::forget(pass_on);
        }
        (ManuallyDrop::into_inner(guard), WaitTimeoutResult(ended == Ended::TimedOut))
    }

    /// Releases the mutex and waits.
    #[inline]
    fn wait_as_goroutine(
        &self,
        rt: InRuntime,
        mutex: &RawMutex,
        terms: Terms,
    ) -> (Option<InRuntime>, Ended) {
        let waiters = self.waiters.lock();
        // Before the mutex is released: a thread that then changes the condition under the mutex
        // sees the count.
        self.count(1);
        mutex.unlock_within(Some(&rt));
        wait::sleep_in(
            Some(rt),
            waiters,
            terms,
            null_mut(),
            // SAFETY: the entry stays on the stack of `sleep_in` until it is removed.
            |waiters, entry| unsafe { waiters.push(entry) },
            |waiters, entry| {
                // SAFETY: it was queued here.
                unsafe { waiters.remove(entry) };
                self.count(-1);
            },
        )
    }

    /// Releases the mutex and waits, as a plain thread. The mutex may go to a future, whose waker
    /// is then called here and may do anything: so the lock of the queue is not held.
    #[cold]
    #[inline(never)]
    fn wait_as_thread(&self, mutex: &RawMutex, terms: Terms) -> Ended {
        let wait = Wait::new(None);
        let entry = Entry::new(&raw const wait, null_mut());
        let mut waiters = self.waiters.lock();
        self.count(1);
        // SAFETY: the entry stays in this frame until it is removed, by a notifier or below.
        unsafe { waiters.push(&entry) };
        drop(waiters);
        mutex.unlock_within(None);
        // SAFETY: a plain thread, as the wait was made; there is no lock to release.
        let (_, ended) = unsafe { wait.sleep(None, terms, &()) };
        if ended.gave_up() {
            let mut waiters = self.waiters.lock();
            if entry.is_listed() {
                // SAFETY: it was queued here.
                unsafe { waiters.remove(&entry) };
                self.count(-1);
            }
        }
        ended
    }

    /// Releases the mutex and waits until notified.
    pub(super) const fn notified<'a, 'b, T: ?Sized>(
        &'b self,
        guard: MutexGuard<'a, T>,
    ) -> Notified<'a, 'b, T> {
        Notified::new(self, guard)
    }

    /// Changes the number of waiters by `more`. The caller holds the lock.
    fn count(&self, more: i32) {
        let n = self.n_waiting.load(Ordering::Relaxed).wrapping_add_signed(more);
        self.n_waiting.store(n, Ordering::Relaxed);
    }

    /// Wakes the waiter that has waited longest, if there is one. True if there was one.
    ///
    /// # Examples
    /// ```
    /// assert!(!heist::sync::Condvar::new().notify_one());
    /// ```
    #[inline]
    #[doc(alias = "Signal")]
    pub fn notify_one(&self) -> bool {
        self.n_waiting.load(Ordering::Relaxed) != 0 && self.notify_slow(1) != 0
    }

    /// Wakes every waiter. Returns how many there were.
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
    pub fn notify_all(&self) -> usize {
        match self.n_waiting.load(Ordering::Relaxed) {
            0 => 0,
            _ => self.notify_slow(u32::MAX) as usize,
        }
    }

    #[cold]
    fn notify_slow(&self, n: u32) -> u32 {
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
        let n_served = served.len();
        served.wake_all(Ended::Done, rt.as_ref());
        n_served
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

//! Mutual exclusion.

use super::raw_mutex::{Locked, RawMutex};
use crate::time::{deadline_after, deadline_at};
use crate::wait::WaitReason;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// Gives one goroutine or thread at a time the use of a value.
///
/// A goroutine that has to wait parks; a plain thread sleeps. Taking a free mutex takes one atomic
/// instruction, and so does releasing one without waiters.
///
/// # Fairness
/// As in Go. Waiters get the mutex in the order in which they began to wait, but a newcomer that is
/// running may overtake them, which makes a contended mutex fast. When a waiter has waited for more
/// than a millisecond, overtaking stops: the mutex is then handed from each holder to the next
/// waiter in order, until the queue is empty or its first waiter has waited for less than that.
///
/// # Panics and cancellation
/// A mutex is **not poisoned**: a panic, or a cancelled goroutine, that unwinds past a guard
/// releases the mutex, and the next holder finds the value as it was left. A goroutine that is
/// cancelled while it waits unwinds without the mutex.
///
/// # Examples
/// ```
/// use heist::sync::Mutex;
///
/// static TOTAL: Mutex<u64> = Mutex::new(0);
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let adders: Vec<_> = (1..=10).map(|n| heist::go(move || *TOTAL.lock() += n)).collect();
/// for adder in adders {
///     adder.join().unwrap();
/// }
/// assert_eq!(*TOTAL.lock(), 55);
/// # });
/// ```
pub struct Mutex<T: ?Sized> {
    pub(super) raw: RawMutex,
    pub(super) data: UnsafeCell<T>,
}

// SAFETY: the mutex gives the data to one holder at a time.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: the mutex owns the data, so it can be sent where the data can.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

// A value that a panic left half changed can be seen here, as the documentation says. std's bounds
// are meant to remind code that catches a panic of that. But a goroutine's panic is always caught,
// and the other goroutines continue to use the value. So a bound would warn of nothing, and would
// only forbid sound code.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { raw: RawMutex::new(), data: UnsafeCell::new(value) }
    }

    /// The value, out of the mutex.
    ///
    /// # Examples
    /// ```
    /// assert_eq!(heist::sync::Mutex::new(5).into_inner(), 5);
    /// ```
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits until the mutex is free and takes it. Dropping the guard releases it.
    ///
    /// A holder that calls this again waits forever.
    ///
    /// # Examples
    /// ```
    /// let numbers = heist::sync::Mutex::new(vec![1, 2]);
    /// numbers.lock().push(3);
    /// assert_eq!(numbers.lock().len(), 3);
    /// ```
    #[inline]
    #[doc(alias = "Lock")]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock(WaitReason::Mutex);
        MutexGuard::new(self)
    }

    /// Takes the mutex if it is free and is not being handed to a waiter.
    ///
    /// # Examples
    /// ```
    /// let mutex = heist::sync::Mutex::new(1);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock().is_none());
    /// drop(guard);
    /// assert_eq!(*mutex.try_lock().unwrap(), 1);
    /// ```
    #[inline]
    #[must_use = "if the guard is not kept, the mutex is released at once"]
    #[doc(alias = "TryLock")]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| MutexGuard::new(self))
    }

    /// Waits for the mutex, for at most `timeout`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let mutex = heist::sync::Mutex::new(1);
    /// let guard = mutex.lock();
    /// assert!(mutex.try_lock_for(Duration::from_millis(1)).is_none());
    /// ```
    #[must_use = "if the guard is not kept, the mutex is released at once"]
    pub fn try_lock_for(&self, timeout: Duration) -> Option<MutexGuard<'_, T>> {
        self.lock_until_ns(deadline_after(timeout))
    }

    /// Waits for the mutex, at most until `deadline`.
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    /// let mutex = heist::sync::Mutex::new(1);
    /// assert!(mutex.try_lock_until(Instant::now()).is_some());
    /// ```
    #[must_use = "if the guard is not kept, the mutex is released at once"]
    pub fn try_lock_until(&self, deadline: Instant) -> Option<MutexGuard<'_, T>> {
        self.lock_until_ns(deadline_at(deadline))
    }

    fn lock_until_ns(&self, deadline_ns: u64) -> Option<MutexGuard<'_, T>> {
        let locked = self.raw.lock_until(WaitReason::Mutex, deadline_ns);
        (locked == Locked::Yes).then(|| MutexGuard::new(self))
    }

    /// Takes the mutex where the caller must not be unwound.
    pub(crate) fn lock_shielded(&self) -> MutexGuard<'_, T> {
        self.raw.lock_shielded(WaitReason::Mutex);
        MutexGuard::new(self)
    }

    /// The value, without locking: `&mut self` excludes every other holder.
    ///
    /// # Examples
    /// ```
    /// let mut mutex = heist::sync::Mutex::new(1);
    /// *mutex.get_mut() += 1;
    /// assert_eq!(mutex.into_inner(), 2);
    /// ```
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Whether the mutex is held at this moment.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.raw.is_locked()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("Mutex");
        match self.try_lock() {
            Some(guard) => shown.field("data", &&*guard),
            None => shown.field("data", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

/// The right to use the value of a [`Mutex`]. Dropping it releases the mutex.
///
/// It may be held while its goroutine waits for something. Unlike std's guard it may be sent to
/// another thread: a goroutine moves between threads, and any thread may release the mutex.
#[must_use = "if the guard is not kept, the mutex is released at once"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// The guard has the variance and the auto traits of the reference that it hands out.
    _data: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The guard of a mutex that the caller holds.
    #[inline]
    pub(super) const fn new(mutex: &'a Mutex<T>) -> Self {
        Self { mutex, _data: PhantomData }
    }

    /// The mutex of this guard, which stays locked.
    pub(super) const fn into_mutex(guard: Self) -> &'a Mutex<T> {
        let mutex = guard.mutex;
        std::mem::forget(guard);
        mutex
    }

    /// The mutex of this guard.
    pub(super) const fn mutex(guard: &Self) -> &'a Mutex<T> {
        guard.mutex
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to use the data.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the right to use the data, and it is borrowed mutably.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.mutex.raw.unlock();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

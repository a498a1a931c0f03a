//! Many readers, or one writer.

use super::raw_mutex::Locked;
use super::raw_rw_lock::RawRwLock;
use crate::time::{deadline_after, deadline_at};
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::time::{Duration, Instant};

/// Gives the use of a value to any number of readers, or to one writer.
///
/// # Fairness
/// As in Go. A waiting writer keeps new readers out, and when a writer leaves, all waiting readers
/// enter before the next writer. So neither side starves. It also means that a reader that calls
/// [`read`](Self::read) again may wait forever, behind a writer that waits for the first read.
///
/// # Panics and cancellation
/// It is **not poisoned**; see [`Mutex`](super::Mutex).
///
/// # Examples
/// ```
/// use heist::sync::RwLock;
///
/// static NAMES: RwLock<Vec<String>> = RwLock::new(Vec::new());
///
/// NAMES.write().push("ada".into());
/// let (one, two) = (NAMES.read(), NAMES.read());
/// assert_eq!((one.len(), two.len()), (1, 1));
/// ```
#[doc(alias = "RWMutex")]
pub struct RwLock<T: ?Sized> {
    pub(super) raw: RawRwLock,
    pub(super) data: UnsafeCell<T>,
}

// SAFETY: the lock gives the data to one writer, or to readers that share it.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// SAFETY: the lock owns the data, so it can be sent where the data can.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}

// As for `Mutex`.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

impl<T> RwLock<T> {
    /// A free lock around `value`.
    #[must_use]
    pub const fn new(value: T) -> Self {
        Self { raw: RawRwLock::new(), data: UnsafeCell::new(value) }
    }

    /// The value, out of the lock.
    #[must_use]
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock or waits for it, and takes it to read.
    ///
    /// # Panics
    /// If a billion readers hold the lock already.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(1);
    /// assert_eq!(*lock.read() + *lock.read(), 2);
    /// ```
    #[inline]
    #[doc(alias = "RLock")]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        let _ = self.raw.read(None);
        RwLockReadGuard::new(self)
    }

    /// Takes the lock to read, if no writer holds it or waits for it.
    #[inline]
    #[must_use = "if the guard is not kept, the lock is released at once"]
    #[doc(alias = "TryRLock")]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        self.raw.try_read().then(|| RwLockReadGuard::new(self))
    }

    /// Waits to read, for at most `timeout`.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let lock = heist::sync::RwLock::new(1);
    /// let writer = lock.write();
    /// assert!(lock.try_read_for(Duration::from_millis(1)).is_none());
    /// ```
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_read_for(&self, timeout: Duration) -> Option<RwLockReadGuard<'_, T>> {
        self.read_until_ns(deadline_after(timeout))
    }

    /// Waits to read, at most until `deadline`.
    ///
    /// # Panics
    /// As [`read`](Self::read).
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    /// let lock = heist::sync::RwLock::new(1);
    /// assert!(lock.try_read_until(Instant::now()).is_some());
    /// ```
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_read_until(&self, deadline: Instant) -> Option<RwLockReadGuard<'_, T>> {
        self.read_until_ns(deadline_at(deadline))
    }

    fn read_until_ns(&self, deadline_ns: u64) -> Option<RwLockReadGuard<'_, T>> {
        let locked = self.raw.read(Some(deadline_ns));
        (locked == Locked::Yes).then(|| RwLockReadGuard::new(self))
    }

    /// Waits until the lock is free, and takes it to write.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(1);
    /// *lock.write() += 1;
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    #[inline]
    #[doc(alias = "Lock")]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        let _ = self.raw.write(None);
        RwLockWriteGuard::new(self)
    }

    /// Takes the lock to write, if it is free.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(1);
    /// let reader = lock.read();
    /// assert!(lock.try_write().is_none());
    /// assert!(lock.try_read().is_some());
    /// ```
    #[inline]
    #[must_use = "if the guard is not kept, the lock is released at once"]
    #[doc(alias = "TryLock")]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.try_write().then(|| RwLockWriteGuard::new(self))
    }

    /// Waits to write, for at most `timeout`. A writer that gives up admits the readers that waited
    /// behind it.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let lock = heist::sync::RwLock::new(1);
    /// let reader = lock.read();
    /// assert!(lock.try_write_for(Duration::from_millis(1)).is_none());
    /// assert!(lock.try_read().is_some());
    /// ```
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_write_for(&self, timeout: Duration) -> Option<RwLockWriteGuard<'_, T>> {
        self.write_until_ns(deadline_after(timeout))
    }

    /// Waits to write, at most until `deadline`; otherwise as
    /// [`try_write_for`](Self::try_write_for).
    ///
    /// # Examples
    /// ```
    /// use std::time::Instant;
    /// let lock = heist::sync::RwLock::new(1);
    /// let reader = lock.read();
    /// assert!(lock.try_write_until(Instant::now()).is_none());
    /// ```
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_write_until(&self, deadline: Instant) -> Option<RwLockWriteGuard<'_, T>> {
        self.write_until_ns(deadline_at(deadline))
    }

    fn write_until_ns(&self, deadline_ns: u64) -> Option<RwLockWriteGuard<'_, T>> {
        let locked = self.raw.write(Some(deadline_ns));
        (locked == Locked::Yes).then(|| RwLockWriteGuard::new(self))
    }

    /// The value, without locking: `&mut self` excludes every other holder.
    #[must_use]
    pub const fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }

    /// Whether the lock is held at this moment, in any way, or a writer waits.
    #[must_use]
    pub fn is_locked(&self) -> bool {
        self.raw.is_busy()
    }

    /// Whether a writer holds the lock at this moment, or waits until the readers have left.
    #[must_use]
    pub fn is_locked_exclusive(&self) -> bool {
        self.raw.is_exclusive()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> Self {
        Self::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => shown.field("data", &&*guard),
            None => shown.field("data", &format_args!("<locked>")),
        };
        shown.finish()
    }
}

/// The right to read the value of an [`RwLock`]. Dropping it releases the lock.
///
/// It may be held while its goroutine waits for something, and may be sent to another thread. As
/// std's, it is covariant: it can stand for the right to read a value with a shorter lifetime.
///
/// ```
/// use heist::sync::{RwLock, RwLockReadGuard};
/// fn longer<'a>(one: RwLockReadGuard<'_, &'a str>, other: &'a str) -> &'a str {
///     if one.len() > other.len() { *one } else { other }
/// }
/// let lock = RwLock::new("static");
/// let short = String::from("short");
/// assert_eq!(longer(lock.read(), &short), "static");
/// ```
#[must_use = "if the guard is not kept, the lock is released at once"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    raw: &'a RawRwLock,
    /// The value, which is borrowed for `'a`. Not a reference: the guard may be an argument of a
    /// function whose last act is to drop it, and a reference would have to be valid longer.
    data: NonNull<T>,
    _data: PhantomData<&'a T>,
}

// SAFETY: it is a shared reference to the value, and the lock may be released on any thread.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: a shared reference to it gives shared references to the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

// As for `RwLock`.
impl<T: ?Sized> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockReadGuard<'_, T> {}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// The guard of a lock that the caller holds to read.
    #[inline]
    pub(super) const fn new(lock: &'a RwLock<T>) -> Self {
        // SAFETY: the address of a cell's content is not null.
        let data = unsafe { NonNull::new_unchecked(lock.data.get()) };
        Self { raw: &lock.raw, data, _data: PhantomData }
    }

    /// The parts of this guard, whose lock stays held.
    pub(super) const fn into_parts(guard: Self) -> (&'a RawRwLock, NonNull<T>) {
        let parts = (guard.raw, guard.data);
        std::mem::forget(guard);
        parts
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to read the data.
        unsafe { self.data.as_ref() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.raw.read_done();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The exclusive right to use the value of an [`RwLock`]. Dropping it releases the lock.
///
/// It may be held while its goroutine waits for something, and may be sent to another thread.
#[must_use = "if the guard is not kept, the lock is released at once"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// The guard has the variance and the auto traits of the reference that it hands out.
    _data: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// The guard of a lock that the caller holds to write.
    #[inline]
    pub(super) const fn new(lock: &'a RwLock<T>) -> Self {
        Self { lock, _data: PhantomData }
    }

    /// The lock of this guard, which stays held.
    pub(super) const fn into_lock(guard: Self) -> &'a RwLock<T> {
        let lock = guard.lock;
        std::mem::forget(guard);
        lock
    }

    /// Admits other readers and continues as a reader. No writer can enter in between.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let mut writer = lock.write();
    /// *writer += 1;
    /// let reader = RwLockWriteGuard::downgrade(writer);
    /// assert_eq!((*reader, *lock.read()), (2, 2));
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = Self::into_lock(guard);
        let reader = RwLockReadGuard::new(lock);
        lock.raw.downgrade();
        reader
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to use the data.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the right to use the data, and it is borrowed mutably.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.write_done();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! Readers of an [`RwLock`] that can become writers.

use super::raw_mutex::Locked;
use super::rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
use crate::time::{deadline_after, deadline_at};
use std::fmt;
use std::marker::PhantomData;
use std::ops::Deref;
use std::time::{Duration, Instant};

impl<T: ?Sized> RwLock<T> {
    /// Waits until no writer holds the lock, and no other upgradable reader, and takes it to read,
    /// with the right to [`upgrade`](RwLockUpgradableReadGuard::upgrade).
    ///
    /// Plain readers come and go beside an upgradable reader. Because there is one upgradable
    /// reader at a time, upgrading cannot deadlock, as two plain readers would that both wait for
    /// the other to leave.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockUpgradableReadGuard};
    /// use std::collections::HashMap;
    ///
    /// let cache = RwLock::new(HashMap::from([(1, "one")]));
    /// let entries = cache.upgradable_read();
    /// if !entries.contains_key(&2) {
    ///     assert!(cache.try_read().is_some(), "readers are admitted");
    ///     let mut entries = RwLockUpgradableReadGuard::upgrade(entries);
    ///     entries.insert(2, "two");
    /// }
    /// assert_eq!(cache.read().len(), 2);
    /// ```
    pub fn upgradable_read(&self) -> RwLockUpgradableReadGuard<'_, T> {
        let _ = self.raw.upgradable(None);
        RwLockUpgradableReadGuard::new(self)
    }

    /// Takes the lock to read with the right to upgrade, if that is possible without waiting.
    ///
    /// # Examples
    /// ```
    /// let lock = heist::sync::RwLock::new(1);
    /// let first = lock.try_upgradable_read().unwrap();
    /// assert!(lock.try_upgradable_read().is_none() && lock.try_write().is_none());
    /// assert!(lock.try_read().is_some());
    /// ```
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_upgradable_read(&self) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        self.raw.try_upgradable().then(|| RwLockUpgradableReadGuard::new(self))
    }

    /// As [`upgradable_read`](Self::upgradable_read), for at most `timeout`.
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_upgradable_read_for(
        &self,
        timeout: Duration,
    ) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        let locked = self.raw.upgradable(Some(deadline_after(timeout)));
        (locked == Locked::Yes).then(|| RwLockUpgradableReadGuard::new(self))
    }

    /// As [`upgradable_read`](Self::upgradable_read), at most until `deadline`.
    #[must_use = "if the guard is not kept, the lock is released at once"]
    pub fn try_upgradable_read_until(
        &self,
        deadline: Instant,
    ) -> Option<RwLockUpgradableReadGuard<'_, T>> {
        let locked = self.raw.upgradable(Some(deadline_at(deadline)));
        (locked == Locked::Yes).then(|| RwLockUpgradableReadGuard::new(self))
    }
}

/// The right to read the value of an [`RwLock`], and to become its writer. Dropping it releases the
/// lock. See [`RwLock::upgradable_read`].
///
/// It may be held while its goroutine waits for something, and may be sent to another thread.
#[must_use = "if the guard is not kept, the lock is released at once"]
pub struct RwLockUpgradableReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// The guard has the variance and the auto traits of the reference that an upgrade hands out.
    _data: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockUpgradableReadGuard<'a, T> {
    /// The guard of a lock that the caller holds as its upgradable reader.
    pub(super) const fn new(lock: &'a RwLock<T>) -> Self {
        Self { lock, _data: PhantomData }
    }

    const fn into_lock(guard: Self) -> &'a RwLock<T> {
        let lock = guard.lock;
        std::mem::forget(guard);
        lock
    }

    /// Waits until the readers have left, and continues as the writer. No other writer can enter
    /// in between. New readers wait meanwhile.
    ///
    /// A goroutine that is cancelled meanwhile unwinds without the lock.
    pub fn upgrade(guard: Self) -> RwLockWriteGuard<'a, T> {
        let lock = Self::into_lock(guard);
        let _ = lock.raw.upgrade(None);
        RwLockWriteGuard::new(lock)
    }

    /// Continues as the writer, if there are no readers.
    ///
    /// # Errors
    /// The guard itself, if there are readers.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockUpgradableReadGuard};
    /// let lock = RwLock::new(1);
    /// let (upgradable, reader) = (lock.upgradable_read(), lock.read());
    /// let upgradable = RwLockUpgradableReadGuard::try_upgrade(upgradable).unwrap_err();
    /// drop(reader);
    /// *RwLockUpgradableReadGuard::try_upgrade(upgradable).unwrap() += 1;
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    pub fn try_upgrade(guard: Self) -> Result<RwLockWriteGuard<'a, T>, Self> {
        if guard.lock.raw.try_upgrade() {
            Ok(RwLockWriteGuard::new(Self::into_lock(guard)))
        } else {
            Err(guard)
        }
    }

    /// As [`upgrade`](Self::upgrade), for at most `timeout`.
    ///
    /// # Errors
    /// The guard itself, if there were readers until the time was over. Readers that waited
    /// meanwhile are admitted.
    pub fn try_upgrade_for(
        guard: Self,
        timeout: Duration,
    ) -> Result<RwLockWriteGuard<'a, T>, Self> {
        Self::upgrade_until_ns(guard, deadline_after(timeout))
    }

    /// As [`upgrade`](Self::upgrade), at most until `deadline`.
    ///
    /// # Errors
    /// As [`try_upgrade_for`](Self::try_upgrade_for).
    pub fn try_upgrade_until(
        guard: Self,
        deadline: Instant,
    ) -> Result<RwLockWriteGuard<'a, T>, Self> {
        Self::upgrade_until_ns(guard, deadline_at(deadline))
    }

    fn upgrade_until_ns(guard: Self, deadline_ns: u64) -> Result<RwLockWriteGuard<'a, T>, Self> {
        // A caller that unwinds does so without the lock, so the guard must not release it.
        let lock = Self::into_lock(guard);
        match lock.raw.upgrade(Some(deadline_ns)) {
            Locked::Yes => Ok(RwLockWriteGuard::new(lock)),
            Locked::TimedOut => Err(Self::new(lock)),
        }
    }

    /// Becomes a plain reader: another reader may become upgradable, and a writer may wait.
    ///
    /// # Panics
    /// If a billion readers hold the lock already.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockUpgradableReadGuard};
    /// let lock = RwLock::new(1);
    /// let reader = RwLockUpgradableReadGuard::downgrade(lock.upgradable_read());
    /// assert_eq!((*reader, *lock.upgradable_read()), (1, 1));
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let is_counted = guard.lock.raw.downgrade_upgradable();
        assert!(is_counted, "sync: too many readers of an RwLock: are read guards leaked?");
        RwLockReadGuard::new(Self::into_lock(guard))
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Admits readers and continues as the upgradable reader. No writer can enter in between.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockUpgradableReadGuard, RwLockWriteGuard};
    /// let lock = RwLock::new(1);
    /// let upgradable = RwLockWriteGuard::downgrade_to_upgradable(lock.write());
    /// assert_eq!(*lock.read(), 1);
    /// *RwLockUpgradableReadGuard::upgrade(upgradable) += 1;
    /// assert_eq!(lock.into_inner(), 2);
    /// ```
    pub fn downgrade_to_upgradable(guard: Self) -> RwLockUpgradableReadGuard<'a, T> {
        let lock = Self::into_lock(guard);
        let upgradable = RwLockUpgradableReadGuard::new(lock);
        lock.raw.downgrade_to_upgradable();
        upgradable
    }
}

impl<T: ?Sized> Deref for RwLockUpgradableReadGuard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the right to read the data.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockUpgradableReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.raw.upgradable_done();
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockUpgradableReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockUpgradableReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

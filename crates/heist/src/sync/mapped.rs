//! Guards of a part of a protected value.

use super::mutex::MutexGuard;
use super::raw_mutex::RawMutex;
use super::raw_rw_lock::RawRwLock;
use super::rw_lock::{RwLockReadGuard, RwLockWriteGuard};
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;

/// The right to use a part of the value of a [`Mutex`](super::Mutex); see [`MutexGuard::map`].
/// Dropping it releases the mutex.
#[must_use = "if the guard is not kept, the mutex is released at once"]
pub struct MappedMutexGuard<'a, T: ?Sized> {
    raw: &'a RawMutex,
    data: NonNull<T>,
    /// The guard has the variance of the reference that it hands out.
    _data: PhantomData<&'a mut T>,
}

/// The right to read a part of the value of an [`RwLock`](super::RwLock); see
/// [`RwLockReadGuard::map`]. Dropping it releases the lock.
#[must_use = "if the guard is not kept, the lock is released at once"]
pub struct MappedRwLockReadGuard<'a, T: ?Sized> {
    raw: &'a RawRwLock,
    data: NonNull<T>,
    _data: PhantomData<&'a T>,
}

/// The exclusive right to use a part of the value of an [`RwLock`](super::RwLock); see
/// [`RwLockWriteGuard::map`]. Dropping it releases the lock.
#[must_use = "if the guard is not kept, the lock is released at once"]
pub struct MappedRwLockWriteGuard<'a, T: ?Sized> {
    raw: &'a RawRwLock,
    data: NonNull<T>,
    /// The guard has the variance of the reference that it hands out.
    _data: PhantomData<&'a mut T>,
}

// SAFETY: it is a mutable reference to the part, and the mutex may be released on any thread.
unsafe impl<T: ?Sized + Send> Send for MappedMutexGuard<'_, T> {}
// SAFETY: a shared reference to it gives shared references to the part.
unsafe impl<T: ?Sized + Sync> Sync for MappedMutexGuard<'_, T> {}
// SAFETY: it is a shared reference to the part, and the lock may be released on any thread.
unsafe impl<T: ?Sized + Sync> Send for MappedRwLockReadGuard<'_, T> {}
// SAFETY: a shared reference to it gives shared references to the part.
unsafe impl<T: ?Sized + Sync> Sync for MappedRwLockReadGuard<'_, T> {}
// SAFETY: it is a mutable reference to the part, and the lock may be released on any thread.
unsafe impl<T: ?Sized + Send> Send for MappedRwLockWriteGuard<'_, T> {}
// SAFETY: a shared reference to it gives shared references to the part.
unsafe impl<T: ?Sized + Sync> Sync for MappedRwLockWriteGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// Continues as a guard of a part of the value. The mutex stays locked.
    ///
    /// It is an associated function, so that it does not hide a method of the value. A mapped guard
    /// cannot be passed to a [`Condvar`](super::Condvar), which could not restore the part.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{MappedMutexGuard, Mutex, MutexGuard};
    ///
    /// struct Account {
    ///     owner: String,
    ///     balance: i64,
    /// }
    ///
    /// fn balance(account: &Mutex<Account>) -> MappedMutexGuard<'_, i64> {
    ///     MutexGuard::map(account.lock(), |account| &mut account.balance)
    /// }
    ///
    /// let account = Mutex::new(Account { owner: "ada".into(), balance: 5 });
    /// *balance(&account) += 10;
    /// let account = account.lock();
    /// assert_eq!((account.balance, &*account.owner), (15, "ada"));
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedMutexGuard<'a, U> {
        // If `part` panics, the guard is dropped.
        let data = NonNull::from(part(&mut *guard));
        MappedMutexGuard { raw: &Self::into_mutex(guard).raw, data, _data: PhantomData }
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard itself, if there is none.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{Mutex, MutexGuard};
    /// let queue = Mutex::new(vec![1]);
    /// let mut first = MutexGuard::try_map(queue.lock(), |queue| queue.first_mut()).unwrap();
    /// *first += 1;
    /// drop(first);
    /// let whole = MutexGuard::try_map(queue.lock(), |queue| queue.get_mut(5)).unwrap_err();
    /// assert_eq!(*whole, [2]);
    /// ```
    #[doc(alias = "filter_map")]
    pub fn try_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedMutexGuard<'a, U>, Self> {
        let Some(data) = part(&mut *guard).map(NonNull::from) else { return Err(guard) };
        Ok(MappedMutexGuard { raw: &Self::into_mutex(guard).raw, data, _data: PhantomData })
    }
}

impl<'a, T: ?Sized> RwLockReadGuard<'a, T> {
    /// Continues as a guard of a part of the value. The lock stays held.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockReadGuard};
    /// let pair = RwLock::new((1, "one"));
    /// let name = RwLockReadGuard::map(pair.read(), |pair| pair.1);
    /// assert_eq!(&*name, "one");
    /// assert!(pair.try_write().is_none());
    /// ```
    pub fn map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> &U,
    ) -> MappedRwLockReadGuard<'a, U> {
        let data = NonNull::from(part(&*guard));
        let (raw, _) = Self::into_parts(guard);
        MappedRwLockReadGuard { raw, data, _data: PhantomData }
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard itself, if there is none.
    #[doc(alias = "filter_map")]
    pub fn try_map<U: ?Sized>(
        guard: Self,
        part: impl FnOnce(&T) -> Option<&U>,
    ) -> Result<MappedRwLockReadGuard<'a, U>, Self> {
        let Some(data) = part(&*guard).map(NonNull::from) else { return Err(guard) };
        let (raw, _) = Self::into_parts(guard);
        Ok(MappedRwLockReadGuard { raw, data, _data: PhantomData })
    }
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Continues as a guard of a part of the value. The lock stays held.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::{RwLock, RwLockWriteGuard};
    /// let pair = RwLock::new((1, "one"));
    /// *RwLockWriteGuard::map(pair.write(), |pair| &mut pair.0) += 1;
    /// assert_eq!(pair.into_inner().0, 2);
    /// ```
    pub fn map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> &mut U,
    ) -> MappedRwLockWriteGuard<'a, U> {
        let data = NonNull::from(part(&mut *guard));
        MappedRwLockWriteGuard { raw: &Self::into_lock(guard).raw, data, _data: PhantomData }
    }

    /// As [`map`](Self::map), if there is such a part.
    ///
    /// # Errors
    /// The guard itself, if there is none.
    #[doc(alias = "filter_map")]
    pub fn try_map<U: ?Sized>(
        mut guard: Self,
        part: impl FnOnce(&mut T) -> Option<&mut U>,
    ) -> Result<MappedRwLockWriteGuard<'a, U>, Self> {
        let Some(data) = part(&mut *guard).map(NonNull::from) else { return Err(guard) };
        Ok(MappedRwLockWriteGuard { raw: &Self::into_lock(guard).raw, data, _data: PhantomData })
    }
}

/// What the three types have in common.
macro_rules! mapped {
    ($type:ident, $raw:ty, $release:ident, ($($mut:tt)?)) => {
        // As for the lock.
        impl<T: ?Sized> UnwindSafe for $type<'_, T> {}
        impl<T: ?Sized> RefUnwindSafe for $type<'_, T> {}

        impl<'a, T: ?Sized> $type<'a, T> {
            /// Continues as a guard of a part of this part.
            pub fn map<U: ?Sized>(
                $($mut)? guard: Self,
                part: impl FnOnce(&$($mut)? T) -> &$($mut)? U,
            ) -> $type<'a, U> {
                let data = NonNull::from(part(&$($mut)? *guard));
                $type { raw: Self::into_raw(guard), data, _data: PhantomData }
            }

            /// As [`map`](Self::map), if there is such a part.
            ///
            /// # Errors
            /// The guard itself, if there is none.
            #[doc(alias = "filter_map")]
            pub fn try_map<U: ?Sized>(
                $($mut)? guard: Self,
                part: impl FnOnce(&$($mut)? T) -> Option<&$($mut)? U>,
            ) -> Result<$type<'a, U>, Self> {
                let Some(data) = part(&$($mut)? *guard).map(NonNull::from) else {
                    return Err(guard);
                };
                Ok($type { raw: Self::into_raw(guard), data, _data: PhantomData })
            }

            /// The lock of this guard, which stays held.
            const fn into_raw(guard: Self) -> &'a $raw {
                let raw = guard.raw;
                std::mem::forget(guard);
                raw
            }
        }

        impl<T: ?Sized> Deref for $type<'_, T> {
            type Target = T;

            #[inline]
            fn deref(&self) -> &T {
                // SAFETY: the guard is the right to use the part.
                unsafe { self.data.as_ref() }
            }
        }

        $(
            impl<T: ?Sized> DerefMut for $type<'_, T> {
                #[inline]
                fn deref_mut(&$mut self) -> &$mut T {
                    // SAFETY: the guard is the exclusive right to use the part, and it is borrowed
                    // mutably.
                    unsafe { self.data.as_mut() }
                }
            }
        )?

        impl<T: ?Sized> Drop for $type<'_, T> {
            #[inline]
            fn drop(&mut self) {
                self.raw.$release();
            }
        }

        impl<T: ?Sized + fmt::Debug> fmt::Debug for $type<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }

        impl<T: ?Sized + fmt::Display> fmt::Display for $type<'_, T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                (**self).fmt(f)
            }
        }
    };
}

mapped!(MappedMutexGuard, RawMutex, unlock, (mut));
mapped!(MappedRwLockReadGuard, RawRwLock, read_done, ());
mapped!(MappedRwLockWriteGuard, RawRwLock, write_done, (mut));

//! Values that are made once, at their first use.
//!
//! # Ordering
//! `full` is set with Release after the value is written, and read with Acquire: a thread that sees
//! it set sees the value.
//!
//! # Dropping
//! The value is dropped as a field, without an implementation of `Drop`. So a lock may hold
//! references to values that are dropped before it, as std's may.

use super::latch::Latch;
use super::raw_mutex::RawMutex;
use crate::wait::WaitReason;
use std::cell::{Cell, UnsafeCell};
use std::convert::Infallible;
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicBool, Ordering};

/// A value that is written once.
///
/// A goroutine or thread that asks for the value while another makes it waits for it. If making it
/// panics, or the goroutine that makes it is cancelled, the next caller tries.
///
/// # Examples
/// ```
/// use heist::sync::OnceLock;
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// assert!(CONFIG.get().is_none());
/// assert_eq!(CONFIG.get_or_init(|| "first".into()), "first");
/// assert_eq!(CONFIG.get_or_init(|| "second".into()), "first");
/// assert_eq!(CONFIG.set("third".into()), Err("third".into()));
/// ```
///
/// As std's, it may hold a reference to a value that is dropped before it:
/// ```
/// let cell = heist::sync::OnceLock::new();
/// let text = String::from("dropped first");
/// cell.set(&text).unwrap();
/// ```
#[doc(alias = "OnceValue")]
pub struct OnceLock<T> {
    full: AtomicBool,
    mutex: RawMutex,
    /// Those that wait for the value without a way to make it.
    waiters: Latch,
    /// Not None if `full` is set.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written once, under the mutex, and only shared afterwards. It may be dropped
// on another thread.
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: the lock owns the value, so it can be sent where the value can.
unsafe impl<T: Send> Send for OnceLock<T> {}

// There is a value or there is none: a panic while it is made leaves none. So the lock is as
// unwind-safe as the value, owned or by reference.
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}
impl<T: UnwindSafe + RefUnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// No value yet.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            full: AtomicBool::new(false),
            mutex: RawMutex::new(),
            waiters: Latch::new(),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if there is one. Does not wait.
    #[inline]
    #[must_use]
    pub fn get(&self) -> Option<&T> {
        if !self.full.load(Ordering::Acquire) {
            return None;
        }
        // SAFETY: `full` is set, so the value is there and does not change.
        Some(unsafe { self.value_unchecked() })
    }

    /// The value.
    ///
    /// # Safety
    /// `full` is set, and the caller comes after that.
    #[inline]
    unsafe fn value_unchecked(&self) -> &T {
        // SAFETY: by the caller's promise the value is there and does not change.
        unsafe { (*self.value.get()).as_ref().unwrap_unchecked() }
    }

    /// The value, if there is one.
    #[must_use]
    pub const fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Waits until there is a value, which another goroutine or thread makes or stores.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::OnceLock;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// static ADDRESS: OnceLock<String> = OnceLock::new();
    /// let client = heist::go(|| ADDRESS.wait().len());
    /// ADDRESS.set("localhost".into()).unwrap();
    /// assert_eq!(client.join().unwrap(), 9);
    /// # });
    /// ```
    #[inline]
    pub fn wait(&self) -> &T {
        if let Some(value) = self.get() {
            return value;
        }
        self.waiters.wait(|| self.full.load(Ordering::Acquire));
        // SAFETY: `full` is set.
        unsafe { self.value_unchecked() }
    }

    /// The value. If there is none yet, `make` makes it.
    #[inline]
    pub fn get_or_init(&self, make: impl FnOnce() -> T) -> &T {
        match self.get() {
            Some(value) => value,
            None => {
                let Ok(value) = self.init_slow(|| Ok::<T, Infallible>(make()));
                value
            }
        }
    }

    /// The value. If there is none yet, `make` makes it, or fails: then there still is none, and
    /// the next caller tries.
    ///
    /// # Errors
    /// That of `make`.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::OnceLock;
    /// let port = OnceLock::new();
    /// assert!(port.get_or_try_init(|| "x".parse::<u16>()).is_err());
    /// assert_eq!(port.get_or_try_init(|| "80".parse::<u16>()), Ok(&80));
    /// assert_eq!(port.get_or_try_init(|| "443".parse::<u16>()), Ok(&80));
    /// ```
    #[inline]
    pub fn get_or_try_init<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        match self.get() {
            Some(value) => Ok(value),
            None => self.init_slow(make),
        }
    }

    #[cold]
    fn init_slow<E>(&self, make: impl FnOnce() -> Result<T, E>) -> Result<&T, E> {
        self.mutex.lock(WaitReason::Mutex);
        let unlock = Unlock(&self.mutex);
        if !self.full.load(Ordering::Relaxed) {
            let value = make()?;
            // SAFETY: the value is not read before `full` is set, and only the holder of the mutex
            // writes. There was none, so nothing is dropped.
            unsafe { self.value.get().write(Some(value)) };
            self.full.store(true, Ordering::Release);
            drop(unlock);
            self.waiters.open();
        }
        // SAFETY: `full` is set; a caller that did not set it has seen that under the mutex.
        Ok(unsafe { self.value_unchecked() })
    }

    /// Stores a value.
    ///
    /// # Errors
    /// The value itself, if there is one already.
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| match value.take() {
            Some(value) => value,
            None => unreachable!("the closure runs once"),
        });
        value.map_or(Ok(()), Err)
    }

    /// Takes the value out and leaves none.
    ///
    /// # Examples
    /// ```
    /// let mut cell = heist::sync::OnceLock::from(5);
    /// assert_eq!(cell.take(), Some(5));
    /// assert_eq!(cell.take(), None);
    /// ```
    #[must_use]
    pub fn take(&mut self) -> Option<T> {
        *self.full.get_mut() = false;
        self.value.get_mut().take()
    }

    /// The value, if there is one.
    #[must_use]
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

struct Unlock<'a>(&'a RawMutex);

impl Drop for Unlock<'_> {
    fn drop(&mut self) {
        self.0.unlock();
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> Self {
        let (full, value) = (AtomicBool::new(true), UnsafeCell::new(Some(value)));
        Self { full, value, ..Self::new() }
    }
}

/// A new lock with a clone of the value, if there is one.
impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> Self {
        self.get().map_or_else(Self::new, |value| Self::from(value.clone()))
    }
}

impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &Self) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut shown = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => shown.field(value),
            None => shown.field(&format_args!("<empty>")),
        };
        shown.finish()
    }
}

/// A value that is made when it is first used.
///
/// # Panics
/// Using it panics if the function panicked for the first user, and also if the first user was
/// cancelled or ended itself meanwhile: the function may consume its captures, so it can be called
/// only once. If a second try is wanted, use [`OnceLock::get_or_init`], which takes another
/// function each time.
///
/// # Examples
/// ```
/// use heist::sync::LazyLock;
/// static SQUARES: LazyLock<Vec<u32>> = LazyLock::new(|| (0..10).map(|n| n * n).collect());
/// assert_eq!(SQUARES[7], 49);
/// ```
#[doc(alias = "OnceFunc")]
pub struct LazyLock<T, F = fn() -> T> {
    cell: OnceLock<T>,
    make: Cell<Option<F>>,
}

// SAFETY: `make` is taken under the mutex of the cell, by one caller.
unsafe impl<T: Send + Sync, F: Send> Sync for LazyLock<T, F> {}

// As for the cell; the function is used once, and not at all after a panic.
impl<T: UnwindSafe, F: UnwindSafe> UnwindSafe for LazyLock<T, F> {}
impl<T: UnwindSafe + RefUnwindSafe, F: UnwindSafe> RefUnwindSafe for LazyLock<T, F> {}

impl<T, F: FnOnce() -> T> LazyLock<T, F> {
    /// A value that `make` will make.
    #[must_use]
    pub const fn new(make: F) -> Self {
        Self { cell: OnceLock::new(), make: Cell::new(Some(make)) }
    }

    /// Makes the value now, if it has not been made.
    ///
    /// # Panics
    /// If an earlier call of the function did not finish.
    #[inline]
    pub fn force(this: &Self) -> &T {
        this.cell.get_or_init(|| match this.make.take() {
            Some(make) => make(),
            None => panic!("sync: LazyLock: making the value failed before; to try again, use OnceLock::get_or_init"),
        })
    }
}

/// The value's own default, made when it is first used.
impl<T: Default> Default for LazyLock<T> {
    fn default() -> Self {
        Self::new(T::default)
    }
}

impl<T, F: FnOnce() -> T> Deref for LazyLock<T, F> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        Self::force(self)
    }
}

impl<T: fmt::Debug, F> fmt::Debug for LazyLock<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.cell.fmt(f)
    }
}

//! Doing something once.
//!
//! # Ordering
//! `done` is set with Release after the body has run, and read with Acquire: a thread that sees it
//! set sees everything that the body did. The lock of the latch orders it for those that wait.
//!
//! GO: sync/once.go.

use super::latch::Latch;
use super::raw_mutex::RawMutex;
use crate::wait::WaitReason;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};

/// Runs the closure of the first caller. The other callers wait until it has returned.
///
/// As in Go, and unlike std's, a body that panics or whose goroutine is cancelled **counts as
/// done**: it does not run again, and the other callers do not panic.
///
/// A body that calls the same `Once` again waits forever.
///
/// # Examples
/// ```
/// use heist::sync::Once;
/// static SETUP: Once = Once::new();
///
/// let mut runs = 0;
/// SETUP.call_once(|| runs += 1);
/// SETUP.call_once(|| runs += 1);
/// assert_eq!(runs, 1);
/// assert!(SETUP.is_completed());
/// ```
pub struct Once {
    done: AtomicBool,
    mutex: RawMutex,
    /// Those that wait without a body of their own.
    waiters: Latch,
}

impl Once {
    /// A `Once` for which no body has run.
    #[must_use]
    pub const fn new() -> Self {
        Self { done: AtomicBool::new(false), mutex: RawMutex::new(), waiters: Latch::new() }
    }

    /// Runs `body` if none has been run with this `Once`, and returns when one has.
    #[inline]
    #[doc(alias = "Do")]
    pub fn call_once(&self, body: impl FnOnce()) {
        if !self.is_completed() {
            self.call_slow(body);
        }
    }

    #[cold]
    fn call_slow(&self, body: impl FnOnce()) {
        self.mutex.lock(WaitReason::Mutex);
        let _done = Done(self);
        if !self.done.load(Ordering::Relaxed) {
            body();
        }
    }

    /// Waits until a body has been run, by some caller of [`call_once`](Self::call_once). Does not
    /// run one.
    ///
    /// # Examples
    /// ```
    /// use heist::sync::Once;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// static READY: Once = Once::new();
    /// let waiter = heist::go(|| READY.wait());
    /// READY.call_once(|| println!("ready"));
    /// waiter.join().unwrap();
    /// # });
    /// ```
    #[inline]
    pub fn wait(&self) {
        if !self.is_completed() {
            self.waiters.wait(|| self.is_completed());
        }
    }

    /// Whether a body has been run.
    #[inline]
    #[must_use]
    pub fn is_completed(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }
}

/// Marks the body as run when it is dropped, however the body ended.
struct Done<'a>(&'a Once);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        let is_first = !self.0.done.swap(true, Ordering::Release);
        self.0.mutex.unlock();
        if is_first {
            self.0.waiters.open();
        }
    }
}

impl Default for Once {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once").field("completed", &self.is_completed()).finish()
    }
}

//! A channel that holds one value, the newest, for any number of receivers.
//!
//! A [`Sender`] replaces the value. A [`Receiver`] sees the newest one, and waits until there is
//! one that it has not seen. It never sees values that were replaced before it looked. Such a
//! channel is for configuration, for states, for "shut down now".
//!
//! # Examples
//! ```
//! use heist::chan::watch;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let (level, mut seen) = watch::channel("info");
//! let logger = heist::go(move || {
//!     let mut levels = vec![*seen.borrow()];
//!     while seen.changed().is_ok() {
//!         levels.push(*seen.borrow_and_update());
//!     }
//!     levels
//! });
//! level.send("debug").unwrap();
//! drop(level);
//! let levels = logger.join().unwrap();
//! assert_eq!(levels.last(), Some(&"debug"));
//! # });
//! ```
//!
//! # How it works
//! The value is in an `RwLock`. A word counts the versions, and says whether there are senders. It
//! changes under a mutex, at which receivers wait for a change.

use super::error::{RecvError, RecvTimeoutError, SendError};
use crate::sync::{Condvar, Mutex, RwLock, RwLockReadGuard};
use std::fmt;
use std::ops::Deref;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What the senders and receivers share.
struct Shared<T> {
    value: RwLock<Versioned<T>>,
    counts: Mutex<Counts>,
    /// A new version, or the last sender has gone.
    changed: Condvar,
    /// The last receiver has gone, or the first has come.
    receivers_changed: Condvar,
}

struct Versioned<T> {
    value: T,
    version: u64,
}

struct Counts {
    /// That of the value, or of the one before while it is being replaced.
    version: u64,
    n_senders: usize,
    n_receivers: usize,
}

/// A channel with a first value, which receivers have seen.
///
/// # Examples
/// ```
/// let (tx, rx) = heist::chan::watch::channel(1);
/// tx.send(2).unwrap();
/// assert_eq!(*rx.borrow(), 2);
/// ```
pub fn channel<T>(value: T) -> (Sender<T>, Receiver<T>) {
    let shared = Arc::new(Shared {
        value: RwLock::new(Versioned { value, version: 0 }),
        counts: Mutex::new(Counts { version: 0, n_senders: 1, n_receivers: 1 }),
        changed: Condvar::new(),
        receivers_changed: Condvar::new(),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, seen: 0 })
}

impl<T> Shared<T> {
    /// Changes the value. Nothing happens to the version if `change` returns false or panics.
    fn change(&self, change: impl FnOnce(&mut T) -> bool) -> bool {
        let mut value = self.value.write();
        if !change(&mut value.value) {
            return false;
        }
        value.version += 1;
        // With the lock of the value, so that versions are published in their order.
        self.counts.lock_shielded().version = value.version;
        drop(value);
        self.changed.notify_all();
        true
    }

    /// Waits for a version other than `seen`, and stores it there.
    fn wait_for_change(
        &self,
        seen: &mut u64,
        deadline: Option<Instant>,
    ) -> Result<(), RecvTimeoutError> {
        let mut counts = self.counts.lock();
        let waits = |counts: &mut Counts| counts.version == *seen && counts.n_senders != 0;
        match deadline {
            None => self.changed.wait_while(&mut counts, waits),
            Some(deadline) => {
                if self.changed.wait_while_until(&mut counts, waits, deadline).timed_out() {
                    return Err(RecvTimeoutError::Timeout);
                }
            }
        }
        if counts.version == *seen {
            return Err(RecvTimeoutError::Disconnected);
        }
        *seen = counts.version;
        Ok(())
    }

    fn receiver(self: &Arc<Self>, seen: u64) -> Receiver<T> {
        let mut counts = self.counts.lock_shielded();
        counts.n_receivers += 1;
        if counts.n_receivers == 1 {
            self.receivers_changed.notify_all();
        }
        drop(counts);
        Receiver { shared: Arc::clone(self), seen }
    }
}

/// Replaces the value. Clones are the same channel; when the last one is dropped, the channel is
/// closed.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

// As for `RwLock`.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Replaces the value, and wakes every receiver that waits for a change.
    ///
    /// # Errors
    /// If there is no receiver. The error holds the value, which does not replace the old one;
    /// [`send_replace`](Self::send_replace) does that.
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        if self.is_closed() {
            return Err(SendError(value));
        }
        self.send_replace(value);
        Ok(())
    }

    /// Replaces the value, even if there is no receiver, and returns the old one.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::watch::channel("old");
    /// drop(rx);
    /// assert_eq!(tx.send_replace("new"), "old");
    /// assert_eq!(*tx.subscribe().borrow(), "new");
    /// ```
    pub fn send_replace(&self, mut value: T) -> T {
        self.send_modify(|old| std::mem::swap(old, &mut value));
        value
    }

    /// Changes the value in place, and wakes every receiver that waits for a change. If `modify`
    /// panics, receivers are not told.
    ///
    /// `modify` is called with the lock of the value held, so it must not use this channel.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::watch::channel(vec![1]);
    /// tx.send_modify(|list| list.push(2));
    /// assert_eq!(*rx.borrow(), [1, 2]);
    /// ```
    pub fn send_modify(&self, modify: impl FnOnce(&mut T)) {
        self.shared.change(|value| {
            modify(value);
            true
        });
    }

    /// As [`send_modify`](Self::send_modify), but receivers are told only if `modify` returns true.
    /// Returns what `modify` returned.
    ///
    /// # Examples
    /// ```
    /// let (tx, mut rx) = heist::chan::watch::channel(5);
    /// let raise = |to: i32| move |value: &mut i32| {
    ///     let is_higher = to > *value;
    ///     *value = to.max(*value);
    ///     is_higher
    /// };
    /// assert!(!tx.send_if_modified(raise(3)) && !rx.has_changed().unwrap());
    /// assert!(tx.send_if_modified(raise(7)) && rx.has_changed().unwrap());
    /// ```
    pub fn send_if_modified(&self, modify: impl FnOnce(&mut T) -> bool) -> bool {
        self.shared.change(modify)
    }

    /// The value. While the result lives, senders wait.
    pub fn borrow(&self) -> Ref<'_, T> {
        Ref { value: self.shared.value.read(), has_changed: false }
    }

    /// Another receiver, which has seen the value.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        let version = self.shared.counts.lock_shielded().version;
        self.shared.receiver(version)
    }

    /// Whether there is no receiver.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.receiver_count() == 0
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.shared.counts.lock_shielded().n_receivers
    }

    /// Waits until there is no receiver.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (tx, mut rx) = heist::chan::watch::channel("run");
    /// heist::go(move || rx.wait_for(|state| *state == "stop").map(drop));
    /// tx.send("stop").unwrap();
    /// tx.closed(); // The goroutine has seen it.
    /// # });
    /// ```
    pub fn closed(&self) {
        let counts = self.shared.counts.lock();
        drop(self.shared.receivers_changed.wait_while(counts, |counts| counts.n_receivers != 0));
    }

    /// Whether both are the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.counts.lock_shielded().n_senders += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut counts = self.shared.counts.lock_shielded();
        counts.n_senders -= 1;
        if counts.n_senders == 0 {
            drop(counts);
            self.shared.changed.notify_all();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

/// Sees the newest value. A clone has seen what this one has.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    seen: u64,
}

// As for `RwLock`.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Receiver<T> {
    /// The newest value, which is not marked as seen. While the result lives, senders wait.
    pub fn borrow(&self) -> Ref<'_, T> {
        let value = self.shared.value.read();
        let has_changed = value.version != self.seen;
        Ref { value, has_changed }
    }

    /// The newest value, which is marked as seen. While the result lives, senders wait.
    pub fn borrow_and_update(&mut self) -> Ref<'_, T> {
        let value = self.shared.value.read();
        let has_changed = value.version != std::mem::replace(&mut self.seen, value.version);
        Ref { value, has_changed }
    }

    /// Whether there is a value that was not seen.
    ///
    /// # Errors
    /// If there is none and the channel is closed.
    pub fn has_changed(&self) -> Result<bool, RecvError> {
        let counts = self.shared.counts.lock_shielded();
        match (counts.version != self.seen, counts.n_senders) {
            (false, 0) => Err(RecvError),
            (has_changed, _) => Ok(has_changed),
        }
    }

    /// Marks the value as one that was not seen: the next [`changed`](Self::changed) returns at
    /// once.
    pub const fn mark_changed(&mut self) {
        // No version is that high, and the next one that is seen replaces it.
        self.seen = u64::MAX;
    }

    /// Waits until there is a value that was not seen, and marks it as seen.
    ///
    /// A goroutine that is cancelled while it waits has marked nothing.
    ///
    /// # Errors
    /// If there is none and the channel is closed.
    pub fn changed(&mut self) -> Result<(), RecvError> {
        self.shared.wait_for_change(&mut self.seen, None).map_err(|_| RecvError)
    }

    /// As [`changed`](Self::changed), for at most `timeout`.
    ///
    /// # Errors
    /// If there is none until the time is over, or if the channel is closed.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let (tx, mut rx) = heist::chan::watch::channel(1);
    /// assert!(rx.changed_timeout(Duration::from_millis(1)).unwrap_err().is_timeout());
    /// tx.send(1).unwrap();
    /// assert!(rx.changed_timeout(Duration::from_secs(60)).is_ok());
    /// ```
    pub fn changed_timeout(&mut self, timeout: Duration) -> Result<(), RecvTimeoutError> {
        self.shared.wait_for_change(&mut self.seen, Instant::now().checked_add(timeout))
    }

    /// Waits until the newest value, which may have been seen, satisfies `condition`, and marks it
    /// as seen. While the result lives, senders wait.
    ///
    /// `condition` is called with the lock of the value held, so it must not use this channel.
    ///
    /// # Errors
    /// If the channel is closed and the value does not satisfy the condition.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (tx, mut rx) = heist::chan::watch::channel(0);
    /// heist::go(move || (1..=10).for_each(|n| tx.send(n).unwrap()));
    /// assert!(*rx.wait_for(|n| *n >= 7).unwrap() >= 7);
    /// # });
    /// ```
    pub fn wait_for(
        &mut self,
        mut condition: impl FnMut(&T) -> bool,
    ) -> Result<Ref<'_, T>, RecvError> {
        let Self { shared, seen } = self;
        loop {
            let value = shared.value.read();
            let has_changed = value.version != std::mem::replace(seen, value.version);
            if condition(&value.value) {
                return Ok(Ref { value, has_changed });
            }
            drop(value);
            shared.wait_for_change(seen, None).map_err(|_| RecvError)?;
        }
    }

    /// Whether both are the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        self.shared.receiver(self.seen)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut counts = self.shared.counts.lock_shielded();
        counts.n_receivers -= 1;
        if counts.n_receivers == 0 {
            drop(counts);
            self.shared.receivers_changed.notify_all();
        }
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}

/// The value of a watch channel. While it lives, senders wait.
#[must_use]
pub struct Ref<'a, T> {
    value: RwLockReadGuard<'a, Versioned<T>>,
    has_changed: bool,
}

impl<T> Ref<'_, T> {
    /// Whether the receiver had not seen it before.
    #[must_use]
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }
}

impl<T> Deref for Ref<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value.value
    }
}

impl<T: fmt::Debug> fmt::Debug for Ref<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

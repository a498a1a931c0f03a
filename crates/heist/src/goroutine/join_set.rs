//! A set of goroutines that are joined in the order in which they end.
//!
//! The closure of each goroutine carries a value that sends the goroutine's key when it is dropped,
//! however the goroutine ends, also if it never began. The set receives the keys. A goroutine that
//! was abandoned with an overflowed stack drops nothing: where that can happen, the set also looks
//! at its handles from time to time.

use super::abort::AbortHandle;
use super::builder::{self, Builder, SpawnError};
use super::join::JoinHandle;
use super::join_error::JoinError;
use crate::chan::{self, Receiver, Sender};
use crate::current;
use crate::sched::Sched;
use crate::sched::stacks::overflow::OverflowPolicy;
use std::collections::HashMap;
use std::fmt;
use std::panic::Location;
use std::time::{Duration, Instant};

/// How often the handles are looked at, if a goroutine may be abandoned.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Goroutines that all return a `T`, joined in the order in which they end.
///
/// As tokio's, dropping the set cancels the goroutines that are left, and does not wait for them.
/// [`detach_all`](Self::detach_all) lets them run on instead.
///
/// # Examples
/// ```
/// use heist::goroutine::JoinSet;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let mut set = JoinSet::new();
/// for n in 1..=10 {
///     set.spawn(move || n * n);
/// }
/// let mut sum = 0;
/// while let Some(square) = set.join_next() {
///     sum += square.unwrap();
/// }
/// assert_eq!(sum, 385);
/// # });
/// ```
///
/// The first answer of several:
/// ```
/// use heist::goroutine::JoinSet;
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let mut set = JoinSet::new();
/// set.spawn(|| "fast");
/// set.spawn(|| heist::chan::never::<&str>().recv().unwrap_or("slow"));
/// assert_eq!(set.join_next().unwrap().unwrap(), "fast");
/// drop(set); // Cancels the other one.
/// # });
/// ```
#[must_use = "dropping the set cancels its goroutines"]
pub struct JoinSet<T> {
    handles: HashMap<u64, JoinHandle<T>>,
    ended: Receiver<u64>,
    end: Sender<u64>,
    next_key: u64,
    /// Whether one of them may be abandoned.
    abandons: bool,
}

/// Reports the end of a goroutine.
struct End {
    key: u64,
    end: Sender<u64>,
}

impl Drop for End {
    fn drop(&mut self) {
        // If the set is gone, nobody wants to know.
        let _ = self.end.send(self.key);
    }
}

impl<T> JoinSet<T> {
    /// An empty set.
    pub fn new() -> Self {
        let (end, ended) = chan::unbounded();
        Self { handles: HashMap::new(), ended, end, next_key: 0, abandons: false }
    }

    /// How many goroutines were spawned and not joined.
    #[must_use]
    pub fn len(&self) -> usize {
        self.handles.len()
    }

    /// Whether all goroutines that were spawned were joined.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.handles.is_empty()
    }

    /// Cancels all goroutines of the set, which stay in it: [`join_next`](Self::join_next) returns
    /// them.
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::JoinSet;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut set = JoinSet::new();
    /// for _ in 0..3 {
    ///     set.spawn(|| heist::chan::never::<u8>().recv());
    /// }
    /// set.cancel_all();
    /// while let Some(ended) = set.join_next() {
    ///     assert!(ended.unwrap_err().is_cancelled());
    /// }
    /// # });
    /// ```
    #[doc(alias = "abort_all")]
    pub fn cancel_all(&self) {
        JoinHandle::cancel_all(self.handles.values());
    }

    /// Removes all goroutines from the set. They run on.
    pub fn detach_all(&mut self) {
        self.handles.clear();
    }

    /// Cancels all goroutines and waits for their ends. Panics of theirs are dropped.
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::JoinSet;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut set = JoinSet::new();
    /// set.spawn(|| heist::chan::never::<u8>().recv());
    /// set.shutdown();
    /// assert!(set.is_empty());
    /// # });
    /// ```
    pub fn shutdown(&mut self) {
        self.cancel_all();
        while self.join_next().is_some() {}
    }

    /// Waits until one of the goroutines ends, and returns its result. None if the set is empty.
    ///
    /// The inner result is that of [`JoinHandle::join`].
    pub fn join_next(&mut self) -> Option<Result<T, JoinError>> {
        self.next_until(None).map(JoinHandle::join_shielded)
    }

    /// As [`join_next`](Self::join_next), for at most `timeout`. None if the set is empty, or no
    /// goroutine has ended in that time.
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::JoinSet;
    /// use std::time::Duration;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut set = JoinSet::new();
    /// set.spawn(|| heist::chan::never::<u8>().recv());
    /// assert!(set.join_next_timeout(Duration::from_millis(1)).is_none() && set.len() == 1);
    /// # });
    /// ```
    #[must_use]
    pub fn join_next_timeout(&mut self, timeout: Duration) -> Option<Result<T, JoinError>> {
        let deadline = Instant::now().checked_add(timeout);
        self.next_until(deadline).map(JoinHandle::join_shielded)
    }

    /// The result of a goroutine that has ended, if there is one.
    ///
    /// # Examples
    /// ```
    /// let mut set = heist::goroutine::JoinSet::<u8>::new();
    /// assert!(set.try_join_next().is_none());
    /// ```
    #[must_use]
    pub fn try_join_next(&mut self) -> Option<Result<T, JoinError>> {
        let ended = self.take_reported().or_else(|| self.take_abandoned());
        ended.map(JoinHandle::join_shielded)
    }

    /// Waits until all goroutines have ended, and returns their results in the order in which they
    /// ended.
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::JoinSet;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut set = JoinSet::new();
    /// set.spawn(|| 1);
    /// set.spawn(|| 2);
    /// assert_eq!(set.join_all().into_iter().map(Result::unwrap).sum::<u32>(), 3);
    /// # });
    /// ```
    #[must_use]
    pub fn join_all(mut self) -> Vec<Result<T, JoinError>> {
        std::iter::from_fn(|| self.join_next()).collect()
    }

    /// Waits until a goroutine has ended, or nearly so, and takes its handle out.
    fn next_until(&mut self, deadline: Option<Instant>) -> Option<JoinHandle<T>> {
        while !self.handles.is_empty() {
            let look = self.abandons.then(|| Instant::now() + LOOK_EVERY);
            let until = match (deadline, look) {
                (Some(deadline), Some(look)) => Some(deadline.min(look)),
                (deadline, look) => deadline.or(look),
            };
            let ended = match until {
                None => self.ended.recv().ok(),
                Some(until) => self.ended.recv_deadline(until).ok(),
            };
            // The key is unknown if the goroutine was detached, or not spawned after all.
            let handle = match ended {
                Some(key) => self.handles.remove(&key),
                None => self.take_abandoned(),
            };
            if handle.is_some() {
                return handle;
            }
            if ended.is_none() && deadline.is_some_and(|deadline| deadline <= Instant::now()) {
                return None;
            }
        }
        None
    }

    fn take_reported(&mut self) -> Option<JoinHandle<T>> {
        while let Ok(key) = self.ended.try_recv() {
            if let Some(handle) = self.handles.remove(&key) {
                return Some(handle);
            }
        }
        None
    }

    fn take_abandoned(&mut self) -> Option<JoinHandle<T>> {
        if !self.abandons {
            return None;
        }
        let finished = self.handles.iter().find(|(_, handle)| handle.is_finished());
        let key = *finished?.0;
        self.handles.remove(&key)
    }
}

impl<T: Send + 'static> JoinSet<T> {
    /// Runs `f` on a new goroutine of the calling goroutine's runtime, which belongs to the set.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    #[track_caller]
    #[doc(alias = "go")]
    pub fn spawn(&mut self, f: impl FnOnce() -> T + Send + 'static) -> AbortHandle {
        match self.try_spawn(f) {
            Ok(handle) => handle,
            Err(error) => builder::cannot_spawn("JoinSet::spawn", error),
        }
    }

    /// Runs `f` on a new goroutine, or returns why it cannot.
    ///
    /// # Errors
    /// As [`try_go`](crate::try_go).
    #[track_caller]
    pub fn try_spawn(
        &mut self,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<AbortHandle, SpawnError> {
        let site = Location::caller();
        self.add(|end| builder::spawn_here(reporting(f, end), site, None))
    }

    /// Runs `f` on a new goroutine with the options of `builder`.
    ///
    /// # Errors
    /// As [`Builder::spawn`].
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::{Builder, JoinSet};
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let mut set = JoinSet::new();
    /// set.spawn_with(Builder::new().name("parser"), || 5).unwrap();
    /// assert_eq!(set.join_next().unwrap().unwrap(), 5);
    /// # });
    /// ```
    #[track_caller]
    pub fn spawn_with(
        &mut self,
        builder: Builder,
        f: impl FnOnce() -> T + Send + 'static,
    ) -> Result<AbortHandle, SpawnError> {
        let (site, extras) = (Location::caller(), builder.extras()?);
        self.add(|end| builder::spawn_here(reporting(f, end), site, Some(extras)))
    }

    /// Adds the goroutine that `spawn` makes. Its closure ends with the value that is passed.
    fn add(
        &mut self,
        spawn: impl FnOnce(End) -> Result<JoinHandle<T>, SpawnError>,
    ) -> Result<AbortHandle, SpawnError> {
        let key = self.next_key;
        self.next_key += 1;
        let handle = spawn(End { key, end: self.end.clone() })?;
        let abandons = |sched: &Sched| sched.config.on_overflow == OverflowPolicy::Abandon;
        self.abandons |= current::with_sched(abandons).unwrap_or(false);
        let abort = handle.abort_handle();
        self.handles.insert(key, handle);
        Ok(abort)
    }
}

/// A closure that reports the end of its goroutine, also if it is never called.
fn reporting<T>(f: impl FnOnce() -> T + Send, end: End) -> impl FnOnce() -> T + Send {
    move || {
        let _end = end;
        f()
    }
}

impl<T> Drop for JoinSet<T> {
    fn drop(&mut self) {
        self.cancel_all();
    }
}

impl<T> Default for JoinSet<T> {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> fmt::Debug for JoinSet<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinSet").field("len", &self.len()).finish_non_exhaustive()
    }
}

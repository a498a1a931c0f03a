//! Functions that run later.
//!
//! A function that is to run later is an unborn goroutine: a record with the closure, without a
//! stack, parked until its time. The clock only has to wake it, and stopping it in time is claiming
//! it first.

use super::{deadline_after, deadline_at};
use crate::goroutine::{self, JoinHandle};
use heist_core::status::Ticket;
use std::fmt;
use std::panic::{Location, RefUnwindSafe, UnwindSafe};
use std::time::{Duration, Instant};

/// Runs `f` on a goroutine of its own after `duration`, unless it is stopped before.
///
/// Until then it costs a record of three cache lines and is not counted among the goroutines.
/// Dropping the handle changes nothing: `f` still runs.
///
/// # Panics
/// Outside a runtime, while the runtime shuts down, or if there is no memory.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use std::time::Duration;
/// let group = heist::sync::WaitGroup::new();
/// group.add(1);
/// let done = group.clone();
/// heist::time::after_func(Duration::from_millis(5), move || done.done());
/// let late = heist::time::after_func(Duration::from_secs(3600), || unreachable!());
/// group.wait();
/// assert!(late.stop());
/// # });
/// ```
#[doc(alias = "AfterFunc")]
#[track_caller]
pub fn after_func<F>(duration: Duration, f: F) -> AfterFunc
where
    F: FnOnce() + Send + 'static,
{
    match goroutine::spawn_later(f, Location::caller(), deadline_after(duration)) {
        Ok((handle, ticket)) => AfterFunc { handle, ticket },
        Err(error) => goroutine::cannot_spawn("time::after_func", error),
    }
}

/// As [`after_func`], at `moment`. If the caller is outside a runtime, or the runtime refuses, `f`
/// is dropped.
#[track_caller]
pub(crate) fn try_at<F>(moment: Instant, f: F) -> Option<AfterFunc>
where
    F: FnOnce() + Send + 'static,
{
    let spawned = goroutine::spawn_later(f, Location::caller(), deadline_at(moment));
    spawned.ok().map(|(handle, ticket)| AfterFunc { handle, ticket })
}

/// A function that waits for its time; see [`after_func`].
pub struct AfterFunc {
    handle: JoinHandle<()>,
    ticket: Ticket,
}

// The function runs on a goroutine of its own, or never.
impl UnwindSafe for AfterFunc {}
impl RefUnwindSafe for AfterFunc {}

impl AfterFunc {
    /// Keeps the function from running. True if that was in time: then it never runs, and its
    /// captures are dropped, before this returns if the caller is a goroutine of the same runtime.
    /// False if it runs, has run, or was stopped before.
    #[doc(alias = "Stop")]
    pub fn stop(&self) -> bool {
        self.handle.cancel_unborn(self.ticket)
    }

    /// Makes the function run when `duration` is over, counted from now, and not at the time that
    /// was set before. True if that was in time. False, without an effect, if it runs, has run, or
    /// was stopped: a function that can be called once cannot be set again.
    ///
    /// # Panics
    /// If the caller is not a goroutine of the runtime on which it was made, or there is no memory:
    /// then the function never runs.
    ///
    /// # Examples
    /// An idle connection is closed after a minute without a message:
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::time::Duration;
    /// const IDLE: Duration = Duration::from_secs(60);
    /// let mut close = heist::time::after_func(IDLE, || println!("idle for too long"));
    /// for _message in 0..3 {
    ///     assert!(close.reset(IDLE));
    /// }
    /// assert!(close.stop() && !close.reset(IDLE));
    /// # });
    /// ```
    #[doc(alias = "Reset")]
    #[track_caller]
    pub fn reset(&mut self, duration: Duration) -> bool {
        match self.handle.postpone_unborn(self.ticket, deadline_after(duration)) {
            Ok(Some((handle, ticket))) => {
                self.handle = handle;
                self.ticket = ticket;
                true
            }
            Ok(None) => false,
            Err(error) => goroutine::cannot_spawn("AfterFunc::reset", error),
        }
    }

    /// Whether the function has run to its end or was stopped.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.handle.is_finished()
    }
}

impl fmt::Debug for AfterFunc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AfterFunc").field("is_finished", &self.is_finished()).finish()
    }
}

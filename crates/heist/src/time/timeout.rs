//! A time limit for a function.
//!
//! The function runs on a goroutine of its own, which may borrow from the caller, because the
//! caller waits until that goroutine has ended. When the time is over, the goroutine is cancelled:
//! whatever it waits for, it unwinds, and everything that it owns is dropped. So the limit holds
//! for every wait of the function, known to it or not, and nothing of the function is left behind
//! when `timeout` returns.
//!
//! Not on the calling goroutine: cancelling is final for a goroutine, and code that caught the
//! unwinding of a part of it could go on with what that part had left half done.

use super::after_func::after_func;
use crate::goroutine::{self, AbortHandle};
use crate::scope::scope;
use std::error::Error;
use std::fmt;
use std::io;
use std::panic::resume_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `f`, and ends it when `limit` is over.
///
/// `f` runs on a goroutine of its own, of the caller's [class](crate::goroutine::Class), and may
/// borrow. The caller waits until it has ended. When the time is over, that goroutine is cancelled,
/// as by [`JoinHandle::cancel`](crate::JoinHandle::cancel): it unwinds from its current wait, or
/// from its next, and its destructors run. If `f` returns nevertheless, its result is returned.
///
/// A function that computes, or is in a call of the system that blocks its thread, is not
/// interrupted: `timeout` returns when it waits, ends, or has seen
/// [`goroutine::is_cancelled`](crate::goroutine::is_cancelled). With `panic = "abort"` nothing can
/// be unwound, and only that is left. If the caller is cancelled, `f` is cancelled too.
///
/// # Errors
/// If the time was over before `f` returned.
///
/// # Panics
/// If `f` panics, with the same payload; and as [`go`](crate::go).
///
/// # Examples
/// ```
/// use heist::time;
/// use std::time::Duration;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = heist::chan::bounded::<u32>(0);
/// assert!(time::timeout(Duration::from_millis(5), || rx.recv()).is_err());
/// heist::go(move || tx.send(7));
/// assert_eq!(time::timeout(Duration::from_secs(60), || rx.recv()), Ok(Ok(7)));
/// # });
/// ```
#[track_caller]
pub fn timeout<F, T>(limit: Duration, f: F) -> Result<T, Elapsed>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    scope(|s| {
        let class = goroutine::Builder::new().class(goroutine::current_class());
        let runs = match class.spawn_scoped(s, f) {
            Ok(handle) => handle,
            Err(error) => goroutine::cannot_spawn("time::timeout", error),
        };
        let (abort, is_over) = (runs.abort_handle(), Arc::new(AtomicBool::new(false)));
        // If the caller is cancelled while it waits, so is the function.
        let on_unwind = CancelOnDrop(abort.clone());
        let alarm = {
            let is_over = Arc::clone(&is_over);
            after_func(limit, move || {
                is_over.store(true, Ordering::Relaxed);
                abort.cancel();
            })
        };
        let ended = runs.join();
        alarm.stop();
        drop(on_unwind);
        match ended {
            Ok(result) => Ok(result),
            // Relaxed: the cancellation was seen, so what came before it is.
            Err(error) if error.is_cancelled() && is_over.load(Ordering::Relaxed) => Err(Elapsed),
            // As if the function had run here.
            Err(error) if error.is_exited() => goroutine::exit_current(),
            Err(error) => match error.into_panic() {
                Ok(payload) => resume_unwind(payload),
                Err(error) => {
                    // The runtime shuts down, and the caller ends at its next park.
                    goroutine::yield_now();
                    panic!("heist::time::timeout: {error}")
                }
            },
        }
    })
}

/// As [`timeout`], at most until `deadline`.
///
/// # Errors
/// As [`timeout`].
///
/// # Panics
/// As [`timeout`].
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let deadline = Instant::now() + Duration::from_secs(60);
/// assert_eq!(heist::time::timeout_at(deadline, || 6 * 7), Ok(42));
/// # });
/// ```
#[track_caller]
pub fn timeout_at<F, T>(deadline: Instant, f: F) -> Result<T, Elapsed>
where
    F: FnOnce() -> T + Send,
    T: Send,
{
    timeout(deadline.saturating_duration_since(Instant::now()), f)
}

struct CancelOnDrop(AbortHandle);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        if !self.0.is_finished() {
            self.0.cancel();
        }
    }
}

/// The time of a [`timeout`] was over.
///
/// It becomes an [`io::Error`] of the kind [`TimedOut`](io::ErrorKind::TimedOut).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time limit is over")
    }
}

impl Error for Elapsed {}

impl From<Elapsed> for io::Error {
    fn from(elapsed: Elapsed) -> Self {
        Self::new(io::ErrorKind::TimedOut, elapsed)
    }
}

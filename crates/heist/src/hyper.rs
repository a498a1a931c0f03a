//! What hyper needs of a runtime: an executor and timers. Needs the feature `hyper`.
//!
//! The streams of [`net`](crate::net) implement hyper's `Read` and `Write`, so a connection needs
//! no adapter:
//!
//! ```
//! use heist::hyper::{Executor, Timer};
//! use hyper::rt::{Executor as _, Timer as _};
//! use std::time::Duration;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.block_on(async {
//! let (tx, rx) = heist::chan::bounded(1);
//! Executor.execute(async move {
//!     Timer.sleep(Duration::from_millis(1)).await;
//!     tx.send(1).unwrap();
//! });
//! assert_eq!(rx.recv_async().await, Ok(1));
//! # });
//! ```

use crate::goroutine::{self, SpawnError, task};
use crate::time::{self, Sleep};
use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

/// Runs the futures of hyper as tasks of the caller's runtime.
///
/// While that runtime shuts down, futures are dropped.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl<F> hyper::rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    /// # Panics
    /// Outside a runtime, or if there is no memory.
    #[track_caller]
    fn execute(&self, future: F) {
        match task::try_spawn(future) {
            Ok(_) | Err(SpawnError::ShutDown) => {}
            Err(error) => goroutine::cannot_spawn("hyper::Executor", error),
        }
    }
}

/// The timers of hyper, on the clock of the scheduler.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl hyper::rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep_async(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn hyper::rt::Sleep>> {
        Box::pin(time::sleep_until_async(deadline))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn hyper::rt::Sleep>>, deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<Sleep>() {
            Some(sleep) => sleep.get_mut().reset(deadline),
            // One of another timer.
            None => *sleep = self.sleep_until(deadline),
        }
    }
}

impl hyper::rt::Sleep for Sleep {}

//! Sleeping as a future.
//!
//! The clock wakes goroutines. A future that sleeps has one that is unborn, as a function that runs
//! later: a record with the waker, without a stack. It begins at its time, and wakes the future; a
//! future that is dropped ends it before.

use super::{deadline_after, deadline_at};
use crate::goroutine::{self, JoinHandle};
use crate::sys::clock;
use heist_core::status::Ticket;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

/// A future that is ready after `duration`.
///
/// It must be polled inside a runtime: in a task, or by [`block_on`](crate::block_on) on a
/// goroutine. Dropping it has no effect but that of not waiting.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// let sleepers: Vec<_> = (0..1000)
///     .map(|_| heist::spawn(heist::time::sleep_async(Duration::from_millis(20))))
///     .collect();
/// for sleeper in sleepers {
///     sleeper.join().unwrap();
/// }
/// assert!(start.elapsed() >= Duration::from_millis(20));
/// # });
/// ```
#[track_caller]
pub fn sleep_async(duration: Duration) -> Sleep {
    Sleep::until_ns(deadline_after(duration))
}

/// A future that is ready at `deadline`; see [`sleep_async`].
#[track_caller]
pub fn sleep_until_async(deadline: Instant) -> Sleep {
    Sleep::until_ns(deadline_at(deadline))
}

/// The future of [`sleep_async`].
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    deadline_ns: u64,
    site: &'static Location<'static>,
    timer: Option<Timer>,
}

/// An unborn goroutine that calls a waker.
struct Timer {
    handle: JoinHandle<()>,
    ticket: Ticket,
    /// The waker, to be compared with another. It is in the goroutine.
    whose: (usize, usize),
}

fn identity(waker: &Waker) -> (usize, usize) {
    (waker.data().addr(), std::ptr::from_ref(waker.vtable()).addr())
}

impl Sleep {
    #[track_caller]
    pub(crate) fn until_ns(deadline_ns: u64) -> Self {
        Self { deadline_ns, site: Location::caller(), timer: None }
    }

    /// Sets it to another time. The task that was to be woken is woken at that time, once the
    /// future is polled again.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// use std::time::{Duration, Instant};
    /// let mut sleep = heist::time::sleep_async(Duration::from_secs(3600));
    /// sleep.reset(Instant::now() + Duration::from_millis(1));
    /// heist::block_on(sleep);
    /// # });
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        self.cancel();
        self.deadline_ns = deadline_at(deadline);
    }

    /// Whether its time has come.
    #[must_use]
    pub fn is_elapsed(&self) -> bool {
        clock::now_ns() >= self.deadline_ns
    }

    fn cancel(&mut self) {
        if let Some(timer) = self.timer.take() {
            timer.handle.cancel_unborn(timer.ticket);
        }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_elapsed() {
            self.cancel();
            return Poll::Ready(());
        }
        let whose = identity(cx.waker());
        // As long as the goroutine is unborn it has the waker, so no other has this address.
        if self
            .timer
            .as_ref()
            .is_some_and(|timer| timer.whose == whose && !timer.handle.is_finished())
        {
            return Poll::Pending;
        }
        self.cancel();
        let waker = cx.waker().clone();
        let spawned = goroutine::spawn_later(move || waker.wake(), self.site, self.deadline_ns);
        match spawned {
            Ok((handle, ticket)) => self.timer = Some(Timer { handle, ticket, whose }),
            Err(error) => goroutine::cannot_spawn("time::sleep_async", error),
        }
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        self.cancel();
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("is_elapsed", &self.is_elapsed()).finish()
    }
}

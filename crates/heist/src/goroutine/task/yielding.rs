//! Yielding between two polls.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

/// Lets every other runnable goroutine and task run first.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().procs(1).build() }.unwrap();
/// # rt.run(|| {
/// let task = heist::spawn(async {
///     let other = heist::spawn(async { "ran" });
///     heist::task::yield_now().await;
///     other.is_finished()
/// });
/// assert!(task.join().unwrap());
/// # });
/// ```
#[doc(alias = "Gosched")]
pub const fn yield_now() -> YieldNow {
    YieldNow { yielded: false }
}

/// The future of [`yield_now`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct YieldNow {
    yielded: bool,
}

impl Future for YieldNow {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

//! The receiving end as a stream.

use super::futures::{AlarmWait, leave_recv, poll_recv};
use super::receiver::Receiver;
use crate::wait::FutureWait;
use futures_core::stream::{FusedStream, Stream};
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The messages of a channel as a [`Stream`]; see [`Receiver::into_stream`].
#[must_use = "streams do nothing unless polled"]
pub struct RecvStream<T> {
    receiver: Receiver<T>,
    wait: FutureWait,
    alarm: AlarmWait,
    has_ended: bool,
}

impl<T> Receiver<T> {
    /// The messages as a stream, which ends when the channel is closed and empty. It waits as
    /// [`recv_async`](Self::recv_async) does: it takes no message before it is polled, so dropping
    /// it loses none. Needs the feature `futures-core`.
    ///
    /// # Examples
    /// ```
    /// use futures_core::Stream;
    /// use std::future::poll_fn;
    /// use std::pin::pin;
    ///
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// let (tx, rx) = heist::chan::bounded(1);
    /// heist::go(move || (0..3).for_each(|i| tx.send(i).unwrap()));
    /// let mut stream = pin!(rx.into_stream());
    /// let mut sum = 0;
    /// while let Some(i) = poll_fn(|cx| stream.as_mut().poll_next(cx)).await {
    ///     sum += i;
    /// }
    /// assert_eq!(sum, 3);
    /// # });
    /// ```
    pub fn into_stream(self) -> RecvStream<T> {
        let wait = FutureWait::new();
        RecvStream { receiver: self, wait, alarm: AlarmWait::default(), has_ended: false }
    }
}

impl<T> Stream for RecvStream<T> {
    type Item = T;

    fn poll_next(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the wait is pinned with the stream, and leaves the queue when that is dropped.
        let polled = unsafe { poll_recv(&this.receiver, &this.wait, &mut this.alarm, cx) };
        polled.map(|received| {
            this.has_ended = received.is_err();
            received.ok()
        })
    }
}

impl<T> FusedStream for RecvStream<T> {
    fn is_terminated(&self) -> bool {
        self.has_ended
    }
}

impl<T> Drop for RecvStream<T> {
    fn drop(&mut self) {
        leave_recv(&self.receiver, &self.wait);
    }
}

impl<T> fmt::Debug for RecvStream<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvStream { .. }")
    }
}

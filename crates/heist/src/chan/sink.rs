//! The sending end as a sink.
//!
//! A sink takes a message when it is ready, and is done with it when it is flushed. So it has room
//! for one message of its own, which waits in the channel's queue as that of a
//! [`SendFuture`](super::SendFuture) does.

use super::error::SendError;
use super::futures::{leave_send, poll_send};
use super::sender::Sender;
use crate::wait::FutureWait;
use futures_sink::Sink;
use std::cell::UnsafeCell;
use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

/// The sending end of a channel as a [`Sink`]; see [`Sender::into_sink`].
#[must_use = "sinks do nothing unless polled"]
pub struct SendSink<T> {
    /// None when it is closed.
    sender: Option<Sender<T>>,
    /// The message that is not sent yet.
    message: UnsafeCell<Option<T>>,
    wait: FutureWait,
}

// SAFETY: the message moves to another thread, through the channel or with the sink; it is never
// shared.
unsafe impl<T: Send> Sync for SendSink<T> {}

impl<T> Sender<T> {
    /// This end as a sink. Closing the sink drops this sender. Needs the feature `futures-sink`.
    ///
    /// The sink is ready if the previous message was sent. A message that was given to the sink and
    /// neither sent nor flushed is dropped with the sink.
    ///
    /// # Errors
    /// The errors of the sink hold the message that was not sent, if there was one.
    ///
    /// # Examples
    /// ```
    /// use futures_sink::Sink;
    /// use std::future::poll_fn;
    /// use std::pin::pin;
    ///
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// let (tx, rx) = heist::chan::bounded(0);
    /// let sum = heist::go(move || rx.iter().sum::<u32>());
    /// let mut sink = pin!(tx.into_sink());
    /// for i in 0..3 {
    ///     poll_fn(|cx| sink.as_mut().poll_ready(cx)).await.unwrap();
    ///     sink.as_mut().start_send(i).unwrap();
    /// }
    /// poll_fn(|cx| sink.as_mut().poll_close(cx)).await.unwrap();
    /// assert_eq!(sum.await.unwrap(), 3);
    /// # });
    /// ```
    pub const fn into_sink(self) -> SendSink<T> {
        let message = UnsafeCell::new(None);
        SendSink { sender: Some(self), message, wait: FutureWait::new() }
    }
}

impl<T> SendSink<T> {
    /// Sends the message that is left, if there is one.
    fn poll_sent(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<Option<T>>>> {
        let this = self.into_ref().get_ref();
        let Some(sender) = &this.sender else { return Poll::Ready(Ok(())) };
        // SAFETY: it is in no queue, so nothing else uses the message.
        if !this.wait.is_queued() && unsafe { &*this.message.get() }.is_none() {
            return Poll::Ready(Ok(()));
        }
        // SAFETY: both are in the sink, which is pinned; there is a message.
        let polled = unsafe { poll_send(sender, &this.wait, &this.message, cx.waker()) };
        // SAFETY: if it failed, it is in no queue, so nothing else uses the message.
        polled.map_err(|_| SendError(unsafe { &mut *this.message.get() }.take()))
    }
}

impl<T> Sink<T> for SendSink<T> {
    type Error = SendError<Option<T>>;

    fn poll_ready(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<Option<T>>>> {
        if self.sender.is_none() {
            return Poll::Ready(Err(SendError(None)));
        }
        self.poll_sent(cx)
    }

    /// # Panics
    /// If the last message was not sent yet: the sink was not ready.
    fn start_send(self: Pin<&mut Self>, message: T) -> Result<(), SendError<Option<T>>> {
        // SAFETY: nothing that is pinned is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        if this.sender.is_none() {
            return Err(SendError(Some(message)));
        }
        assert!(
            !this.wait.is_queued() && this.message.get_mut().is_none(),
            "start_send on a sink that is not ready: poll_ready returns when it is"
        );
        *this.message.get_mut() = Some(message);
        Ok(())
    }

    fn poll_flush(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<Option<T>>>> {
        self.poll_sent(cx)
    }

    fn poll_close(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), SendError<Option<T>>>> {
        let sent = std::task::ready!(self.as_mut().poll_sent(cx));
        // SAFETY: the sender is not pinned. It waits no longer: the message was sent or is lost.
        drop(unsafe { self.get_unchecked_mut() }.sender.take());
        Poll::Ready(sent)
    }
}

impl<T> Drop for SendSink<T> {
    fn drop(&mut self) {
        if let Some(sender) = &self.sender {
            leave_send(sender, &self.wait, &self.message);
        }
    }
}

impl<T> fmt::Debug for SendSink<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendSink { .. }")
    }
}

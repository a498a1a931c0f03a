//! Sending and receiving as futures.
//!
//! A future that sends is a sender in the queue, with its message: a receiver takes it from there.
//! A future that receives is a watcher; see [`Watchers`](super::queues::Watchers).

use super::alarm::Alarm;
use super::error::{RecvError, SendError};
use super::parcel::{Parcel, message_ptr, was_sent};
use super::queues::{FUTURE, Interest, Side};
use super::receiver::{self, Receiver, put_moment};
use super::sender::{self, Sender};
use super::state::{Chan, Patience, Refused};
use crate::current;
use crate::time::Sleep;
use crate::wait::{Ended, FutureWait};
use heist_core::buffer::Buffer;
use heist_core::timer_heap::NEVER;
use std::cell::UnsafeCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

/// Evaluates the same expression for each type of channel.
macro_rules! with_chan {
    ($end:ident, $flavor:expr, $chan:ident => $do:expr, $($other:pat => $else:expr),+) => {
        match $flavor {
            $end::Flavor::Ring($chan) => $do,
            $end::Flavor::Blocks($chan) => $do,
            $end::Flavor::Meeting($chan) => $do,
            $($other => $else),+
        }
    };
}

impl<T, B: Buffer<T>> Chan<T, B> {
    /// Receives, or waits as a watcher.
    fn poll_recv(
        &self,
        wait: &FutureWait,
        parcel: &mut Parcel<T>,
        waker: &Waker,
    ) -> Poll<Result<(), RecvError>> {
        let mut notice = None;
        if wait.is_queued() {
            match wait.poll(&self.queues, waker) {
                None => return Poll::Pending,
                Some(ended) => notice = (ended == Ended::Changed).then(|| Notice(self)),
            }
        }
        loop {
            let received = self.recv(parcel, Patience::None);
            if received != Err(Refused::NotReady) {
                return Poll::Ready(received.map_err(|_| RecvError));
            }
            wait.prepare(waker);
            let rt = current::enter();
            let mut queues = self.queues.lock();
            let must_wait = !self.buffer.is_closed()
                && !queues.is_met(Side::Receive, Interest::Know)
                // SAFETY: the future is pinned, and leaves the queue when it is dropped.
                && unsafe {
                    wait.queue(FUTURE, |entry| {
                        self.push(&mut queues, entry, (Side::Receive, Interest::Know))
                    })
                };
            drop(queues);
            drop(rt);
            if must_wait {
                // The buffer knows of the watchers again, so there is nothing to pass on.
                std::mem::forget(notice);
                return Poll::Pending;
            }
        }
    }

    fn leave_recv(&self, wait: &FutureWait) {
        let left = wait.leave(&self.queues, |queues, entry| {
            self.remove(queues, entry, (Side::Receive, Interest::Know));
        });
        if left.is_some() {
            self.pass_on();
        }
    }

    /// Sends, or waits as a sender. The message is gone if it was sent.
    ///
    /// # Safety
    /// The message is pinned together with `wait`.
    unsafe fn poll_send(
        &self,
        wait: &FutureWait,
        message: &UnsafeCell<Option<T>>,
        waker: &Waker,
    ) -> Poll<Result<(), RecvError>> {
        if wait.is_queued() {
            match wait.poll(&self.queues, waker) {
                None => return Poll::Pending,
                Some(Ended::Done) => {
                    // SAFETY: a receiver has moved it out, and nothing else uses it now.
                    was_sent(unsafe { &mut *message.get() });
                    return Poll::Ready(Ok(()));
                }
                Some(_) => {}
            }
        }
        loop {
            // SAFETY: it is in no queue, so nothing else uses the message.
            let place = unsafe { &mut *message.get() };
            match self.send(place, Patience::None) {
                Ok(()) => return Poll::Ready(Ok(())),
                Err(Refused::Disconnected) => return Poll::Ready(Err(RecvError)),
                Err(Refused::NotReady) => {}
            }
            let place = message_ptr(place);
            wait.prepare(waker);
            let rt = current::enter();
            let mut queues = self.queues.lock();
            let must_wait = !self.buffer.is_closed()
                && !queues.is_met(Side::Send, Interest::Know)
                // SAFETY: the future is pinned, and leaves the queue when it is dropped.
                && unsafe {
                    wait.queue(place.cast(), |entry| {
                        self.push(&mut queues, entry, (Side::Send, Interest::Do))
                    })
                };
            let watchers =
                (must_wait && B::MEETS).then(|| queues.claim_watchers_of_other(Side::Send));
            drop(queues);
            if let Some(watchers) = watchers {
                watchers.wake(rt.as_ref());
            }
            drop(rt);
            if must_wait {
                return Poll::Pending;
            }
        }
    }

    fn leave_send(&self, wait: &FutureWait, message: &UnsafeCell<Option<T>>) {
        let left = wait.leave(&self.queues, |queues, entry| {
            self.remove(queues, entry, (Side::Send, Interest::Do));
        });
        if left == Some(Ended::Done) {
            // SAFETY: a receiver has moved it out, and nothing else uses it now.
            was_sent(unsafe { &mut *message.get() });
        }
    }
}

/// What a watcher was told while others watch, too. It is passed on when this is dropped: also if a
/// foreign waker panics.
struct Notice<'a, T, B: Buffer<T>>(&'a Chan<T, B>);

impl<T, B: Buffer<T>> Drop for Notice<'_, T, B> {
    fn drop(&mut self) {
        self.0.pass_on();
    }
}

/// Receives from a channel of any type, or waits.
///
/// # Safety
/// Both waits are pinned, and [`leave_recv`] is called before they are freed.
pub(super) unsafe fn poll_recv<T>(
    from: &Receiver<T>,
    wait: &FutureWait,
    moment: &mut AlarmWait,
    cx: &mut Context<'_>,
) -> Poll<Result<T, RecvError>> {
    let mut parcel = Parcel::empty();
    let polled = with_chan!(receiver, &from.flavor,
        chan => chan.poll_recv(wait, &mut parcel, cx.waker()),
        receiver::Flavor::Alarm(alarm, message) => {
            match moment.poll(alarm, wait, cx) {
                Some(moment) => {
                    put_moment(&mut parcel, *message, moment);
                    Poll::Ready(Ok(()))
                }
                None => Poll::Pending,
            }
        },
        receiver::Flavor::Never => Poll::Pending);
    polled.map_ok(|()| parcel.take())
}

/// Ends the wait of [`poll_recv`].
pub(super) fn leave_recv<T>(from: &Receiver<T>, wait: &FutureWait) {
    with_chan!(receiver, &from.flavor,
        chan => chan.leave_recv(wait),
        receiver::Flavor::Alarm(alarm, _) => {
            let _ = wait.leave(&alarm.queues, |queues, entry| alarm.remove(queues, entry));
        },
        receiver::Flavor::Never => {});
}

/// Sends the message into a channel of any type, or waits. The message is gone if it was sent.
///
/// # Safety
/// There is a message. It is pinned together with `wait`, and [`leave_send`] is called before they
/// are freed.
pub(super) unsafe fn poll_send<T>(
    into: &Sender<T>,
    wait: &FutureWait,
    message: &UnsafeCell<Option<T>>,
    waker: &Waker,
) -> Poll<Result<(), RecvError>> {
    // SAFETY: the caller's promise.
    unsafe {
        with_chan!(sender, &into.flavor,
            chan => chan.poll_send(wait, message, waker),
            sender::Flavor::Never => Poll::Pending)
    }
}

/// Ends the wait of [`poll_send`].
pub(super) fn leave_send<T>(into: &Sender<T>, wait: &FutureWait, message: &UnsafeCell<Option<T>>) {
    with_chan!(sender, &into.flavor,
        chan => chan.leave_send(wait, message),
        sender::Flavor::Never => {});
}

/// Waits for the moment of an alarm.
#[derive(Default)]
pub(super) struct AlarmWait {
    /// For the moment at which it is due, in the scheduler's time.
    sleep: Option<(u64, Sleep)>,
}

impl AlarmWait {
    /// None: not yet; the waker is woken when the moment comes, or is changed.
    fn poll(
        &mut self,
        alarm: &Alarm,
        wait: &FutureWait,
        cx: &mut Context<'_>,
    ) -> Option<std::time::Instant> {
        loop {
            if let Some(moment) = alarm.take() {
                return Some(moment);
            }
            if !wait.is_queued() || wait.poll(&alarm.queues, cx.waker()).is_some() {
                wait.prepare(cx.waker());
                let rt = current::enter();
                let mut queues = alarm.queues.lock();
                // SAFETY: the future is pinned, and leaves the queue when it is dropped.
                unsafe {
                    wait.queue(std::ptr::null_mut(), |entry| {
                        queues.receivers.push(entry);
                        true
                    });
                }
                drop(queues);
                drop(rt);
            }
            // Read after the entry is queued: a change comes after this, and wakes it.
            let when_ns = alarm.when_ns();
            if when_ns == NEVER {
                self.sleep = None;
                return None;
            }
            if self.sleep.as_ref().is_none_or(|sleep| sleep.0 != when_ns) {
                self.sleep = Some((when_ns, Sleep::until_ns(when_ns)));
            }
            let sleep = self.sleep.as_mut().map(|(_, sleep)| Pin::new(sleep));
            if sleep.is_some_and(|sleep| sleep.poll(cx).is_pending()) {
                return None;
            }
            self.sleep = None;
        }
    }
}

/// Receives a message; see [`Receiver::recv_async`].
#[must_use = "futures do nothing unless polled"]
pub struct RecvFuture<'a, T> {
    receiver: &'a Receiver<T>,
    wait: FutureWait,
    alarm: AlarmWait,
}

impl<T> Receiver<T> {
    /// Receives a message, and waits for one if there is none, as a future. It may be awaited on
    /// any executor; the messages of timers only inside a runtime.
    ///
    /// Goroutines that wait for a message of the same channel are served before futures.
    ///
    /// # Cancel safety
    /// A future that is dropped has taken no message. If one was announced to it, the next future
    /// that waits is told.
    ///
    /// # Errors
    /// If the channel is closed and there are no messages left.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (tx, rx) = heist::chan::bounded(0);
    /// let task = heist::spawn(async move { rx.recv_async().await });
    /// tx.send(5).unwrap(); // A goroutine and a task meet.
    /// assert_eq!(task.join().unwrap(), Ok(5));
    /// # });
    /// ```
    pub fn recv_async(&self) -> RecvFuture<'_, T> {
        RecvFuture { receiver: self, wait: FutureWait::new(), alarm: AlarmWait::default() }
    }
}

impl<T> Future for RecvFuture<'_, T> {
    type Output = Result<T, RecvError>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        // SAFETY: nothing is moved out of it.
        let this = unsafe { self.get_unchecked_mut() };
        // SAFETY: the waits are pinned with the future, which leaves the queue when it is dropped.
        unsafe { poll_recv(this.receiver, &this.wait, &mut this.alarm, cx) }
    }
}

impl<T> Drop for RecvFuture<'_, T> {
    fn drop(&mut self) {
        leave_recv(self.receiver, &self.wait);
    }
}

impl<T> fmt::Debug for RecvFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RecvFuture { .. }")
    }
}

/// Sends a message; see [`Sender::send_async`].
#[must_use = "futures do nothing unless polled"]
pub struct SendFuture<'a, T> {
    sender: &'a Sender<T>,
    message: UnsafeCell<Option<T>>,
    wait: FutureWait,
}

// SAFETY: the message moves to another thread, through the channel or with the future; it is never
// shared.
unsafe impl<T: Send> Sync for SendFuture<'_, T> {}

impl<T> Sender<T> {
    /// Sends a message, and waits for room or for a receiver if there is none, as a future. It may
    /// be awaited on any executor.
    ///
    /// # Cancel safety
    /// A future that is dropped has sent its message, or drops it with itself: no message is sent
    /// twice, and none is lost on the way. If the message must not be dropped, use
    /// [`try_send`](Self::try_send), which gives it back.
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let (tx, rx) = heist::chan::bounded(1);
    /// let task = heist::spawn(async move {
    ///     for i in 0..3 {
    ///         tx.send_async(i).await.unwrap();
    ///     }
    /// });
    /// assert_eq!(rx.iter().sum::<u32>(), 3);
    /// task.join().unwrap();
    /// # });
    /// ```
    pub const fn send_async(&self, message: T) -> SendFuture<'_, T> {
        let message = UnsafeCell::new(Some(message));
        SendFuture { sender: self, message, wait: FutureWait::new() }
    }
}

impl<T> Future for SendFuture<'_, T> {
    type Output = Result<(), SendError<T>>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.into_ref().get_ref();
        // SAFETY: both are in the future, which is pinned.
        let polled = unsafe { poll_send(this.sender, &this.wait, &this.message, cx.waker()) };
        polled.map(|sent| {
            sent.map_err(|_| {
                // SAFETY: it is in no queue, so nothing else uses the message.
                match unsafe { &mut *this.message.get() }.take() {
                    Some(message) => SendError(message),
                    None => heist_core::throw!("SendFuture::poll: the message is gone"),
                }
            })
        })
    }
}

impl<T> Drop for SendFuture<'_, T> {
    fn drop(&mut self) {
        leave_send(self.sender, &self.wait, &self.message);
    }
}

impl<T> fmt::Debug for SendFuture<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendFuture { .. }")
    }
}

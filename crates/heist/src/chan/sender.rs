//! The sending end.

use super::error::{SendError, SendTimeoutError, TrySendError};
use super::never;
use super::state::{Chan, Patience, Refused};
use crate::wait::WaitReason;
use heist_core::buffer::{Blocks, Meeting, Ring};
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The target that a sender sends into.
pub(super) enum Flavor<T> {
    Ring(Arc<Chan<T, Ring<T>>>),
    Blocks(Arc<Chan<T, Blocks<T>>>),
    Meeting(Arc<Chan<T, Meeting>>),
    /// Nothing: it is never ready.
    Never,
}

/// Evaluates the same expression for each type of channel.
macro_rules! with_chan {
    ($flavor:expr, $chan:ident => $do:expr, never => $never:expr) => {
        match $flavor {
            Flavor::Ring($chan) => $do,
            Flavor::Blocks($chan) => $do,
            Flavor::Meeting($chan) => $do,
            Flavor::Never => $never,
        }
    };
}

/// The sending end of a channel. Clones send into the same channel; when the last one is dropped,
/// the channel is closed.
///
/// A sender cannot receive; this does not compile:
///
/// ```compile_fail,E0599
/// let (tx, _rx) = heist::chan::bounded::<u8>(1);
/// tx.recv();
/// ```
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = heist::chan::bounded(0);
/// for i in 0..3 {
///     let tx = tx.clone();
///     heist::go(move || tx.send(i));
/// }
/// drop(tx);
/// assert_eq!(rx.iter().sum::<u32>(), 3);
/// # });
/// ```
pub struct Sender<T> {
    pub(super) flavor: Flavor<T>,
}

impl<T> Sender<T> {
    /// A sender that is never ready, as a nil channel in Go: sending blocks forever, and in a
    /// select its case is never chosen.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{Sender, TrySendError};
    /// assert_eq!(Sender::never().try_send(1), Err(TrySendError::Full(1)));
    /// ```
    #[must_use]
    pub const fn never() -> Self {
        Self { flavor: Flavor::Never }
    }

    /// Sends a message, and waits for room or for a receiver if there is none.
    ///
    /// # Errors
    /// If the channel is closed, before or during the call. The error holds the message.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(1);
    /// tx.send("hello").unwrap();
    /// assert_eq!(rx.recv(), Ok("hello"));
    /// ```
    #[inline]
    #[doc(alias = "chansend")]
    pub fn send(&self, message: T) -> Result<(), SendError<T>> {
        let mut message = Some(message);
        match self.send_from(&mut message, Patience::ENDLESS) {
            Ok(()) => Ok(()),
            Err(_) => give_back(message, SendError),
        }
    }

    /// Sends a message if that is possible without waiting: there is room, or a receiver waits.
    ///
    /// # Errors
    /// If the channel is full or closed. The error holds the message.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(0);
    /// assert!(tx.try_send(1).unwrap_err().is_full());
    /// # drop(rx);
    /// ```
    #[inline]
    pub fn try_send(&self, message: T) -> Result<(), TrySendError<T>> {
        let mut message = Some(message);
        match self.send_from(&mut message, Patience::None) {
            Ok(()) => Ok(()),
            Err(Refused::NotReady) => give_back(message, TrySendError::Full),
            Err(Refused::Disconnected) => give_back(message, TrySendError::Disconnected),
        }
    }

    /// Sends a message, and waits for room or for a receiver, but no longer than `timeout`.
    ///
    /// # Errors
    /// If the time is over, or if the channel is closed, before or during the call. The error holds
    /// the message.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let (tx, rx) = heist::chan::bounded(0);
    /// assert!(tx.send_timeout(1, Duration::from_millis(1)).unwrap_err().is_timeout());
    /// # drop(rx);
    /// ```
    pub fn send_timeout(&self, message: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_patiently(message, Patience::lasting(timeout))
    }

    /// Sends a message, and waits for room or for a receiver, but not past `deadline`.
    ///
    /// # Errors
    /// If the time is over, or if the channel is closed, before or during the call. The error holds
    /// the message.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// let (tx, rx) = heist::chan::bounded(1);
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// assert_eq!(tx.send_deadline(1, deadline), Ok(()));
    /// assert!(tx.send_deadline(2, deadline).unwrap_err().is_timeout());
    /// # drop(rx);
    /// ```
    pub fn send_deadline(&self, message: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_patiently(message, Patience::until(deadline))
    }

    fn send_patiently(&self, message: T, patience: Patience) -> Result<(), SendTimeoutError<T>> {
        let mut message = Some(message);
        match self.send_from(&mut message, patience) {
            Ok(()) => Ok(()),
            Err(Refused::NotReady) => give_back(message, SendTimeoutError::Timeout),
            Err(Refused::Disconnected) => give_back(message, SendTimeoutError::Disconnected),
        }
    }

    /// Sends the message, or leaves it in place.
    #[inline(always)]
    fn send_from(&self, message: &mut Option<T>, patience: Patience) -> Result<(), Refused> {
        with_chan!(&self.flavor, chan => chan.send(message, patience), never => {
            never::wait(WaitReason::ChanSendNil, patience);
            Err(Refused::NotReady)
        })
    }

    /// Closes the channel: nothing can be sent any more, messages that were sent can still be
    /// received, and every waiter is woken with an error. True if this call closed it; false if it
    /// was closed already.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert!(tx.close());
    /// assert!(!tx.close());
    /// assert!(tx.send(2).is_err());
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert!(rx.recv().is_err());
    /// ```
    #[doc(alias = "closechan")]
    pub fn close(&self) -> bool {
        with_chan!(&self.flavor, chan => chan.close(), never => false)
    }

    /// Whether the channel is closed.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        with_chan!(&self.flavor, chan => chan.is_closed(), never => false)
    }

    /// How many messages are in the buffer.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(2);
    /// tx.send(1).unwrap();
    /// assert_eq!((tx.len(), rx.len(), tx.capacity()), (1, 1, Some(2)));
    /// assert!(!tx.is_full() && !tx.is_empty());
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        with_chan!(&self.flavor, chan => chan.n_buffered(), never => 0)
    }

    /// Whether the buffer is empty. A channel without a buffer always is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether the buffer is full. A channel without a buffer always is.
    #[must_use]
    pub fn is_full(&self) -> bool {
        self.capacity().is_some_and(|capacity| self.len() >= capacity)
    }

    /// How many messages the buffer holds, or None if there is no bound.
    #[must_use]
    pub fn capacity(&self) -> Option<usize> {
        with_chan!(&self.flavor, chan => chan.buffer_capacity(), never => Some(0))
    }

    /// Whether both send into the same channel.
    ///
    /// # Examples
    /// ```
    /// let (a, _rx) = heist::chan::unbounded::<u8>();
    /// let (b, _rx) = heist::chan::unbounded::<u8>();
    /// assert!(a.same_channel(&a.clone()) && !a.same_channel(&b));
    /// ```
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        match (&self.flavor, &other.flavor) {
            (Flavor::Ring(a), Flavor::Ring(b)) => Arc::ptr_eq(a, b),
            (Flavor::Blocks(a), Flavor::Blocks(b)) => Arc::ptr_eq(a, b),
            (Flavor::Meeting(a), Flavor::Meeting(b)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }
}

/// An error with the message that was not sent. A function of its own, so that its room for the
/// message is not part of the frame of every send.
#[inline]
fn give_back<T, E>(message: Option<T>, error: impl FnOnce(T) -> E) -> Result<(), E> {
    message.map_or(Ok(()), |message| Err(error(message)))
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        with_chan!(&self.flavor, chan => {
            // The caller holds a sender, so the count is not zero.
            chan.n_senders.fetch_add(1, Ordering::Relaxed);
        }, never => ());
        let flavor = match &self.flavor {
            Flavor::Ring(chan) => Flavor::Ring(Arc::clone(chan)),
            Flavor::Blocks(chan) => Flavor::Blocks(Arc::clone(chan)),
            Flavor::Meeting(chan) => Flavor::Meeting(Arc::clone(chan)),
            Flavor::Never => Flavor::Never,
        };
        Self { flavor }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        with_chan!(&self.flavor, chan => {
            // ORDERING: AcqRel with itself: the last sender's drop comes after everything that the
            // others did.
            if chan.n_senders.fetch_sub(1, Ordering::AcqRel) == 1 {
                chan.close();
            }
        }, never => ());
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

//! The receiving end.

use super::alarm::Alarm;
use super::error::{RecvError, RecvTimeoutError, TryRecvError};
use super::never;
use super::parcel::Parcel;
use super::state::{Chan, Patience, Refused};
use crate::wait::WaitReason;
use heist_core::buffer::{Blocks, Meeting, Ring};
use std::fmt;
use std::iter::FusedIterator;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The source that a receiver receives from.
pub(super) enum Flavor<T> {
    Ring(Arc<Chan<T, Ring<T>>>),
    Blocks(Arc<Chan<T, Blocks<T>>>),
    Meeting(Arc<Chan<T, Meeting>>),
    /// A moment, and the function that makes a message of it.
    Alarm(Arc<Alarm>, fn(Instant) -> T),
    /// Nothing: it is never ready.
    Never,
}

/// Evaluates the same expression for each type of channel.
macro_rules! with_chan {
    ($flavor:expr, $chan:ident => $do:expr, $($other:pat => $else:expr),+) => {
        match $flavor {
            Flavor::Ring($chan) => $do,
            Flavor::Blocks($chan) => $do,
            Flavor::Meeting($chan) => $do,
            $($other => $else),+
        }
    };
}

/// The receiving end of a channel. Clones receive from the same channel; each message goes to one
/// of them. When the last one is dropped, the channel is closed and its messages are dropped.
///
/// A receiver cannot send; this does not compile:
///
/// ```compile_fail,E0599
/// let (_tx, rx) = heist::chan::bounded::<u8>(1);
/// rx.send(1);
/// ```
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = heist::chan::unbounded();
/// heist::go(move || (1..=10).for_each(|i| tx.send(i).unwrap()));
/// assert_eq!(rx.iter().sum::<u32>(), 55);
/// # });
/// ```
pub struct Receiver<T> {
    pub(super) flavor: Flavor<T>,
}

impl<T> Receiver<T> {
    /// Receives a message, and waits for one if there is none.
    ///
    /// # Errors
    /// If the channel is closed, before or during the call, and there are no messages left.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.recv(), Ok(1));
    /// drop(tx);
    /// assert!(rx.recv().is_err());
    /// ```
    #[inline]
    #[doc(alias = "chanrecv")]
    pub fn recv(&self) -> Result<T, RecvError> {
        let mut parcel = Parcel::empty();
        match self.recv_into(&mut parcel, Patience::ENDLESS) {
            Ok(()) => Ok(parcel.take()),
            Err(_) => Err(RecvError),
        }
    }

    /// Receives a message if that is possible without waiting: there is one, or a sender waits.
    ///
    /// # Errors
    /// If there is none, or the channel is closed and empty.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::unbounded();
    /// assert!(rx.try_recv().unwrap_err().is_empty());
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let mut parcel = Parcel::empty();
        match self.recv_into(&mut parcel, Patience::None) {
            Ok(()) => Ok(parcel.take()),
            Err(Refused::NotReady) => Err(TryRecvError::Empty),
            Err(Refused::Disconnected) => Err(TryRecvError::Disconnected),
        }
    }

    /// Receives a message, and waits for one, but no longer than `timeout`.
    ///
    /// # Errors
    /// If the time is over, or if the channel is closed, before or during the call, and there are
    /// no messages left.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// let (tx, rx) = heist::chan::unbounded::<u8>();
    /// assert!(rx.recv_timeout(Duration::from_millis(1)).unwrap_err().is_timeout());
    /// # drop(tx);
    /// ```
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_patiently(Patience::lasting(timeout))
    }

    /// Receives a message, and waits for one, but not past `deadline`.
    ///
    /// # Errors
    /// If the time is over, or if the channel is closed, before or during the call, and there are
    /// no messages left.
    ///
    /// # Examples
    /// ```
    /// use std::time::{Duration, Instant};
    /// let (tx, rx) = heist::chan::unbounded();
    /// let deadline = Instant::now() + Duration::from_millis(1);
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.recv_deadline(deadline), Ok(1));
    /// assert!(rx.recv_deadline(deadline).unwrap_err().is_timeout());
    /// ```
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_patiently(Patience::until(deadline))
    }

    fn recv_patiently(&self, patience: Patience) -> Result<T, RecvTimeoutError> {
        let mut parcel = Parcel::empty();
        match self.recv_into(&mut parcel, patience) {
            Ok(()) => Ok(parcel.take()),
            Err(Refused::NotReady) => Err(RecvTimeoutError::Timeout),
            Err(Refused::Disconnected) => Err(RecvTimeoutError::Disconnected),
        }
    }

    #[inline]
    fn recv_some(&self, patience: Patience) -> Option<T> {
        let mut parcel = Parcel::empty();
        match self.recv_into(&mut parcel, patience) {
            Ok(()) => Some(parcel.take()),
            Err(_) => None,
        }
    }

    /// Passes every message to `f`, moved from the place in which it was received.
    #[inline]
    fn fold<A>(&self, patience: Patience, start: A, mut f: impl FnMut(A, T) -> A) -> A {
        let mut parcel = Parcel::empty();
        let mut folded = start;
        while self.recv_into(&mut parcel, patience).is_ok() {
            folded = Self::hand_over(&mut parcel, folded, &mut f);
        }
        folded
    }

    /// A function of its own, so that its room for the message is not part of the frame that waits
    /// for the next one.
    #[inline]
    fn hand_over<A>(parcel: &mut Parcel<T>, folded: A, f: &mut impl FnMut(A, T) -> A) -> A {
        f(folded, parcel.take())
    }

    #[inline(always)]
    fn recv_into(&self, parcel: &mut Parcel<T>, patience: Patience) -> Result<(), Refused> {
        with_chan!(&self.flavor, chan => chan.recv(parcel, patience),
        Flavor::Alarm(alarm, message) => {
            let moment = alarm.recv(patience).ok_or(Refused::NotReady)?;
            put_moment(parcel, *message, moment);
            Ok(())
        },
        Flavor::Never => {
            never::wait(WaitReason::ChanReceiveNil, patience);
            Err(Refused::NotReady)
        })
    }

    /// The messages until the channel is closed and empty. Waits for each of them.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::unbounded();
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// drop(tx);
    /// assert!(rx.iter().eq([1, 2]));
    /// ```
    #[must_use]
    pub const fn iter(&self) -> Iter<'_, T> {
        Iter { receiver: self }
    }

    /// The messages that are in the channel. Ends where it would have to wait.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::unbounded();
    /// tx.send(1).unwrap();
    /// assert!(rx.try_iter().eq([1]));
    /// assert_eq!(rx.try_iter().next(), None);
    /// # drop(tx);
    /// ```
    #[must_use]
    pub const fn try_iter(&self) -> TryIter<'_, T> {
        TryIter { receiver: self }
    }

    /// Closes the channel: nothing can be sent any more, messages that were sent can still be
    /// received, and every waiter is woken with an error. True if this call closed it; false if it
    /// was closed already. Also false, and without effect, for the channels of timers and contexts,
    /// which only their owners close.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert!(rx.close() && !rx.close());
    /// assert_eq!(tx.send(2).unwrap_err().into_inner(), 2);
    /// assert_eq!(rx.recv(), Ok(1));
    /// ```
    #[doc(alias = "closechan")]
    pub fn close(&self) -> bool {
        with_chan!(&self.flavor, chan => chan.receivers_close && chan.close(), _ => false)
    }

    /// Whether the channel is closed. There may still be messages.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        with_chan!(&self.flavor, chan => chan.is_closed(), _ => false)
    }

    /// How many messages are in the buffer.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::unbounded();
    /// assert_eq!((rx.len(), rx.is_empty(), rx.capacity()), (0, true, None));
    /// tx.send(1).unwrap();
    /// assert_eq!((rx.len(), rx.is_full()), (1, false));
    /// ```
    #[must_use]
    pub fn len(&self) -> usize {
        with_chan!(&self.flavor, chan => chan.n_buffered(), _ => 0)
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
        with_chan!(&self.flavor, chan => chan.buffer_capacity(), _ => Some(0))
    }

    /// Whether both receive from the same channel.
    ///
    /// # Examples
    /// ```
    /// let (_tx, a) = heist::chan::bounded::<u8>(1);
    /// let (_tx, b) = heist::chan::bounded::<u8>(1);
    /// assert!(a.same_channel(&a.clone()) && !a.same_channel(&b));
    /// ```
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        match (&self.flavor, &other.flavor) {
            (Flavor::Ring(a), Flavor::Ring(b)) => Arc::ptr_eq(a, b),
            (Flavor::Blocks(a), Flavor::Blocks(b)) => Arc::ptr_eq(a, b),
            (Flavor::Meeting(a), Flavor::Meeting(b)) => Arc::ptr_eq(a, b),
            (Flavor::Alarm(a, _), Flavor::Alarm(b, _)) => Arc::ptr_eq(a, b),
            (Flavor::Never, Flavor::Never) => true,
            _ => false,
        }
    }
}

/// Puts the message of an alarm into a parcel, which is empty.
pub(super) fn put_moment<T>(parcel: &mut Parcel<T>, message: fn(Instant) -> T, moment: Instant) {
    // SAFETY: there is room for a message, and one is moved in.
    unsafe {
        parcel.as_mut_ptr().write(message(moment));
        parcel.was_filled();
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Self {
        with_chan!(&self.flavor, chan => {
            // The caller holds a receiver, so the count is not zero.
            chan.n_receivers.fetch_add(1, Ordering::Relaxed);
        }, _ => ());
        let flavor = match &self.flavor {
            Flavor::Ring(chan) => Flavor::Ring(Arc::clone(chan)),
            Flavor::Blocks(chan) => Flavor::Blocks(Arc::clone(chan)),
            Flavor::Meeting(chan) => Flavor::Meeting(Arc::clone(chan)),
            Flavor::Alarm(alarm, message) => Flavor::Alarm(Arc::clone(alarm), *message),
            Flavor::Never => Flavor::Never,
        };
        Self { flavor }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        with_chan!(&self.flavor, chan => {
            // ORDERING: AcqRel with itself: the last receiver's drop comes after everything that
            // the others did.
            if chan.n_receivers.fetch_sub(1, Ordering::AcqRel) == 1 {
                chan.close();
                chan.discard_messages();
            }
        }, _ => ());
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}

impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

/// The messages of a channel until it is closed; see [`Receiver::iter`].
#[derive(Debug)]
pub struct Iter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// The messages that are in the channel; see [`Receiver::try_iter`].
#[derive(Debug)]
pub struct TryIter<'a, T> {
    receiver: &'a Receiver<T>,
}

/// The messages of a channel until it is closed, from a receiver that the iterator owns.
#[derive(Debug)]
pub struct IntoIter<T> {
    receiver: Receiver<T>,
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv_some(Patience::ENDLESS)
    }

    #[inline]
    fn fold<A, F: FnMut(A, T) -> A>(self, start: A, f: F) -> A {
        self.receiver.fold(Patience::ENDLESS, start, f)
    }
}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv_some(Patience::None)
    }

    #[inline]
    fn fold<A, F: FnMut(A, T) -> A>(self, start: A, f: F) -> A {
        self.receiver.fold(Patience::None, start, f)
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    #[inline]
    fn next(&mut self) -> Option<T> {
        self.receiver.recv_some(Patience::ENDLESS)
    }

    #[inline]
    fn fold<A, F: FnMut(A, T) -> A>(self, start: A, f: F) -> A {
        self.receiver.fold(Patience::ENDLESS, start, f)
    }
}

impl<T> FusedIterator for Iter<'_, T> {}
impl<T> FusedIterator for IntoIter<T> {}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter { receiver: self }
    }
}

//! A select over a set of operations that is built at run time.

use super::super::error::{RecvError, SendError};
use super::super::queues::Interest;
use super::super::receiver::Receiver;
use super::super::sender::Sender;
use super::super::state::Patience;
use super::case::{RecvCase, SendCase};
use super::later::LaterCase;
use super::{Case, Handle, Preference, select};
use std::error::Error;
use std::fmt;
use std::time::{Duration, Instant};

/// A set of operations, one of which is done.
///
/// [`recv`](Self::recv) and [`send`](Self::send) add operations, each with a number. The message of
/// a send is passed when the operation was chosen, as in crossbeam. With
/// [`send_message`](Self::send_message) it is passed when the operation is added, as in Go's
/// `reflect.Select`; once it is sent, that operation is never ready again. The set can be used for
/// another round.
///
/// # Examples
/// ```
/// use heist::chan::{self, Select};
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let channels: Vec<_> = (0..10).map(|_| chan::bounded(1)).collect();
/// channels[3].0.send("three").unwrap();
///
/// let mut select = Select::new();
/// for (_, rx) in &channels {
///     select.recv(rx);
/// }
/// let chosen = select.select();
/// let i = chosen.index();
/// assert_eq!((i, chosen.recv(&channels[i].1)), (3, Ok("three")));
/// # });
/// ```
#[doc(alias = "reflect.Select")]
pub struct Select<'a> {
    cases: Vec<Option<Added<'a>>>,
    preference: Preference,
}

/// An operation, with the address of the sender or receiver that it was added with.
struct Added<'a> {
    case: Box<dyn Case + 'a>,
    end: (Kind, *const ()),
}

/// The type of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Recv,
    Send,
    SendMessage,
}

impl<'a> Select<'a> {
    /// An empty set. Of the operations that can be done, one is chosen at random.
    #[must_use]
    pub const fn new() -> Self {
        Self { cases: Vec::new(), preference: Preference::Any }
    }

    /// An empty set. Of the operations that can be done, the first is chosen.
    #[must_use]
    pub const fn new_biased() -> Self {
        Self { cases: Vec::new(), preference: Preference::First }
    }

    /// Adds a receive, and returns its number.
    pub fn recv<T>(&mut self, receiver: &'a Receiver<T>) -> usize {
        let end = (Kind::Recv, std::ptr::from_ref(receiver).cast());
        self.add(Box::new(RecvCase::new(receiver)), end)
    }

    /// Adds a send, and returns its number. When it is chosen, [`SelectedOperation::send`] sends
    /// the message.
    ///
    /// If the channel has no buffer, the receiver that gets the message is reserved for it. If the
    /// channel has a bounded buffer, nothing is reserved: another sender may take the room, and
    /// then the send waits. A select that waits with such a send has no message yet: `try_recv` and
    /// [`ready`](Self::ready) of others do not see it; a receive that waits does.
    /// [`send_message`](Self::send_message) has neither limit.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{self, Select};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// let send = select.send(&tx);
    /// let chosen = select.select();
    /// assert_eq!((chosen.index(), chosen.send(&tx, "hello")), (send, Ok(())));
    /// assert_eq!(rx.recv(), Ok("hello"));
    /// ```
    pub fn send<T>(&mut self, sender: &'a Sender<T>) -> usize
    where
        T: 'a,
    {
        let end = (Kind::Send, std::ptr::from_ref(sender).cast());
        self.add(Box::new(LaterCase::new(sender)), end)
    }

    /// Adds a send of `message`, and returns its number. When it is chosen, the message has been
    /// sent; [`SelectedOperation::sent`] returns the result.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{self, Select};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// select.send_message(&tx, "hello");
    /// assert_eq!(select.select().sent(&tx), Ok(()));
    /// assert_eq!(rx.recv(), Ok("hello"));
    /// assert!(select.try_select().is_err());
    /// ```
    pub fn send_message<T>(&mut self, sender: &'a Sender<T>, message: T) -> usize
    where
        T: 'a,
    {
        let end = (Kind::SendMessage, std::ptr::from_ref(sender).cast());
        self.add(Box::new(SendCase::new(sender, Some(message))), end)
    }

    fn add(&mut self, case: Box<dyn Case + 'a>, end: (Kind, *const ())) -> usize {
        self.cases.push(Some(Added { case, end }));
        self.cases.len() - 1
    }

    /// Removes an operation. The numbers of the others do not change.
    ///
    /// # Panics
    /// If there is no such operation.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{self, Select};
    /// let (a, b) = (chan::never::<u8>(), chan::never::<u8>());
    /// let mut select = Select::new();
    /// let first = select.recv(&a);
    /// select.recv(&b);
    /// select.remove(first);
    /// assert!(select.try_select().is_err());
    /// ```
    pub fn remove(&mut self, index: usize) {
        let added = self.cases.get_mut(index).and_then(Option::take);
        assert!(added.is_some(), "Select::remove: there is no operation {index}");
    }

    /// Waits until one of the operations can be done, and does it. Without operations it waits
    /// forever.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn select(&mut self) -> SelectedOperation<'_> {
        match self.run(Patience::ENDLESS) {
            Some(chosen) => chosen,
            None => unreachable!("a wait without a deadline ended without an operation"),
        }
    }

    /// Does one of the operations if that is possible without waiting.
    ///
    /// # Errors
    /// If none can be done.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn try_select(&mut self) -> Result<SelectedOperation<'_>, TrySelectError> {
        self.run(Patience::None).ok_or(TrySelectError)
    }

    /// Waits until one of the operations can be done, but no longer than `timeout`, and does it.
    ///
    /// # Errors
    /// If none could be done in that time.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{self, Select};
    /// use std::time::Duration;
    /// let (tx, rx) = chan::bounded::<u8>(0);
    /// let mut select = Select::new();
    /// select.send(&tx);
    /// select.recv(&rx);
    /// assert!(select.select_timeout(Duration::from_millis(1)).is_err());
    /// ```
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'_>, SelectTimeoutError> {
        self.run(Patience::lasting(timeout)).ok_or(SelectTimeoutError)
    }

    /// Waits until one of the operations can be done, but not past `deadline`, and does it.
    ///
    /// # Errors
    /// If none could be done in that time.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'_>, SelectTimeoutError> {
        self.run(Patience::until(deadline)).ok_or(SelectTimeoutError)
    }

    /// Waits until one of the operations can be done, and returns its number without doing it. When
    /// the caller does it, by `try_send` or `try_recv`, another goroutine or thread may have been
    /// faster.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::{self, Select};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// let receive = select.recv(&rx);
    /// assert!(select.try_ready().is_err());
    /// tx.send(1).unwrap();
    /// assert_eq!(select.ready(), receive);
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    pub fn ready(&mut self) -> usize {
        match self.choose(Interest::Know, Patience::ENDLESS) {
            Some(ready) => ready,
            None => unreachable!("a wait without a deadline ended without an operation"),
        }
    }

    /// As [`ready`](Self::ready), without waiting.
    ///
    /// # Errors
    /// If none can be done.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn try_ready(&mut self) -> Result<usize, TryReadyError> {
        self.choose(Interest::Know, Patience::None).ok_or(TryReadyError)
    }

    /// As [`ready`](Self::ready), but waits no longer than `timeout`.
    ///
    /// # Errors
    /// If none could be done in that time.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn ready_timeout(&mut self, timeout: Duration) -> Result<usize, ReadyTimeoutError> {
        self.choose(Interest::Know, Patience::lasting(timeout)).ok_or(ReadyTimeoutError)
    }

    /// As [`ready`](Self::ready), but does not wait past `deadline`.
    ///
    /// # Errors
    /// If none could be done in that time.
    ///
    /// # Panics
    /// If there are more than 65,536 operations.
    pub fn ready_deadline(&mut self, deadline: Instant) -> Result<usize, ReadyTimeoutError> {
        self.choose(Interest::Know, Patience::until(deadline)).ok_or(ReadyTimeoutError)
    }

    fn run(&mut self, patience: Patience) -> Option<SelectedOperation<'_>> {
        let chosen = self.choose(Interest::Do, patience)?;
        let added = self.cases[chosen].as_mut()?;
        Some(SelectedOperation { index: chosen, end: added.end, case: &mut *added.case })
    }

    fn choose(&mut self, interest: Interest, patience: Patience) -> Option<usize> {
        let mut numbers = Vec::with_capacity(self.cases.len());
        let mut handles = Vec::with_capacity(self.cases.len());
        for (number, added) in self.cases.iter_mut().enumerate() {
            if let Some(added) = added {
                added.case.forget();
                numbers.push(number);
                handles.push(Handle(&mut *added.case, interest));
            }
        }
        select(&mut handles, self.preference, patience).map(|chosen| numbers[chosen])
    }
}

impl Default for Select<'_> {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select").field("operations", &self.cases.len()).finish_non_exhaustive()
    }
}

/// An operation that was chosen. To complete it, pass the sender or receiver that it was added
/// with. A received message that is not taken is dropped, and a send that is not completed is not
/// done.
///
/// A receiver that was reserved for a send waits until the operation is completed or dropped.
#[must_use]
pub struct SelectedOperation<'s> {
    index: usize,
    end: (Kind, *const ()),
    /// The case, of the type that belongs to `end`.
    case: &'s mut (dyn Case + 's),
}

impl SelectedOperation<'_> {
    /// The number of the operation.
    #[must_use]
    pub const fn index(&self) -> usize {
        self.index
    }

    /// The result of a receive.
    ///
    /// # Errors
    /// If the channel is closed and empty.
    ///
    /// # Panics
    /// If the operation was not added with this receiver.
    pub fn recv<T>(self, receiver: &Receiver<T>) -> Result<T, RecvError> {
        assert!(
            self.end == (Kind::Recv, std::ptr::from_ref(receiver).cast()),
            "SelectedOperation::recv: pass the receiver that the operation was added with"
        );
        // SAFETY: it was added with the receiver at this address, which is still borrowed. So it is
        // the same receiver, and the case has this type. No other code uses the case while the
        // select is borrowed.
        unsafe { &mut *std::ptr::from_mut(&mut *self.case).cast::<RecvCase<'_, T>>() }.take()
    }

    /// Sends `message`: completes an operation that was added by [`Select::send`].
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    ///
    /// # Panics
    /// If the operation was not added with this sender, or was added with its message.
    pub fn send<T>(self, sender: &Sender<T>, message: T) -> Result<(), SendError<T>> {
        assert!(
            self.end == (Kind::Send, std::ptr::from_ref(sender).cast()),
            "SelectedOperation::send: pass the sender that the operation was added with; if it was \
             added with its message, call `sent`"
        );
        // SAFETY: as for a receive.
        unsafe { &mut *std::ptr::from_mut(&mut *self.case).cast::<LaterCase<'_, T>>() }
            .send(message)
    }

    /// The result of a send that was added with its message, by [`Select::send_message`].
    ///
    /// # Errors
    /// If the channel is closed. The error holds the message.
    ///
    /// # Panics
    /// If the operation was not added with this sender, or was added without a message.
    pub fn sent<T>(self, sender: &Sender<T>) -> Result<(), SendError<T>> {
        assert!(
            self.end == (Kind::SendMessage, std::ptr::from_ref(sender).cast()),
            "SelectedOperation::sent: pass the sender that the operation was added with; if it was \
             added without a message, call `send`"
        );
        // SAFETY: as for a receive.
        unsafe { &mut *std::ptr::from_mut(&mut *self.case).cast::<SendCase<'_, T>>() }.take()
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        // A result that was taken is no longer in the case.
        self.case.forget();
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedOperation").field("index", &self.index).finish_non_exhaustive()
    }
}

/// No operation could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrySelectError;

/// No operation could be done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectTimeoutError;

impl fmt::Display for TrySelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("all operations in select would block")
    }
}

impl fmt::Display for SelectTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("timed out waiting on select")
    }
}

/// No operation could be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TryReadyError;

/// No operation could be done in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadyTimeoutError;

impl fmt::Display for TryReadyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        TrySelectError.fmt(f)
    }
}

impl fmt::Display for ReadyTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SelectTimeoutError.fmt(f)
    }
}

impl Error for TryReadyError {}
impl Error for ReadyTimeoutError {}
impl Error for TrySelectError {}
impl Error for SelectTimeoutError {}

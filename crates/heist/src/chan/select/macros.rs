//! The macros `select!` and `select_biased!`, and what their expansion calls.
//!
//! The expansion has two parts. In the first, the channels and messages are evaluated, in the order
//! in which they are written, and each operation is tried. If none can be done, they become cases
//! on the stack, and the expansion waits for one of them. The result is kept. Then all borrows are
//! released. In the second part, the expression of the chosen case runs in the function of the
//! caller: it may return, break, and use the channels again.

use super::super::error::{RecvError, SendError};
use super::super::parcel::Parcel;
use super::super::receiver::Receiver;
use super::super::sender::Sender;
use super::super::state::{Patience, Refused};
use super::attempt;
use super::{Handle, Preference, select_tried, try_all};
use crate::current::InRuntime;
use std::time::Duration;

/// Which case is chosen if several are ready.
#[derive(Clone, Copy, Debug)]
pub enum Choice {
    /// Any, each with the same probability.
    Any,
    /// The first.
    First,
}

impl From<Choice> for Preference {
    fn from(choice: Choice) -> Self {
        match choice {
            Choice::Any => Self::Any,
            Choice::First => Self::First,
        }
    }
}

/// The place from which an attempt is made.
pub struct Inside<'a>(&'a mut Option<InRuntime>);

/// Tries each of `N` cases once, in the order that `choice` demands.
///
/// ```compile_fail,E0133
/// use heist::chan::select_parts::{Choice, try_once};
/// try_once::<1>(Choice::Any, |_, _| panic!("the user's code inside the runtime"));
/// ```
///
/// # Safety
/// `attempt` runs inside the runtime. It does nothing but call [`try_recv`] or [`try_send`], with
/// the `Inside` that it was given and a result that is None.
#[inline]
pub unsafe fn try_once<const N: usize>(
    choice: Choice,
    mut attempt: impl FnMut(usize, Inside<'_>) -> bool,
) -> bool {
    let mut order = std::array::from_fn::<u16, N, _>(|case| case as u16);
    try_all(&mut order, choice.into(), |case, rt| attempt(case, Inside(rt))).is_some()
}

/// A message for that sender. The function is a coercion site, so implicit conversions to `T`
/// apply.
#[inline]
pub const fn message<T>(_: &Sender<T>, message: T) -> Option<T> {
    Some(message)
}

/// Receives, if that is possible now.
#[inline]
pub fn try_recv<T>(
    receiver: &Receiver<T>,
    inside: Inside<'_>,
    result: &mut Option<Result<T, RecvError>>,
) -> bool {
    let mut parcel = Parcel::empty();
    match attempt::recv(receiver, inside.0, &mut parcel) {
        Ok(()) => *result = Some(Ok(parcel.take())),
        Err(Refused::Disconnected) => *result = Some(Err(RecvError)),
        Err(Refused::NotReady) => return false,
    }
    true
}

/// The place of a message for that sender.
#[inline]
pub const fn place<'a, T>(_: &Sender<T>, place: &'a mut Option<T>) -> &'a mut Option<T> {
    place
}

/// Sends, if there is a message and that is possible now.
#[inline]
pub fn try_send<T>(
    sender: &Sender<T>,
    message: &mut Option<T>,
    inside: Inside<'_>,
    result: &mut Option<Result<(), SendError<T>>>,
) -> bool {
    if message.is_none() {
        return false;
    }
    match attempt::send(sender, inside.0, message) {
        Ok(()) => *result = Some(Ok(())),
        Err(Refused::Disconnected) => {
            *result = message.take().map(|message| Err(SendError(message)))
        }
        Err(Refused::NotReady) => return false,
    }
    true
}

/// Waits until one of the cases is done. All of them have been tried.
pub fn choose(choice: Choice, cases: &mut [Handle<'_>]) {
    select_tried(cases, choice.into(), Patience::ENDLESS);
}

/// Does one of the cases, unless there is a moment at which none can be done. All of them have been
/// tried.
pub fn choose_now(choice: Choice, cases: &mut [Handle<'_>]) {
    select_tried(cases, choice.into(), Patience::None);
}

/// Waits until one of the cases is done, but no longer than `timeout`. All of them have been tried.
pub fn choose_within(choice: Choice, cases: &mut [Handle<'_>], timeout: Duration) {
    select_tried(cases, choice.into(), Patience::lasting(timeout));
}

/// Does the first of several channel operations that can be done.
///
/// ```text
/// select! {
///     recv(receiver) -> result => expression,
///     send(sender, message) -> result => expression,
///     send_from(sender, &mut option) -> result => expression,
///     default => expression,            // if no case can be done now
///     default(timeout) => expression,   // if no case can be done in that time
/// }
/// ```
///
/// The result is a `Result<T, RecvError>` or a `Result<(), SendError<T>>`; a closed channel is
/// ready, with an error. If several operations can be done, one of them is chosen at random, each
/// with the same probability; [`select_biased!`](crate::select_biased) prefers the first. Without a
/// default it waits. Without any case it waits forever.
///
/// Channels and messages are evaluated once, in the order in which they are written, as in Go. The
/// timeout is evaluated after them, and only if no case is ready at once: the time is counted from
/// then. The expression of the chosen case is the value of the macro; `return`, `break` and `?` in
/// it refer to the surrounding function.
///
/// A message of `send` that is not sent because another case was chosen is dropped. `send_from`
/// takes the message out of an `Option` and puts it back if it is not sent. If there is none, the
/// case is never chosen, as a send on a nil channel in Go. If the channel is closed, the result has
/// the message.
///
/// # Examples
/// ```
/// use heist::{chan, select};
/// use std::time::Duration;
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (tx, rx) = chan::bounded(1);
/// let (out, _kept) = chan::bounded::<u32>(0);
/// tx.send("hello").unwrap();
/// let got = select! {
///     recv(rx) -> message => message.unwrap(),
///     send(out, 7) -> sent => {
///         sent.unwrap();
///         "sent"
///     }
/// };
/// assert_eq!(got, "hello");
///
/// let nothing = select! {
///     recv(rx) -> _ => false,
///     default(Duration::from_millis(1)) => true,
/// };
/// assert!(nothing);
/// # });
/// ```
///
/// A stage between two channels that keeps a message until the next stage takes it:
/// ```
/// use heist::{chan, select};
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (input, numbers) = chan::bounded(0);
/// let (squares, output) = chan::bounded(0);
/// heist::go(move || (1..=3).for_each(|n| input.send(n).unwrap()));
/// let stage = heist::go(move || {
///     let (mut newest, mut n_dropped) = (None, 0);
///     loop {
///         select! {
///             recv(numbers) -> number => match number {
///                 Ok(n) => n_dropped += usize::from(newest.replace(n * n).is_some()),
///                 Err(_) => break,
///             },
///             send_from(squares, &mut newest) -> sent => sent.unwrap(),
///         }
///     }
///     newest.map(|last| squares.send(last));
///     n_dropped
/// });
/// let received = output.iter().count();
/// assert_eq!(received + stage.join().unwrap(), 3);
/// # });
/// ```
///
/// The compile error names the text that is not a case:
///
/// ```compile_fail
/// # let rx = heist::chan::never::<u8>();
/// heist::select! { receive(rx) -> message => () }
/// ```
#[macro_export]
#[doc(alias = "selectgo")]
macro_rules! select {
    ($($cases:tt)*) => { $crate::__select_parse!(Any [] [] $($cases)*) };
}

/// As [`select!`](crate::select), but if several operations can be done, the first of them is
/// chosen.
///
/// # Examples
/// ```
/// use heist::{chan, select_biased};
///
/// let (urgent, first) = chan::bounded(1);
/// let (usual, second) = chan::bounded(1);
/// urgent.send(1).unwrap();
/// usual.send(2).unwrap();
/// let got = select_biased! {
///     recv(first) -> message => message,
///     recv(second) -> message => message,
/// };
/// assert_eq!(got, Ok(1));
/// ```
#[macro_export]
macro_rules! select_biased {
    ($($cases:tt)*) => { $crate::__select_parse!(First [] [] $($cases)*) };
}

//! Channels, through which goroutines and threads send messages to each other.
//!
//! A channel has any number of [`Sender`]s and [`Receiver`]s. A [`bounded`] channel has room for a
//! fixed number of messages; with zero, a send waits until a receiver takes its message. An
//! [`unbounded`] one has room for any number. Messages are received in the order in which they were
//! sent, each once.
//!
//! Waiting parks the goroutine, or blocks a plain thread; both can use the same channel.
//!
//! # Closing
//! A channel is closed when its last sender or its last receiver is dropped, or by `close` at
//! either end. Then sending fails. Messages that were sent can still be received; after them
//! receiving fails. Closing a closed channel does nothing. Errors are values; where Go panics, the
//! error returns the message.
//!
//! # Other channels
//! Each message goes to one receiver. In a [`broadcast`] channel it goes to all of them, and a
//! [`watch`] channel holds the newest one only.
//!
//! # Examples
//! ```
//! use heist::chan;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let (tx, rx) = chan::bounded(0);
//! heist::go(move || {
//!     for word in ["over", "and", "out"] {
//!         tx.send(word).unwrap();
//!     }
//! });
//! assert!(rx.into_iter().eq(["over", "and", "out"]));
//! # });
//! ```

mod alarm;
pub mod broadcast;
mod closing;
mod error;
mod futures;
mod never;
mod parcel;
mod patience;
mod queues;
mod receiver;
mod select;
#[doc(hidden)]
pub mod select_parts;
mod sender;
#[cfg(feature = "futures-sink")]
mod sink;
mod state;
#[cfg(feature = "futures-core")]
mod stream;
pub mod watch;

pub use error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
pub use futures::{RecvFuture, SendFuture};
pub use receiver::{IntoIter, Iter, Receiver, TryIter};
pub use select::dynamic::{
    ReadyTimeoutError, Select, SelectTimeoutError, SelectedOperation, TryReadyError, TrySelectError,
};
pub use sender::Sender;
#[cfg(feature = "futures-sink")]
pub use sink::SendSink;
#[cfg(feature = "futures-core")]
pub use stream::RecvStream;

pub(crate) use alarm::Alarm;
pub(crate) use closing::Closing;

use heist_core::buffer::{Blocks, Meeting, Ring};
use state::Chan;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A channel with room for `capacity` messages. With a capacity of zero, a send waits until a
/// receiver takes the message.
///
/// # Panics
/// If that many messages cannot fit into memory. Messages of zero size, such as `()`, need memory
/// too: each place has a sequence number, which is what makes sending without a lock possible.
///
/// # Examples
/// ```
/// let (tx, rx) = heist::chan::bounded(2);
/// tx.send(1).unwrap();
/// tx.send(2).unwrap();
/// assert!(tx.try_send(3).is_err());
/// assert_eq!(rx.recv(), Ok(1));
/// ```
///
/// ```should_panic
/// // makechan: size out of range
/// heist::chan::bounded::<u64>(usize::MAX);
/// ```
#[must_use]
#[doc(alias = "makechan")]
pub fn bounded<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    if capacity == 0 {
        let chan = Arc::new(Chan::new(Meeting::new()));
        let sender = Sender { flavor: sender::Flavor::Meeting(Arc::clone(&chan)) };
        return (sender, Receiver { flavor: receiver::Flavor::Meeting(chan) });
    }
    let Some(ring) = Ring::new(capacity, std::thread::yield_now) else {
        panic!("makechan: size out of range");
    };
    let chan = Arc::new(Chan::new(ring));
    let sender = Sender { flavor: sender::Flavor::Ring(Arc::clone(&chan)) };
    (sender, Receiver { flavor: receiver::Flavor::Ring(chan) })
}

/// A channel through which nothing is sent. Only its sender closes it.
pub(crate) fn signal() -> (Sender<Infallible>, Receiver<Infallible>) {
    let chan = Arc::new(Chan { receivers_close: false, ..Chan::new(Meeting::new()) });
    let sender = Sender { flavor: sender::Flavor::Meeting(Arc::clone(&chan)) };
    (sender, Receiver { flavor: receiver::Flavor::Meeting(chan) })
}

/// A channel with room for any number of messages: sending never waits.
///
/// # Examples
/// ```
/// let (tx, rx) = heist::chan::unbounded();
/// (0..1000).for_each(|i| tx.send(i).unwrap());
/// drop(tx);
/// assert_eq!(rx.iter().count(), 1000);
/// ```
#[must_use]
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    let chan = Arc::new(Chan::new(Blocks::new(std::thread::yield_now)));
    let sender = Sender { flavor: sender::Flavor::Blocks(Arc::clone(&chan)) };
    (sender, Receiver { flavor: receiver::Flavor::Blocks(chan) })
}

/// A receiver that gets one message, the time at which it was due, when `duration` is over. After
/// that it is never ready again.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let start = Instant::now();
/// let due = heist::chan::after(Duration::from_millis(5)).recv().unwrap();
/// assert!(due >= start + Duration::from_millis(5) && start.elapsed() >= Duration::from_millis(5));
/// ```
#[must_use]
#[doc(alias = "After")]
pub fn after(duration: Duration) -> Receiver<Instant> {
    alarm_receiver(Alarm::new(duration, Duration::ZERO))
}

/// A receiver that gets one message, `moment` itself, when that moment has come. After that it is
/// never ready again.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let soon = Instant::now() + Duration::from_millis(5);
/// assert_eq!(heist::chan::at(soon).recv(), Ok(soon));
/// assert!(Instant::now() >= soon);
/// ```
#[must_use]
pub fn at(moment: Instant) -> Receiver<Instant> {
    alarm_receiver(Alarm::at(moment))
}

/// A receiver that gets a message, the time at which it was due, every `period`. Of the messages
/// that were not received in time, the first is kept and the others are dropped.
///
/// # Panics
/// If the period is zero.
///
/// # Examples
/// ```
/// use std::time::{Duration, Instant};
///
/// let ticks = heist::chan::tick(Duration::from_millis(1));
/// let first = ticks.recv().unwrap();
/// assert!(ticks.recv().unwrap() >= first + Duration::from_millis(1));
/// ```
#[must_use]
#[doc(alias = "Tick")]
pub fn tick(period: Duration) -> Receiver<Instant> {
    assert!(!period.is_zero(), "non-positive interval for chan::tick");
    alarm_receiver(Alarm::new(period, period))
}

pub(crate) const fn alarm_receiver(alarm: Arc<Alarm>) -> Receiver<Instant> {
    Receiver { flavor: receiver::Flavor::Alarm(alarm, std::convert::identity) }
}

/// A receiver that is never ready, as a nil channel in Go: receiving blocks forever, and in a
/// select its case is never chosen. Its counterpart is [`Sender::never`].
///
/// # Examples
/// ```
/// assert!(heist::chan::never::<u8>().try_recv().unwrap_err().is_empty());
/// ```
#[must_use]
pub const fn never<T>() -> Receiver<T> {
    Receiver { flavor: receiver::Flavor::Never }
}

//! A channel in which every receiver gets every message.
//!
//! The channel keeps the newest messages, up to its capacity. A send never waits: it replaces the
//! oldest message if there is no room. A receiver that has not received that one has *lagged*: its
//! next receive says by how many messages, and then it continues with the oldest one that is left.
//!
//! # Examples
//! ```
//! use heist::chan::broadcast;
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let (tx, first) = broadcast::channel(16);
//! let listeners: Vec<_> = [first, tx.subscribe()]
//!     .into_iter()
//!     .map(|mut rx| heist::go(move || (rx.recv().unwrap(), rx.recv().unwrap())))
//!     .collect();
//! tx.send("hello").unwrap();
//! tx.send("world").unwrap();
//! for listener in listeners {
//!     assert_eq!(listener.join().unwrap(), ("hello", "world"));
//! }
//! # });
//! ```
//!
//! # How it works
//! The messages are in a ring under a mutex, each behind an `Arc`, with the number of receivers
//! that will still take it. A receiver takes the `Arc` under the mutex and clones the message
//! without it; the last one takes the message itself. So no code of the user runs under the mutex.

use super::error::SendError;
use crate::sync::{Condvar, Mutex};
use std::collections::VecDeque;
use std::error::Error;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::{Duration, Instant};

struct Shared<T> {
    state: Mutex<State<T>>,
    /// A new message, or the last sender has gone.
    changed: Condvar,
    capacity: usize,
}

struct State<T> {
    /// The newest messages.
    ring: VecDeque<Slot<T>>,
    /// The number of the first message in the ring.
    first: u64,
    n_senders: usize,
    n_receivers: usize,
}

struct Slot<T> {
    /// None when all have taken it.
    message: Option<Arc<T>>,
    /// How many receivers will still take it.
    n_left: usize,
}

impl<T> State<T> {
    /// The number that the next message will have.
    fn next(&self) -> u64 {
        self.first + self.ring.len() as u64
    }

    /// Takes message `number`, which is in the ring, for one receiver.
    fn take(&mut self, number: u64) -> Option<Arc<T>> {
        let slot = &mut self.ring[(number - self.first) as usize];
        slot.n_left -= 1;
        if slot.n_left == 0 { slot.message.take() } else { slot.message.clone() }
    }
}

/// A channel that keeps the newest `capacity` messages.
///
/// # Panics
/// If the capacity is zero.
///
/// # Examples
/// ```
/// let (tx, mut rx) = heist::chan::broadcast::channel(2);
/// tx.send(1).unwrap();
/// assert_eq!(rx.recv(), Ok(1));
/// ```
#[must_use]
pub fn channel<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    assert!(capacity > 0, "chan::broadcast::channel: a capacity of zero keeps no message");
    let state = State { ring: VecDeque::new(), first: 0, n_senders: 1, n_receivers: 1 };
    let (state, changed) = (Mutex::new(state), Condvar::new());
    let shared = Arc::new(Shared { state, changed, capacity });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, next: 0 })
}

/// Sends to every receiver. Clones send into the same channel; when the last one is dropped, the
/// channel is closed.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

// As for `Mutex`.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}

impl<T> Sender<T> {
    /// Sends a message to every receiver that there is now, and returns how many that are. Does not
    /// wait.
    ///
    /// # Errors
    /// If there is no receiver. The error holds the message.
    ///
    /// # Examples
    /// ```
    /// let (tx, rx) = heist::chan::broadcast::channel(1);
    /// let more = tx.subscribe();
    /// assert_eq!(tx.send("two listen"), Ok(2));
    /// drop((rx, more));
    /// assert!(tx.send("none listens").is_err());
    /// ```
    pub fn send(&self, message: T) -> Result<usize, SendError<T>> {
        let mut state = self.shared.state.lock_shielded();
        let n_left = state.n_receivers;
        if n_left == 0 {
            drop(state);
            return Err(SendError(message));
        }
        let oldest = if state.ring.len() == self.shared.capacity {
            state.first += 1;
            state.ring.pop_front()
        } else {
            None
        };
        state.ring.push_back(Slot { message: Some(Arc::new(message)), n_left });
        drop(state);
        self.shared.changed.notify_all();
        // Dropped without the lock: it is the user's.
        drop(oldest);
        Ok(n_left)
    }

    /// Another receiver. It gets the messages that are sent from now on.
    #[must_use]
    pub fn subscribe(&self) -> Receiver<T> {
        let mut state = self.shared.state.lock_shielded();
        state.n_receivers += 1;
        let next = state.next();
        drop(state);
        Receiver { shared: Arc::clone(&self.shared), next }
    }

    /// How many messages are kept that a receiver has not received.
    #[must_use]
    pub fn len(&self) -> usize {
        let state = self.shared.state.lock_shielded();
        state.ring.iter().filter(|slot| slot.n_left != 0).count()
    }

    /// Whether every receiver has received every message.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// How many receivers there are.
    #[must_use]
    pub fn receiver_count(&self) -> usize {
        self.shared.state.lock_shielded().n_receivers
    }

    /// Whether both send into the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.state.lock_shielded().n_senders += 1;
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock_shielded();
        state.n_senders -= 1;
        if state.n_senders == 0 {
            drop(state);
            self.shared.changed.notify_all();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sender { .. }")
    }
}

/// Gets every message. Another receiver is made by [`Sender::subscribe`] or
/// [`resubscribe`](Self::resubscribe).
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// The number of the message that it receives next.
    next: u64,
}

// As for `Mutex`.
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T: Clone> Receiver<T> {
    /// Receives the next message, and waits for it if there is none.
    ///
    /// A goroutine that is cancelled while it waits has received nothing.
    ///
    /// # Errors
    /// If messages were lost, once, or if the channel is closed and every message was received.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::broadcast::{self, RecvError};
    /// let (tx, mut rx) = broadcast::channel(2);
    /// for i in 0..5 {
    ///     tx.send(i).unwrap();
    /// }
    /// assert_eq!(rx.recv(), Err(RecvError::Lagged(3)));
    /// assert_eq!(rx.recv(), Ok(3));
    /// drop(tx);
    /// assert_eq!(rx.recv(), Ok(4));
    /// assert_eq!(rx.recv(), Err(RecvError::Closed));
    /// ```
    pub fn recv(&mut self) -> Result<T, RecvError> {
        match self.recv_until(Some(None)) {
            Ok(message) => Ok(message),
            Err(TryRecvError::Lagged(n)) => Err(RecvError::Lagged(n)),
            Err(_) => Err(RecvError::Closed),
        }
    }

    /// Receives the next message, if there is one.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and if there is none.
    pub fn try_recv(&mut self) -> Result<T, TryRecvError> {
        self.recv_until(None)
    }

    /// As [`recv`](Self::recv), but waits no longer than `timeout`.
    ///
    /// # Errors
    /// As [`recv`](Self::recv), and [`TryRecvError::Empty`] if the time is over.
    ///
    /// # Examples
    /// ```
    /// use heist::chan::broadcast::{self, TryRecvError};
    /// use std::time::Duration;
    /// let (tx, mut rx) = broadcast::channel::<u8>(2);
    /// assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(TryRecvError::Empty));
    /// # drop(tx);
    /// ```
    pub fn recv_timeout(&mut self, timeout: Duration) -> Result<T, TryRecvError> {
        self.recv_until(Some(Instant::now().checked_add(timeout)))
    }

    /// None: without waiting. Some(None): without a limit.
    fn recv_until(&mut self, until: Option<Option<Instant>>) -> Result<T, TryRecvError> {
        let mut state = self.shared.state.lock();
        let next = self.next;
        let waits = |state: &mut State<T>| next == state.next() && state.n_senders != 0;
        match until {
            None => {}
            Some(None) => self.shared.changed.wait_while(&mut state, waits),
            Some(Some(until)) => {
                // Whether the time is over is seen below.
                let _ = self.shared.changed.wait_while_until(&mut state, waits, until);
            }
        }
        if next < state.first {
            let n_lost = state.first - next;
            self.next = state.first;
            return Err(TryRecvError::Lagged(n_lost));
        }
        if next == state.next() {
            return Err(match state.n_senders {
                0 => TryRecvError::Closed,
                _ => TryRecvError::Empty,
            });
        }
        self.next += 1;
        let message = state.take(next);
        drop(state);
        match message {
            // The last one takes it, unless another is just cloning it.
            Some(message) => Ok(Arc::unwrap_or_clone(message)),
            None => heist_core::throw!("broadcast: a message was taken too often"),
        }
    }
}

impl<T> Receiver<T> {
    /// Another receiver. It gets the messages that are sent from now on.
    #[must_use]
    pub fn resubscribe(&self) -> Self {
        let mut state = self.shared.state.lock_shielded();
        state.n_receivers += 1;
        let next = state.next();
        drop(state);
        Self { shared: Arc::clone(&self.shared), next }
    }

    /// How many messages were sent and not received, lost ones too.
    #[must_use]
    pub fn len(&self) -> usize {
        (self.shared.state.lock_shielded().next() - self.next) as usize
    }

    /// Whether every message was received.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether both receive from the same channel.
    #[must_use]
    pub fn same_channel(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let mut state = self.shared.state.lock_shielded();
        state.n_receivers -= 1;
        let from = self.next.max(state.first);
        // Dropped without the lock: they are the user's.
        let unwanted: Vec<_> = (from..state.next()).map(|number| state.take(number)).collect();
        drop(state);
        drop(unwanted);
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Receiver { .. }")
    }
}

/// Why a receiver got no message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecvError {
    /// The channel is closed, and every message was received.
    Closed,
    /// This many messages were lost, because there was no room. The next receive continues after
    /// them.
    Lagged(u64),
}

/// Why a receiver got no message at once, or in time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TryRecvError {
    /// There is none.
    Empty,
    /// The channel is closed, and every message was received.
    Closed,
    /// This many messages were lost, because there was no room. The next receive continues after
    /// them.
    Lagged(u64),
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => TryRecvError::Closed.fmt(f),
            Self::Lagged(n) => TryRecvError::Lagged(*n).fmt(f),
        }
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Empty => f.write_str("receiving on an empty channel"),
            Self::Closed => f.write_str("receiving on an empty and closed channel"),
            Self::Lagged(n) => write!(f, "the receiver lagged behind by {n} messages"),
        }
    }
}

impl Error for RecvError {}
impl Error for TryRecvError {}

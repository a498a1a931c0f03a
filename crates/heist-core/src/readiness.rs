//! One direction of a descriptor: whether an operation may succeed, and the goroutine that waits
//! until it may.
//!
//! # States
//! ```text
//!            event                    drained
//!   Idle ------------> Ready <------> Idle        (drained only if nothing came since the look)
//!    | publish           ^
//!    +-----> Waiting ----+ event: the waiter is handed to its sender
//!               |  poke: to Idle, the waiter is handed out as well
//!               |  withdraw: to Idle, by the waiter itself, after another wake-up
//!   any -- close --> Closed
//! ```
//! A descriptor is registered edge-triggered and once: an event comes when something changes, not
//! while it lasts. So the state remembers events, and an operation forgets one only if it has seen
//! the end of the data *after* it: it looks at the word first, then tries, and if the try found
//! nothing (or less than it asked for) it calls [`Readiness::drained`] with the word it saw. An
//! event in between has changed the word and is kept.
//!
//! Each change of the word gives it a new number. That is the whole protocol:
//! - *Event against park.* The waiter publishes itself only over the word it looked at. An event,
//!   a poke or a close after the look makes that fail, and the goroutine does not wait.
//! - *Poke* tells a waiter to check its deadline again. The waiter reads the word first and the
//!   deadline after that; a thread that changes the deadline writes it first and pokes after that.
//! - *Wakers among each other.* The waiter's fields are written before it is published and not
//!   again before its word is gone. A waker reads them and takes the word by compare-and-swap: if
//!   that succeeds, the word was there all the time, so the fields it read belong together.
//! - The waker then claims the goroutine by ticket. If a timer or a canceller was faster, the claim
//!   fails and the goroutine finds its word taken; neither side has to wait for the other.
//!
//! At most one goroutine waits in a direction; the descriptor's lock ensures that.
//!
//! The word also holds the number of the use of its record: [`Readiness::event_of`] changes nothing
//! if the event was meant for an earlier use. The check and the change are one step. Otherwise a
//! poller that is interrupted between the two would hand out the waiter of the next use, perhaps a
//! goroutine of another runtime.
//!
//! `EAGER` is kept until the descriptor is closed: the other end has hung up, or something urgent
//! is among the data. Then the edges do not report everything, and a try that found less than it
//! asked for does not show that nothing is left.
//!
//! The model `loom_readiness` runs it.
//!
//! # Ordering
//! Looks are Acquire, changes AcqRel: a waker sees the waiter's fields and its status, a waiter
//! sees what was written before the poke. In a successful change the reads of the fields cannot
//! sink below it, and the next writer of the fields has read the changed word.
//!
//! GO: netpoll.go pollDesc (rg, wg), netpollblock, netpollunblock, netpollcheckerr.

use crate::status::Ticket;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use std::ptr::{NonNull, null_mut};

const STATE: u64 = 3;
const IDLE: u64 = 0;
const READY: u64 = 1;
const WAITING: u64 = 2;
const CLOSED: u64 = 3;
/// Set if a short read or write does not mean that nothing is left.
const EAGER: u64 = 4;
const NUMBER_ONE: u64 = 8;
/// The position of the use in the word. Numbers are below it.
const USE_SHIFT: u32 = 64 - USE_BITS;
const NUMBER: u64 = (1 << USE_SHIFT) - NUMBER_ONE;

/// Bits of the number of a use.
pub const USE_BITS: u32 = 23;

/// The state at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Look(u64);

impl Look {
    /// Whether an operation may find something.
    #[inline]
    #[must_use]
    pub const fn is_ready(self) -> bool {
        self.0 & STATE == READY
    }

    /// Whether there is a waiter.
    #[must_use]
    pub const fn is_awaited(self) -> bool {
        self.0 & STATE == WAITING
    }

    /// Whether the descriptor is closed.
    #[inline]
    #[must_use]
    pub const fn is_closed(self) -> bool {
        self.0 & STATE == CLOSED
    }

    /// Whether a short read or write does not show that nothing is left.
    #[inline]
    #[must_use]
    pub const fn is_eager(self) -> bool {
        self.0 & EAGER != 0
    }
}

/// The kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    /// There is data, or room for data.
    Plain,
    /// The other end has hung up, or there is an error or urgent data.
    Eager,
}

/// A direction of a descriptor, with the `T` that waits for it.
#[derive(Debug)]
#[doc(alias = "pollDesc")]
pub struct Readiness<T> {
    word: AtomicU64,
    waiter: AtomicPtr<T>,
    ticket: AtomicU64,
}

impl<T> Readiness<T> {
    /// A direction that may not be used yet.
    #[must_use]
    pub fn new() -> Self {
        Self {
            word: AtomicU64::new(CLOSED),
            waiter: AtomicPtr::new(null_mut()),
            ticket: AtomicU64::new(0),
        }
    }

    /// Opens the direction for a new descriptor: the first operation tries without waiting. This is
    /// the use `number` of the record; bits that do not fit into [`USE_BITS`] are dropped.
    pub fn open(&self, number: u32) {
        let word = self.word.load(Ordering::Acquire);
        let to = u64::from(number) << USE_SHIFT | next_number(word) & NUMBER | READY;
        let opened = word & STATE == CLOSED
            && self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Relaxed).is_ok();
        if !opened {
            crate::throw!("Readiness::open: open already");
        }
    }

    /// The current or the last waiter: a hint for prefetching.
    #[inline]
    #[must_use]
    pub fn waiter_hint(&self) -> *const T {
        self.waiter.load(Ordering::Relaxed)
    }

    /// The state now.
    #[inline]
    #[must_use]
    pub fn look(&self) -> Look {
        Look(self.word.load(Ordering::Acquire))
    }

    /// Records an event. Returns the waiter. For a user of the descriptor: the use does not end
    /// meanwhile.
    #[doc(alias = "netpollunblock")]
    pub fn event(&self, edge: Edge) -> Option<(NonNull<T>, Ticket)> {
        self.hand_out(|word| after_event(word, edge))
    }

    /// As [`event`](Self::event), in the use `number` of the record. Does nothing if that use has
    /// ended.
    pub fn event_of(&self, number: u32, edge: Edge) -> Option<(NonNull<T>, Ticket)> {
        let of_use = u64::from(number) << USE_SHIFT >> USE_SHIFT;
        self.hand_out(|word| {
            (word >> USE_SHIFT == of_use).then(|| after_event(word, edge)).flatten()
        })
    }

    /// Makes a waiter check again, and keeps a goroutine that is about to wait from waiting.
    /// Returns the waiter.
    pub fn poke(&self) -> Option<(NonNull<T>, Ticket)> {
        self.hand_out(|word| match word & STATE {
            CLOSED => None,
            READY => Some(word & (STATE | EAGER)),
            _ => Some(IDLE | word & EAGER),
        })
    }

    /// Ends all waiting here. Returns the waiter.
    pub fn close(&self) -> Option<(NonNull<T>, Ticket)> {
        self.hand_out(|word| (word & STATE != CLOSED).then_some(CLOSED))
    }

    /// Notes that a try after `look` found the end of the data. True unless something happened
    /// meanwhile.
    #[inline]
    pub fn drained(&self, look: Look) -> bool {
        if !look.is_ready() {
            return false;
        }
        let idle = next_number(look.0) | IDLE | look.0 & EAGER;
        self.word.compare_exchange(look.0, idle, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Publishes `waiter`, so that events find it. False if something happened since `look`: then
    /// the goroutine must not wait.
    #[inline]
    #[must_use]
    #[doc(alias = "netpollblockcommit")]
    pub fn publish(&self, look: Look, waiter: NonNull<T>, ticket: Ticket) -> bool {
        if look.0 & STATE != IDLE {
            return false;
        }
        self.waiter.store(waiter.as_ptr(), Ordering::Relaxed);
        self.ticket.store(ticket.to_bits(), Ordering::Relaxed);
        let waiting = next_number(look.0) | WAITING | look.0 & EAGER;
        self.word.compare_exchange(look.0, waiting, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Removes the waiter, which was woken in another way and does not wait any more.
    pub fn withdraw(&self) {
        let waiting = |word: u64| (word & STATE == WAITING).then_some(IDLE | word & EAGER);
        let _ = self.change(waiting);
    }

    /// Changes the word and returns the waiter that was in it.
    #[inline]
    fn hand_out(&self, next: impl Fn(u64) -> Option<u64>) -> Option<(NonNull<T>, Ticket)> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let waiter = self.waiter.load(Ordering::Relaxed);
            let ticket = self.ticket.load(Ordering::Relaxed);
            let to = next_number(word) | next(word)?;
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) if word & STATE == WAITING => {
                    return Some((NonNull::new(waiter)?, Ticket::from_bits(ticket)));
                }
                Ok(_) => return None,
                Err(now) => word = now,
            }
        }
    }

    fn change(&self, next: impl Fn(u64) -> Option<u64>) -> Option<u64> {
        let mut word = self.word.load(Ordering::Acquire);
        loop {
            let to = next_number(word) | next(word)?;
            match self.word.compare_exchange(word, to, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return Some(word),
                Err(now) => word = now,
            }
        }
    }
}

/// The state after an event; None if it is closed.
fn after_event(word: u64, edge: Edge) -> Option<u64> {
    let eager = if edge == Edge::Eager { EAGER } else { word & EAGER };
    (word & STATE != CLOSED).then_some(READY | eager)
}

/// The use of the word, and its next number.
const fn next_number(word: u64) -> u64 {
    word & !(NUMBER | STATE | EAGER) | word.wrapping_add(NUMBER_ONE) & NUMBER
}

impl<T> Default for Readiness<T> {
    fn default() -> Self {
        Self::new()
    }
}

//! The buffer of a channel with capacity zero: sender and receiver meet.
//!
//! It is empty and full at once, so everything happens with the lock held, between a waiter and a
//! newcomer. The word only shows, without the lock, whether an operation of the other side may
//! wait.
//!
//! # Ordering
//! The word is stored with Release under the lock and loaded with Acquire: a thread that sees a
//! waiter also sees what the waiter did before. Races are settled by the lock.

use super::{Buffer, Put, Take};
use crate::sync::{AtomicU64, Ordering};

const CLOSED: u64 = 1;
const RECEIVERS: u64 = 2;
const SENDERS: u64 = 4;
/// Counts the changes.
const CHANGE: u64 = 8;

/// A buffer that never holds a message.
#[derive(Debug)]
pub struct Meeting {
    word: AtomicU64,
}

impl Meeting {
    /// Open, and without waiters.
    #[must_use]
    pub fn new() -> Self {
        Self { word: AtomicU64::new(0) }
    }

    #[inline]
    fn change(&self, set: u64, clear: u64) {
        let word = self.word.load(Ordering::Relaxed);
        self.word.store((word & !clear | set).wrapping_add(CHANGE), Ordering::Release);
    }
}

impl Default for Meeting {
    fn default() -> Self {
        Self::new()
    }
}

impl<T> Buffer<T> for Meeting {
    const MEETS: bool = true;

    type Spare = ();

    fn provide((): &mut ()) {}

    #[inline]
    unsafe fn put(&self, _: *const T, (): &mut ()) -> Put {
        match self.word.load(Ordering::Acquire) {
            word if word & CLOSED != 0 => Put::Closed,
            word if word & RECEIVERS != 0 => Put::Attend,
            _ => Put::Full,
        }
    }

    #[inline]
    unsafe fn take(&self, _: *mut T, (): &mut ()) -> Take {
        match self.word.load(Ordering::Acquire) {
            word if word & CLOSED != 0 => Take::Closed,
            word if word & SENDERS != 0 => Take::Attend,
            _ => Take::Empty,
        }
    }

    #[inline]
    fn await_message(&self) -> bool {
        self.change(RECEIVERS, 0);
        true
    }

    #[inline]
    fn no_receivers(&self) {
        self.change(0, RECEIVERS);
    }

    #[inline]
    fn await_room(&self) -> bool {
        self.change(SENDERS, 0);
        true
    }

    #[inline]
    fn no_senders(&self) {
        self.change(0, SENDERS);
    }

    #[inline]
    unsafe fn rotate(&self, incoming: *const T, into: *mut T) {
        // SAFETY: by the caller's promise; they are of different goroutines or threads.
        unsafe { into.copy_from_nonoverlapping(incoming, 1) };
    }

    fn close(&self) {
        self.change(CLOSED, 0);
    }

    fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    fn len(&self) -> usize {
        0
    }

    fn capacity(&self) -> Option<usize> {
        Some(0)
    }

    fn receive_stamp(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    fn send_stamp(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }
}

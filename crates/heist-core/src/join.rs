//! The hand-over of a goroutine's result to its joiner.
//!
//! A goroutine record has two users besides the goroutine: the runtime, until the goroutine has
//! left its stack, and the handle, until it is joined or dropped. One word says how far both are
//! and holds the waiter; the last of the two to leave recycles the record.
//!
//! # Bits
//! - `RESULT`: the outcome is stored; set once, by the goroutine, on its own stack.
//! - `HANDLE_GONE`: the handle will not touch the record again.
//! - `RUNTIME_DONE`: the goroutine has left its stack.
//! - the rest: the address of the waiter, zero if there is none. Records are aligned, so the low
//!   bits are free.
//!
//! # Dropping the result
//! If the goroutine finishes and the handle is gone, the goroutine drops it. If the handle is
//! dropped and the result is there, the handle drops it, before it sets `HANDLE_GONE`. `RESULT` and
//! `HANDLE_GONE` are set by read-modify-writes of one word, so exactly one of them comes second and
//! sees the other. The model `loom_join` runs both ends.
//!
//! # Ordering
//! `RESULT` is set with Release after the result is written, and read with Acquire before it is
//! taken. `HANDLE_GONE` and `RUNTIME_DONE` are set with AcqRel: the side that recycles sees
//! everything both did.

use crate::sync::{AtomicUsize, Ordering};
use std::num::NonZeroUsize;

const RESULT: usize = 1;
const HANDLE_GONE: usize = 2;
const RUNTIME_DONE: usize = 4;
const FLAGS: usize = RESULT | HANDLE_GONE | RUNTIME_DONE;

/// A waiter's address must be a multiple of this.
pub const WAITER_ALIGN: usize = FLAGS + 1;

/// The next step of a finishing goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Finished {
    /// Nothing: the handle exists and does not wait yet.
    Published,
    /// Wake the waiter at this address.
    Wake(NonZeroUsize),
    /// The handle is gone: drop the result.
    Unwanted,
}

/// The next step of the owner of a dropped handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Dropped {
    /// Nothing: the goroutine continues to run, detached.
    Detached,
    /// The result is there: take it, drop it, then call [`JoinWord::release_handle`].
    HasResult,
}

/// The state of a goroutine's result.
#[derive(Debug)]
pub struct JoinWord(AtomicUsize);

impl JoinWord {
    /// A goroutine that runs and has a handle.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicUsize::new(0))
    }

    /// Makes the word new again for the next goroutine of a recycled record.
    #[inline]
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }

    /// Whether the outcome can be taken.
    #[inline]
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.0.load(Ordering::Acquire) & RESULT != 0
    }

    /// Whether the handle is gone.
    #[inline]
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.0.load(Ordering::Acquire) & HANDLE_GONE != 0
    }

    /// Notes that the goroutine has stored its outcome.
    #[inline]
    pub fn finish(&self) -> Finished {
        if self.0.load(Ordering::Acquire) & HANDLE_GONE != 0 {
            // No other user of the word is left.
            return Finished::Unwanted;
        }
        let before = self.0.fetch_or(RESULT, Ordering::AcqRel);
        if before & RESULT != 0 {
            crate::throw!("JoinWord::finish: finished twice");
        }
        if before & HANDLE_GONE != 0 {
            return Finished::Unwanted;
        }
        NonZeroUsize::new(before & !FLAGS).map_or(Finished::Published, Finished::Wake)
    }

    /// Stores the address of a waiter. False if the result is there already: then the caller does
    /// not wait.
    #[must_use]
    pub fn register(&self, waiter: NonZeroUsize) -> bool {
        debug_assert!(waiter.get() & FLAGS == 0, "JoinWord::register: unaligned waiter");
        // There is one handle and its waiter borrows it, so no other waiter registers.
        self.0.compare_exchange(0, waiter.get(), Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Removes the waiter, because it was cancelled or timed out. False if the finishing goroutine
    /// has seen it and is waking it up.
    #[must_use]
    pub fn unregister(&self, waiter: NonZeroUsize) -> bool {
        self.0.compare_exchange(waiter.get(), 0, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    /// Notes that the handle is dropped without a join. Its waiter has unregistered before.
    #[inline]
    pub fn drop_handle(&self) -> Dropped {
        match self.0.compare_exchange(0, HANDLE_GONE, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Dropped::Detached,
            Err(now) if now & RESULT != 0 => Dropped::HasResult,
            Err(now) => {
                crate::throw!("JoinWord::drop_handle: {now:#x} is neither new nor finished")
            }
        }
    }

    /// Notes that the handle has taken the result. True if the caller must recycle the record.
    #[must_use]
    pub fn release_handle(&self) -> bool {
        self.0.fetch_or(HANDLE_GONE, Ordering::AcqRel) & RUNTIME_DONE != 0
    }

    /// Notes that the goroutine has left its stack. True if the caller must recycle the record.
    #[inline]
    #[must_use]
    pub fn release_runtime(&self) -> bool {
        self.0.load(Ordering::Acquire) & HANDLE_GONE != 0
            || self.0.fetch_or(RUNTIME_DONE, Ordering::AcqRel) & HANDLE_GONE != 0
    }
}

impl Default for JoinWord {
    fn default() -> Self {
        Self::new()
    }
}

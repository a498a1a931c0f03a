//! The threads of a runtime.
//!
//! The helper thread makes them, because that needs locks which user code can hold (`helper`, `begin`). A goroutine can be
//! bound to one (`bound`), a plain thread can be one for a while (`guest`), and while they are scarce some goroutines
//! have to wait (`admission`). Only this room makes, counts and ends threads.

pub(crate) mod admission;
pub(crate) mod begin;
pub(crate) mod bound;
pub(crate) mod guest;
pub(crate) mod helper;
pub(crate) mod mailbox;

pub(crate) use admission::{
    admit, admit_to_idle, holds_back, is_crowded, keeps_p, note_crowd, press_for_held_back,
};
pub(crate) use begin::{first_p, take_orphan};
pub(crate) use bound::{lend_p, wait_for_bound};

use crate::gmp::m::AllMs;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use mailbox::Mailbox;

/// The threads of a runtime, and the way to ask for more.
pub(crate) struct Threads {
    all_ms: AllMs,
    mailbox: Mailbox,
    /// Whether the system refused the last thread that was asked for.
    refused: AtomicU32,
    /// How many goroutines do not start because threads are scarce.
    n_held_back: AtomicU32,
    /// Until when there are more threads that run than CPUs; see `admission`.
    crowded_until_ns: AtomicU64,
}

impl Threads {
    pub(super) fn new() -> Self {
        Self {
            all_ms: AllMs::new(),
            mailbox: Mailbox::new(),
            refused: AtomicU32::new(0),
            n_held_back: AtomicU32::new(0),
            crowded_until_ns: AtomicU64::new(0),
        }
    }

    /// All Ms that the runtime ever had.
    pub(crate) fn all_ms(&self) -> &AllMs {
        &self.all_ms
    }

    /// The way to ask the helper thread for something.
    #[inline]
    pub(crate) fn helper(&self) -> &Mailbox {
        &self.mailbox
    }

    /// Whether the system refused the last thread that was asked for.
    pub(crate) fn are_refused(&self) -> bool {
        self.refused.load(Ordering::Relaxed) != 0
    }

    /// How many goroutines do not start because threads are scarce.
    pub(crate) fn n_held_back(&self) -> u32 {
        self.n_held_back.load(Ordering::Relaxed)
    }
}

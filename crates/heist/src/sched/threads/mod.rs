//! The threads of a runtime.
//!
//! The helper thread makes them, because that needs locks which user code can hold (`helper`,
//! `begin`). A goroutine can be bound to one (`bound`), a plain thread can be one for a while
//! (`guest`), and while they are scarce some goroutines have to wait (`admission`). Only this room
//! makes, counts and ends threads.

mod admission;
mod begin;
pub(crate) mod bound;
pub(crate) mod guest;
pub(crate) mod helper;
mod mailbox;

pub(crate) use admission::{
    admit, admit_to_idle, holds_back, is_crowded, keeps_p, note_crowd, press_for_held_back,
};
pub(crate) use begin::{first_p, take_orphan};
pub(crate) use bound::{lend_p, wait_for_bound};

use crate::gmp::all_ms::AllMs;
use crate::gmp::{G, M};
use begin::Orphans;
use heist_core::list::{DoubleList, List};
use heist_core::policy::PROCS_MAX;
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
    /// Until when more threads are assumed to run than there are CPUs; see `admission`.
    crowded_until_ns: AtomicU64,
}

/// The threads that exist, and what waits for one. Under the scheduler lock.
pub(crate) struct Roster {
    /// How many Ms have a thread.
    n_ms: u32,
    /// How many of them have not begun to run. Each looks for an orphan first.
    n_starting: u32,
    /// Records whose threads have ended. The helper gives them to new threads.
    gone_ms: DoubleList<M>,
    /// Records of plain threads that were Ms for a while and are not any more.
    free_guests: DoubleList<M>,
    /// Ps that have work but no M yet. The helper finds or makes one for each.
    orphans: Orphans,
    /// Goroutines that do not start because threads are scarce.
    held_back: List<G>,
}

impl Roster {
    pub(super) fn new() -> Self {
        Self {
            n_ms: 0,
            n_starting: 0,
            gone_ms: DoubleList::new(),
            free_guests: DoubleList::new(),
            orphans: Orphans::new(PROCS_MAX),
            held_back: List::new(),
        }
    }

    /// How many Ms have a thread.
    pub(crate) const fn n_ms(&self) -> u32 {
        self.n_ms
    }

    /// How many Ms have a thread that has begun to run.
    pub(crate) const fn n_running(&self) -> u32 {
        self.n_ms - self.n_starting
    }

    /// The Ps that wait for a thread.
    pub(crate) const fn orphans(&mut self) -> &mut Orphans {
        &mut self.orphans
    }

    /// Counts `more` threads that do not exist as starting. A negative number takes that back.
    #[cfg(test)]
    pub(crate) const fn pretend(&mut self, more: i32) {
        self.n_ms = self.n_ms.wrapping_add_signed(more);
        self.n_starting = self.n_starting.wrapping_add_signed(more);
    }
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

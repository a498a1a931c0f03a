//! What the system refuses to this process: said once on standard error, and counted.
//!
//! Each entry is something without which the runtime goes on in another way. The counts are of the process,
//! because the limits are.

use super::stderr;
use heist_core::sync::{AtomicU64, Ordering};
use std::fmt;

/// Something that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Lack {
    /// The state of a thread could not be read in `/proc`.
    ThreadState,
    /// The kernel refuses `membarrier`.
    Membarrier,
    /// The system refused a thread.
    Thread,
    /// The system refused the memory of a stack.
    Stack,
}

static COUNTS: [AtomicU64; 4] = [const { AtomicU64::new(0) }; 4];

impl Lack {
    /// It was missed once more. The first time, the reason is written to standard error. No allocation: the
    /// scheduler and sysmon call this.
    pub(crate) fn missed(self, reason: fmt::Arguments<'_>) {
        if COUNTS[self as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            stderr::report(format_args!("heist: {reason}\n"));
        }
    }

    /// How often it was missed.
    pub(crate) fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

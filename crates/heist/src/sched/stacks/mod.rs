//! The stack of a goroutine: attached at its first run, missing, overflowed, abandoned, moved to
//! another thread.

mod abandon;
mod attach;
pub(crate) mod moves;
pub(crate) mod overflow;
mod stackless;

pub(crate) use attach::{attach_stack, look_at_stack};
pub(crate) use stackless::{
    Patience, collect_stacks, end_hopeless, release_stacks, retry_stackless,
};

use crate::gmp::G;
use heist_core::list::List;
use heist_core::stack_needs::StackNeeds;
use heist_core::sync::{AtomicU32, Ordering};

/// The state that the runtime keeps about the stacks its goroutines need.
pub(crate) struct Stacks {
    needs: StackNeeds,
    /// How many goroutines wait for the memory of a stack.
    n_stackless: AtomicU32,
}

/// Goroutines that could not start because there was no memory for a stack. Under the scheduler
/// lock.
pub(crate) struct Stackless {
    waiting: List<G>,
}

impl Stackless {
    pub(super) const fn new() -> Self {
        Self { waiting: List::new() }
    }
}

impl Stacks {
    pub(super) fn new() -> Self {
        Self { needs: StackNeeds::new(), n_stackless: AtomicU32::new(0) }
    }

    /// How many goroutines wait for the memory of a stack.
    #[inline]
    pub(super) fn n_waiting(&self) -> u32 {
        self.n_stackless.load(Ordering::Relaxed)
    }

    /// How many kinds of goroutines were found to need larger stacks.
    pub(crate) fn n_kinds_found(&self) -> usize {
        self.needs.n_found()
    }
}

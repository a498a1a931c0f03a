//! `Yielded`: the part of the global queue that is kept at a P.
//!
//! A goroutine that yields goes to the end of the global queue. If every yield went through the
//! scheduler lock, all Ps would contend for it, and would pass their goroutines around among each
//! other. So each P keeps its yielded goroutines in its own list, which counts as the end of the
//! global queue: the P takes from it where it would take from the global queue, after the
//! goroutines there. Thieves may take from it as well.
//!
//! # Ordering
//! The list is under its own lock. An M that looks for work reads the length without it. An M that
//! yields a goroutine fences before it checks whether another M must be woken, as every submitter
//! does.

use super::G;
use crate::sys::lock::Lock;
use heist_core::list::List;
use heist_core::lock_rank::Rank;
use heist_core::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// The goroutines that yielded at one P.
pub(crate) struct Yielded {
    list: Lock<List<G>, AtomicU32>,
}

impl Yielded {
    pub(crate) fn new() -> Self {
        Self { list: Lock::with_beside(Rank::Yielded, List::new(), AtomicU32::new(0)) }
    }

    /// How many there are.
    #[inline]
    pub(crate) fn len(&self) -> u32 {
        self.list.beside().load(Ordering::Relaxed)
    }

    /// Appends one.
    ///
    /// # Safety
    /// `gp` is runnable, in no queue, and owned by the caller.
    pub(crate) unsafe fn push(&self, gp: NonNull<G>) {
        let mut list = self.list.lock();
        // SAFETY: passed on.
        unsafe { list.push_back(gp) };
        self.list.beside().store(list.len(), Ordering::Relaxed);
    }

    /// Takes the first `n`, or all if there are fewer.
    pub(crate) fn take(&self, n: u32) -> List<G> {
        let mut list = self.list.lock();
        let taken = list.split_front(n);
        self.list.beside().store(list.len(), Ordering::Relaxed);
        taken
    }
}

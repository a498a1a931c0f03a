//! The waiters for something that happens once.
//!
//! # The protocol
//! The event is a flag of the user's, which is set once. It is set before [`Latch::open`] takes the
//! lock, and a waiter reads it after it has taken the lock. So a waiter sees the flag, or is in the
//! queue when the opener looks.

use crate::current;
use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Terms, WaitQueue, WaitReason, WakeAll};
use heist_core::lock_rank::Rank;
use std::ptr::null_mut;

/// A queue of waiters that all leave at once.
pub(super) struct Latch {
    waiters: Lock<WaitQueue>,
}

impl Latch {
    pub(super) const fn new() -> Self {
        Self { waiters: Lock::new(Rank::WaitQueue, WaitQueue::new()) }
    }

    /// Waits until `is_open`, which stays true once it is. A cancelled goroutine unwinds.
    #[cold]
    #[inline(never)]
    pub(super) fn wait(&self, is_open: impl Fn() -> bool) {
        let terms = Terms::new(WaitReason::Once);
        while !is_open() {
            let rt = terms.enter();
            let waiters = self.waiters.lock();
            if is_open() {
                return;
            }
            // However the wait ended, the flag is read again.
            let _ = wait::wait_in(
                rt,
                waiters,
                terms,
                null_mut(),
                // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
                |waiters, entry| unsafe { waiters.push(entry) },
                // SAFETY: it was queued here.
                |waiters, entry| unsafe { waiters.remove(entry) },
            );
        }
    }

    /// Wakes all waiters. The flag is set.
    pub(super) fn open(&self) {
        let rt = current::enter();
        let waiters = self.waiters.lock().claim_all();
        waiters.wake_all(Ended::Changed, rt.as_ref());
    }
}

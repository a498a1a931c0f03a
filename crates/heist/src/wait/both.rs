//! `Both`: the locks of two queues of different kinds, for a wait that has an entry in each.
//!
//! As a select: both locks are taken in the order of their addresses, so that two who take two do
//! not wait for each other; the entries are queued; the goroutine parks and its commit function
//! releases the locks.
//!
//! # Why the commit function may use the waiter's frame
//! Between the two releases the waiter may have been claimed, by whoever took the first lock, and
//! be awake. It cannot leave its frame: to take out its other entry it takes the second lock, which
//! is still held. After the second release nothing of the frame is used. A waiter that nobody
//! claimed at an entry takes both locks.

use super::HeldLocks;
use crate::sys::lock::Lock;

/// Two locks of the same rank.
pub(crate) struct Both<'a, A, B> {
    a: &'a Lock<A>,
    b: &'a Lock<B>,
}

impl<'a, A, B> Both<'a, A, B> {
    pub(crate) const fn new(a: &'a Lock<A>, b: &'a Lock<B>) -> Self {
        Self { a, b }
    }

    /// Which one is taken first.
    fn a_is_first(&self) -> bool {
        std::ptr::from_ref(self.a).addr() < std::ptr::from_ref(self.b).addr()
    }

    /// Takes them. They are released by [`HeldLocks::release`] only.
    pub(crate) fn take(&self) {
        if self.a_is_first() {
            std::mem::forget(self.a.lock());
            self.b.lock_another();
        } else {
            std::mem::forget(self.b.lock());
            self.a.lock_another();
        }
    }

    /// What is behind them.
    ///
    /// # Safety
    /// They are held by the calling thread, and no reference to the same data is alive.
    #[expect(clippy::mut_from_ref, reason = "the lock is the right to it, by the caller's promise")]
    pub(crate) unsafe fn data(&self) -> (&mut A, &mut B) {
        // SAFETY: by the caller's promise.
        unsafe { (&mut *self.a.data_ptr(), &mut *self.b.data_ptr()) }
    }
}

// SAFETY: the locks are read out of `this` before the first is released, and none is used after its
// release.
unsafe impl<A, B> HeldLocks for Both<'_, A, B> {
    unsafe fn release(this: *const Self) {
        // SAFETY: it is there until the last lock is released.
        let this = unsafe { &*this };
        let (a, b, a_is_first) = (this.a, this.b, this.a_is_first());
        // SAFETY: by the caller's promise; the guard of the one that was taken first was forgotten.
        unsafe {
            if a_is_first {
                a.unlock_forgotten();
                b.unlock_another();
            } else {
                b.unlock_forgotten();
                a.unlock_another();
            }
        }
    }
}

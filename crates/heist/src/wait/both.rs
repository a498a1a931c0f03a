//! `Both`: the locks of two queues of different kinds, for a wait that has an entry in each.
//!
//! As in a select: both locks are taken in the order of their addresses, so that two waiters cannot
//! wait for each other's locks; the entries are queued; the goroutine parks and its commit function
//! releases the locks.
//!
//! # Why the commit function may use the waiter's frame
//! Between the two releases, a thread that took the first lock may have claimed the waiter, which
//! may be awake. It cannot leave its frame: to remove its other entry it takes the second lock,
//! which is still held. After the second release the frame is not used. A waiter that was not
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

    /// Takes both. Only [`HeldLocks::release`] releases them.
    pub(crate) fn take(&self) {
        if self.a_is_first() {
            std::mem::forget(self.a.lock());
            self.b.lock_another();
        } else {
            std::mem::forget(self.b.lock());
            self.a.lock_another();
        }
    }

    /// The data that they protect.
    ///
    /// # Safety
    /// The calling thread holds both, and no reference to the same data is alive.
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
        // SAFETY: `this` is valid until the last lock is released.
        let this = unsafe { &*this };
        let (a, b, a_is_first) = (this.a, this.b, this.a_is_first());
        // SAFETY: by the caller's promise; the guard of the lock that was taken first was
        // forgotten.
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

//! The one place that chooses between std's atomics and loom's.
//!
//! The rest of the crate imports its atomics from here, so `--cfg loom` turns every protocol into
//! a model without a second copy of the code.

#[cfg(not(loom))]
mod cell {
    /// std's cell with the interface of loom's.
    #[derive(Debug)]
    #[repr(transparent)]
    pub struct UnsafeCell<T>(std::cell::UnsafeCell<T>);

    impl<T> UnsafeCell<T> {
        /// A cell with a value.
        pub const fn new(value: T) -> Self {
            Self(std::cell::UnsafeCell::new(value))
        }

        /// Reads the value.
        #[inline(always)]
        pub fn with<R>(&self, look: impl FnOnce(*const T) -> R) -> R {
            look(self.0.get())
        }

        /// Changes the value.
        #[inline(always)]
        pub fn with_mut<R>(&self, change: impl FnOnce(*mut T) -> R) -> R {
            change(self.0.get())
        }
    }
}

#[cfg(not(loom))]
pub use cell::UnsafeCell;
#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::{
    cell::UnsafeCell,
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// An atomic pointer that models do not see: the link of a list, which one owner at a time changes,
/// so that there is nothing to explore.
pub use std::sync::atomic::AtomicPtr as UnseenPtr;

/// Placed between two SeqCst accesses of which the first writes and the second reads.
///
/// Loom treats SeqCst accesses as AcqRel and only fences as SeqCst, so a model would see the two
/// reordered. Elsewhere the accesses are enough and this does nothing.
#[inline(always)]
pub fn keep_seq_cst() {
    // ORDERING: pairs with itself on the other side of the protocol, or with a fence there.
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

//! The one place that chooses between std's atomics and loom's.
//!
//! The rest of the crate imports its atomics from here, so `--cfg loom` turns every protocol into
//! a model without a second copy of the code.

#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU16, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

/// Stands between two SeqCst accesses of which the first writes and the second reads.
///
/// Loom counts SeqCst accesses as AcqRel and only fences as SeqCst, so a model would see the two
/// change places. Elsewhere the accesses say it themselves and this is nothing.
#[inline(always)]
pub fn keep_seq_cst() {
    // ORDERING: pairs with itself on the other side of the protocol, or with a fence there.
    #[cfg(loom)]
    fence(Ordering::SeqCst);
}

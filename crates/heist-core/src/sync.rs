//! The one place that chooses between std's atomics and loom's.
//!
//! The rest of the crate imports its atomics from here, so `--cfg loom` turns every protocol into
//! a model without a second copy of the code.

#[cfg(not(loom))]
pub use std::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

#[cfg(loom)]
pub use loom::{
    hint::spin_loop,
    sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence},
};

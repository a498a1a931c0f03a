//! The primitives that a peer offers to the workloads, so that the work itself is written once.
//!
//! There are two shapes of concurrency and each workload has one body per shape:
//! `blocking` (a task has a stack and may block anywhere) and `futures` (a task is a
//! future and may wait only at an `.await`). Everything is monomorphised, so a peer pays
//! for its own primitives and for nothing of the harness. Traits are small; a peer
//! implements those it has, and says why where it has none.

pub mod blocking;
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub mod futures;
pub mod joins;

//! Which body a workload's name stands for, once per shape of concurrency and not once per peer.
//!
//! A function covers the workloads that peers with certain primitives can run and returns `None`
//! for the rest. A peer names its exceptions and then calls the functions whose primitives it has.

pub mod blocking;
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub mod futures;

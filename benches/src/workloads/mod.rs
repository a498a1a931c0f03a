//! The workloads, one concept a file, with one body per shape of concurrency.
//!
//! Every peer of a shape runs the same body. Sizes are constants here and in the Go twin
//! (`go/`); changing one means changing both.

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub mod async_channels;
pub mod beside_echo;
pub mod channels;
pub mod dispatch;
pub mod fork_join;
#[cfg(feature = "peer-tokio")]
pub mod hyper_hello;
pub mod idle_cpu;
pub mod joins;
pub mod locks;
pub mod parked;
pub mod probe;
pub mod scale;
pub mod servers;
pub mod spawn_join;
pub mod spawn_latency;
pub mod stalls;
pub mod start_stop;
pub mod steal;
pub mod ticker;
pub mod timers;
pub mod uneven_tree;
pub mod yielding;

use std::time::Duration;

/// Nanoseconds for each of `n` operations.
pub fn ns_each(span: Duration, n: usize) -> f64 {
    span.as_nanos() as f64 / n as f64
}

pub fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

//! Tests of how many allocations operations make. The allocator of this program counts them.

#[path = "../harness/counting.rs"]
mod counting;
#[path = "../harness/turns.rs"]
mod turns;
#[path = "../harness/wire.rs"]
mod wire;

mod operations;
mod requests;

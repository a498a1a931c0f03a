//! What operations cost, in allocations. The allocator of this program counts.

#[path = "../harness/counting.rs"]
mod counting;
#[path = "../harness/turns.rs"]
mod turns;
#[path = "../harness/wire.rs"]
mod wire;

mod operations;
mod requests;

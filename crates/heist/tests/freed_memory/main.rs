//! Runtimes beside each other, under an allocator that unmaps what is freed: a use of it ends the
//! process.

#[path = "../harness/turns.rs"]
mod turns;
#[path = "../harness/unmapping.rs"]
mod unmapping;

mod runtimes_apart;
mod stress_runtimes;

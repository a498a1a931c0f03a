//! Several runtimes in one process, under an allocator that unmaps freed memory: a use of it ends
//! the process.

#[path = "../harness/turns.rs"]
mod turns;
#[path = "../harness/unmapping.rs"]
mod unmapping;

mod runtimes_apart;
mod stress_runtimes;

//! Stacks: their memory, their guards, and the thread-locals that are seen from them.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/coroutine.rs"]
mod coroutine;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod abandon;
mod memory;
mod overflow;
mod parked;
mod thread_locals;
mod with_stack;

//! A goroutine that computes or blocks does not stall the others.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod block_prediction;
mod contended;
mod hogs;
mod no_preempt;
mod os_thread;
mod preemption;
mod retake;
mod symptoms;

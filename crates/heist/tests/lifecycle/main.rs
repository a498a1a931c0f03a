//! How goroutines and runtimes begin and end: results, panics, cancellation, shutdown.

#[path = "../harness/child.rs"]
mod child;
#[path = "../harness/matrix/mod.rs"]
mod matrix;
#[path = "../harness/unwinding.rs"]
mod unwinding;

mod abort_mode;
mod attributes;
mod cancel;
mod deadlock;
mod endings;
mod exit;
mod join;
mod join_set;
mod panics;
mod runtimes;
mod runtimes_model;
mod scope;
mod shutdown;

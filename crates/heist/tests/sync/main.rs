//! Locks, contexts and groups between goroutines and plain threads.

#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod condvar;
mod context;
mod context_functions;
mod context_races;
mod err_group;
mod guards;
mod mutex;
mod once;
mod pool;
mod rw_lock;
mod semaphore;
mod traits;
mod wait_group;

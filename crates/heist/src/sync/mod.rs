//! Synchronisation for goroutines and plain threads.

mod wait_group;
mod wait_list;

pub use wait_group::WaitGroup;

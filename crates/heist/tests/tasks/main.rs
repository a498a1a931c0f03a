//! Futures on the scheduler: tasks, their wakers, and the bridges to goroutines and threads.

#[path = "../harness/matrix/mod.rs"]
mod matrix;

mod block_on;
mod channels;
mod life;
mod net;
mod pinned;
mod poll_traits;
mod process;
mod sync;
mod wakers;

//! Synchronisation for goroutines and plain threads.
//!
//! Everything here can be used by goroutines, by plain threads, and by both at once: a goroutine
//! that has to wait parks, a plain thread sleeps. Nothing is poisoned by a panic.

mod barrier;
mod condvar;
mod err_group;
mod mutex;
mod once;
mod once_fn;
mod once_lock;
mod pool;
mod raw_mutex;
mod raw_rw_lock;
mod rw_lock;
mod semaphore;
mod wait_group;
mod wait_list;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use err_group::ErrGroup;
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use once_fn::{once_fn, once_value};
pub use once_lock::{LazyLock, OnceLock};
pub use pool::Pool;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{OwnedSemaphorePermit, Semaphore, SemaphorePermit};
pub use wait_group::WaitGroup;

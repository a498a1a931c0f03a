//! Synchronisation for goroutines and plain threads.
//!
//! Everything here can be used by goroutines, by plain threads, and by both at once: a goroutine
//! that has to wait parks, a plain thread sleeps. Nothing is poisoned by a panic.
//!
//! | to | use |
//! |---|---|
//! | exclude each other | [`Mutex`], [`RwLock`] |
//! | limit how many use something | [`Semaphore`] |
//! | wait for a condition | [`Condvar`] |
//! | wait until all have ended | [`WaitGroup`], [`ErrGroup`], also [`scope`](crate::scope()) |
//! | wait until all have arrived | [`Barrier`] |
//! | do something once | [`Once`], [`OnceLock`], [`LazyLock`], [`once_fn`], [`once_value`] |
//! | reuse values | [`Pool`] |
//!
//! # Examples
//! ```
//! use heist::sync::{Mutex, WaitGroup};
//!
//! static TOTAL: Mutex<u32> = Mutex::new(0);
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let thread = std::thread::spawn(|| *TOTAL.lock() += 1);
//! let group = WaitGroup::new();
//! for i in 0..10 {
//!     group.go(move || *TOTAL.lock() += i);
//! }
//! group.wait();
//! heist::blocking(|| thread.join()).unwrap();
//! assert_eq!(*TOTAL.lock(), 46);
//! # });
//! ```

mod barrier;
mod condvar;
mod err_group;
mod futures;
mod latch;
mod mapped;
mod mutex;
mod once;
mod once_fn;
mod once_lock;
mod permit;
mod permits;
mod pool;
mod raw_mutex;
mod raw_rw_lock;
mod rw_lock;
mod semaphore;
mod upgradable;
mod wait_group;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, CondvarGuard, WaitTimeoutResult};
pub use err_group::ErrGroup;
pub use futures::{AcquireFuture, LockFuture, ReadFuture, WriteFuture};
pub use mapped::{MappedMutexGuard, MappedRwLockReadGuard, MappedRwLockWriteGuard};
pub use mutex::{Mutex, MutexGuard};
pub use once::Once;
pub use once_fn::{once_fn, once_value};
pub use once_lock::{LazyLock, OnceLock};
pub use permit::{OwnedSemaphorePermit, SemaphorePermit};
pub use pool::Pool;
pub use rw_lock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::Semaphore;
pub use upgradable::RwLockUpgradableReadGuard;
pub use wait_group::{WaitFuture, WaitGroup};

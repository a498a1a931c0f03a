//! Waiting for a number of things to be done.

use super::wait_list::{self, WaitList};
use crate::gmp::g::WaitReason;
use crate::sys::lock::Lock;
use crossbeam_utils::CachePadded;
use heist_core::list::DoubleList;
use heist_core::lock_rank::Rank;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Waits until a number of things have been done, each announced by [`add`](Self::add) and
/// finished by [`done`](Self::done).
///
/// Clones share the count. Goroutines and plain threads may use it alike.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let group = heist::sync::WaitGroup::new();
/// for _ in 0..10 {
///     group.add(1);
///     let group = group.clone();
///     heist::go(move || group.done());
/// }
/// group.wait();
/// # });
/// ```
#[derive(Clone)]
pub struct WaitGroup {
    inner: Arc<Inner>,
}

struct Inner {
    count: CachePadded<AtomicI64>,
    waiters: Lock<WaitList>,
}

// SAFETY: the list holds pointers to waiters' stacks, used under the lock.
unsafe impl Sync for Inner {}
// SAFETY: as above.
unsafe impl Send for Inner {}

impl WaitGroup {
    /// Nothing to wait for yet.
    #[must_use]
    pub fn new() -> Self {
        let waiters = Lock::new(Rank::WaitQueue, DoubleList::new());
        Self {
            inner: Arc::new(Inner {
                count: CachePadded::new(AtomicI64::new(0)),
                waiters,
            }),
        }
    }

    /// Announces `n` more things to wait for.
    pub fn add(&self, n: usize) {
        self.change(n as i64);
    }

    /// One thing is done.
    ///
    /// # Panics
    /// If more is done than was announced.
    pub fn done(&self) {
        self.change(-1);
    }

    fn change(&self, by: i64) {
        // ORDERING: AcqRel: who sees zero sees everything the others did before they were done.
        let now = self.inner.count.fetch_add(by, Ordering::AcqRel) + by;
        assert!(now >= 0, "sync: negative WaitGroup counter");
        if now == 0 && by < 0 {
            wait_list::wake_all(&self.inner.waiters);
        }
    }

    /// Waits until everything announced is done. Returns at once if nothing is.
    pub fn wait(&self) {
        // ORDERING: Acquire: see `change`.
        let done = || self.inner.count.load(Ordering::Acquire) == 0;
        wait_list::wait_until(&self.inner.waiters, WaitReason::WaitGroup, done);
    }
}

impl Default for WaitGroup {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count = self.inner.count.load(Ordering::Relaxed);
        f.debug_struct("WaitGroup").field("count", &count).finish()
    }
}

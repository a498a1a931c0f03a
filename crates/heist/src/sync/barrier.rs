//! A barrier, at which goroutines and threads wait for each other.

use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Terms, WaitQueue, WaitReason, WakeAll};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::null_mut;

/// Lets a number of goroutines and threads wait until all of them have arrived. Then the barrier
/// can be used again.
///
/// # Examples
/// ```
/// use heist::sync::Barrier;
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let (barrier, came) = (Barrier::new(4), AtomicUsize::new(0));
/// heist::scope(|s| {
///     for _ in 0..4 {
///         s.go(|| {
///             came.fetch_add(1, Ordering::Relaxed);
///             barrier.wait();
///             assert_eq!(came.load(Ordering::Relaxed), 4);
///         });
///     }
/// });
/// # });
/// ```
pub struct Barrier {
    n: usize,
    came: Lock<Came>,
}

/// The goroutines and threads that have arrived and wait. A cancelled goroutine that has not
/// unwound yet counts too.
struct Came {
    waiters: WaitQueue,
    n: usize,
}

impl Barrier {
    /// A barrier for `n` goroutines or threads. With 0 or 1, `wait` returns at once.
    #[must_use]
    pub const fn new(n: usize) -> Self {
        let came = Came { waiters: WaitQueue::new(), n: 0 };
        Self { n, came: Lock::new(Rank::WaitQueue, came) }
    }

    /// Waits until the number of arrivals is the one that the barrier was made for.
    ///
    /// A goroutine that is cancelled while it waits no longer counts as arrived.
    ///
    /// # Examples
    /// ```
    /// let barrier = heist::sync::Barrier::new(2);
    /// std::thread::scope(|s| {
    ///     let other = s.spawn(|| barrier.wait().is_leader());
    ///     let here = barrier.wait().is_leader();
    ///     assert!(here != other.join().unwrap());
    /// });
    /// ```
    pub fn wait(&self) -> BarrierWaitResult {
        let terms = Terms::new(WaitReason::Barrier);
        let rt = terms.enter();
        let mut came = self.came.lock();
        if came.n + 1 >= self.n {
            let all = came.waiters.claim_all();
            came.n = 0;
            drop(came);
            all.wake_all(Ended::Done, rt.as_ref());
            return BarrierWaitResult(true);
        }
        // There is no deadline, so the wait ended because all have arrived.
        let _ = wait::wait_in(
            rt,
            came,
            terms,
            null_mut(),
            |came, entry| {
                // SAFETY: the entry stays on the stack of `wait_in` until it is removed.
                unsafe { came.waiters.push(entry) };
                came.n += 1;
            },
            |came, entry| {
                // SAFETY: it was queued here.
                unsafe { came.waiters.remove(entry) };
                came.n -= 1;
            },
        );
        BarrierWaitResult(false)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier").field("n", &self.n).finish_non_exhaustive()
    }
}

/// What [`Barrier::wait`] returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for one caller of each round: the last to arrive.
    #[must_use]
    pub const fn is_leader(&self) -> bool {
        self.0
    }
}

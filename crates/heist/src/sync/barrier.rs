//! Waiting for each other.

use crate::sys::lock::Lock;
use crate::wait::{self, Ended, Terms, WaitQueue, WaitReason, Wake};
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::null_mut;

/// Lets a number of goroutines and threads wait until all of them have come. Then it begins anew.
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

/// Those who have come and wait. A cancelled one that has not unwound yet has come, too.
struct Came {
    waiters: WaitQueue,
    n: usize,
}

impl Barrier {
    /// A barrier for `n`. With 0 or 1 nobody waits.
    #[must_use]
    pub const fn new(n: usize) -> Self {
        let came = Came { waiters: WaitQueue::new(), n: 0 };
        Self { n, came: Lock::new(Rank::WaitQueue, came) }
    }

    /// Waits until as many have come as the barrier is for.
    ///
    /// A goroutine that is cancelled while it waits takes its coming back.
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
            all.wake_in_order(|waiter| waiter.wake(Ended::Done, rt.as_ref()));
            return BarrierWaitResult(true);
        }
        // There is no deadline, so it ended because all have come.
        let _ = wait::wait_in(
            rt,
            came,
            terms,
            null_mut(),
            |came, entry| {
                // SAFETY: the entry stays on the stack of `wait_in` until it is taken out.
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
    /// True for one of those who met: the last to come.
    #[must_use]
    pub const fn is_leader(&self) -> bool {
        self.0
    }
}

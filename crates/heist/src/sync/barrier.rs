//! Waiting for each other.

use super::wait_list::{Caller, ChosenList, Ended, Entry, Shield, Wait, WaitList};
use crate::gmp::g::WaitReason;
use crate::sys::lock::Lock;
use heist_core::list::DoubleList;
use heist_core::lock_rank::Rank;
use std::fmt;
use std::ptr::NonNull;

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
    /// Those who have come and wait. A cancelled one that has not unwound yet has come, too.
    came: Lock<WaitList>,
}

// SAFETY: the list holds pointers to waiters' stacks, used under its lock.
unsafe impl Sync for Barrier {}
// SAFETY: as above; a barrier that moves has no waiters.
unsafe impl Send for Barrier {}

impl Barrier {
    /// A barrier for `n`. With 0 or 1 nobody waits.
    #[must_use]
    pub const fn new(n: usize) -> Self {
        Self { n, came: Lock::new(Rank::WaitQueue, DoubleList::new()) }
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
        let mut caller = Caller::enter(Shield::Down);
        let entry = Entry::new(0);
        let mut came = self.came.lock();
        if came.len() as usize + 1 >= self.n {
            let all = ChosenList::take(&mut came);
            drop(came);
            all.wake(caller.rt());
            return BarrierWaitResult(true);
        }
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { came.push_back(NonNull::from(&entry)) };
        let wait = Wait::new(WaitReason::Barrier);
        if caller.wait(came, &entry, wait, |came| entry.leave(came)) == Ended::Cancelled {
            caller.unwind();
        }
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

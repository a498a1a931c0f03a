//! A run whose progress somebody watches.

use super::split::IntoSplit;
use super::{Plan, run};
use std::fmt;

/// Runs loops and tells `progress` about them: it is called with the number of items that were done
/// since its last call, by the goroutine that did them, so it may be called by several at a time.
/// The numbers add up to the number of items.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use std::sync::atomic::{AtomicUsize, Ordering};
///
/// let done = AtomicUsize::new(0);
/// let progress = |n| {
///     done.fetch_add(n, Ordering::Relaxed);
/// };
/// heist::par::observed(&progress).for_each(0..1000, |n| assert!(n < 1000));
/// assert_eq!(done.into_inner(), 1000);
/// # });
/// ```
pub fn observed(progress: &(dyn Fn(usize) + Sync)) -> Observed<'_> {
    Observed { progress }
}

/// Loops that tell how far they are; see [`observed`].
#[derive(Clone, Copy)]
#[must_use]
pub struct Observed<'a> {
    progress: &'a (dyn Fn(usize) + Sync),
}

impl Observed<'_> {
    /// As [`par::for_each`](super::for_each).
    pub fn for_each<I: IntoSplit>(self, items: I, f: impl Fn(I::Item) + Sync) {
        let plan = Plan {
            fold: |(), item| f(item),
            identity: || (),
            merge: |(), ()| (),
            progress: self.progress,
        };
        run(items.into_split(), &plan);
    }

    /// As [`par::map`](super::map).
    pub fn map<I: IntoSplit, R: Send>(self, items: I, f: impl Fn(I::Item) -> R + Sync) -> Vec<R> {
        let plan = Plan {
            fold: |mut results: Vec<R>, item| {
                results.push(f(item));
                results
            },
            identity: Vec::new,
            merge: |mut left: Vec<R>, mut right: Vec<R>| {
                if left.is_empty() {
                    return right;
                }
                left.append(&mut right);
                left
            },
            progress: self.progress,
        };
        run(items.into_split(), &plan)
    }

    /// As [`par::map_reduce`](super::map_reduce).
    pub fn map_reduce<I: IntoSplit, R: Send>(
        self,
        items: I,
        map: impl Fn(I::Item) -> R + Sync,
        identity: impl Fn() -> R + Sync,
        reduce: impl Fn(R, R) -> R + Sync,
    ) -> R {
        let plan = Plan {
            fold: |done, item| reduce(done, map(item)),
            identity,
            merge: &reduce,
            progress: self.progress,
        };
        run(items.into_split(), &plan)
    }
}

impl fmt::Debug for Observed<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Observed").finish_non_exhaustive()
    }
}

//! Loops, maps, reductions and sorts that use all processors, on top of [`crate::join`].
//!
//! Work is split only while somebody is idle. A loop runs its first items without any fork; after
//! some microseconds it looks whether a processor is idle and has found nothing to take, and if so
//! it forks off the second half of what is left. So a short loop costs what a plain one costs, and
//! a long one is split as often as it is stolen from, whatever its items cost. There is no grain
//! size to choose.
//!
//! Loops run over slices, ranges and vectors ([`IntoSplit`]). Closures may do what goroutines may
//! do: they may park, and fork again. If one panics, the others that run at that moment are
//! awaited, the rest is not begun, and the panic continues. On a plain thread everything runs one
//! after the other.
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! use heist::par;
//!
//! let mut numbers: Vec<u64> = par::map(0..10_000_u64, |n| n * n % 1000);
//! par::for_each(&mut numbers[..], |n| *n += 1);
//! par::sort(&mut numbers);
//! assert_eq!(par::map_reduce(&numbers[..], |n| *n, || 0, |a, b| a + b), 4_625_000);
//! # });
//! ```

mod measure;
mod observed;
mod sort;
mod split;

pub use measure::{Measurement, measure};
pub use observed::{Observed, observed};
pub use sort::{sort, sort_by, sort_by_key, sort_unstable, sort_unstable_by};
pub use split::{Chunks, ChunksMut, IntoSplit, Split, VecItems, chunks, chunks_mut};

use crate::goroutine::join;
use crate::sched::forks;
use crate::sys::clock;
use heist_core::policy::blocks::Blocks;

/// Calls `f` with each item.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let mut pixels = vec![0_u8; 100_000];
/// heist::par::for_each(heist::par::chunks_mut(&mut pixels, 1000), |row| row.fill(255));
/// assert!(pixels.iter().all(|pixel| *pixel == 255));
/// # });
/// ```
pub fn for_each<I: IntoSplit>(items: I, f: impl Fn(I::Item) + Sync) {
    observed(&|_| ()).for_each(items, f);
}

/// Calls `f` with each item, and returns the results in the order of the items.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let words = vec!["a".to_string(), "few".to_string(), "words".to_string()];
/// assert_eq!(heist::par::map(&words[..], |word| word.len()), [1, 3, 5]);
/// // The items of a vector are moved.
/// assert_eq!(heist::par::map(words, |word| word + "!"), ["a!", "few!", "words!"]);
/// # });
/// ```
pub fn map<I: IntoSplit, R: Send>(items: I, f: impl Fn(I::Item) -> R + Sync) -> Vec<R> {
    observed(&|_| ()).map(items, f)
}

/// Calls `map` with each item and combines the results by `reduce`, in the order of the items. The
/// result for no items is `identity`, which may be combined with others any number of times.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let text: Vec<u8> = b"fork and join".repeat(1000);
/// let n = heist::par::map_reduce(&text[..], |c| usize::from(*c == b'o'), || 0, |a, b| a + b);
/// assert_eq!(n, 2000);
/// # });
/// ```
pub fn map_reduce<I: IntoSplit, R: Send>(
    items: I,
    map: impl Fn(I::Item) -> R + Sync,
    identity: impl Fn() -> R + Sync,
    reduce: impl Fn(R, R) -> R + Sync,
) -> R {
    observed(&|_| ()).map_reduce(items, map, identity, reduce)
}

/// What is done with the items of a run, and with its parts.
struct Plan<'a, F, I, M> {
    fold: F,
    identity: I,
    merge: M,
    progress: &'a (dyn Fn(usize) + Sync),
}

/// Folds the items, in parts while somebody is idle.
fn run<S, R, F, I, M>(mut items: S, plan: &Plan<'_, F, I, M>) -> R
where
    S: Split,
    R: Send,
    F: Fn(R, S::Item) -> R + Sync,
    I: Fn() -> R + Sync,
    M: Fn(R, R) -> R + Sync,
{
    let mut done = (plan.identity)();
    let mut now_ns = clock::now_ns();
    let mut blocks = Blocks::new(now_ns);
    while items.len() != 0 {
        let n = blocks.size().min(items.len());
        let (block, rest) = items.split_at(n);
        items = rest;
        done = block.fold(done, &plan.fold);
        (plan.progress)(n);
        now_ns = clock::now_ns().max(now_ns);
        if blocks.may_split(now_ns) && items.len() > 1 && forks::are_wanted() {
            let half = items.len() / 2;
            let (left, right) = items.split_at(half);
            let (left, right) = join(|| run(left, plan), || run(right, plan));
            return (plan.merge)((plan.merge)(done, left), right);
        }
    }
    done
}

//! Sorting slices on all processors.
//!
//! Both halves are sorted, maybe at the same time; then std's stable sort, which finds two runs
//! that are in order, merges them. For the sorts that need not be stable, std's selection puts the
//! smaller half in front first. A slice is split only while somebody is idle.

use crate::goroutine::join;
use crate::sched::forks;
use heist_core::policy::blocks::SORT_SPLIT_MIN;
use std::cmp::Ordering;

fn is_split(len: usize) -> bool {
    len >= SORT_SPLIT_MIN && forks::are_wanted()
}

/// Sorts a slice, keeping the order of equal items.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let mut numbers: Vec<u64> = (0..100_000).map(|n| n * 7919 % 100_003).collect();
/// heist::par::sort(&mut numbers);
/// assert!(numbers.is_sorted());
/// # });
/// ```
pub fn sort<T: Ord + Send>(items: &mut [T]) {
    sort_by(items, T::cmp);
}

/// Sorts a slice by a comparison, keeping the order of equal items.
///
/// # Panics
/// As [`slice::sort_by`]: it may panic if the comparison is no total order.
pub fn sort_by<T: Send>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Sync) {
    merge_sort(items, &compare);
}

/// Sorts a slice by a key of each item, keeping the order of items with equal keys.
pub fn sort_by_key<T: Send, K: Ord>(items: &mut [T], key: impl Fn(&T) -> K + Sync) {
    merge_sort(items, &|a, b| key(a).cmp(&key(b)));
}

/// Sorts a slice. Equal items may change places.
pub fn sort_unstable<T: Ord + Send>(items: &mut [T]) {
    quicksort(items, &T::cmp);
}

/// Sorts a slice by a comparison. Equal items may change places.
///
/// # Panics
/// As [`slice::sort_unstable_by`]: it may panic if the comparison is no total order.
pub fn sort_unstable_by<T: Send>(items: &mut [T], compare: impl Fn(&T, &T) -> Ordering + Sync) {
    quicksort(items, &compare);
}

fn merge_sort<T: Send>(items: &mut [T], compare: &(impl Fn(&T, &T) -> Ordering + Sync)) {
    if is_split(items.len()) {
        let (left, right) = items.split_at_mut(items.len() / 2);
        join(|| merge_sort(left, compare), || merge_sort(right, compare));
    }
    items.sort_by(compare);
}

fn quicksort<T: Send>(items: &mut [T], compare: &(impl Fn(&T, &T) -> Ordering + Sync)) {
    if !is_split(items.len()) {
        return items.sort_unstable_by(compare);
    }
    let (left, _, right) = items.select_nth_unstable_by(items.len() / 2, compare);
    join(|| quicksort(left, compare), || quicksort(right, compare));
}

//! Loops over items that are split, against the same loops in one thread.

use crate::matrix;
use crate::unwinding::Counted;
use heist::par;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Takes a few microseconds, so that loops of a few hundred items are split.
fn slowly(n: usize) -> usize {
    (0..500).fold(n, |n, _| std::hint::black_box(n))
}

#[test]
fn loops_visit_each_item_once() {
    matrix::run(|| {
        for n in [0_usize, 1, 2, 7, 1000] {
            let visits: Vec<_> = (0..n).map(|_| AtomicUsize::new(0)).collect();
            let visit = |visits: &AtomicUsize| {
                visits.fetch_add(1, Ordering::Relaxed);
            };
            par::for_each(0..n, |i| visit(&visits[slowly(i)]));
            par::for_each(&visits[..], visit);
            par::for_each(par::chunks(&visits, 3), |part| {
                part.iter().for_each(visit);
            });
            assert!(visits.iter().all(|visit| visit.load(Ordering::Relaxed) == 3));
        }
    });
}

#[test]
fn results_are_in_order() {
    matrix::run(|| {
        let n = 1000_usize;
        let expected: Vec<String> = (0..n).map(|i| i.to_string()).collect();
        assert_eq!(par::map(0..n, |i| slowly(i).to_string()), expected);
        assert_eq!(par::map(&expected[..], |word| word.clone()), expected);
        assert_eq!(par::map(expected.clone(), |word| word), expected);
        let joined = par::map_reduce(
            &expected[..],
            |word| {
                slowly(0);
                word.clone()
            },
            String::new,
            |a, b| a + &b,
        );
        assert_eq!(joined, expected.concat());
        let mut numbers: Vec<usize> = (0..n).collect();
        par::for_each(&mut numbers[..], |number| *number = slowly(*number) + 1);
        par::for_each(par::chunks_mut(&mut numbers, 7), |part| part.reverse());
        let mut plain: Vec<usize> = (1..=n).collect();
        plain.chunks_mut(7).for_each(<[usize]>::reverse);
        assert_eq!(numbers, plain);
    });
}

#[test]
fn ranges_of_all_integers_are_split() {
    matrix::run(|| {
        assert_eq!(par::map(i8::MIN..i8::MAX, |n| n).len(), 255);
        assert_eq!(par::map_reduce(-1000..1000_i32, |n| n, || 0, |a, b| a + b), -1000);
        let backwards = std::ops::Range { start: 5_u32, end: 2 };
        assert_eq!(par::map(backwards, |n| n), []);
        assert_eq!(par::map(u64::MAX - 3..u64::MAX, |n| u64::MAX - n), [3, 2, 1]);
    });
}

#[test]
fn slices_are_sorted() {
    matrix::run(|| {
        for n in [0, 1, 100, 20_000] {
            let numbers: Vec<u64> = (0..n).map(|i| i * 7919 % 10_007).collect();
            let mut sorted = numbers.clone();
            sorted.sort();
            let sorts: [fn(&mut [u64]); 4] = [
                par::sort,
                par::sort_unstable,
                |items| par::sort_by(items, u64::cmp),
                |items| par::sort_unstable_by(items, u64::cmp),
            ];
            for sort in sorts {
                let mut items = numbers.clone();
                sort(&mut items);
                assert_eq!(items, sorted);
            }
            let mut pairs: Vec<_> = numbers.iter().map(|n| n % 10).zip(0..).collect();
            par::sort_by_key(&mut pairs, |pair| pair.0);
            assert!(pairs.is_sorted(), "equal items have changed places");
        }
    });
}

/// A panic ends the loop: items that were not begun are dropped, each once.
#[test]
fn a_panic_drops_the_items_that_are_left() {
    matrix::run(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let items: Vec<_> = (0..500).map(|i| (i, Counted(Arc::clone(&drops)))).collect();
        let run = || {
            par::map(items, |(i, counted)| {
                slowly(i);
                assert!(i != 333, "this one");
                counted
            })
        };
        assert!(catch_unwind(AssertUnwindSafe(run)).is_err());
        assert_eq!(drops.load(Ordering::SeqCst), 500);
    });
}

/// The hook is told about each item once, also if items park.
#[test]
fn progress_is_told_and_adds_up() {
    matrix::run(|| {
        let done = AtomicUsize::new(0);
        let progress = |n| {
            done.fetch_add(n, Ordering::Relaxed);
        };
        let total = par::observed(&progress).map_reduce(
            0..300_usize,
            |n| {
                if n.is_multiple_of(50) {
                    heist::time::sleep(std::time::Duration::from_micros(100));
                }
                slowly(n)
            },
            || 0,
            |a, b| a + b,
        );
        assert_eq!((total, done.into_inner()), (44_850, 300));
    });
}

#[test]
fn a_plain_thread_runs_loops() {
    assert_eq!(par::map(0..100, |n| n), (0..100).collect::<Vec<_>>());
    let mut numbers: Vec<u32> = (0..10_000).rev().collect();
    par::sort(&mut numbers);
    assert!(numbers.is_sorted());
}

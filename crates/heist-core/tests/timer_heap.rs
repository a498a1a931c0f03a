//! Tests of the timer heap against a sorted list.
#![cfg(not(loom))]

use heist_core::timer_heap::{Entry, NEVER, Siblings, TimerHeap};
use proptest::prelude::*;

type Heap = TimerHeap<u32, Vec<Siblings<u32>>>;

fn add(heap: &mut Heap, when: u64, what: u32) {
    assert!(heap.push(Entry { when, what }));
}

fn heap_of(whens: &[u64]) -> Heap {
    let mut heap = Heap::new(Vec::new());
    for (what, &when) in (0..).zip(whens) {
        add(&mut heap, when, what);
    }
    heap
}

/// Everything due at `now`, in the order it comes out.
fn due(heap: &mut Heap, now: u64) -> Vec<u32> {
    std::iter::from_fn(|| heap.pop_due(now)).map(|entry| entry.what).collect()
}

#[test]
fn an_empty_heap_is_never_due() {
    let mut heap = heap_of(&[]);
    assert_eq!(heap.earliest(), NEVER);
    assert_eq!(heap.pop_due(u64::MAX), None);
    assert_eq!(heap.earliest_live(|_| false), NEVER);
}

#[test]
fn an_emptied_heap_is_never_due() {
    let mut heap = heap_of(&[5]);
    assert_eq!(due(&mut heap, 5), [0]);
    assert_eq!(heap.earliest(), NEVER);
    assert_eq!(heap.pop_due(u64::MAX), None);
    add(&mut heap, 7, 1);
    assert_eq!((heap.len(), heap.earliest()), (1, 7));
}

#[test]
fn nothing_comes_out_early() {
    let mut heap = heap_of(&[30, 10, 20]);
    assert_eq!(due(&mut heap, 9), []);
    assert_eq!(due(&mut heap, 20), [1, 2]);
    assert_eq!(heap.earliest(), 30);
}

#[test]
fn stale_tops_are_dropped_and_the_live_one_counts() {
    let mut heap = heap_of(&[1, 2, 3, 4]);
    assert_eq!(heap.earliest_live(|entry| entry.what < 2), 3);
    assert_eq!(heap.len(), 2);
}

/// At most half of a large heap is stale, whatever is added and becomes stale (IN-40, TM-30).
#[test]
fn cleaning_keeps_stale_entries_below_half() {
    let mut heap = heap_of(&[]);
    let live = |what: &u32| what.is_multiple_of(100);
    for what in 0..100_000u32 {
        add(&mut heap, u64::from(what % 977), what);
        if heap.wants_cleaning() {
            heap.clean(|entry| !live(&entry.what));
            let n_live = what as usize / 100 + 1;
            assert_eq!(heap.len(), n_live, "clean at {what}");
        }
    }
    assert!(heap.len() <= 2 * 1000 + 64, "{} entries for 1000 live ones", heap.len());
}

proptest! {
    /// Pushes, pops, cleanings and merges give what a sorted list gives (IN-40, TM-30).
    #[test]
    fn behaves_as_a_sorted_list(
        ops in prop::collection::vec((0u8..10, 0u64..200), 1..300),
        merged in prop::collection::vec(0u64..200, 0..50),
    ) {
        let mut heap = heap_of(&[]);
        let mut model: Vec<(u64, u32)> = Vec::new();
        let mut next = 0u32;
        for (op, arg) in ops {
            match op {
                0..=5 => {
                    add(&mut heap, arg, next);
                    model.push((arg, next));
                    next += 1;
                }
                6..=8 => {
                    let earliest = model.iter().map(|&(when, _)| when).min();
                    match heap.pop_due(arg) {
                        Some(Entry { when, what }) => {
                            let at = model.iter().position(|&other| other == (when, what)).unwrap();
                            model.swap_remove(at);
                            prop_assert_eq!(Some(when), earliest);
                            prop_assert!(when <= arg);
                        }
                        None => prop_assert!(earliest.is_none_or(|when| when > arg)),
                    }
                }
                _ => {
                    let is_stale = |what: &u32| u64::from(*what) % 7 == arg % 7;
                    heap.clean(|entry| is_stale(&entry.what));
                    model.retain(|(_, what)| !is_stale(what));
                }
            }
            let earliest = model.iter().map(|&(when, _)| when).min().unwrap_or(NEVER);
            prop_assert_eq!(heap.earliest(), earliest);
            prop_assert_eq!(heap.len(), model.len());
        }
        let mut other = heap_of(&[]);
        for when in merged {
            add(&mut other, when, next);
            model.push((when, next));
            next += 1;
        }
        prop_assert!(heap.append(&mut other));
        prop_assert!(other.is_empty());
        let mut whens: Vec<u64> = model.iter().map(|&(when, _)| when).collect();
        whens.sort_unstable();
        for when in whens {
            prop_assert_eq!(heap.earliest(), when);
            prop_assert!(heap.pop_due(when).is_some());
        }
        prop_assert!(heap.is_empty());
    }
}

//! Tests of the lock order: what it allows, what it refuses, and that it has no cycle.
#![cfg(not(loom))]

use heist_core::lock_rank::{Held, ORDER, Rank};
use std::panic::{AssertUnwindSafe, catch_unwind};

const RANKS: [Rank; Rank::COUNT] = [
    Rank::World,
    Rank::Sched,
    Rank::Timers,
    Rank::FreeGs,
    Rank::Stacks,
    Rank::AllGs,
    Rank::WaitQueue,
    Rank::Timer,
    Rank::PollDesc,
    Rank::Yielded,
    Rank::Condvar,
    Rank::Trace,
    Rank::Forks,
];

/// Whether the written order leads from `a` to `b`, found by following it.
fn comes_before(a: Rank, b: Rank) -> bool {
    ORDER.iter().any(|&(from, to)| from == a && (to == b || comes_before(to, b)))
}

fn throws(act: impl FnOnce()) -> bool {
    match catch_unwind(AssertUnwindSafe(act)) {
        Ok(()) => false,
        Err(panic) => {
            let text = panic.downcast_ref::<String>().expect("a throw has a text");
            assert!(text.starts_with("throw: Held::"), "{text}");
            true
        }
    }
}

/// DL-16: every rank is in the table once. The order has no cycle (else the walk of `comes_before`
/// would not end), so it is an order.
#[test]
fn order_has_no_cycle() {
    assert!(RANKS.iter().enumerate().all(|(at, &rank)| rank as usize == at));
    assert!(!RANKS.iter().any(|&rank| comes_before(rank, rank)));
    for (at, &(a, b)) in ORDER.iter().enumerate() {
        assert!(!comes_before(b, a), "{a:?} and {b:?}");
        assert!(!ORDER[..at].contains(&(a, b)), "{a:?} before {b:?} is written twice");
    }
}

/// DL-16: the table that the check uses is what follows from the written order. Of all pairs, those
/// along it may be held together; the others throw, the same rank twice included.
#[test]
fn pairs_follow_the_order() {
    for a in RANKS {
        for b in RANKS {
            let held = Held::new();
            held.acquire(a);
            assert_eq!(throws(|| held.acquire(b)), !comes_before(a, b), "{a:?} then {b:?}");
        }
    }
}

/// A third lock must come after both that are held, not only after the last.
#[test]
fn triples_follow_the_order() {
    for a in RANKS {
        for b in RANKS.into_iter().filter(|&b| comes_before(a, b)) {
            for c in RANKS {
                let held = Held::new();
                held.acquire(a);
                held.acquire(b);
                let allowed = comes_before(a, c) && comes_before(b, c);
                assert_eq!(throws(|| held.acquire(c)), !allowed, "{a:?}, {b:?}, {c:?}");
            }
        }
    }
}

/// A refused lock is not held, and what was held still is.
#[test]
fn refusal_changes_nothing() {
    let held = Held::new();
    held.acquire(Rank::Sched);
    assert!(throws(|| held.acquire(Rank::World)));
    assert!(throws(|| held.release(Rank::World)));
    held.release(Rank::Sched);
    assert!(held.is_empty());
}

/// Locks may be released in any order; afterwards any lock may be taken.
#[test]
fn release_is_in_any_order() {
    let chain = [Rank::World, Rank::Sched, Rank::FreeGs, Rank::AllGs];
    for first in chain {
        let held = Held::new();
        chain.into_iter().for_each(|rank| held.acquire(rank));
        held.release(first);
        chain.into_iter().filter(|&rank| rank != first).for_each(|rank| held.release(rank));
        assert!(held.is_empty());
        held.acquire(Rank::World);
    }
}

/// A lock that is not held cannot be released.
#[test]
fn release_of_a_lock_not_held_throws() {
    for rank in RANKS {
        let held = Held::new();
        assert!(throws(|| held.release(rank)));
        held.acquire(rank);
        held.release(rank);
        assert!(throws(|| held.release(rank)), "{rank:?} released twice");
    }
}

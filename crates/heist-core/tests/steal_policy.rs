//! Tests of the two presets of `StealPolicy`, by their effect on a victim.
#![cfg(not(loom))]

use heist_core::policy::{Order, RING_CAPACITY, RunNextTheft, STEAL_TRIES, Share, StealPolicy};
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};
use heist_core::steal_order::StealOrder;
use std::ptr::NonNull;

/// What a thief may do about `run_next` in pass number `pass`, as the search loop asks it.
fn run_next(policy: StealPolicy, pass: u32) -> RunNext {
    match policy.run_next {
        RunNextTheft::LastTry if pass + 1 == policy.tries => RunNext::Take,
        _ => RunNext::Leave,
    }
}

/// A victim with `ring` entries and perhaps one in `run_next`, and a thief that holds `held`: runs
/// all passes of `policy` until something is found. Returns the numbers of goroutines after that.
fn steal_all_passes(policy: StealPolicy, ring: u32, in_run_next: bool, held: u32) -> Theft {
    let entries: Vec<u32> = (0..2 * RING_CAPACITY + 1).collect();
    let (victim, thief) = (RunQueue::starting_at(u32::MAX - 100), RunQueue::new());
    // SAFETY: one thread.
    let (theirs, mine) = unsafe { (victim.owner(), thief.owner()) };
    let mut unused = entries.iter().map(NonNull::from);
    let mut push = |to: &heist_core::run_queue::Owner<'_, u32>, slot| {
        to.push(unused.next().unwrap(), slot, |_| unreachable!("there is room"));
    };
    (0..ring).for_each(|_| push(&theirs, Slot::Tail));
    (0..held).for_each(|_| push(&mine, Slot::Tail));
    if in_run_next {
        push(&theirs, Slot::Next);
    }
    let mut n_taken = 0;
    for pass in 0..policy.tries {
        match victim.thief().steal_into(&mine, policy.share, run_next(policy, pass), || true) {
            Stolen::Nothing => continue,
            Stolen::Batch { n, .. } => n_taken = n,
            Stolen::RunNext(_) => n_taken = 1,
        }
        break;
    }
    Theft { n_taken, left: victim.len(), held: thief.len() }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Theft {
    n_taken: u32,
    left: u32,
    held: u32,
}

/// IN-07, IN-13: Go's preset takes the larger half, and `run_next` when there is nothing else.
#[test]
fn go_takes_the_larger_half_and_run_next_last() {
    let policy = StealPolicy::go();
    assert_eq!(policy, StealPolicy::default());
    assert_eq!((policy.tries, policy.order), (STEAL_TRIES, Order::Coprime));
    for ring in 1..=RING_CAPACITY {
        for in_run_next in [false, true] {
            assert_eq!(steal_all_passes(policy, ring, in_run_next, 0).n_taken, ring.div_ceil(2));
        }
    }
    assert_eq!(steal_all_passes(policy, 0, true, 0), Theft { n_taken: 1, left: 0, held: 0 });
    assert_eq!(steal_all_passes(policy, 0, false, 0).n_taken, 0);
}

/// The gentle preset never empties a ring that has work, and never touches `run_next`.
#[test]
fn gentle_never_empties_its_victim() {
    let policy = StealPolicy::gentle();
    assert_eq!((policy.order, policy.run_next), (Order::Ring, RunNextTheft::Never));
    for ring in 0..=RING_CAPACITY {
        for in_run_next in [false, true] {
            let theft = steal_all_passes(policy, ring, in_run_next, 0);
            assert_eq!(theft.n_taken, ring / 2);
            assert_eq!(theft.left, ring.div_ceil(2) + u32::from(in_run_next));
        }
    }
}

/// Neither preset takes more than the thief can hold, and no goroutine is lost when the thief is
/// nearly full.
#[test]
fn no_thief_takes_more_than_it_can_hold() {
    for policy in [StealPolicy::go(), StealPolicy::gentle()] {
        for ring in [1, 2, 3, 128, RING_CAPACITY] {
            for held in 0..=RING_CAPACITY {
                let theft = steal_all_passes(policy, ring, false, held);
                let wanted = policy.share.of(ring);
                assert_eq!(theft.n_taken, wanted.min(RING_CAPACITY - held), "holds {held}");
                assert_eq!(theft.left, ring - theft.n_taken);
                assert_eq!(theft.held, held + theft.n_taken.saturating_sub(1));
            }
        }
    }
}

/// The number of passes can be chosen without changing the rest.
#[test]
fn tries_can_be_chosen() {
    let policy = StealPolicy::gentle().with_tries(1);
    assert_eq!(policy.tries, 1);
    assert_eq!(policy.with_tries(STEAL_TRIES), StealPolicy::gentle());
}

/// IN-07: the two shares are the two halves, and at most half a ring.
#[test]
fn shares_are_the_two_halves() {
    for len in 0..=RING_CAPACITY {
        assert_eq!(Share::CeilHalf.of(len) + Share::FloorHalf.of(len), len);
        assert!(Share::CeilHalf.of(len) - Share::FloorHalf.of(len) <= 1);
        assert!(Share::CeilHalf.of(len) <= RING_CAPACITY / 2);
    }
}

/// The gentle order is once around the ring.
#[test]
fn gentle_walks_around() {
    let walk = StealOrder::new(5).walk(StealPolicy::gentle().order, 8);
    assert_eq!(walk.collect::<Vec<_>>(), [3, 4, 0, 1, 2]);
}

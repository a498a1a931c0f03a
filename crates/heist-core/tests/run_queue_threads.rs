//! The run queue with real threads: nothing is lost or taken twice, and the queue never looks empty
//! when it is not.
//!
//! Short by default; `HEIST_STRESS_SECS` makes each test run for that long, with a new seed in
//! each round.
#![cfg(not(loom))]

use heist_core::policy::{RING_CAPACITY, Share};
use heist_core::rng::Rng;
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const START: u32 = u32::MAX - 100;

/// Calls `round` with seeds until the time is over, once if no time is given.
fn stress(mut round: impl FnMut(u64)) {
    let secs = std::env::var("HEIST_STRESS_SECS").ok().and_then(|secs| secs.parse().ok());
    let end = Instant::now() + Duration::from_secs(secs.unwrap_or(0));
    let mut seed = 1;
    loop {
        println!("seed {seed}");
        round(seed);
        seed += 1;
        if Instant::now() >= end {
            return;
        }
    }
}

fn id(gp: NonNull<u32>) -> u32 {
    // SAFETY: the ids outlive the threads of each test and are never written.
    unsafe { *gp.as_ptr() }
}

/// How the observer test takes one of two entries away.
#[derive(Clone, Copy)]
enum Taken {
    Popped,
    Robbed,
}

/// RQ-03, IN-06: at least one entry is always in the queue, while others come and go through both
/// places; an observer never sees the queue empty.
#[test]
fn observer_never_sees_a_filled_queue_empty() {
    const ROUNDS: u32 = 200_000;
    let entry = 0;
    let gp = NonNull::from(&entry);
    stress(|seed| {
        let (queue, pocket) = (RunQueue::starting_at(START), RunQueue::<u32>::new());
        // SAFETY: only this thread uses the owner halves.
        let (owner, thief) = unsafe { (queue.owner(), pocket.owner()) };
        owner.push(gp, Slot::Next, |_| unreachable!("two entries do not overflow"));
        let done = AtomicBool::new(false);
        let mut combinations = [[0; 2]; 2];
        let lied = thread::scope(|scope| {
            let onlooker = scope.spawn(|| {
                let mut lied = false;
                while !done.load(Ordering::Relaxed) {
                    lied |= queue.is_empty();
                }
                lied
            });
            let mut rng = Rng::new(seed);
            let mut first = Slot::Next;
            for _ in 0..ROUNDS {
                let second = if rng.below(2) == 0 { Slot::Next } else { Slot::Tail };
                combinations[first as usize][second as usize] += 1;
                owner.push(gp, second, |_| unreachable!("two entries do not overflow"));
                let both_in_ring = first == Slot::Tail && second == Slot::Tail;
                let taken = if rng.below(2) == 0 { Taken::Popped } else { Taken::Robbed };
                match taken {
                    Taken::Popped => assert!(owner.pop().is_some()),
                    Taken::Robbed => {
                        let theft = queue.thief();
                        let stolen =
                            theft.steal_into(&thief, Share::CeilHalf, RunNext::Leave, || true);
                        assert!(matches!(stolen, Stolen::Batch { n: 1, .. }), "seed {seed}");
                    }
                }
                first = match taken {
                    Taken::Robbed if !both_in_ring => Slot::Next,
                    _ => Slot::Tail,
                };
            }
            done.store(true, Ordering::Relaxed);
            onlooker.join().unwrap()
        });
        assert!(!lied, "seed {seed}");
        assert!(combinations.iter().flatten().all(|&n| n > ROUNDS / 100), "{combinations:?}");
    });
}

/// The entries that one thief took, in the order in which they left the victim's ring.
fn steal_until_done(victim: &RunQueue<u32>, run_next: RunNext, done: &AtomicBool) -> Vec<u32> {
    let pocket = RunQueue::starting_at(START);
    // SAFETY: only this thread uses the pocket.
    let home = unsafe { pocket.owner() };
    let mut seen = Vec::new();
    loop {
        // Read before the theft: a theft that finds nothing after the end shows that nothing is
        // left.
        let last = done.load(Ordering::Acquire);
        match victim.thief().steal_into(&home, Share::CeilHalf, run_next, || true) {
            Stolen::Nothing if last => return seen,
            Stolen::Nothing => thread::yield_now(),
            Stolen::RunNext(gp) => seen.push(id(gp)),
            Stolen::Batch { run, n } => {
                let before = seen.len();
                seen.extend(std::iter::from_fn(|| home.pop()).map(|popped| id(popped.goroutine())));
                seen.push(id(run));
                assert_eq!(seen.len() - before, n as usize);
            }
        }
    }
}

/// The owner's part: bursts of pushes and pops. `seen` has the entries that it popped itself,
/// `overflown` those that overflowed.
struct Worked {
    seen: Vec<u32>,
    overflown: Vec<u32>,
}

fn work(queue: &RunQueue<u32>, ids: &[u32], rng: &mut Rng, n_next_of_4: u32) -> Worked {
    // SAFETY: only this thread uses the owner half.
    let owner = unsafe { queue.owner() };
    let mut worked = Worked { seen: Vec::new(), overflown: Vec::new() };
    let mut left = ids.iter();
    while !left.as_slice().is_empty() {
        for entry in left.by_ref().take(rng.below(2 * RING_CAPACITY) as usize) {
            let slot = if rng.below(4) < n_next_of_4 { Slot::Next } else { Slot::Tail };
            owner.push(NonNull::from(entry), slot, |batch| {
                worked.overflown.extend(batch.iter().map(|&gp| id(gp)));
            });
            assert!(queue.len() <= RING_CAPACITY + 1);
        }
        for _ in 0..rng.below(RING_CAPACITY) {
            worked.seen.extend(owner.pop().map(|popped| id(popped.goroutine())));
        }
    }
    worked.seen.extend(std::iter::from_fn(|| owner.pop()).map(|popped| id(popped.goroutine())));
    worked
}

/// Runs an owner against `n_thieves`; returns the entries that each consumer took, the overflow
/// last.
fn run(seed: u64, n_thieves: u32, n_next_of_4: u32, run_next: RunNext) -> Vec<Vec<u32>> {
    let ids: Vec<u32> = (0..100_000).collect();
    let queue = RunQueue::starting_at(START);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let thieves: Vec<_> = (0..n_thieves)
            .map(|_| scope.spawn(|| steal_until_done(&queue, run_next, &done)))
            .collect();
        let worked = work(&queue, &ids, &mut Rng::new(seed), n_next_of_4);
        done.store(true, Ordering::Release);
        let mut taken: Vec<_> = thieves.into_iter().map(|thief| thief.join().unwrap()).collect();
        taken.extend([worked.seen, worked.overflown]);
        let mut all: Vec<u32> = taken.iter().flatten().copied().collect();
        all.sort_unstable();
        assert_eq!(all.len(), ids.len(), "lost or taken twice, seed {seed}");
        assert!(all == ids, "one lost and another taken twice, seed {seed}");
        taken
    })
}

/// IN-01: an owner against 1 to 3 thieves across the wrap of the indices: everything comes out
/// once, and each consumer takes in the order of the pushes.
#[test]
fn consumers_share_a_ring_in_order() {
    stress(|seed| {
        for n_thieves in 1..=3 {
            let mut taken = run(seed, n_thieves, 0, RunNext::Leave);
            // An overflow takes the oldest but puts the newest behind them.
            taken.pop();
            for (consumer, seen) in taken.iter().enumerate() {
                assert!(seen.is_sorted(), "consumer {consumer} of {n_thieves}, seed {seed}");
            }
        }
    });
}

/// IN-01, IN-03, IN-05, IN-07: the same with `run_next` in use and up for theft.
#[test]
fn consumers_share_ring_and_run_next() {
    stress(|seed| {
        for n_thieves in 1..=3 {
            run(seed, n_thieves, 2, RunNext::Take);
        }
    });
}

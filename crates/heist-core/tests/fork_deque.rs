//! The deque of forks: random operations against a plain deque, and real threads.
//!
//! `HEIST_STRESS_SECS` makes the test with threads run for that long, with a new seed each round.
#![cfg(not(loom))]

use heist_core::fork_deque::{ForkDeque, Full, Seen};
use heist_core::policy::FORKS_MAX;
use heist_core::rng::Rng;
use proptest::collection::vec;
use proptest::prelude::*;
use std::collections::VecDeque;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use std::thread;
use std::time::{Duration, Instant};

fn full_fence() {
    fence(Ordering::SeqCst);
}

fn id(job: NonNull<u32>) -> u32 {
    // SAFETY: each test keeps its jobs until the end.
    unsafe { *job.as_ptr() }
}

#[derive(Clone, Debug)]
enum Step {
    Push,
    Pop,
    Look,
    /// Takes by the look that was made so many steps ago.
    Take(usize),
    HandOn,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => Just(Step::Push),
        5 => Just(Step::Pop),
        3 => Just(Step::Look),
        3 => (0..4_usize).prop_map(Step::Take),
        1 => Just(Step::HandOn),
    ]
}

proptest! {
    /// The deque does what a plain deque does, in one thread: the owner's jobs are the youngest,
    /// the thieves' are the oldest, and a look is good for one job only.
    #[test]
    fn behaves_as_a_plain_deque(steps in vec(step(), 0..700)) {
        let jobs: Vec<u32> = (0..steps.len() as u32).collect();
        let deque = ForkDeque::<u32>::new();
        // SAFETY: the only thread.
        let owner = unsafe { deque.owner() };
        let mut model = VecDeque::new();
        let mut n_pushed = 0_usize;
        // The looks that were made, each with the job that it saw.
        let mut looks: Vec<(Seen, u32)> = Vec::new();
        for step in steps {
            match step {
                Step::Push => {
                    let pushed = owner.push(NonNull::from(&jobs[n_pushed]));
                    let fits = model.len() < FORKS_MAX;
                    prop_assert_eq!(pushed, if fits { Ok(()) } else { Err(Full) });
                    if fits {
                        model.push_back(n_pushed as u32);
                        n_pushed += 1;
                    }
                }
                Step::Pop => {
                    // What a fork pops if a thief has its job is not looked at.
                    let last = model.pop_back();
                    let job = NonNull::from(&jobs[last.unwrap_or(0) as usize]);
                    prop_assert_eq!(owner.pop(job, full_fence), last.is_some());
                }
                Step::Look => {
                    let seen = deque.thief().look();
                    prop_assert_eq!(seen.is_some(), !model.is_empty());
                    looks.extend(seen.map(|seen| (seen, model[0])));
                }
                Step::Take(back) => {
                    let Some(&(seen, job)) = looks.iter().rev().nth(back) else { continue };
                    let taken = deque.thief().take(seen).map(id);
                    if taken.is_some() {
                        prop_assert_eq!(taken, model.pop_front());
                    } else {
                        prop_assert_ne!(model.front(), Some(&job));
                    }
                }
                Step::HandOn => {
                    if model.is_empty() {
                        owner.hand_on();
                        prop_assert!(looks.drain(..).all(|(seen, _)| deque.thief().take(seen).is_none()));
                    }
                }
            }
            prop_assert_eq!(owner.is_empty(), model.is_empty());
        }
    }
}

/// An owner that forks to random depths and two thieves take each job exactly once.
#[test]
fn each_job_is_taken_once() {
    const N_JOBS: u32 = 100_000;
    let secs = std::env::var("HEIST_STRESS_SECS").ok().and_then(|secs| secs.parse().ok());
    let end = Instant::now() + Duration::from_secs(secs.unwrap_or(0));
    for seed in 1.. {
        println!("seed {seed}");
        let jobs: Vec<u32> = (0..N_JOBS).collect();
        let taken: Vec<AtomicU32> = (0..N_JOBS).map(|_| AtomicU32::new(0)).collect();
        let deque = ForkDeque::<u32>::new();
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    while !done.load(Ordering::Acquire) {
                        let Some(seen) = deque.thief().look() else { continue };
                        full_fence();
                        if let Some(job) = deque.thief().take(seen) {
                            taken[id(job) as usize].fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
            // SAFETY: only this thread uses the owner's half.
            let owner = unsafe { deque.owner() };
            let mut rng = Rng::new(seed);
            let mut stack = Vec::new();
            let mut next = 0;
            while next < N_JOBS || !stack.is_empty() {
                let pushes = next < N_JOBS && (stack.is_empty() || rng.next_u32() & 1 == 0);
                if pushes && owner.push(NonNull::from(&jobs[next as usize])).is_ok() {
                    stack.push(next);
                    next += 1;
                } else if let Some(job) = stack.pop()
                    && owner.pop(NonNull::from(&jobs[job as usize]), full_fence)
                {
                    taken[job as usize].fetch_add(1, Ordering::Relaxed);
                }
            }
            done.store(true, Ordering::Release);
        });
        for (job, taken) in taken.iter().enumerate() {
            assert_eq!(taken.load(Ordering::Relaxed), 1, "job {job} with seed {seed}");
        }
        if Instant::now() >= end {
            return;
        }
    }
}

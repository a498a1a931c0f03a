//! Long random work on all configurations: nothing is lost and nothing stops.
//!
//! Short unless `HEIST_STRESS_SECS` says otherwise.

use crate::{matrix, turns};

use crate::matrix::{Case, Policy};
use heist::sync::WaitGroup;
use heist::{Handle, Runtime, go, testing, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// How long the count of steps may stay the same.
const STALL: Duration = Duration::from_secs(30);

/// A small generator, so that a failure can be repeated from its seed.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, sides: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % sides
    }
}

/// Seeds that follow each other give dice that do not resemble each other.
fn spread(seed: u64) -> u64 {
    seed.wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// One goroutine's share of the work: a random mix of everything a goroutine can do.
fn work(seed: u64, depth: u32, steps: &Arc<AtomicU64>) -> u64 {
    let mut dice = Dice(seed | 1);
    let mut n = 1;
    let mut open = Vec::new();
    for _ in 0..dice.roll(8) {
        steps.fetch_add(1, Ordering::Relaxed);
        match dice.roll(8) {
            0 => yield_now(),
            1 => {
                if let Some(handle) = open.pop() {
                    n += heist::JoinHandle::join(handle).unwrap();
                }
            }
            2 => drop(go(|| ())),
            3 => {
                let group = WaitGroup::new();
                for _ in 0..dice.roll(4) {
                    group.add(1);
                    let group = group.clone();
                    go(move || group.done());
                }
                group.wait();
            }
            _ if depth > 0 => {
                let seed = dice.roll(u64::MAX);
                let steps = Arc::clone(steps);
                open.push(go(move || work(seed, depth - 1, &steps)));
            }
            _ => {}
        }
    }
    for handle in open {
        n += handle.join().unwrap();
    }
    steps.fetch_add(1, Ordering::Relaxed);
    n
}

/// Calls `body` and ends the process with the scheduler's state if `steps` stops growing.
fn watched(rt: &Runtime, what: &str, steps: &AtomicU64, body: impl FnOnce() + Send) {
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let watcher = scope.spawn(|| {
            let (mut seen, mut since) = (0, Instant::now());
            while !done.load(Ordering::Relaxed) {
                let now = steps.load(Ordering::Relaxed);
                if now != seen {
                    (seen, since) = (now, Instant::now());
                }
                if since.elapsed() > STALL {
                    eprintln!("{what} stalls after {seen} steps: {:?}", testing::sample(rt));
                    std::process::abort();
                }
                std::thread::park_timeout(Duration::from_millis(50));
            }
        });
        let result = catch_unwind(AssertUnwindSafe(body));
        done.store(true, Ordering::Relaxed);
        watcher.thread().unpark();
        if let Err(payload) = result {
            eprintln!("failed with {what}");
            resume_unwind(payload);
        }
    });
}

fn stress_cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for procs in [2, 4, 16] {
        for (policy, chaos) in [(Policy::Go, None), (Policy::Gentle, None), (Policy::Go, Some(7))] {
            cases.push(Case { procs, policy, chaos });
        }
    }
    cases
}

/// IN-13..IN-20, IN-36: a million random steps of spawning, stealing, parking and waking at 2, 4
/// and 16 procs never stall and count up exactly.
#[test]
fn a_million_random_steps_do_not_stall() {
    let _turn = turns::with_others();
    let cases = stress_cases();
    let per_case = 1_000_000 / cases.len() as u64;
    for case in cases {
        let rt = case.runtime();
        let steps = Arc::new(AtomicU64::new(0));
        watched(&rt, &case.to_string(), &steps, || {
            let until = matrix::stress_time().map(|time| Instant::now() + time);
            for seed in 1.. {
                let counted = Arc::clone(&steps);
                let n = rt.run(move || work(spread(seed), 6, &counted));
                assert!(n >= 1, "{case} seed={seed}");
                let enough = steps.load(Ordering::Relaxed) >= per_case;
                if enough && until.is_none_or(|until| Instant::now() > until) {
                    break;
                }
            }
        });
    }
}

/// IN-17: threads outside submit to a runtime that keeps falling asleep; every goroutine runs.
#[test]
fn submitting_to_a_runtime_that_falls_asleep_loses_nothing() {
    fn submit(handle: &Handle, n: u64, steps: &Arc<AtomicU64>) {
        for i in 0..n {
            let counted = Arc::clone(steps);
            let goroutine = handle.spawn(move || counted.fetch_add(1, Ordering::Relaxed));
            // From time to time the test waits for it, so that the runtime becomes idle in between.
            if i.is_multiple_of(2) {
                goroutine.join().unwrap();
            }
        }
    }
    let _turn = turns::with_others();
    for case in stress_cases() {
        let rt = case.runtime();
        let steps = Arc::new(AtomicU64::new(0));
        let mut expected = 0;
        watched(&rt, &case.to_string(), &steps, || {
            matrix::stress(4, |_| {
                let handle = rt.handle();
                std::thread::scope(|scope| {
                    for _ in 0..3 {
                        scope.spawn(|| submit(&handle, 1000, &steps));
                    }
                });
                expected += 3000;
                matrix::eventually("all ran", || steps.load(Ordering::Relaxed) == expected);
            });
        });
    }
}

/// IN-17, IN-18: goroutines that spawn one each and wait for it, on more goroutines than
/// processors: between two steps every processor may be about to sleep.
#[test]
fn ping_pong_across_processors_does_not_stall() {
    let _turn = turns::with_others();
    for case in stress_cases() {
        let rt = case.runtime();
        let steps = Arc::new(AtomicU64::new(0));
        watched(&rt, &case.to_string(), &steps, || {
            matrix::stress(3, |_| {
                let counted = Arc::clone(&steps);
                rt.run(move || {
                    let players: Vec<_> = (0..case.procs * 2)
                        .map(|_| {
                            let steps = Arc::clone(&counted);
                            go(move || {
                                for i in 0..200_u64 {
                                    assert_eq!(go(move || i).join().unwrap(), i);
                                    steps.fetch_add(1, Ordering::Relaxed);
                                }
                            })
                        })
                        .collect();
                    for player in players {
                        player.join().unwrap();
                    }
                });
            });
        });
    }
}

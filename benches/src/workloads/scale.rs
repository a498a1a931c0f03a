//! scale_*: the cost of a task when there are 10 of them at once, or 1,000,000.
//!
//! With few tasks a round is repeated, so that as many operations are timed. The first round is
//! not: it brings the records and stacks that the others reuse.

use std::time::Duration;

use super::{ns_each, parked, spawn_join};
use crate::contract::blocking::{Group as _, Tasks, Timers};
use crate::reading::{Figures, Outcome, cannot};
use crate::sys::{self, Who};

const SPAWNS: usize = 1_000_000;
const WAKES: usize = 200_000;
const TIMERS: usize = 100_000;
/// The most rounds of each.
const SPAWN_ROUNDS: usize = 10_000;
const WAKE_ROUNDS: usize = 2_000;
const TIMER_ROUNDS: usize = 20;
/// How long the last tasks get to park.
const SETTLE: Duration = Duration::from_micros(20);

fn rounds(operations: usize, most: usize, n: usize) -> usize {
    (operations / n).clamp(1, most)
}

fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// No task wakes before all sleep: the shortest nap is longer than it takes to start `n` tasks.
fn shortest_nap(n: usize) -> Duration {
    Duration::from_millis(10) + Duration::from_micros(3) * n as u32
}

/// Twice the shortest at most, neighbours far apart.
fn nap(index: usize, n: usize) -> Duration {
    let shortest = shortest_nap(n);
    shortest + shortest.mul_f64((index * 7919 % 10_007) as f64 / 10_007.0)
}

/// Runs `body` for a peer that can have `n` tasks.
fn with_room<R: Tasks>(n: usize, body: impl FnOnce() -> f64) -> Outcome {
    if n > R::MAX_TASKS {
        return cannot(R::LIMIT_NOTE.unwrap_or("too many tasks"));
    }
    Ok(Figures::one(body()))
}

/// Spawn, run, finish.
pub fn spawn<R: Tasks>(procs: usize, n: usize) -> Outcome {
    let body = move || {
        spawn_join::round::<R>(n);
        let rounds = rounds(SPAWNS, SPAWN_ROUNDS, n);
        mean(&(0..rounds).map(|_| spawn_join::round::<R>(n)).collect::<Vec<_>>())
    };
    with_room::<R>(n, || R::run(procs, body))
}

/// From opening the gate until the last of the parked has ended.
pub fn wake<R: Tasks>(procs: usize, n: usize) -> Outcome {
    let body = move || {
        let round = |_| parked::round::<R>(n, SETTLE).wake_ns;
        round(0);
        mean(&(0..rounds(WAKES, WAKE_ROUNDS, n)).map(round).collect::<Vec<_>>())
    };
    with_room::<R>(n, || R::run(procs, body))
}

/// CPU time of a task that sleeps once, all of them at the same time.
pub fn timer<R: Timers>(procs: usize, n: usize) -> Outcome {
    fn round<R: Timers>(n: usize) -> Duration {
        let group = R::Group::new();
        let before = sys::cpu_time(Who::Myself);
        group.add(n);
        for index in 0..n {
            let group = group.clone();
            R::spawn(move || {
                R::sleep(nap(index, n));
                group.done();
            });
        }
        group.wait();
        sys::cpu_time(Who::Myself) - before
    }
    let body = move || {
        round::<R>(n);
        let rounds = rounds(TIMERS, TIMER_ROUNDS, n);
        let cpu: Duration = (0..rounds).map(|_| round::<R>(n)).sum();
        ns_each(cpu, n * rounds)
    };
    with_room::<R>(n, || R::run(procs, body))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{spawn_futures, timer_futures, wake_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use super::*;
    use crate::contract::futures::{Group as _, Tasks, Timers};

    pub fn spawn_futures<R: Tasks>(procs: usize, n: usize) -> Outcome {
        let body = async move {
            spawn_join::round_futures::<R>(n).await;
            let mut values = Vec::new();
            for _ in 0..rounds(SPAWNS, SPAWN_ROUNDS, n) {
                values.push(spawn_join::round_futures::<R>(n).await);
            }
            mean(&values)
        };
        Ok(Figures::one(R::run(procs, body)))
    }

    pub fn wake_futures<R: Tasks>(procs: usize, n: usize) -> Outcome {
        let body = async move {
            parked::round_futures::<R>(n, SETTLE).await;
            let mut values = Vec::new();
            for _ in 0..rounds(WAKES, WAKE_ROUNDS, n) {
                values.push(parked::round_futures::<R>(n, SETTLE).await.wake_ns);
            }
            mean(&values)
        };
        Ok(Figures::one(R::run(procs, body)))
    }

    pub fn timer_futures<R: Timers>(procs: usize, n: usize) -> Outcome {
        async fn round<R: Timers>(n: usize) -> Duration {
            let group = R::Group::new();
            let before = sys::cpu_time(Who::Myself);
            group.add(n);
            for index in 0..n {
                let group = group.clone();
                R::spawn(async move {
                    R::sleep(nap(index, n)).await;
                    group.done();
                });
            }
            group.wait().await;
            sys::cpu_time(Who::Myself) - before
        }
        let body = async move {
            round::<R>(n).await;
            let rounds = rounds(TIMERS, TIMER_ROUNDS, n);
            let mut cpu = Duration::ZERO;
            for _ in 0..rounds {
                cpu += round::<R>(n).await;
            }
            ns_each(cpu, n * rounds)
        };
        Ok(Figures::one(R::run(procs, body)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_tasks_are_repeated_and_many_are_not() {
        assert_eq!(rounds(SPAWNS, SPAWN_ROUNDS, 10), SPAWN_ROUNDS);
        assert_eq!(rounds(SPAWNS, SPAWN_ROUNDS, 1_000), 1_000);
        assert_eq!(rounds(TIMERS, TIMER_ROUNDS, 1_000_000), 1);
    }

    #[test]
    fn naps_lie_between_once_and_twice_the_shortest() {
        for index in 0..20_000 {
            let nap = nap(index, 20_000);
            assert!(nap >= shortest_nap(20_000) && nap < 2 * shortest_nap(20_000));
        }
    }
}

//! steal_hot and steal_idle: from a spawn by a busy task until another worker runs the new one.
//!
//! The newest task of a worker is its own in most schedulers, for a while (Go, heist) or for good
//! (tokio). So a second, empty task is spawned right behind the measured one, for every peer.

use std::time::Duration;

use super::probe::Probe;
use crate::contract::blocking;
use crate::reading::{Cannot, Figures, Outcome};
use crate::stats::quantile;

/// How awake the thief is when the task appears.
#[derive(Clone, Copy, Debug)]
pub enum Thief {
    /// It finished the previous task a moment ago.
    Hot,
    /// It has long gone to sleep.
    Idle,
}

/// After this long nobody is coming; the spawner then yields to let the task finish.
const PATIENCE: Duration = Duration::from_millis(20);
/// Give up on a peer after so many tasks that nobody came for.
const MAX_MISSES: usize = 50;

impl Thief {
    pub fn pause(self) -> Duration {
        match self {
            Self::Hot => Duration::from_micros(15),
            Self::Idle => Duration::from_millis(2),
        }
    }

    pub fn n_samples(self) -> usize {
        match self {
            Self::Hot => 20_000,
            Self::Idle => 400,
        }
    }
}

/// Latencies so far, and how often nobody came.
#[derive(Debug, Default)]
pub struct Tally {
    latencies_ns: Vec<u64>,
    n_missed: usize,
}

impl Tally {
    pub fn wants_more(&self, n_samples: usize) -> bool {
        self.latencies_ns.len() + self.n_missed < n_samples && self.n_missed < MAX_MISSES
    }

    pub fn hit(&mut self, latency_ns: u64) {
        self.latencies_ns.push(latency_ns);
    }

    pub fn miss(&mut self) {
        self.n_missed += 1;
    }

    pub fn into_outcome(mut self) -> Outcome {
        let missed = (self.n_missed > 0).then(|| {
            format!(
                "nobody took the task within {} ms in {} of {} samples",
                PATIENCE.as_millis(),
                self.n_missed,
                self.n_missed + self.latencies_ns.len()
            )
        });
        if self.n_missed >= MAX_MISSES || self.latencies_ns.is_empty() {
            return Err(Cannot(missed.unwrap_or_else(|| "no samples".to_owned())));
        }
        let us = |q, samples: &mut [u64]| quantile(samples, q) as f64 / 1e3;
        let (p50, p99) = (us(0.5, &mut self.latencies_ns), us(0.99, &mut self.latencies_ns));
        Ok(Figures::many(vec![p50, p99]).with_note(missed.as_deref()))
    }
}

/// The spawner's loop for any way of spawning and yielding that needs no `.await`.
pub fn tally(
    thief: Thief,
    n_samples: usize,
    spawn: impl Fn(Probe),
    spawn_empty: impl Fn(),
    yield_now: impl Fn(),
) -> Tally {
    let probe = Probe::new();
    let mut tally = Tally::default();
    while tally.wants_more(n_samples) {
        probe.spin_for(thief.pause());
        probe.arm();
        let start_ns = probe.now_ns();
        spawn(probe);
        spawn_empty();
        match probe.spin_until_ran(PATIENCE) {
            Some(at_ns) => tally.hit(at_ns.saturating_sub(start_ns)),
            None => {
                tally.miss();
                while probe.read().is_none() {
                    yield_now();
                }
            }
        }
    }
    tally
}

pub fn blocking<R: blocking::Tasks>(procs: usize, thief: Thief) -> Outcome {
    if procs < 2 {
        return crate::reading::cannot("needs two procs");
    }
    R::run(procs, move || {
        let spawn = |probe: Probe| R::spawn(move || probe.ran());
        let round = |n| tally(thief, n, spawn, || R::spawn(|| ()), R::yield_now);
        round(thief.n_samples() / 10);
        round(thief.n_samples()).into_outcome()
    })
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize, thief: Thief) -> Outcome {
    use crate::contract::futures::Tasks;

    async fn round<R: Tasks>(thief: Thief, n_samples: usize) -> Tally {
        let probe = Probe::new();
        let mut tally = Tally::default();
        while tally.wants_more(n_samples) {
            probe.spin_for(thief.pause());
            probe.arm();
            let start_ns = probe.now_ns();
            R::spawn(async move { probe.ran() });
            R::spawn(async {});
            match probe.spin_until_ran(PATIENCE) {
                Some(at_ns) => tally.hit(at_ns.saturating_sub(start_ns)),
                None => tally.miss(),
            }
            while probe.read().is_none() {
                R::yield_now().await;
            }
        }
        tally
    }
    if procs < 2 {
        return crate::reading::cannot("needs two procs");
    }
    R::run(procs, async move {
        round::<R>(thief, thief.n_samples() / 10).await;
        round::<R>(thief, thief.n_samples()).await.into_outcome()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_never_steals_is_given_up() {
        let mut tally = Tally::default();
        while tally.wants_more(1000) {
            tally.miss();
        }
        let Err(Cannot(why)) = tally.into_outcome() else { panic!("no refusal") };
        assert!(why.contains("50 of 50"), "{why}");
    }

    #[test]
    fn rare_misses_become_a_note() {
        let mut tally = Tally::default();
        (1..=99).for_each(|us| tally.hit(us * 1000));
        tally.miss();
        let figures = tally.into_outcome().unwrap();
        assert_eq!(figures.values, [50.0, 99.0]);
        assert!(figures.note.unwrap().contains("1 of 100"));
    }
}

//! steal_*: from a spawn by a busy task until another worker runs the new one.
//!
//! The newest task of a worker is its own in most schedulers, for a while (Go, heist) or for good
//! (tokio). So there are two questions, and both are measured for all peers: how long until a task
//! is taken that is not the newest (`steal_hot`, `steal_idle`: a second one is spawned right behind
//! it), and how long until the newest is taken (`steal_hot_single`, `steal_idle_single`).

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

/// The task that is spawned right after the measured one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Behind {
    /// Nothing: the measured task is its worker's newest.
    Nothing,
    /// A task that does nothing, which takes that place.
    Another,
}

/// After this long no worker will take the task; the spawner then yields to let it finish.
const PATIENCE: Duration = Duration::from_millis(20);
/// Give up on a peer after this many tasks that no worker took, if they are not exceptions.
const MAX_MISSES: usize = 50;
/// More than one miss in this many samples is not an exception.
const RARE: usize = 20;

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

/// Latencies so far, and how often no worker took the task.
#[derive(Debug, Default)]
pub struct Tally {
    latencies_ns: Vec<u64>,
    n_missed: usize,
}

impl Tally {
    fn n_seen(&self) -> usize {
        self.latencies_ns.len() + self.n_missed
    }

    fn is_hopeless(&self) -> bool {
        self.n_missed >= MAX_MISSES && self.n_missed * RARE > self.n_seen()
    }

    pub fn wants_more(&self, n_samples: usize) -> bool {
        self.n_seen() < n_samples && !self.is_hopeless()
    }

    /// Counts a sample: when its task ran, if a worker took it.
    pub fn count(&mut self, start_ns: u64, ran_at_ns: Option<u64>) {
        match ran_at_ns {
            Some(at_ns) => self.latencies_ns.push(at_ns.saturating_sub(start_ns)),
            None => self.n_missed += 1,
        }
    }

    pub fn into_outcome(mut self) -> Outcome {
        let missed = (self.n_missed > 0).then(|| {
            format!(
                "nobody took the task within {} ms in {} of {} samples",
                PATIENCE.as_millis(),
                self.n_missed,
                self.n_seen()
            )
        });
        if self.is_hopeless() || self.latencies_ns.is_empty() {
            return Err(Cannot(missed.unwrap_or_else(|| "no samples".to_owned())));
        }
        let us = |q, samples: &mut [u64]| quantile(samples, q) as f64 / 1e3;
        let (p50, p99) = (us(0.5, &mut self.latencies_ns), us(0.99, &mut self.latencies_ns));
        Ok(Figures::many(vec![p50, p99]).with_note(missed.as_deref()))
    }
}

/// The spawner's loop for any way of spawning and yielding that needs no `.await`.
///
/// A sample begins with empty queues: the spawner yields until nothing of the last one is left.
pub fn tally(
    thief: Thief,
    behind: Behind,
    n_samples: usize,
    spawn: impl Fn(Probe),
    spawn_behind: impl Fn(Probe),
    yield_now: impl Fn(),
) -> Tally {
    let probe = Probe::new();
    let mut tally = Tally::default();
    while tally.wants_more(n_samples) {
        probe.spin_for(thief.pause());
        probe.arm();
        let start_ns = probe.now_ns();
        spawn(probe);
        if behind == Behind::Another {
            probe.arm_behind();
            spawn_behind(probe);
        }
        tally.count(start_ns, probe.spin_until_ran(PATIENCE));
        while !probe.is_over() {
            yield_now();
        }
    }
    tally
}

pub fn blocking<R: blocking::Tasks>(procs: usize, thief: Thief, behind: Behind) -> Outcome {
    if procs < 2 {
        return crate::reading::cannot("needs two procs");
    }
    R::run(procs, move || {
        let spawn = |probe: Probe| R::spawn(move || probe.ran());
        let spawn_behind = |probe: Probe| R::spawn(move || probe.behind_ran());
        let round = |n| tally(thief, behind, n, spawn, spawn_behind, R::yield_now);
        round(thief.n_samples() / 10);
        round(thief.n_samples()).into_outcome()
    })
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(
    procs: usize,
    thief: Thief,
    behind: Behind,
) -> Outcome {
    use crate::contract::futures::Tasks;

    async fn round<R: Tasks>(thief: Thief, behind: Behind, n_samples: usize) -> Tally {
        let probe = Probe::new();
        let mut tally = Tally::default();
        while tally.wants_more(n_samples) {
            probe.spin_for(thief.pause());
            probe.arm();
            let start_ns = probe.now_ns();
            R::spawn(async move { probe.ran() });
            if behind == Behind::Another {
                probe.arm_behind();
                R::spawn(async move { probe.behind_ran() });
            }
            tally.count(start_ns, probe.spin_until_ran(PATIENCE));
            while !probe.is_over() {
                R::yield_now().await;
            }
        }
        tally
    }
    if procs < 2 {
        return crate::reading::cannot("needs two procs");
    }
    R::run(procs, async move {
        round::<R>(thief, behind, thief.n_samples() / 10).await;
        round::<R>(thief, behind, thief.n_samples()).await.into_outcome()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_that_never_steals_is_given_up() {
        let mut tally = Tally::default();
        while tally.wants_more(1000) {
            tally.count(0, None);
        }
        let Err(Cannot(why)) = tally.into_outcome() else { panic!("no refusal") };
        assert!(why.contains("50 of 50"), "{why}");
    }

    #[test]
    fn many_misses_among_many_more_samples_are_no_reason_to_give_up() {
        let mut tally = Tally::default();
        (0..5_000).for_each(|_| tally.count(0, Some(1_000)));
        (0..60).for_each(|_| tally.count(0, None));
        assert!(tally.wants_more(20_000));
        assert!(tally.into_outcome().unwrap().note.unwrap().contains("60 of 5060"));
    }

    #[test]
    fn rare_misses_become_a_note() {
        let mut tally = Tally::default();
        (1..=99).for_each(|us| tally.count(0, Some(us * 1000)));
        tally.count(0, None);
        let figures = tally.into_outcome().unwrap();
        assert_eq!(figures.values, [50.0, 99.0]);
        assert!(figures.note.unwrap().contains("1 of 100"));
    }
}

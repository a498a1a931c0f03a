//! What the metrics say while a symptom is there.

use super::loads::Load;
use heist::Runtime;
use heist::metrics::Metrics;
use std::time::{Duration, Instant};

/// How often the metrics are read.
const PERIOD: Duration = Duration::from_millis(5);

/// Readings of the metrics, at least two.
pub struct Seen {
    looks: Vec<Metrics>,
    span: Duration,
    rounds: u64,
    /// How late the ticks of a ticker were, sorted.
    lateness: Vec<Duration>,
}

impl Seen {
    /// Reads the metrics until `until`.
    pub fn watch(runtime: &Runtime, load: &Load, until: Instant) -> Self {
        let (begun, before) = (Instant::now(), load.rounds());
        let mut looks = vec![runtime.metrics()];
        while looks.len() < 2 || Instant::now() < until {
            std::thread::sleep(PERIOD);
            looks.push(runtime.metrics());
        }
        let (span, rounds) = (begun.elapsed(), load.rounds() - before);
        Self { looks, span, rounds, lateness: load.lateness() }
    }

    /// Rounds of the work that were done meanwhile.
    pub const fn rounds(&self) -> u64 {
        self.rounds
    }

    pub fn rounds_per_second(&self) -> f64 {
        self.rounds as f64 / self.span.as_secs_f64()
    }

    fn values(&self, name: &str) -> impl Iterator<Item = u64> {
        self.looks.iter().map(move |look| value(look, name))
    }

    /// The mean of a level.
    pub fn mean(&self, name: &str) -> f64 {
        self.values(name).sum::<u64>() as f64 / self.looks.len() as f64
    }

    /// The highest level.
    pub fn peak(&self, name: &str) -> f64 {
        self.values(name).max().unwrap_or(0) as f64
    }

    /// How much a count has risen.
    pub fn rise(&self, name: &str) -> u64 {
        let [first, .., last] = &self.looks[..] else { unreachable!("there are two looks") };
        value(last, name) - value(first, name)
    }

    pub fn per_second(&self, name: &str) -> f64 {
        self.rise(name) as f64 / self.span.as_secs_f64()
    }

    pub fn per_round(&self, name: &str) -> f64 {
        self.rise(name) as f64 / self.rounds.max(1) as f64
    }

    /// Goroutines in all queues, on average.
    pub fn queued(&self) -> f64 {
        self.looks.iter().map(queued).sum::<u64>() as f64 / self.looks.len() as f64
    }

    /// How many of 100 looks found an idle processor and a queued goroutine.
    pub fn idle_beside_queued(&self) -> f64 {
        let is_both =
            |look: &&Metrics| value(look, "/heist/procs/idle:threads") > 0 && queued(look) > 0;
        100.0 * self.looks.iter().filter(is_both).count() as f64 / self.looks.len() as f64
    }

    /// How many of 100 goroutines that were made did not end.
    pub fn share_that_stays(&self) -> f64 {
        let made = self.rise("/sched/goroutines-created:goroutines");
        let ended = self.rise("/heist/goroutines/finished:goroutines");
        100.0 - 100.0 * ended as f64 / made.max(1) as f64
    }

    /// How many of 100 time slices ended because a signal preempted the goroutine.
    pub fn forced_share(&self) -> f64 {
        let slices = self.rise("/heist/sched/executed:events").max(1);
        100.0 * self.rise("/heist/preempt/forced:events") as f64 / slices as f64
    }

    /// So many of 100 ticks were at most so late.
    pub fn lateness_us(&self, per_cent: usize) -> f64 {
        let at = self.lateness.len().saturating_sub(1) * per_cent / 100;
        self.lateness.get(at).map_or(0.0, |late| late.as_secs_f64() * 1e6)
    }
}

fn value(look: &Metrics, name: &str) -> u64 {
    look.get(name).unwrap_or_else(|| panic!("there is no metric {name}"))
}

fn queued(look: &Metrics) -> u64 {
    value(look, "/heist/queue/local:goroutines") + value(look, "/heist/queue/global:goroutines")
}

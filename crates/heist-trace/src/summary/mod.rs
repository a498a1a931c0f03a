//! Where the time went, in words.
//!
//! [`summarise`] replays a trace and adds up what Ps, goroutines and Ms did; [`Summary`] prints it
//! in at most 80 columns.

mod collect;
mod print;
mod verdict;

use crate::file::Trace;
use crate::model::replay;
use collect::Collector;
use std::collections::BTreeMap;

pub use verdict::{Limit, Verdict};

/// What a P did, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcTimes {
    /// A goroutine ran.
    pub running: u64,
    /// Its M searched for work.
    pub searching: u64,
    /// Its M did something else: it switched, polled, slept on the way.
    pub between: u64,
    /// No M held it.
    pub idle: u64,
}

impl ProcTimes {
    /// All of it.
    #[must_use]
    pub const fn total(&self) -> u64 {
        let busy = self.running.saturating_add(self.searching);
        busy.saturating_add(self.between).saturating_add(self.idle)
    }
}

/// What the goroutines of one site did, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SiteTimes {
    /// How many goroutines were seen.
    pub n_goroutines: u64,
    /// They ran.
    pub running: u64,
    /// They were runnable, or frozen.
    pub runnable: u64,
    /// They were in blocking calls.
    pub in_call: u64,
    /// They waited, by reason.
    pub waiting: BTreeMap<String, u64>,
}

/// A wait for a P.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LongWait {
    /// How long, in nanoseconds.
    pub ns: u64,
    /// When it ended.
    pub until: u64,
    /// The goroutine.
    pub goroutine: u64,
    /// The P that ran it in the end.
    pub p: Option<u32>,
    /// The goroutine that ran there longest meanwhile, or 0.
    pub in_the_way: u64,
    /// How long that one ran.
    pub in_the_way_ns: u64,
}

/// The sums of a trace.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// The name of the program.
    pub program: String,
    /// From the first to the last event.
    pub span_ns: u64,
    /// Events in all.
    pub n_events: u64,
    /// Events are missing.
    pub is_incomplete: bool,
    /// By P.
    pub procs: BTreeMap<u32, ProcTimes>,
    /// By the place of the spawn.
    pub sites: BTreeMap<String, SiteTimes>,
    /// The longest waits for a P, the longest first.
    pub long_waits: Vec<LongWait>,
    /// The longest time that a single goroutine ran, and that goroutine.
    pub busiest: (u64, u64),
    /// Runnable goroutines, on average.
    pub mean_runnable: f64,
    /// How long a goroutine was runnable while a P was idle.
    pub idle_beside_runnable: u64,
    /// Thief, victim: thefts and goroutines.
    pub steals: BTreeMap<(u32, u32), (u64, u64)>,
    /// Ms that woke up.
    pub n_wake_ups: u64,
    /// Ms that woke up, ran nothing, and slept again.
    pub n_futile: u64,
    /// Goroutines that computed for too long.
    pub n_hogs: u64,
    /// Blocking calls that nobody announced.
    pub n_unannounced: u64,
    /// Goroutines that were preempted at a call.
    pub n_preempted: u64,
    /// Goroutines that were preempted by a signal.
    pub n_forced: u64,
    /// World stops, their time and the longest.
    pub world_stops: (u64, u64, u64),
}

/// Adds up a trace. `progress` is told from time to time how many events were read.
#[must_use]
pub fn summarise(trace: &Trace, progress: impl FnMut(u64)) -> Summary {
    let mut collector = Collector::new(trace, progress);
    replay(trace, &mut collector);
    collector.finish()
}

impl Summary {
    /// All Ps together.
    #[must_use]
    pub fn all_procs(&self) -> ProcTimes {
        self.procs.values().fold(ProcTimes::default(), |sum, p| ProcTimes {
            running: sum.running.saturating_add(p.running),
            searching: sum.searching.saturating_add(p.searching),
            between: sum.between.saturating_add(p.between),
            idle: sum.idle.saturating_add(p.idle),
        })
    }

    /// All waits by reason, the longest first.
    #[must_use]
    pub fn waits(&self) -> Vec<(&str, u64)> {
        let mut sums: BTreeMap<&str, u64> = BTreeMap::new();
        for (reason, &ns) in self.sites.values().flat_map(|site| &site.waiting) {
            let sum = sums.entry(reason).or_default();
            *sum = sum.saturating_add(ns);
        }
        let mut waits: Vec<_> = sums.into_iter().collect();
        waits.sort_unstable_by(|a, b| b.1.cmp(&a.1).then(a.0.cmp(b.0)));
        waits
    }
}

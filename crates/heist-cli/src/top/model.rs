//! What `heist top` shows: the newest state, and what changed since the one before.

use serde::Deserialize;
use std::collections::BTreeMap;

/// A state of the scheduler, as `/debug/sched.json` says it.
#[derive(Clone, Debug, Deserialize)]
pub struct Sample {
    pub name: String,
    pub pid: u32,
    pub uptime_ns: u64,
    pub procs: u32,
    pub procs_idle: u32,
    pub spinning: u32,
    pub threads: u64,
    pub threads_idle: u64,
    pub global_queue: u64,
    pub goroutines: u64,
    pub states: States,
    pub ps: Vec<Proc>,
    pub latency: Latency,
    pub counters: BTreeMap<String, u64>,
    pub groups: Vec<Group>,
    pub reasons: Vec<Reason>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct States {
    pub running: u64,
    pub runnable: u64,
    pub blocked: u64,
    pub waiting: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Proc {
    pub id: u32,
    pub state: String,
    pub g: Option<Goroutine>,
    pub seen_ns: Option<u64>,
    pub queue: u64,
    pub next: bool,
    pub yielded: u64,
    pub executed: u64,
    pub stolen: u64,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Goroutine {
    pub id: u64,
    #[serde(default)]
    pub name: String,
    #[serde(default)]
    pub site: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Latency {
    pub upper_s: Vec<f64>,
    pub counts: Vec<u64>,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Group {
    pub count: u64,
    pub state: String,
    pub site: String,
}

#[derive(Clone, Debug, Deserialize)]
pub struct Reason {
    pub state: String,
    pub count: u64,
}

/// The order of the groups of goroutines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sort {
    Count,
    State,
    Site,
}

impl Sort {
    pub const fn next(self) -> Self {
        match self {
            Self::Count => Self::State,
            Self::State => Self::Site,
            Self::Site => Self::Count,
        }
    }

    pub const fn name(self) -> &'static str {
        match self {
            Self::Count => "count",
            Self::State => "state",
            Self::Site => "site",
        }
    }
}

/// The samples and the settings.
pub struct Model {
    pub target: String,
    pub now: Sample,
    before: Sample,
    pub paused: bool,
    pub sort: Sort,
    /// Why the newest sample is missing.
    pub trouble: Option<String>,
}

impl Model {
    pub fn new(target: String, sample: Sample) -> Self {
        let before = sample.clone();
        Self { target, now: sample, before, paused: false, sort: Sort::Count, trouble: None }
    }

    pub fn take(&mut self, sample: Sample) {
        self.before = std::mem::replace(&mut self.now, sample);
        self.trouble = None;
    }

    fn seconds(&self) -> f64 {
        self.now.uptime_ns.saturating_sub(self.before.uptime_ns) as f64 / 1e9
    }

    fn per_second(&self, now: u64, before: u64) -> f64 {
        match self.seconds() {
            0.0 => 0.0,
            seconds => now.saturating_sub(before) as f64 / seconds,
        }
    }

    /// How much a counter rises per second.
    pub fn rate(&self, name: &str) -> f64 {
        let of = |sample: &Sample| sample.counters.get(name).copied().unwrap_or_default();
        self.per_second(of(&self.now), of(&self.before))
    }

    /// How often a P switches, and how much it steals, per second.
    pub fn rates_of(&self, pp: &Proc) -> (f64, f64) {
        let old = self.before.ps.iter().find(|old| old.id == pp.id);
        old.map_or((0.0, 0.0), |old| {
            let rate = |of: fn(&Proc) -> u64| self.per_second(of(pp), of(old));
            (rate(|pp| pp.executed), rate(|pp| pp.stolen))
        })
    }

    /// The latency, in seconds, that a share of the goroutines of the last interval did not exceed.
    pub fn latency(&self, share: f64) -> Option<f64> {
        let old = &self.before.latency.counts;
        let counts = self.now.latency.counts.iter().enumerate();
        let counts: Vec<u64> = counts
            .map(|(at, n)| n.saturating_sub(old.get(at).copied().unwrap_or_default()))
            .collect();
        let wanted = (counts.iter().sum::<u64>() as f64 * share).ceil() as u64;
        let mut seen = 0;
        let at = counts.iter().position(|n| {
            seen += n;
            seen >= wanted && wanted > 0
        })?;
        Some(self.now.latency.upper_s.get(at).copied().unwrap_or(f64::INFINITY))
    }

    /// The groups of goroutines in the order that was chosen.
    pub fn groups(&self) -> Vec<&Group> {
        let mut groups: Vec<_> = self.now.groups.iter().collect();
        match self.sort {
            Sort::Count => groups.sort_by_key(|group| std::cmp::Reverse(group.count)),
            Sort::State => groups.sort_by(|a, b| (&a.state, &a.site).cmp(&(&b.state, &b.site))),
            Sort::Site => groups.sort_by(|a, b| (&a.site, &a.state).cmp(&(&b.site, &b.state))),
        }
        groups
    }
}

#[cfg(test)]
pub fn example(executed: u64, uptime_ns: u64, counts: &str) -> Sample {
    let text = format!(
        r#"{{"name":"shop","pid":7,"uptime_ns":{uptime_ns},"procs":2,"procs_idle":1,"spinning":0,
        "threads":4,"threads_idle":2,"global_queue":3,"goroutines":12,
        "states":{{"running":1,"runnable":4,"blocked":1,"waiting":6}},
        "ps":[{{"id":0,"state":"running","m":1,"g":{{"id":9,"name":"till","site":"src/a.rs:1:2","state":"running"}},
        "seen_ns":2500000000,"queue":4,"next":true,"yielded":0,"executed":{executed},"stolen":5}},
        {{"id":1,"state":"idle","m":null,"g":null,"seen_ns":null,"queue":0,"next":false,"yielded":0,
        "executed":1,"stolen":0}}],
        "latency":{{"upper_s":[0,0.000001,0.001],"counts":{counts}}},
        "counters":{{"/heist/sched/executed:events":{executed}}},
        "groups":[{{"count":6,"state":"sleep","site":"src/b.rs:3:4"}},{{"count":2,"state":"chan receive","site":"src/a.rs:1:2"}}],
        "reasons":[{{"state":"sleep","count":6}},{{"state":"chan receive","count":2}}]}}"#
    );
    serde_json::from_str(&text).expect("the format")
}

#[test]
fn rates_and_latencies_are_of_the_last_interval() {
    let mut model = Model::new("x".into(), example(100, 1_000_000_000, "[0,50,0]"));
    assert_eq!((model.rate("/heist/sched/executed:events"), model.latency(0.5)), (0.0, None));
    model.take(example(300, 3_000_000_000, "[0,51,9]"));
    assert_eq!(model.rate("/heist/sched/executed:events"), 100.0);
    assert_eq!(model.rates_of(&model.now.ps[0]), (100.0, 0.0));
    assert_eq!(model.latency(0.05), Some(0.000_001));
    assert_eq!(model.latency(0.5), Some(0.001));
    assert_eq!(model.groups()[0].site, "src/b.rs:3:4");
    model.sort = model.sort.next();
    assert_eq!(model.groups()[0].state, "chan receive");
}

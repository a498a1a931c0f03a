//! The result of a run.

use crate::latencies::Latencies;

/// What an M spends its CPU time on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spent {
    /// Goroutines.
    Work,
    /// Switches, queues, locks.
    Schedule,
    /// Looking for work at other Ps.
    Search,
    /// Sleeping and waking threads.
    Kernel,
}

/// Counts of a run. The names are those of the runtime's metrics where it has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Goroutines that began.
    pub started: u64,
    /// Goroutines that ended.
    pub finished: u64,
    /// Times a goroutine was run.
    pub executed: u64,
    /// Times a goroutine became runnable.
    pub readied: u64,
    /// Visits of thieves to the queues of others.
    pub steal_attempts: u64,
    /// Those that found something.
    pub steals: u64,
    /// Goroutines taken by them.
    pub stolen: u64,
    /// Of these, from `run_next`.
    pub stolen_run_next: u64,
    /// Thefts from another node.
    pub remote_steals: u64,
    /// Goroutines put into the global queue.
    pub global_put: u64,
    /// Goroutines taken from it.
    pub global_taken: u64,
    /// Times a ring was full.
    pub overflows: u64,
    /// Goroutines that were handed to an idle P.
    pub shared: u64,
    /// Times an M was woken for work.
    pub wake_ups: u64,
    /// Times an M went to sleep.
    pub m_parks: u64,
    /// Times an M became a spinner by itself.
    pub spins: u64,
    /// Times a goroutine ran on another P than before.
    pub migrations: u64,
    /// Times a goroutine ran on another node than that of its data.
    pub away: u64,
    /// Times a goroutine's slice ended while others waited.
    pub preemptions: u64,
    /// Ps taken from blocking calls.
    pub retaken: u64,
    /// Threads.
    pub threads: u64,
}

impl Counts {
    /// Adds those of another run.
    fn append(&mut self, others: &Self) {
        self.started += others.started;
        self.finished += others.finished;
        self.executed += others.executed;
        self.readied += others.readied;
        self.steal_attempts += others.steal_attempts;
        self.steals += others.steals;
        self.stolen += others.stolen;
        self.stolen_run_next += others.stolen_run_next;
        self.remote_steals += others.remote_steals;
        self.global_put += others.global_put;
        self.global_taken += others.global_taken;
        self.overflows += others.overflows;
        self.shared += others.shared;
        self.wake_ups += others.wake_ups;
        self.m_parks += others.m_parks;
        self.spins += others.spins;
        self.migrations += others.migrations;
        self.away += others.away;
        self.preemptions += others.preemptions;
        self.retaken += others.retaken;
        self.threads += others.threads;
    }
}

/// A run, or several runs with different seeds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Report {
    /// The seed of its random numbers, or the first of several.
    pub seed: u64,
    /// How many runs these are. Times and counts are sums over them.
    pub runs: u32,
    /// The p99 of the requests of each run.
    pub p99s_ns: Vec<u64>,
    /// Processors.
    pub procs: u32,
    /// Simulated time.
    pub elapsed_ns: u64,
    /// Events.
    pub events: u64,
    /// Counts.
    pub counts: Counts,
    /// CPU time by its use; index by [`Spent`].
    pub cpu_ns: [u64; 4],
    /// Of the time for work: longer because data was far away.
    pub inflation_ns: u64,
    /// From the birth of a goroutine, or the end of its sleep, to the end of its request.
    pub requests: Latencies,
    /// The same, of the latency class alone.
    pub latency_class: Latencies,
    /// From the moment a goroutine became runnable to that when it ran.
    pub waits: Latencies,
    /// The numbers that goroutines noted, in order.
    pub log: Vec<u32>,
    /// Goroutines that had not ended when nothing was left to happen.
    pub stuck: u64,
}

impl Report {
    pub(crate) fn new(seed: u64, procs: u32) -> Self {
        Self {
            seed,
            runs: 1,
            p99s_ns: Vec::new(),
            procs,
            elapsed_ns: 0,
            events: 0,
            counts: Counts::default(),
            cpu_ns: [0; 4],
            inflation_ns: 0,
            requests: Latencies::new(),
            latency_class: Latencies::new(),
            waits: Latencies::new(),
            log: Vec::new(),
            stuck: 0,
        }
    }

    /// Adds a run with another seed.
    pub fn append(&mut self, other: &Self) {
        self.runs += other.runs;
        self.p99s_ns.extend_from_slice(&other.p99s_ns);
        self.elapsed_ns += other.elapsed_ns;
        self.events += other.events;
        self.counts.append(&other.counts);
        for (sum, more) in self.cpu_ns.iter_mut().zip(other.cpu_ns) {
            *sum += more;
        }
        self.inflation_ns += other.inflation_ns;
        self.requests.append(&other.requests);
        self.latency_class.append(&other.latency_class);
        self.waits.append(&other.waits);
        self.log.extend_from_slice(&other.log);
        self.stuck += other.stuck;
    }

    /// Simulated time of a run, on average.
    #[must_use]
    pub fn mean_elapsed_ns(&self) -> f64 {
        self.elapsed_ns as f64 / f64::from(self.runs)
    }

    /// The lowest and the highest p99 of the requests among the runs.
    #[must_use]
    pub fn p99_range_ns(&self) -> (u64, u64) {
        let lowest = self.p99s_ns.iter().min().copied().unwrap_or(0);
        (lowest, self.p99s_ns.iter().max().copied().unwrap_or(0))
    }

    /// Visits of thieves that found nothing.
    #[must_use]
    pub const fn futile(&self) -> u64 {
        self.counts.steal_attempts - self.counts.steals
    }

    /// CPU time for one use.
    #[must_use]
    pub const fn cpu(&self, spent: Spent) -> u64 {
        self.cpu_ns[spent as usize]
    }

    /// CPU time for one use, per goroutine that ended.
    #[must_use]
    pub fn cpu_per_goroutine(&self, spent: Spent) -> f64 {
        self.cpu(spent) as f64 / self.counts.finished.max(1) as f64
    }

    /// CPU time that is not work, per goroutine that ended.
    #[must_use]
    pub fn overhead_per_goroutine(&self) -> f64 {
        let uses = [Spent::Schedule, Spent::Search, Spent::Kernel];
        uses.iter().map(|&spent| self.cpu_per_goroutine(spent)).sum()
    }

    /// A count, per goroutine that ended.
    #[must_use]
    pub fn per_goroutine(&self, count: u64) -> f64 {
        count as f64 / self.counts.finished.max(1) as f64
    }

    /// Goroutines that ended, a second of simulated time.
    #[must_use]
    pub fn throughput(&self) -> f64 {
        self.counts.finished as f64 * 1e9 / self.elapsed_ns.max(1) as f64
    }
}

//! What the scheduler counts, as a typed list and as Prometheus text.
//!
//! Names follow Go's `runtime/metrics` (`/sched/...:unit`) where Go has the metric, and
//! `/heist/...:unit` where it does not.
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
//! rt.run(|| heist::go(|| ()).join().unwrap());
//! let metrics = rt.metrics();
//! assert_eq!(metrics.get("/sched/gomaxprocs:threads"), Some(2));
//! assert_eq!(metrics.get("/sched/goroutines-created:goroutines"), Some(2));
//! println!("{}", metrics.to_prometheus());
//! ```

mod cpu;
mod degraded;
mod histogram;
pub(crate) mod latency;
mod locks;
mod parks;
mod per_proc;
pub(crate) mod shard;
mod states;

pub use histogram::Histogram;
pub use per_proc::ProcStats;

use crate::coro::stack;
use crate::current;
use crate::sched::Sched;
use crate::sched::life;
use crate::sched::report;
use states::States;
use std::fmt::Write;

/// Whether a metric goes up and down or only up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Kind {
    /// A level at one moment.
    Gauge,
    /// A count since the runtime was started.
    Counter,
    /// Counts of durations since the runtime was started; see [`Histogram`].
    Histogram,
}

/// What a metric is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its name, of the form `/path:unit`.
    pub name: &'static str,
    /// Whether it goes up and down.
    pub kind: Kind,
    /// What it means.
    pub help: &'static str,
}

impl Description {
    /// What follows the colon in the name.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.name.rsplit_once(':').map_or("", |(_, unit)| unit)
    }
}

/// One metric and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// What it is.
    pub description: Description,
    /// Its value.
    pub value: u64,
}

/// All metrics of a runtime, sorted by name. Reading them stops nobody, so the numbers are of slightly
/// different moments.
#[derive(Clone, Debug)]
pub struct Metrics {
    list: Vec<Metric>,
    histograms: Vec<Histogram>,
}

impl Metrics {
    pub(crate) fn read(sched: &Sched) -> Self {
        let totals = report::totals(sched);
        let (stacks, threads, timers) = {
            // The runtime's own locks: nobody may be stopped while it holds one.
            let _rt = current::enter();
            let timers = sched.all_ps().map(|pp| pp.timers.len() as u64).sum();
            (stack::usage(), u64::from(sched.lock.lock().n_ms), timers)
        };
        let live = life::n_live(sched);
        let procs = u64::from(sched.procs());
        let States { running, runnable, not_in_go, waiting } = States::read(sched, live);
        let spinning = u64::from(sched.rest.n_spinning());
        let mut list = Vec::with_capacity(64);
        let mut add = |name, kind, help, value| {
            list.push(Metric { description: Description { name, kind, help }, value });
        };
        use Kind::{Counter, Gauge};
        let cpu = cpu::CpuTime::read(sched);
        add(
            "/cpu/classes/total:cpu-nanoseconds",
            Counter,
            "CPU time that the program could have used: so much for each processor, and all below.",
            cpu.total_ns,
        );
        add(
            "/cpu/classes/idle:cpu-nanoseconds",
            Counter,
            "Of this, while a processor was at rest.",
            cpu.idle_ns,
        );
        add(
            "/cpu/classes/scavenge/total:cpu-nanoseconds",
            Counter,
            "Of this, for giving the memory of stacks back.",
            cpu.scavenge_ns,
        );
        add(
            "/cpu/classes/user:cpu-nanoseconds",
            Counter,
            "Of this, for goroutines and for the scheduler itself.",
            cpu.user_ns(),
        );
        for (name, waited_ns) in locks::read() {
            add(name, Counter, "Time that threads have waited for such a lock.", waited_ns);
        }
        for (name, help, n) in degraded::read() {
            add(name, Counter, help, n);
        }
        add("/sched/gomaxprocs:threads", Gauge, "Goroutines that can run at the same time.", procs);
        add("/sched/goroutines:goroutines", Gauge, "Goroutines that live.", live);
        add("/sched/goroutines/running:goroutines", Gauge, "Goroutines that run now.", running);
        add("/sched/goroutines/runnable:goroutines", Gauge, "Goroutines in a run queue.", runnable);
        add("/sched/goroutines/waiting:goroutines", Gauge, "Goroutines that are parked.", waiting);
        add(
            "/sched/goroutines/not-in-go:goroutines",
            Gauge,
            "Goroutines in a blocking call, announced or found out.",
            not_in_go,
        );
        add("/sched/goroutines-created:goroutines", Counter, "Goroutines spawned.", totals.created);
        add("/sched/threads/total:threads", Gauge, "Threads that run goroutines.", threads);
        add(
            "/heist/goroutines/finished:goroutines",
            Counter,
            "Goroutines that ended.",
            totals.finished,
        );
        add(
            "/heist/goroutines/panicked:goroutines",
            Counter,
            "Goroutines ended by a panic.",
            totals.panicked,
        );
        add(
            "/heist/goroutines/overflowed:goroutines",
            Counter,
            "Goroutines abandoned, with their threads, after a stack overflow.",
            totals.overflowed,
        );
        add(
            "/heist/sched/executed:events",
            Counter,
            "Times a goroutine was put on a processor.",
            totals.executed,
        );
        add(
            "/sync/mutex/wait/total:nanoseconds",
            Counter,
            "Time that goroutines have waited for a Mutex or an RwLock.",
            totals.lock_wait_ns,
        );
        add("/heist/sched/yields:events", Counter, "Times a goroutine yielded.", totals.yields);
        let (parks, n_parks) = parks::read(sched);
        add("/heist/sched/parks:events", Counter, "Times a goroutine parked.", n_parks);
        for (name, n) in parks {
            add(name, Counter, "Times a goroutine parked for this.", n);
        }
        add(
            "/heist/spin/time:nanoseconds",
            Counter,
            "Time that threads spent looking for work.",
            totals.spin_ns,
        );
        let queued = sched.all_ps().map(|pp| u64::from(pp.queue.len() + pp.yielded.len())).sum();
        add(
            "/heist/queue/local:goroutines",
            Gauge,
            "Goroutines in the queues of processors.",
            queued,
        );
        add(
            "/heist/sched/readied:events",
            Counter,
            "Times a parked goroutine was made runnable.",
            totals.readied,
        );
        add(
            "/heist/steal/attempts:events",
            Counter,
            "Looks at another processor's queue.",
            totals.steal_attempts,
        );
        add(
            "/heist/steal/successes:events",
            Counter,
            "Looks that brought goroutines.",
            totals.steals,
        );
        add(
            "/heist/steal/goroutines:goroutines",
            Counter,
            "Goroutines taken from other processors.",
            totals.stolen,
        );
        add(
            "/heist/steal/run-next:goroutines",
            Counter,
            "Of these, taken from run_next.",
            totals.stolen_run_next,
        );
        add(
            "/heist/moves:events",
            Counter,
            "Times a goroutine went on on another thread than before.",
            totals.moves,
        );
        add(
            "/heist/moves/relocated:words",
            Counter,
            "Addresses of thread-locals that were moved with a goroutine.",
            totals.relocated_words,
        );
        add(
            "/heist/spin/starts:events",
            Counter,
            "Times a thread began to look for work.",
            totals.spins,
        );
        add("/heist/spin/threads:threads", Gauge, "Threads that look for work now.", spinning);
        add(
            "/heist/wake-ups:events",
            Counter,
            "Times a thread was woken to look for work.",
            totals.wake_ups,
        );
        add(
            "/heist/threads/parks:events",
            Counter,
            "Times a thread went to sleep.",
            totals.m_parks,
        );
        add(
            "/heist/threads/unparks:events",
            Counter,
            "Times a thread was handed a processor.",
            totals.m_unparks,
        );
        add("/heist/timers:timers", Gauge, "Deadlines kept, of waits that are over too.", timers);
        add(
            "/heist/timers/added:timers",
            Counter,
            "Times a goroutine parked with a deadline.",
            totals.timers,
        );
        add(
            "/heist/preempt/gave-way:events",
            Counter,
            "Times a goroutine had to make room for one woken by the clock or the network.",
            totals.gave_way,
        );
        add(
            "/heist/net/refused:connections",
            Counter,
            "Connections that a server closed unserved.",
            totals.refused,
        );
        add(
            "/heist/poll/waits:events",
            Counter,
            "Times a thread waited for the network or the clock.",
            totals.polls,
        );
        add(
            "/heist/poll/waiters:goroutines",
            Gauge,
            "Goroutines that wait for the network.",
            sched.outside.poller().waiters().into(),
        );
        add(
            "/heist/procs/idle:threads",
            Gauge,
            "Processors at rest.",
            sched.rest.idle().count_all().into(),
        );
        add(
            "/heist/queue/global:goroutines",
            Gauge,
            "Goroutines in the global queue.",
            sched.global_len().get().into(),
        );
        add(
            "/heist/queue/global-put:goroutines",
            Counter,
            "Goroutines put into the global queue.",
            totals.global_put,
        );
        add(
            "/heist/queue/global-taken:goroutines",
            Counter,
            "Goroutines taken from the global queue.",
            totals.global_taken,
        );
        add(
            "/heist/queue/overflows:events",
            Counter,
            "Times a full local queue spilled to the global one.",
            totals.overflows,
        );
        add(
            "/heist/stacks/in-use:stacks",
            Gauge,
            "Stacks that goroutines run on.",
            totals.stacks_attached.saturating_sub(totals.stacks_detached),
        );
        add(
            "/heist/stacks/warm:stacks",
            Gauge,
            "Free stacks of the process whose memory is resident.",
            stacks.warm,
        );
        add(
            "/heist/stacks/cold:stacks",
            Gauge,
            "Free stacks of the process whose memory was given back.",
            stacks.cold,
        );
        add(
            "/heist/stacks/grown:kinds",
            Gauge,
            "Kinds of goroutine that came near the end of their stacks and get larger ones.",
            sched.stacks.n_kinds_found() as u64,
        );
        add(
            "/heist/stacks/mapped:bytes",
            Gauge,
            "Address space of the process mapped for stacks.",
            stacks.mapped_bytes,
        );
        add(
            "/heist/preempt/asked:events",
            Counter,
            "Times a goroutine gave way because its time was up.",
            totals.preempted,
        );
        add(
            "/heist/preempt/forced:events",
            Counter,
            "Times a goroutine was stopped by a signal.",
            totals.forced,
        );
        add(
            "/heist/preempt/signals:events",
            Counter,
            "Signals sent to stop goroutines.",
            totals.signals,
        );
        add(
            "/heist/blocking/announced:events",
            Counter,
            "Blocking calls that were announced.",
            totals.announced,
        );
        add(
            "/heist/blocking/unannounced:events",
            Counter,
            "Blocking calls that were found out.",
            totals.unannounced,
        );
        add(
            "/heist/blocking/foreseen:events",
            Counter,
            "Blocking calls that were expected: the processor was given away beforehand.",
            totals.foreseen,
        );
        add(
            "/heist/blocking/handoffs:events",
            Counter,
            "Times a blocked thread's processor was given to another.",
            totals.handoffs,
        );
        add(
            "/heist/blocking/regained:events",
            Counter,
            "Times a thread came back from a blocking call and had to get a processor.",
            totals.regained,
        );
        list.sort_unstable_by_key(|metric| metric.description.name);
        Self { list, histograms: read_histograms(sched) }
    }

    /// All histograms, sorted by name.
    pub fn histograms(&self) -> impl Iterator<Item = &Histogram> {
        self.histograms.iter()
    }

    /// A histogram by its full name.
    ///
    /// # Examples
    /// How long goroutines that could have run had to wait for a processor:
    /// ```
    /// # use std::time::Duration;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| heist::scope(|s| (0..1000).for_each(|_| drop(s.go(|| ())))));
    /// let metrics = rt.metrics();
    /// let waits = metrics.histogram("/sched/latencies:seconds").unwrap();
    /// let p99 = waits.quantile(0.99).expect("one in eight is measured");
    /// println!("99 of 100 waited for at most {:?}", Duration::from_secs_f64(p99));
    /// # assert!(waits.count() > 0 && p99 < 60.0);
    /// ```
    #[must_use]
    pub fn histogram(&self, name: &str) -> Option<&Histogram> {
        self.histograms.iter().find(|histogram| histogram.description.name == name)
    }

    /// All that are numbers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Metric> {
        self.list.iter()
    }

    /// The value of a metric by its full name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let at = self.list.binary_search_by_key(&name, |metric| metric.description.name).ok()?;
        Some(self.list[at].value)
    }

    /// The metrics in Prometheus' text format. `/sched/goroutines:goroutines` becomes
    /// `heist_sched_goroutines_goroutines`, counters end in `_total`, histograms have a bucket for
    /// each power of two.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        let mut text = String::new();
        for Metric { description, value } in &self.list {
            let name = write_head(&mut text, description);
            // Writing to a String does not fail.
            let _ = writeln!(text, "{name} {value}");
        }
        for histogram in &self.histograms {
            let name = write_head(&mut text, &histogram.description);
            histogram.write_prometheus(&mut text, &name);
        }
        text
    }
}

/// Writes the lines above a metric of the Prometheus text. Returns its name.
fn write_head(text: &mut String, description: &Description) -> String {
    let path = description.name.trim_start_matches("/heist").trim_start_matches('/');
    let mut name = String::from("heist_");
    name.extend(path.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }));
    let kind = match description.kind {
        Kind::Gauge => "gauge",
        Kind::Counter => {
            name.push_str("_total");
            "counter"
        }
        Kind::Histogram => "histogram",
    };
    // Writing to a String does not fail.
    let _ = writeln!(text, "# HELP {name} {}\n# TYPE {name} {kind}", description.help);
    name
}

fn read_histograms(sched: &Sched) -> Vec<Histogram> {
    let described = |name, help| Description { name, kind: Kind::Histogram, help };
    let pauses = &sched.world.pauses();
    let none = std::iter::empty;
    // Sorted by name.
    vec![
        Histogram::of_latencies(
            described(
                "/sched/latencies:seconds",
                "Time from becoming runnable to running, of one in eight goroutines.",
            ),
            sched.world.all_made(),
        ),
        Histogram::new(
            described("/sched/pauses/stopping/gc:seconds", "Nothing: there is no collector."),
            none(),
        ),
        Histogram::new(
            described(
                "/sched/pauses/stopping/other:seconds",
                "Time from asking the world to stop until it had.",
            ),
            [&pauses.stopping].into_iter(),
        ),
        Histogram::new(
            described("/sched/pauses/total/gc:seconds", "Nothing: there is no collector."),
            none(),
        ),
        Histogram::new(
            described(
                "/sched/pauses/total/other:seconds",
                "Time from asking the world to stop until it ran again.",
            ),
            [&pauses.total].into_iter(),
        ),
    ]
}

//! The metrics of the scheduler, as a typed list and as Prometheus text.
//!
//! [`Metrics`] is one reading of all of them.
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
mod histogram;
pub(crate) mod latency;
mod locks;
mod parks;
mod per_proc;
mod prometheus;
mod reading;
pub(crate) mod shard;
mod states;
mod table;

pub use histogram::Histogram;
pub use per_proc::ProcStats;

use crate::sched::Sched;
use reading::Reading;
use table::{HistogramRow, Row};

/// Whether a metric rises and falls or only rises.
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

impl Kind {
    /// The word of Prometheus for it.
    const fn word(self) -> &'static str {
        match self {
            Self::Gauge => "gauge",
            Self::Counter => "counter",
            Self::Histogram => "histogram",
        }
    }
}

/// The description of a metric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Description {
    /// Its name, of the form `/path:unit`.
    pub name: &'static str,
    /// Whether it can fall.
    pub kind: Kind,
    /// Its meaning.
    pub help: &'static str,
}

impl Description {
    /// Its unit: the part of the name after the colon.
    #[must_use]
    pub fn unit(&self) -> &'static str {
        self.name.rsplit_once(':').map_or("", |(_, unit)| unit)
    }
}

/// One metric and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Metric {
    /// Its description.
    pub description: Description,
    /// Its value.
    pub value: u64,
}

/// One reading of all metrics of a runtime, sorted by name. A reading does not stop the goroutines,
/// so its numbers are of slightly different moments.
#[derive(Clone, Debug)]
pub struct Metrics {
    list: Vec<Metric>,
    histograms: Vec<Histogram>,
}

impl Metrics {
    pub(crate) fn read(sched: &Sched) -> Self {
        let reading = Reading::take(sched);
        let metric =
            |row: &Row| Metric { description: row.description, value: row.value(&reading) };
        let histogram = |row: &HistogramRow| Histogram::new(row.description, (row.parts)(sched));
        Self {
            list: table::rows().iter().map(metric).collect(),
            histograms: table::HISTOGRAMS.iter().map(histogram).collect(),
        }
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

    /// All metrics that are numbers, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = &Metric> {
        self.list.iter()
    }

    /// The value of a metric by its full name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<u64> {
        let at = self.list.binary_search_by_key(&name, |metric| metric.description.name).ok()?;
        Some(self.list[at].value)
    }

    /// The metrics in the text format of Prometheus. `/sched/goroutines:goroutines` becomes
    /// `heist_sched_goroutines_goroutines`, names of counters end in `_total`, and histograms have
    /// a bucket for each power of two.
    #[must_use]
    pub fn to_prometheus(&self) -> String {
        prometheus::text(&self.list, &self.histograms, prometheus::Format::Prometheus)
    }

    /// The metrics in the text format of OpenMetrics 1.0, under the same names.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// assert!(rt.metrics().to_openmetrics().ends_with("# EOF\n"));
    /// ```
    #[must_use]
    pub fn to_openmetrics(&self) -> String {
        prometheus::text(&self.list, &self.histograms, prometheus::Format::OpenMetrics)
    }
}

//! A histogram of durations.

use super::Description;
use heist_core::time_histogram::{N_BUCKETS, TimeHistogram, lower_edge_ns};
use std::fmt::Write;

/// How many durations were counted in each bucket, since the runtime was started.
///
/// The buckets are Go's: 64 ns wide up to 512 ns, then four for each power of two, up to 39 hours.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Histogram {
    /// The description of the metric.
    pub description: Description,
    counts: Box<[u64; N_BUCKETS + 2]>,
    sum_ns: u64,
}

impl Histogram {
    pub(super) fn new(description: Description, parts: Vec<&TimeHistogram>) -> Self {
        let mut counts = Box::new([0; N_BUCKETS + 2]);
        let sums = parts.into_iter().map(|part| part.add_to(&mut counts));
        let sum_ns = sums.fold(0, u64::wrapping_add);
        Self { description, counts, sum_ns }
    }

    /// How many durations were counted.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// The sum of all durations, in seconds.
    #[must_use]
    pub fn sum(&self) -> f64 {
        self.sum_ns as f64 / 1e9
    }

    /// The edges of the buckets in seconds, one more than there are buckets: minus infinity, zero
    /// and so on, up to plus infinity.
    #[must_use]
    pub fn edges() -> Vec<f64> {
        let mut edges = vec![f64::NEG_INFINITY];
        edges.extend((0..=N_BUCKETS).map(|bucket| lower_edge_ns(bucket) as f64 / 1e9));
        edges.push(f64::INFINITY);
        edges
    }

    /// How many durations lie between each edge and the next.
    #[must_use]
    pub fn counts(&self) -> &[u64] {
        &*self.counts
    }

    /// The duration in seconds that the given share of all durations does not exceed, rounded up to
    /// the edge of its bucket. None if nothing was counted.
    ///
    /// # Panics
    /// If `share` is not between 0 and 1.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().procs(2).build() }.unwrap();
    /// let pauses = "/sched/pauses/total/other:seconds";
    /// assert_eq!(rt.metrics().histogram(pauses).unwrap().quantile(0.5), None);
    /// rt.set_procs(1);
    /// let metrics = rt.metrics();
    /// let pauses = metrics.histogram(pauses).unwrap();
    /// let (median, longest) = (pauses.quantile(0.5).unwrap(), pauses.quantile(1.0).unwrap());
    /// assert!(0.0 < median && median <= longest);
    /// ```
    #[must_use]
    pub fn quantile(&self, share: f64) -> Option<f64> {
        assert!(
            (0.0..=1.0).contains(&share),
            "Histogram::quantile: the share must be between 0 and 1"
        );
        let wanted = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut seen = 0;
        let edges = Self::edges();
        let at = self.counts.iter().position(|count| {
            seen += count;
            seen >= wanted
        })?;
        Some(edges[at + 1])
    }

    /// The counts between powers of two, each with its upper edge in seconds. The last edge is
    /// infinite.
    pub(crate) fn powers(&self) -> impl Iterator<Item = (f64, u64)> {
        let below = (0.0, self.counts[0]);
        let between = (0..N_BUCKETS).step_by(4).map(|first| {
            let four = &self.counts[first + 1..=first + 4];
            (lower_edge_ns(first + 4) as f64 / 1e9, four.iter().sum())
        });
        let above = (f64::INFINITY, self.counts[N_BUCKETS + 1]);
        std::iter::once(below).chain(between).chain([above])
    }

    /// Writes it in the text format of Prometheus, with one bucket for each power of two.
    pub(super) fn write_prometheus(&self, text: &mut String, name: &str) {
        let mut seen = 0;
        for (edge, count) in self.powers() {
            seen += count;
            if 0.0 < edge && edge < f64::INFINITY {
                // Writing to a String does not fail.
                let _ = writeln!(text, "{name}_bucket{{le=\"{edge}\"}} {seen}");
            }
        }
        let (count, sum) = (self.count(), self.sum());
        let _ = writeln!(text, "{name}_bucket{{le=\"+Inf\"}} {count}");
        let _ = writeln!(text, "{name}_sum {sum}\n{name}_count {count}");
    }
}

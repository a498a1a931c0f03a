//! A histogram of durations with a resolution of 1.6 %, and their exact sum.

/// Steps within a power of two.
const STEP_BITS: u32 = 6;
const STEPS: u64 = 1 << STEP_BITS;
const N_BUCKETS: usize = ((64 - STEP_BITS + 1) as usize) << STEP_BITS;

/// Durations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Latencies {
    counts: Box<[u64]>,
    n: u64,
    sum_ns: u128,
    max_ns: u64,
}

impl Latencies {
    /// None yet.
    #[must_use]
    pub fn new() -> Self {
        Self { counts: vec![0; N_BUCKETS].into(), n: 0, sum_ns: 0, max_ns: 0 }
    }

    /// Adds one.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.n += 1;
        self.sum_ns += u128::from(ns);
        self.max_ns = self.max_ns.max(ns);
    }

    /// Adds those of another run.
    pub fn append(&mut self, others: &Self) {
        for (count, more) in self.counts.iter_mut().zip(&others.counts) {
            *count += more;
        }
        self.n += others.n;
        self.sum_ns += others.sum_ns;
        self.max_ns = self.max_ns.max(others.max_ns);
    }

    /// How many there are.
    #[must_use]
    pub const fn n(&self) -> u64 {
        self.n
    }

    /// The longest.
    #[must_use]
    pub const fn max_ns(&self) -> u64 {
        self.max_ns
    }

    /// Their exact mean; zero if there are none.
    #[must_use]
    pub fn mean_ns(&self) -> f64 {
        if self.n == 0 { 0.0 } else { self.sum_ns as f64 / self.n as f64 }
    }

    /// The time that this share of them does not exceed, to 1.6 %; zero if there are none.
    #[must_use]
    pub fn quantile_ns(&self, share: f64) -> u64 {
        let rank = (share * self.n as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        for (at, count) in self.counts.iter().enumerate() {
            seen += count;
            if seen >= rank {
                return upper_edge(at).min(self.max_ns);
            }
        }
        self.max_ns
    }
}

impl Default for Latencies {
    fn default() -> Self {
        Self::new()
    }
}

const fn bucket(ns: u64) -> usize {
    if ns < STEPS {
        return ns as usize;
    }
    let shift = ns.ilog2() - STEP_BITS;
    (((shift as u64 + 1) << STEP_BITS) + ((ns >> shift) - STEPS)) as usize
}

const fn upper_edge(bucket: usize) -> u64 {
    let bucket = bucket as u64;
    if bucket < STEPS {
        return bucket;
    }
    let shift = (bucket >> STEP_BITS) - 1;
    let step = STEPS + (bucket & (STEPS - 1));
    ((step as u128 + 1) << shift).saturating_sub(1) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bucket_is_as_narrow_as_promised() {
        for ns in (0..200_000).chain([u64::MAX / 3, u64::MAX]) {
            let edge = upper_edge(bucket(ns));
            assert!(edge >= ns && edge as f64 <= ns as f64 * 1.016 + 1.0, "{ns} {edge}");
        }
    }

    #[test]
    fn quantiles_of_known_times() {
        let mut latencies = Latencies::new();
        (1..=1000).for_each(|ns| latencies.record(ns));
        assert_eq!(latencies.mean_ns(), 500.5);
        let p99 = latencies.quantile_ns(0.99);
        assert!((990..=1000).contains(&p99), "{p99}");
        assert_eq!(latencies.quantile_ns(1.0), 1000);
        assert_eq!(Latencies::new().quantile_ns(0.5), 0);
    }
}

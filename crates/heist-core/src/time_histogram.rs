//! A histogram of durations with Go's buckets.
//!
//! Forty powers of two with four equal steps each, the first ones 64 ns wide: 160 counters, and one
//! each for durations below and above. So every duration from 64 ns to 39 hours is known to a
//! quarter of its size, in 1.3 KB.
//!
//! GO: runtime/histogram.go timeHistogram.

use crate::sync::{AtomicU64, Ordering};

/// Durations below `1 << MIN_BITS` share the width of the first steps.
const MIN_BITS: u32 = 9;
/// Durations of `1 << (MAX_BITS - 1)` and more are too long.
const MAX_BITS: u32 = 48;
/// Steps in a power of two, as a power of two.
const STEP_BITS: u32 = 2;
const STEPS: usize = 1 << STEP_BITS;

/// Counters for durations that are neither too short nor too long.
pub const N_BUCKETS: usize = (MAX_BITS - MIN_BITS + 1) as usize * STEPS;

/// Where a duration is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bucket {
    /// Below zero.
    Underflow,
    /// In this one.
    Number(usize),
    /// `1 << 47` ns and longer.
    Overflow,
}

/// The bucket of a duration.
#[must_use]
pub const fn bucket_of(ns: i64) -> Bucket {
    if ns < 0 {
        return Bucket::Underflow;
    }
    let ns = ns as u64;
    let bits = u64::BITS - ns.leading_zeros();
    if bits >= MAX_BITS {
        return Bucket::Overflow;
    }
    let (power, bits) = if bits < MIN_BITS { (0, MIN_BITS) } else { (bits - MIN_BITS + 1, bits) };
    let step = (ns >> (bits - 1 - STEP_BITS)) as usize % STEPS;
    Bucket::Number(power as usize * STEPS + step)
}

/// The shortest duration of a bucket. `N_BUCKETS` gives the shortest that is too long.
#[must_use]
pub const fn lower_edge_ns(bucket: usize) -> u64 {
    let (power, step) = (bucket / STEPS, (bucket % STEPS) as u64);
    if power == 0 {
        return step << (MIN_BITS - 1 - STEP_BITS);
    }
    let bits = power as u32 + MIN_BITS - 1;
    (1 << (bits - 1)) + (step << (bits - 1 - STEP_BITS))
}

/// The counters.
#[derive(Debug)]
#[doc(alias = "timeHistogram")]
pub struct TimeHistogram {
    counts: [AtomicU64; N_BUCKETS],
    underflow: AtomicU64,
    overflow: AtomicU64,
    sum_ns: AtomicU64,
}

impl TimeHistogram {
    /// Nothing counted.
    #[must_use]
    pub fn new() -> Self {
        Self {
            counts: std::array::from_fn(|_| AtomicU64::new(0)),
            underflow: AtomicU64::new(0),
            overflow: AtomicU64::new(0),
            sum_ns: AtomicU64::new(0),
        }
    }

    /// Counts a duration. Only one thread at a time may call it: it is a load and a store.
    pub fn record(&self, ns: i64) {
        let one_more = |count: &AtomicU64| {
            count.store(count.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        };
        match bucket_of(ns) {
            Bucket::Underflow => one_more(&self.underflow),
            Bucket::Number(n) => one_more(&self.counts[n]),
            Bucket::Overflow => one_more(&self.overflow),
        }
        let sum = self.sum_ns.load(Ordering::Relaxed);
        self.sum_ns.store(sum.wrapping_add(ns.max(0) as u64), Ordering::Relaxed);
    }

    /// Adds its counts to `counts`: first the too short durations, then the buckets, last the too
    /// long ones. Returns the sum of all durations.
    pub fn add_to(&self, counts: &mut [u64; N_BUCKETS + 2]) -> u64 {
        let all = std::iter::once(&self.underflow).chain(&self.counts).chain([&self.overflow]);
        for (total, count) in counts.iter_mut().zip(all) {
            *total += count.load(Ordering::Relaxed);
        }
        self.sum_ns.load(Ordering::Relaxed)
    }
}

impl Default for TimeHistogram {
    fn default() -> Self {
        Self::new()
    }
}

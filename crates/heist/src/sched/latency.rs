//! Measuring how long goroutines wait for a P; `metrics::latency` says how.

use super::Sched;
use crate::gmp::{G, M, P};
use crate::metrics::latency::SLOTS;
use crate::sys::stopwatch;
use heist_core::policy::LATENCY_SAMPLE;

impl Sched {
    /// A goroutine becomes runnable on this M: one in a few is measured.
    #[inline]
    pub(crate) fn maybe_sample(&self, m: &M, gp: &G) {
        // SAFETY: this M holds its P, and no other reference to its data is alive.
        let n = unsafe { &mut m.p().local().n_readied };
        *n = n.wrapping_add(1);
        if n.is_multiple_of(LATENCY_SAMPLE) {
            self.sample(m.p(), gp);
        }
    }

    /// One becomes runnable without a P: the `n`th of those.
    pub(crate) fn maybe_sample_outside(&self, n: u64, gp: &G) {
        if n.is_multiple_of(LATENCY_SAMPLE.into()) {
            let id = n / u64::from(LATENCY_SAMPLE) % u64::from(self.procs());
            self.sample(self.p(id as u32), gp);
        }
    }

    #[cold]
    fn sample(&self, pp: &P, gp: &G) {
        if let Some(slot) = pp.latencies.keep(stopwatch::now()) {
            gp.set_sampled(pp.id * SLOTS + slot);
        }
    }

    /// A goroutine that was measured runs on this M.
    #[cold]
    pub(crate) fn record_latency(&self, m: &M, number: u32) {
        let since = self.p(number / SLOTS).latencies.take(number % SLOTS);
        m.p().latencies.histogram.record(stopwatch::since(since));
    }
}

//! Measures how long goroutines wait for a P; `metrics::latency` explains how.

use crate::gmp::{G, Holder, P};
use crate::metrics::latency::SLOTS;
use crate::sched::Sched;
use crate::sys::stopwatch;
use heist_core::policy::LATENCY_SAMPLE;

/// Samples `gp`, which becomes runnable on this M, if it is the next in [`LATENCY_SAMPLE`].
#[inline]
pub(super) fn maybe_sample(m: Holder<'_>, gp: &G) {
    let pp = m.p();
    let n = pp.with_local(|local| {
        local.n_readied = local.n_readied.wrapping_add(1);
        local.n_readied
    });
    if n.is_multiple_of(LATENCY_SAMPLE) {
        sample(&pp, gp);
    }
}

/// Samples `gp`, the `n`th goroutine that becomes runnable without a P, if it is the next in
/// [`LATENCY_SAMPLE`]. The Ps take turns in storing the moment.
pub(crate) fn maybe_sample_outside(sched: &Sched, n: u64, gp: &G) {
    if n.is_multiple_of(LATENCY_SAMPLE.into()) {
        let id = n / u64::from(LATENCY_SAMPLE) % u64::from(sched.procs());
        sample(sched.p(id as u32), gp);
    }
}

#[cold]
fn sample(pp: &P, gp: &G) {
    if let Some(slot) = pp.latencies.keep(stopwatch::now()) {
        gp.set_sampled(pp.id * SLOTS + slot);
    }
}

/// Records the wait of a goroutine that was sampled and now runs on this M. `number` names the P
/// and the slot that stored the moment.
#[cold]
pub(super) fn record_latency(sched: &Sched, m: Holder<'_>, number: u32) {
    let since = sched.p(number / SLOTS).latencies.take(number % SLOTS);
    m.p().latencies.histogram.record(stopwatch::since(since));
}

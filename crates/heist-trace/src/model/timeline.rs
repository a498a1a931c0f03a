//! Ticks as nanoseconds since the beginning of a trace.

use crate::file::{TicksClock, Trace};

/// No time is later, so that others can count on from it: a damaged file may say anything.
const NS_MAX: u64 = 1 << 62;

/// Converts ticks to nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Timeline {
    base_ticks: u64,
    ns_per_tick: f64,
    /// The wall clock at the beginning.
    pub start_unix_ns: u64,
    /// The monotonic clock at the beginning.
    pub start_monotonic_ns: u64,
    /// The length of a tick is known.
    pub is_exact: bool,
}

impl Timeline {
    /// The times of this trace. The beginning is its first clock or its first buffer.
    #[must_use]
    pub fn new(trace: &Trace) -> Self {
        let clocks = &trace.clocks;
        let starts = trace.blocks.iter().map(|block| block.context.ticks);
        let first = clocks.first().map(|clock| clock.ticks);
        let base_ticks = starts.chain(first).min().unwrap_or(0);
        let (mut ns_per_tick, mut is_exact) = (1.0, false);
        if trace.header.ticks_clock == TicksClock::Monotonic {
            is_exact = true;
        } else if let (Some(first), Some(last)) = (clocks.first(), clocks.last()) {
            let span_ticks = last.ticks - first.ticks;
            let span_ns = last.monotonic_ns.saturating_sub(first.monotonic_ns);
            if span_ticks > 0 && span_ns > 0 {
                ns_per_tick = span_ns as f64 / span_ticks as f64;
                is_exact = true;
            }
        }
        let (mut start_unix_ns, mut start_monotonic_ns) = (0, 0);
        if let Some(first) = clocks.first() {
            let before = ((first.ticks - base_ticks) as f64 * ns_per_tick) as u64;
            start_unix_ns = first.unix_ns.saturating_sub(before);
            start_monotonic_ns = first.monotonic_ns.saturating_sub(before);
        }
        Self { base_ticks, ns_per_tick, start_unix_ns, start_monotonic_ns, is_exact }
    }

    /// Nanoseconds since the beginning.
    #[inline]
    #[must_use]
    pub fn ns(&self, ticks: u64) -> u64 {
        let ns = (ticks.saturating_sub(self.base_ticks) as f64 * self.ns_per_tick) as u64;
        ns.min(NS_MAX)
    }
}

#[test]
fn two_clocks_give_the_length_of_a_tick() {
    use crate::file::{Clock, Header};
    let mut trace = Trace {
        header: Header { ticks_clock: TicksClock::Tsc, ..Header::default() },
        clocks: vec![
            Clock { ticks: 3_000, monotonic_ns: 100, unix_ns: 50_000 },
            Clock { ticks: 6_000, monotonic_ns: 1_100, unix_ns: 51_000 },
        ],
        ..Trace::default()
    };
    let timeline = Timeline::new(&trace);
    assert!(timeline.is_exact);
    assert_eq!((timeline.ns(3_000), timeline.ns(4_500), timeline.ns(9_000)), (0, 500, 2_000));
    assert_eq!(timeline.start_unix_ns, 50_000);
    trace.clocks.pop();
    assert!(!Timeline::new(&trace).is_exact);
}

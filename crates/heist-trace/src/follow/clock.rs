//! Ticks as nanoseconds, while later clock sections are still to come.

use crate::file::{Clock, TicksClock};

/// Counts on from the latest clock section, with the length of a tick since the first one. So a
/// time that was converted before is not corrected later, and an error does not grow.
#[derive(Debug)]
pub(super) struct LiveClock {
    ns_per_tick: f64,
    is_monotonic: bool,
    first: Option<Clock>,
    latest: Clock,
}

impl LiveClock {
    pub(super) fn new(clock: TicksClock) -> Self {
        let is_monotonic = clock == TicksClock::Monotonic;
        Self { ns_per_tick: 1.0, is_monotonic, first: None, latest: Clock::default() }
    }

    pub(super) fn set(&mut self, clock: &Clock) {
        let first = *self.first.get_or_insert(*clock);
        let ticks = clock.ticks.saturating_sub(first.ticks);
        let ns = clock.monotonic_ns.saturating_sub(first.monotonic_ns);
        if !self.is_monotonic && ticks > 0 && ns > 0 {
            self.ns_per_tick = ns as f64 / ticks as f64;
        }
        self.latest = *clock;
    }

    /// The time on the monotonic clock.
    pub(super) fn ns(&self, ticks: u64) -> u64 {
        let since = ticks.wrapping_sub(self.latest.ticks) as i64;
        // A conversion from floating point saturates.
        let ns = (since as f64 * self.ns_per_tick) as i64;
        self.latest.monotonic_ns.saturating_add_signed(ns)
    }

    /// The wall clock at a time on the monotonic clock.
    pub(super) fn unix_ns(&self, time_ns: u64) -> u64 {
        let first = self.first.unwrap_or_default();
        let since = time_ns.wrapping_sub(first.monotonic_ns) as i64;
        first.unix_ns.saturating_add_signed(since)
    }
}

#[test]
fn times_count_from_the_latest_clock() {
    let mut clock = LiveClock::new(TicksClock::Tsc);
    clock.set(&Clock { ticks: 3_000, monotonic_ns: 100, unix_ns: 50_000 });
    clock.set(&Clock { ticks: 6_000, monotonic_ns: 1_100, unix_ns: 99_999 });
    assert_eq!((clock.ns(3_000), clock.ns(6_000), clock.ns(9_000)), (100, 1_100, 2_100));
    assert_eq!(clock.unix_ns(1_100), 51_000);
    assert_eq!(clock.ns(0), 0);
}

//! The ticker: how late is a task that wants to run every millisecond?
//!
//! Every tick counts, also those that passed while the task could not run: a wake-up 5 ms
//! late stands for five ticks that were 5, 4, 3, 2 and 1 ms late. Otherwise a scheduler
//! that stalls for a second would show one bad sample among a thousand good ones. For the
//! same reason the clock starts with the load and not when the task first gets to run.

use std::time::{Duration, Instant};

use super::ms;
use crate::reading::Figures;
use crate::stats::quantile;

const PERIOD: Duration = Duration::from_millis(1);

#[derive(Debug)]
pub struct Ticker {
    start: Instant,
    n_ticks: usize,
    late_ns: Vec<u64>,
}

impl Ticker {
    /// Starts now and ticks for `length`.
    pub fn new(length: Duration) -> Self {
        let n_ticks = (length.as_nanos() / PERIOD.as_nanos()) as usize;
        Self { start: Instant::now(), n_ticks, late_ns: Vec::with_capacity(n_ticks) }
    }

    fn due(&self, tick: usize) -> Instant {
        self.start + PERIOD * (tick as u32 + 1)
    }

    /// How long to sleep until the next tick; `None` when all ticks are counted.
    pub fn next_sleep(&self) -> Option<Duration> {
        let tick = self.late_ns.len();
        (tick < self.n_ticks).then(|| self.due(tick).saturating_duration_since(Instant::now()))
    }

    /// Counts all ticks that are due.
    pub fn woke(&mut self) {
        self.count_until(Instant::now());
    }

    fn count_until(&mut self, now: Instant) {
        while self.late_ns.len() < self.n_ticks {
            let Some(late) = now.checked_duration_since(self.due(self.late_ns.len())) else {
                return;
            };
            self.late_ns.push(late.as_nanos() as u64);
        }
    }

    pub fn into_figures(mut self) -> Figures {
        let mut late_ms = |q| ms(Duration::from_nanos(quantile(&mut self.late_ns, q)));
        Figures::many(vec![late_ms(0.5), late_ms(0.99), late_ms(1.0)])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_late_wake_up_counts_every_tick_it_missed() {
        let mut ticker = Ticker::new(Duration::from_millis(10));
        ticker.count_until(ticker.start + Duration::from_micros(5500));
        assert_eq!(ticker.late_ns, [4_500_000, 3_500_000, 2_500_000, 1_500_000, 500_000]);
    }

    #[test]
    fn it_ends_after_its_last_tick() {
        let mut ticker = Ticker::new(Duration::from_millis(3));
        ticker.count_until(ticker.start + Duration::from_secs(1));
        assert_eq!(ticker.next_sleep(), None);
        assert_eq!(ticker.into_figures().values, [998.0, 999.0, 999.0]);
    }

    #[test]
    fn an_early_wake_up_counts_nothing() {
        let mut ticker = Ticker::new(Duration::from_millis(3));
        ticker.count_until(ticker.start);
        assert!(ticker.late_ns.is_empty());
        assert!(ticker.next_sleep().is_some());
    }
}

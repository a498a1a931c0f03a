//! A goroutine that is due every millisecond, and how late it was.

use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::demo::figures;

const PERIOD: Duration = Duration::from_millis(1);

/// How late the ticks were, in order.
pub struct Lateness(Vec<Duration>);

impl Lateness {
    fn at(&self, share: f64) -> Duration {
        let last = self.0.len().saturating_sub(1);
        self.0.get((last as f64 * share) as usize).copied().unwrap_or_default()
    }

    pub fn worst(&self) -> Duration {
        self.at(1.0)
    }

    pub fn median(&self) -> Duration {
        self.at(0.5)
    }

    pub fn n_ticks(&self) -> u64 {
        self.0.len() as u64
    }

    /// `half within 60 µs, 99 % within 1.20 ms, all within 3.10 ms`, and a bar chart.
    pub fn describe(&self) -> String {
        format!(
            "ticks were late by: half ≤ {}, 99 % ≤ {}, all ≤ {}",
            figures::time(self.median()),
            figures::time(self.at(0.99)),
            figures::time(self.worst()),
        )
    }

    /// A line per power of two, with a bar for the share of ticks that were so late.
    pub fn chart(&self) -> Vec<String> {
        const BOUNDS_US: [u64; 7] = [62, 125, 250, 500, 1000, 2000, 4000];
        let mut lines = Vec::new();
        let mut from = 0;
        for bound in BOUNDS_US.iter().copied().chain([u64::MAX]) {
            let until = self.0.partition_point(|late| late.as_micros() < u128::from(bound));
            let share = (until - from) as f64 / self.0.len().max(1) as f64;
            let mut line = match bound {
                u64::MAX => format!("{:>10}", "later"),
                bound => format!("{:>10}", format!("< {}", figures::time(us(bound)))),
            };
            let cells = (share * 40.0).ceil() as usize;
            let _ = write!(line, " {:<40} {:>5.1} %", "█".repeat(cells), share * 100.0);
            lines.push(line);
            from = until;
        }
        lines
    }
}

const fn us(n: u64) -> Duration {
    Duration::from_micros(n)
}

/// Ticks for `length` on the calling goroutine. A tick that was missed counts with the time it was
/// late when the goroutine ran again.
pub fn tick(length: Duration, n_done: &Arc<AtomicU64>) -> Lateness {
    let mut lates = Vec::with_capacity((length.as_millis() + 1) as usize);
    let start = Instant::now();
    let mut due = start + PERIOD;
    while due <= start + length {
        heist::time::sleep_until(due);
        let now = Instant::now();
        while due <= now && due <= start + length {
            lates.push(now - due);
            due += PERIOD;
        }
        n_done.store(lates.len() as u64, Ordering::Relaxed);
    }
    lates.sort_unstable();
    Lateness(lates)
}

#[test]
fn lateness_is_reported_in_shares() {
    let lateness = Lateness((1..=100).map(|n| us(10 * n)).collect());
    assert_eq!(lateness.n_ticks(), 100);
    assert_eq!(lateness.worst(), us(1000));
    assert_eq!(lateness.median(), us(500));
    let chart = lateness.chart();
    assert_eq!(chart.len(), 8);
    assert!(chart[0].trim_start().starts_with("< 62"), "{}", chart[0]);
    assert!(chart[7].ends_with("0.0 %"), "{}", chart[7]);
}

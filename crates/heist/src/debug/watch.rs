//! For how long a P has run the same goroutine, as far as clients have looked.
//!
//! The scheduler does not note when a goroutine begins to run: that would cost a clock reading for
//! each switch. So the server remembers what it saw. The time is a lower bound, which is exact to
//! the interval at which clients ask.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What was running at a P: the goroutine, and how much the P had executed.
pub(super) type Run = (u64, u64);

/// What was seen last at each P, and since when.
#[derive(Debug, Default)]
pub(super) struct Watch(Mutex<HashMap<u32, (Run, Instant)>>);

impl Watch {
    /// Notes what runs at a P now. Returns for how long the same was seen.
    pub(super) fn see(&self, p: u32, run: Option<Run>, now: Instant) -> Option<Duration> {
        let mut seen = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = run else {
            seen.remove(&p);
            return None;
        };
        let entry = seen.entry(p).or_insert((run, now));
        if entry.0 != run {
            *entry = (run, now);
        }
        Some(now.saturating_duration_since(entry.1))
    }
}

#[test]
fn a_run_is_as_long_as_it_was_seen() {
    let (watch, start) = (Watch::default(), Instant::now());
    let at = |ms| start + Duration::from_millis(ms);
    assert_eq!(watch.see(0, Some((7, 1)), at(0)), Some(Duration::ZERO));
    assert_eq!(watch.see(0, Some((7, 1)), at(30)), Some(Duration::from_millis(30)));
    // The same goroutine ran again in the meantime.
    assert_eq!(watch.see(0, Some((7, 2)), at(40)), Some(Duration::ZERO));
    assert_eq!(watch.see(0, None, at(50)), None);
    assert_eq!(watch.see(0, Some((7, 2)), at(60)), Some(Duration::ZERO));
}

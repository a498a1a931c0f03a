//! Time: sleeping, and doing something later.
//!
//! Deadlines are kept by the scheduler, in the processor that the goroutine parked on. Nothing is
//! ever early. How late it can be depends on who else runs: with a processor free, as long as it
//! takes to wake a thread; with all of them busy, the bound of
//! [`Builder::wake_up_bound`](crate::Builder::wake_up_bound).
//!
//! On plain threads everything here works too, and blocks the thread.

mod after_func;
mod sleep;
mod ticker;
mod timer;
pub(crate) mod timers;

pub use after_func::{AfterFunc, after_func};
pub use sleep::{sleep, sleep_until};
pub use ticker::Ticker;
pub use timer::Timer;

use crate::sys::clock;
use std::time::{Duration, Instant};

/// The moment `duration` from now, in the scheduler's time. The far future is never.
pub(crate) fn deadline_after(duration: Duration) -> u64 {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    clock::now_ns().saturating_add(ns)
}

/// A moment in the scheduler's time. Never early: this clock is read after that one.
pub(crate) fn deadline_at(deadline: Instant) -> u64 {
    deadline_after(deadline.saturating_duration_since(Instant::now()))
}

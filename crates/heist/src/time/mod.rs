//! Time: sleeping, timers, and functions that run later.
//!
//! The scheduler keeps the deadlines, in the processor that the goroutine parked on. Nothing is
//! ever early. How late it can be depends on the other goroutines. If a processor is idle, the
//! delay is the time to wake a thread. If all of them are busy, it is bounded by
//! [`Builder::wake_up_bound`](crate::Builder::wake_up_bound).
//!
//! Everything here works on plain threads too, and blocks the thread.
//!
//! # Examples
//! ```
//! use heist::time::{self, Ticker};
//! use std::time::{Duration, Instant};
//!
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! const MS: Duration = Duration::from_millis(1);
//! let start = Instant::now();
//! time::sleep(2 * MS);
//!
//! // Once a millisecond, however long the rest of the loop takes.
//! let ticker = Ticker::new(MS);
//! for due in ticker.receiver().iter().take(3) {
//!     assert!(due <= Instant::now());
//! }
//! assert!(start.elapsed() >= 5 * MS);
//!
//! // A function that runs later, unless it is stopped.
//! let later = time::after_func(Duration::from_secs(60), || println!("a minute is over"));
//! assert!(later.stop());
//! # });
//! ```

mod after_func;
mod sleep;
mod sleeping;
mod ticker;
mod timeout;
mod timer;
pub(crate) mod timers;

pub(crate) use after_func::try_at;

pub use after_func::{AfterFunc, after_func};
pub use sleep::{sleep, sleep_until};
pub use sleeping::{Sleep, sleep_async, sleep_until_async};
pub use ticker::Ticker;
pub use timeout::{Elapsed, timeout, timeout_at};
pub use timer::Timer;

use crate::sys::clock;
use heist_core::timer_heap::NEVER;
use std::time::{Duration, Instant};

/// The moment `duration` from now, in the scheduler's time. A distant moment is limited to the one
/// before `NEVER`.
pub(crate) fn deadline_after(duration: Duration) -> u64 {
    let ns = u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX);
    // However distant, the result is a moment: a goroutine that waits for it waits for an event
    // that happens.
    clock::now_ns().saturating_add(ns).min(NEVER - 1)
}

/// A moment in the scheduler's time. Never early. One from before the clock began is its beginning,
/// but not zero, which stands for no wait at all.
pub(crate) fn deadline_at(deadline: Instant) -> u64 {
    clock::ns_of(deadline).clamp(1, NEVER - 1)
}

//! Sleeping.

use super::{deadline_after, deadline_at};
use crate::current;
use crate::wait::{self, Terms, WaitReason};
use std::time::{Duration, Instant};

/// Lets the calling goroutine sleep for at least `duration`. Other goroutines run meanwhile.
///
/// On a plain thread this is [`std::thread::sleep`].
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use std::time::{Duration, Instant};
/// let start = Instant::now();
/// let sleepers: Vec<_> = (0..1000)
///     .map(|_| heist::go(|| heist::time::sleep(Duration::from_millis(20))))
///     .collect();
/// for sleeper in sleepers {
///     sleeper.join().unwrap();
/// }
/// assert!(start.elapsed() >= Duration::from_millis(20));
/// # });
/// ```
#[doc(alias = "Sleep")]
pub fn sleep(duration: Duration) {
    if duration.is_zero() {
        return;
    }
    if current::goroutine().is_none() {
        return std::thread::sleep(duration);
    }
    sleep_until_ns(deadline_after(duration));
}

/// Lets the calling goroutine sleep until `deadline`, or not at all if that has passed.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// use std::time::{Duration, Instant};
/// let mut next = Instant::now();
/// for _ in 0..3 {
///     next += Duration::from_millis(5); // No drift, however long the work takes.
///     heist::time::sleep_until(next);
/// }
/// assert!(Instant::now() >= next);
/// # });
/// ```
pub fn sleep_until(deadline: Instant) {
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return;
    }
    if current::goroutine().is_none() {
        return std::thread::sleep(left);
    }
    sleep_until_ns(deadline_at(deadline));
}

fn sleep_until_ns(deadline_ns: u64) {
    let rt = wait::park_point(current::enter());
    wait::wait_alone(rt, Terms::new(WaitReason::Sleep).until(deadline_ns));
}

//! Sleeping.

use super::{deadline_after, deadline_at};
use crate::current;
use crate::gmp::G;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::Seal;
use crate::sched::life::cancel::{self, Why};
use crate::sched::life::park;
use std::ptr::{NonNull, null_mut};
use std::time::{Duration, Instant};

/// Lets the calling goroutine sleep for at least `duration`; others run meanwhile.
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
    let Some(rt) = current::enter() else { return };
    let rt = cancel::check(park::chaos_point(rt));
    // SAFETY: there is nothing to commit: only the clock, or a canceller, wakes it.
    let (rt, woken) = unsafe {
        park::park_until(rt, WaitReason::Sleep, Seal::Open, nothing, null_mut(), deadline_ns)
    };
    if woken == Woken::Cancelled {
        drop(rt);
        cancel::unwind(Why::Cancelled);
    }
}

unsafe fn nothing(_: NonNull<G>, _: *mut ()) -> bool {
    true
}

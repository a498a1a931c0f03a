//! The hooks of the block and mutex profiles.
//!
//! # Unbiased sampling
//! With a rate of `r` a wait of `d` is sampled with probability `d / r`, or always if it is longer.
//! A short wait that is sampled counts as `r / d` waits that took `r` together. So the expected
//! count and the expected time are those of all waits.
//!
//! GO: mprof.go blockevent, blocksampled, saveblockevent, mutexevent.

use super::table::{DEPTH, PARTS, Tag};
use super::{Current, with_walker};
use crate::coro::walk::Position;
use crate::current::InRuntime;
use crate::gmp::g::WaitReason;
use crate::sys::clock::now_ns;
use crate::sys::modules;
use crate::sys::walk::Registers;
use std::sync::atomic::{AtomicU64, Ordering};

/// The block profile since it was first switched on.
pub(crate) static BLOCK: Current = Current::none();
/// The mutex profile since it was first switched on.
pub(crate) static MUTEX: Current = Current::none();

/// The mean time that is blocked between two samples, in nanoseconds. Zero: none are taken.
static BLOCK_RATE_NS: AtomicU64 = AtomicU64::new(0);
/// One in this many releases of a contended mutex is sampled. Zero: none.
static MUTEX_FRACTION: AtomicU64 = AtomicU64::new(0);

/// Sets the rate of the block profile. Returns the previous one.
pub(crate) fn set_block_rate(rate_ns: u64) -> u64 {
    BLOCK_RATE_NS.swap(rate_ns, Ordering::Relaxed)
}

/// Sets the fraction of the mutex profile. Returns the previous one.
pub(crate) fn set_mutex_fraction(fraction: u64) -> u64 {
    MUTEX_FRACTION.swap(fraction, Ordering::Relaxed)
}

/// The fraction of the mutex profile. Zero if it is off.
#[inline]
pub(crate) fn mutex_fraction() -> u64 {
    MUTEX_FRACTION.load(Ordering::Relaxed)
}

/// When a wait begins that the block profile may sample. Zero if it is off.
#[inline(always)]
pub(crate) fn wait_begins() -> u64 {
    if BLOCK_RATE_NS.load(Ordering::Relaxed) == 0 { 0 } else { now_ns() }
}

/// A wait of the calling goroutine ends that began at `since_ns`. Waits for the clock and for the
/// network do not count.
#[cold]
#[inline(never)]
pub(crate) fn wait_ends(rt: &InRuntime, here: Registers, reason: WaitReason, since_ns: u64) {
    if matches!(reason, WaitReason::Sleep | WaitReason::IoWait) {
        return;
    }
    let waited_ns = now_ns().saturating_sub(since_ns).max(1);
    let rate_ns = BLOCK_RATE_NS.load(Ordering::Relaxed);
    let drawn = draw(rt);
    if rate_ns == 0 || (waited_ns < rate_ns && drawn % rate_ns >= waited_ns) {
        return;
    }
    let (count, time_ns) = if waited_ns < rate_ns {
        ((PARTS * rate_ns).div_ceil(waited_ns), rate_ns)
    } else {
        (PARTS, waited_ns)
    };
    sample(&BLOCK, rt, here, count, time_ns);
}

/// The calling goroutine releases a mutex for which `n` others have waited `waited_ns` in total
/// while it was held.
#[cold]
#[inline(never)]
pub(crate) fn mutex_released(rt: &InRuntime, here: Registers, n: u64, waited_ns: u64) {
    let fraction = mutex_fraction();
    if fraction != 0 && draw(rt).is_multiple_of(fraction) {
        // A panic here would be one inside the runtime.
        let count = fraction.saturating_mul(n).saturating_mul(PARTS);
        sample(&MUTEX, rt, here, count, fraction.saturating_mul(waited_ns));
    }
}

fn draw(rt: &InRuntime) -> u64 {
    // SAFETY: the M of the calling thread.
    unsafe { rt.m().draw(|rng| u64::from(rng.next_u32()) << 32 | u64::from(rng.next_u32())) }
}

fn sample(profile: &Current, rt: &InRuntime, here: Registers, count: u64, value: u64) {
    profile.with(|table| {
        let (gp, m) = (rt.goroutine(), rt.m());
        let walked = with_walker(m.id, |walker| {
            let position = Position::running(&gp.coro, here)?;
            Some(position.walk_innermost(DEPTH, walker, modules::known()?))
        });
        match walked.flatten() {
            Some(frames) => table.add(&Tag::default(), &frames, count, value),
            None => table.lose(),
        }
    });
}

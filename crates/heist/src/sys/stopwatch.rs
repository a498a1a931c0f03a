//! A cheaper clock for short times: the counter of the CPU, where the kernel trusts it.
//!
//! One in eight goroutines that become runnable is measured, so the clock is read every few wake-ups,
//! and on many machines the kernel's clock costs more than a wake-up's share of everything else. The
//! counter costs a third of it. Only the kernel knows whether the counters of all CPUs agree and never
//! pause: if it uses them for its own clock, they do.
//!
//! How fast the counter runs is learnt from the kernel's clock once a millisecond of both has passed;
//! until then, and where there is no such counter, a moment is one of the kernel's clock.

use super::clock;
use heist_core::sync::{AtomicU64, Ordering};

/// The bit of a moment that says that it was read from the counter.
const COUNTED: u64 = 1 << 63;

/// How long the two clocks are compared: an error of a reading, some ten nanoseconds, is nothing
/// against it.
const LEARN_NS: u64 = 1_000_000;

/// Nanoseconds that one step of the counter takes, times 2 to the 32; zero as long as it is not known.
static PACE: AtomicU64 = AtomicU64::new(0);
/// Both clocks at one moment; zero if the counter is not to be trusted.
static START: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];

/// A moment, to be compared with a later one on any thread. Never zero.
#[inline]
pub(crate) fn now() -> u64 {
    if PACE.load(Ordering::Relaxed) == 0 { clock::now_ns() } else { counter() | COUNTED }
}

/// Nanoseconds since a moment. Readings on two CPUs may differ by a little, so it may be negative.
#[inline]
pub(crate) fn since(moment: u64) -> i64 {
    if moment & COUNTED == 0 {
        return clock::now_ns().wrapping_sub(moment).cast_signed();
    }
    let steps = (counter() | COUNTED).wrapping_sub(moment).cast_signed();
    ((i128::from(steps) * i128::from(PACE.load(Ordering::Relaxed))) >> 32) as i64
}

/// Begins to compare the clocks, for the first runtime of the process.
pub(crate) fn prepare() {
    static ONCE: std::sync::Once = std::sync::Once::new();
    ONCE.call_once(|| {
        if is_trusted() {
            START[1].store(clock::now_ns(), Ordering::Relaxed);
            // ORDERING: Release pairs with `learn`, which reads this first.
            START[0].store(counter(), Ordering::Release);
        }
    });
}

/// Learns how fast the counter runs, if it is not known and enough time has passed.
pub(crate) fn learn() {
    // ORDERING: Acquire pairs with `prepare`.
    let from = START[0].load(Ordering::Acquire);
    if from == 0 || PACE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let before = counter();
    let ns = clock::now_ns().saturating_sub(START[1].load(Ordering::Relaxed));
    let after = counter();
    // Whoever is interrupted between the two readings tries again later.
    if let Some(pace) = pace(from, before, after, ns) {
        PACE.store(pace, Ordering::Relaxed);
    }
}

/// The pace of a counter that went from `from` to somewhere between `before` and `after` in `ns`.
fn pace(from: u64, before: u64, after: u64, ns: u64) -> Option<u64> {
    let steps = before.checked_sub(from).filter(|&steps| steps != 0)?;
    let doubt = after.checked_sub(before)?;
    if ns < LEARN_NS || doubt > steps / 1000 {
        return None;
    }
    u64::try_from((u128::from(ns) << 32) / u128::from(steps)).ok().filter(|&pace| pace != 0)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has it. Where the system forbids it to programs, the kernel does not
    // give its own clock to them by it either, and this is not called.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    0
}

/// Whether the kernel keeps its own time by the counter.
fn is_trusted() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read(SOURCE).is_ok_and(|source| source.trim_ascii() == b"tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_needs_time_and_two_readings_close_together() {
        let second = 1_000_000_000;
        assert_eq!(pace(5, 5 + second, 5 + second, second), Some(1 << 32));
        assert_eq!(pace(5, 5 + 2 * second, 5 + 2 * second, second), Some(1 << 31));
        assert_eq!(pace(5, 5 + 1000, 5 + 1000, LEARN_NS - 1), None, "too early");
        assert_eq!(pace(5, 5 + second, 5 + second + second / 500, second), None, "interrupted");
        assert_eq!(pace(5, 5, 5, second), None, "it stands still");
        assert_eq!(pace(5, 4, 6, second), None, "it went back");
    }

    /// Whichever clock is behind it, before and after the pace is known.
    #[test]
    fn it_agrees_with_the_clock() {
        prepare();
        for _ in 0..3 {
            let (from_ns, from) = (clock::now_ns(), now());
            assert_ne!(from, 0);
            clock::spin_for_ns(2 * LEARN_NS);
            let inner = since(from);
            let outer = (clock::now_ns() - from_ns).cast_signed();
            assert!(inner <= outer + outer / 1000, "{inner} {outer}");
            assert!(inner >= 2 * LEARN_NS.cast_signed() * 999 / 1000, "{inner} {outer}");
            learn();
        }
        assert_eq!(PACE.load(Ordering::Relaxed) != 0, START[0].load(Ordering::Relaxed) != 0);
    }
}

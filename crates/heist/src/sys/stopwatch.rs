//! A cheaper clock for short durations: the counter of the CPU, where the kernel trusts it.
//!
//! One in eight goroutines that become runnable is measured, so the clock is read every few
//! wake-ups, and on many machines one read of the kernel's clock costs more than all other work of
//! a wake-up. The counter costs a third of that read. Only the kernel knows whether the counters of
//! all CPUs agree and never pause: if it uses them for its own clock, they do.
//!
//! The speed of the counter is learnt from the kernel's clock once a few milliseconds of both have
//! passed; until then, and where there is no such counter, the kernel's clock is used.

use super::clock;
use heist_core::sync::{AtomicU64, Ordering};

/// The bit of a moment that was read from the counter.
const COUNTED: u64 = 1 << 63;

/// How long the two clocks are compared.
const LEARN_NS: u64 = 10_000_000;
/// The share of that time that may pass while both clocks are read: a thread that is interrupted
/// there tries again.
const DOUBT: u64 = 4000;

/// Nanoseconds per step of the counter, times 2 to the 32; zero while it is not known.
static PACE: AtomicU64 = AtomicU64::new(0);
/// Both clocks at one moment, the counter first; zero if the counter is not trusted.
static START: [AtomicU64; 2] = [AtomicU64::new(0), AtomicU64::new(0)];
/// How many steps the counter made while they were read.
static START_DOUBT: AtomicU64 = AtomicU64::new(0);

/// A moment, to be compared with a later one on any thread. Never zero.
#[inline]
pub(crate) fn now() -> u64 {
    if PACE.load(Ordering::Relaxed) == 0 { clock::now_ns() } else { counter() | COUNTED }
}

/// Nanoseconds since a moment. Readings on two CPUs may differ a little, so it may be negative.
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
            let readings = std::array::from_fn::<_, 4, _>(|_| both());
            let closest = readings.iter().min_by_key(|reading| reading.doubt);
            if let Some(&Reading { steps, ns, doubt }) = closest {
                START[1].store(ns, Ordering::Relaxed);
                START_DOUBT.store(doubt, Ordering::Relaxed);
                // ORDERING: Release pairs with `learn`, which reads this first.
                START[0].store(steps, Ordering::Release);
            }
        }
    });
}

/// Learns the speed of the counter, if it is not known and enough time has passed.
pub(crate) fn learn() {
    // ORDERING: Acquire pairs with `prepare`.
    let from = START[0].load(Ordering::Acquire);
    if from == 0 || PACE.load(Ordering::Relaxed) != 0 {
        return;
    }
    let now = both();
    let passed = Reading {
        steps: now.steps.wrapping_sub(from),
        ns: now.ns.wrapping_sub(START[1].load(Ordering::Relaxed)),
        doubt: now.doubt + START_DOUBT.load(Ordering::Relaxed),
    };
    if let Some(pace) = pace(passed) {
        PACE.store(pace, Ordering::Relaxed);
    }
}

/// Readings of both clocks, or the differences of two readings.
#[derive(Clone, Copy)]
struct Reading {
    steps: u64,
    ns: u64,
    /// Steps that were made between the readings.
    doubt: u64,
}

fn both() -> Reading {
    let steps = counter();
    let ns = clock::now_ns();
    Reading { steps, ns, doubt: counter().wrapping_sub(steps) }
}

/// The pace of the counter by the differences `passed`.
fn pace(passed: Reading) -> Option<u64> {
    let Reading { steps, ns, doubt } = passed;
    if ns < LEARN_NS || steps == 0 || doubt > steps / DOUBT {
        return None;
    }
    u64::try_from((u128::from(ns) << 32) / u128::from(steps)).ok().filter(|&pace| pace != 0)
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has it. Where the system forbids it to programs, the kernel does not
    // use it for their clock either, and this is not called.
    unsafe { core::arch::x86_64::_rdtsc() }
}

#[cfg(not(target_arch = "x86_64"))]
#[inline]
fn counter() -> u64 {
    0
}

/// Whether the kernel uses the counter for its own clock.
pub(super) fn is_trusted() -> bool {
    const SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";
    cfg!(target_arch = "x86_64")
        && std::fs::read(SOURCE).is_ok_and(|source| source.trim_ascii() == b"tsc")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_needs_time_and_two_readings_close_together() {
        const SECOND: u64 = 1_000_000_000;
        let pace_of = |steps, ns, doubt| pace(Reading { steps, ns, doubt });
        assert_eq!(pace_of(SECOND, SECOND, 0), Some(1 << 32));
        assert_eq!(pace_of(2 * SECOND, SECOND, 100), Some(1 << 31));
        assert_eq!(pace_of(SECOND, LEARN_NS - 1, 0), None, "too early");
        assert_eq!(pace_of(SECOND, SECOND, SECOND / DOUBT + 1), None, "interrupted");
        assert_eq!(pace_of(0, SECOND, 0), None, "it does not run");
    }

    /// This holds for either clock, before and after the pace is known.
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
        if START[0].load(Ordering::Relaxed) != 0 {
            while PACE.load(Ordering::Relaxed) == 0 {
                learn();
            }
            assert_ne!(now() & COUNTED, 0);
        }
    }
}

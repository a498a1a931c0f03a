//! The clock of an execution trace: the counter of the CPU, where the kernel trusts it.
//!
//! x86-64 has the time stamp counter, aarch64 the virtual counter, which all CPUs share. If the
//! kernel does not use the counter for its own clock, the counters of two CPUs may differ, and the
//! kernel's clock is read instead.

use super::{clock, stopwatch};
use heist_core::sync::{AtomicU32, Ordering};

/// Which clock is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Source {
    Kernel,
    Counter,
}

const UNKNOWN: u32 = 0;
const KERNEL: u32 = 1;
const COUNTER: u32 = 2;

static SOURCE: AtomicU32 = AtomicU32::new(UNKNOWN);

/// Decides which clock is read, for the first trace of the process. It reads a file.
pub(crate) fn prepare() -> Source {
    if SOURCE.load(Ordering::Relaxed) == UNKNOWN {
        let trusted = cfg!(target_arch = "aarch64") || stopwatch::is_trusted();
        SOURCE.store(if trusted { COUNTER } else { KERNEL }, Ordering::Relaxed);
    }
    if SOURCE.load(Ordering::Relaxed) == COUNTER { Source::Counter } else { Source::Kernel }
}

/// The time. Later than what the caller has read from memory before, and earlier than what other
/// threads see of its later writes.
#[inline]
pub(crate) fn now() -> u64 {
    if SOURCE.load(Ordering::Relaxed) == COUNTER { counter() } else { clock::now_ns() }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn counter() -> u64 {
    // SAFETY: every x86-64 CPU has both instructions. Where the system forbids the counter to
    // programs, the kernel does not use it for their clock either. The fence keeps the counter from
    // being read before the loads that precede it.
    unsafe {
        core::arch::x86_64::_mm_lfence();
        core::arch::x86_64::_rdtsc()
    }
}

#[cfg(target_arch = "aarch64")]
#[inline]
fn counter() -> u64 {
    let now: u64;
    // SAFETY: programs may read this register on Linux. The barrier keeps it from being read early.
    unsafe {
        core::arch::asm!("isb", "mrs {now}, cntvct_el0", now = out(reg) now, options(nostack));
    }
    now
}

/// The same moment on this clock, on the monotonic one and in nanoseconds since 1970.
pub(crate) fn moment() -> (u64, u64, u64) {
    let unix = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let unix_ns = unix.map_or(0, |since| since.as_nanos() as u64);
    // The closest pair of readings.
    let pair = || {
        let before = now();
        let ns = clock::now_ns();
        let after = now();
        (after.wrapping_sub(before), before + after.wrapping_sub(before) / 2, ns)
    };
    let readings = std::array::from_fn::<_, 8, _>(|_| pair());
    let (_, ticks, ns) =
        readings.into_iter().min_by_key(|&(doubt, ..)| doubt).unwrap_or((0, now(), 0));
    (ticks, ns, unix_ns)
}

/// The clock never goes back on one thread, and advances.
#[test]
fn ticks_grow() {
    prepare();
    let first = now();
    let mut last = first;
    for _ in 0..1000 {
        let next = now();
        assert!(next >= last);
        last = next;
    }
    assert!(last > first);
}

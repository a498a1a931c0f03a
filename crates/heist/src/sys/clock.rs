//! The monotonic clock.

/// Nanoseconds since some fixed moment. Never goes back.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call reads the vDSO and cannot fail for
    // this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Waits without leaving the CPU.
pub(crate) fn spin_for_ns(ns: u64) {
    let until = now_ns() + ns;
    while now_ns() < until {
        for _ in 0..8 {
            std::hint::spin_loop();
        }
    }
}

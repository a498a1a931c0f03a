//! The monotonic clock.
//!
//! std's `Instant` reads the same clock and does not expose the number. So one moment is read from
//! both, once in the life of the process, and every other moment is its distance from that one. No
//! other code pairs two reads: a thread that loses its CPU between them would be wrong by that
//! time.

use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Nanoseconds since a fixed moment. Never decreases.
#[inline]
pub(crate) fn now_ns() -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid place for the answer. The call reads the vDSO and cannot fail for
    // this clock.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// One moment on both clocks.
#[derive(Clone, Copy)]
struct Anchor {
    instant: Instant,
    ns: u64,
}

/// How many pairs of reads are made. The closest pair is used.
const ANCHOR_READS: u32 = 64;

fn anchor() -> Anchor {
    static ANCHOR: OnceLock<Anchor> = OnceLock::new();
    *ANCHOR.get_or_init(|| {
        let first = Instant::now();
        let ns_of_first = || {
            let later = Instant::now();
            // It is read after the other, so it is never too small, and the smallest is the
            // closest.
            now_ns() - in_ns(later - first)
        };
        let ns = (0..ANCHOR_READS).map(|_| ns_of_first()).min().unwrap_or_default();
        Anchor { instant: first, ns }
    })
}

/// A duration in nanoseconds, or the maximum if it does not fit.
fn in_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// A moment in the time of [`now_ns`]: never earlier, and later by at most the time of one read.
/// For user code.
pub(crate) fn ns_of(moment: Instant) -> u64 {
    let Anchor { instant, ns } = anchor();
    match moment.checked_duration_since(instant) {
        Some(later) => ns.saturating_add(in_ns(later)),
        None => ns.saturating_sub(in_ns(instant.duration_since(moment))),
    }
}

/// The reverse of [`ns_of`]. For user code.
pub(crate) fn instant_of(moment_ns: u64) -> Instant {
    let Anchor { instant, ns } = anchor();
    if moment_ns < ns {
        let earlier = Duration::from_nanos(ns - moment_ns);
        return instant.checked_sub(earlier).unwrap_or(instant);
    }
    instant + Duration::from_nanos(moment_ns - ns)
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

/// Both directions of the conversion agree with each other and with the clocks.
#[test]
fn a_moment_is_the_same_by_both_clocks() {
    for _ in 0..1000 {
        let (before_ns, moment, after_ns) = (now_ns(), Instant::now(), now_ns());
        assert_eq!(instant_of(ns_of(moment)), moment);
        assert!(ns_of(moment) >= before_ns, "a moment is never early");
        // The smallest distance of two reads, with a margin for a slow machine.
        assert!(ns_of(moment) <= after_ns + 1_000_000);
    }
    let anchor = anchor().instant;
    for apart in [1, 1_000_000_000, 3_600_000_000_000] {
        let apart = Duration::from_nanos(apart);
        assert_eq!(ns_of(anchor + apart) - ns_of(anchor), in_ns(apart));
    }
    assert_eq!(ns_of(anchor + Duration::from_secs(u64::MAX >> 2)), u64::MAX);
}

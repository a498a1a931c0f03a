//! Decisions about waits for timers: how exact they are, and which are not worth an alarm.

/// A wait for a timer that is shorter than this is short.
pub const SHORT_WAIT_NS: u64 = 200_000;
/// After this many short waits in a row that each brought several timers, timers are dense.
pub const SHORT_WAITS_MAX: u32 = 8;
/// The shortest wait for a dense timer: setting an alarm and being woken by it costs more than most
/// timers, so dense ones are run together.
pub const DENSE_WAIT_NS: u64 = 1_000_000;
/// The shortest wait for a dense timer while goroutines with short sleeps wait.
pub const FINE_WAIT_NS: u64 = 50_000;
/// The longest sleep that is short: longer ones may end [`DENSE_WAIT_NS`] late.
pub const SHORT_SLEEP_NS: u64 = 1_000_000;
/// The longest sleep whose end is awaited by looking at the clock: setting an alarm, sleeping and
/// being woken takes longer and uses more of the CPU.
pub const TINY_SLEEP_NS: u64 = 10_000;

/// How long a goroutine asked to sleep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sleep {
    /// So short that an alarm saves nothing.
    Tiny,
    /// Up to a millisecond: it may end a little late.
    Short,
    /// For longer.
    Long,
}

impl Sleep {
    /// A sleep from `now` until `when`.
    #[must_use]
    pub const fn of(now: u64, when: u64) -> Self {
        let length_ns = when.saturating_sub(now);
        if length_ns <= TINY_SLEEP_NS {
            Self::Tiny
        } else if length_ns <= SHORT_SLEEP_NS {
            Self::Short
        } else {
            Self::Long
        }
    }
}

/// Whether to poll the clock until the first timer of a P is due, at `when`. The tiny sleeps at
/// that P end at `tiny_until` at the latest.
#[must_use]
pub const fn is_near(now: u64, when: u64, tiny_until: u64) -> bool {
    when <= tiny_until && when <= now.saturating_add(TINY_SLEEP_NS)
}

/// How exact a wait in the poller is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grain {
    /// Timers are dense, so several are run together.
    pub dense: bool,
    /// Short waits in a row, for the next time.
    pub short_waits: u32,
}

impl Grain {
    /// The grain of a wait that begins `now`, for a timer that is due at `until`, after
    /// `short_waits` short ones in a row.
    #[must_use]
    pub const fn of(now: u64, until: u64, short_waits: u32) -> Self {
        if until.saturating_sub(now) >= SHORT_WAIT_NS {
            Self { dense: false, short_waits: 0 }
        } else if short_waits < SHORT_WAITS_MAX {
            Self { dense: false, short_waits: short_waits + 1 }
        } else {
            Self { dense: true, short_waits }
        }
    }

    /// Short waits in a row after one that ended with `n_due` timers. A wait that brought a single
    /// timer does not count: where there is nothing to run together, a longer wait saves nothing.
    #[must_use]
    pub const fn short_waits_after(short_waits: u32, n_due: u32) -> u32 {
        if n_due > 1 { short_waits } else { 0 }
    }
}

/// When an M that waits in the poller since `since`, while timers are dense, must be awake for a
/// timer that is due at `when`. The short sleeps end at `short_until` at the latest.
#[must_use]
pub fn awake_at(since: u64, when: u64, short_until: u64) -> u64 {
    let least_ns = if when <= short_until { FINE_WAIT_NS } else { DENSE_WAIT_NS };
    when.max(since.saturating_add(least_ns))
}

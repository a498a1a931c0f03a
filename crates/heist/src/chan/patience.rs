//! How long an operation of a channel may wait.

use crate::time;
use heist_core::timer_heap::NEVER;
use std::time::{Duration, Instant};

/// How long an operation may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until this moment of the scheduler's time.
    Until(u64),
}

impl Patience {
    /// When the wait ends; zero for [`Patience::None`].
    #[inline(always)]
    pub(super) const fn deadline_ns(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Until(deadline_ns) => deadline_ns,
        }
    }

    /// Without a limit.
    pub(super) const ENDLESS: Self = Self::Until(NEVER);

    /// For this long from now.
    pub(super) fn lasting(duration: Duration) -> Self {
        Self::Until(time::deadline_after(duration))
    }

    /// Until `deadline`.
    pub(super) fn until(deadline: Instant) -> Self {
        Self::Until(time::deadline_at(deadline))
    }
}

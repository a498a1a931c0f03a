//! How runnable goroutines spread over the Ps: idle Ps steal, or busy Ps share.
//!
//! The runtime steals. Sharing is a policy of the simulator, which compares the two: a P that makes
//! a goroutine runnable hands it to an idle P at once, and a P without work looks nowhere else than
//! in the global queue.

/// Which side moves goroutines from busy Ps to idle ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Balance {
    /// An idle P takes goroutines from busy ones.
    #[default]
    Steal,
    /// A busy P gives goroutines to idle ones.
    Share,
}

/// Where a goroutine that becomes runnable at a P is queued.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placement {
    /// At this P.
    Here,
    /// At an idle P, whose M is woken for it.
    IdleP,
}

impl Balance {
    /// Whether a P without work searches the queues of the others.
    #[must_use]
    pub const fn searches(self) -> bool {
        matches!(self, Self::Steal)
    }

    /// Where a goroutine goes that becomes runnable at a P, when `n_idle` other Ps are idle.
    #[must_use]
    pub const fn place(self, n_idle: u32) -> Placement {
        match self {
            Self::Share if n_idle > 0 => Placement::IdleP,
            Self::Share | Self::Steal => Placement::Here,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_p_that_steals_keeps_its_goroutines() {
        for n_idle in [0, 1, 64] {
            assert_eq!(Balance::Steal.place(n_idle), Placement::Here);
        }
        assert!(Balance::Steal.searches());
    }

    #[test]
    fn a_p_that_shares_gives_to_idle_ps_only() {
        assert_eq!(Balance::Share.place(0), Placement::Here);
        assert_eq!(Balance::Share.place(1), Placement::IdleP);
        assert!(!Balance::Share.searches());
    }
}

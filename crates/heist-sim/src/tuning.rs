//! The policy of a simulated scheduler: the runtime's, and what could replace parts of it.

use heist_core::policy::balance::Balance;
use heist_core::policy::{self, StealPolicy};

/// How a thief finds its victims.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Victims {
    /// Every P that is not idle, in the order of the policy: the runtime.
    Walk,
    /// Only Ps that a mask shows to have work in their ring. The mask has one word for 64 Ps on a
    /// line of its own, and a summary word. The owner sets its bit when its ring gets its first
    /// goroutine.
    WorkMask,
    /// The longer of two random rings, this many times in a row.
    TwoChoices(u32),
    /// The Ps of the own node first, then the others.
    NodeFirst,
}

/// How many Ms may look for work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpinCap {
    /// Half of the busy Ps: the runtime.
    HalfOfBusy,
    /// As many as there are busy Ps times a quotient of two small numbers.
    OfBusy(u32, u32),
    /// A fixed number.
    AtMost(u32),
}

/// When an M that found work wakes the next one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chain {
    /// Always: the runtime.
    Always,
    /// If the global queue or its own ring has more.
    IfMore,
}

/// How many goroutines a thief takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// The share of the policy: the runtime.
    Policy,
    /// One.
    One,
    /// A quarter, rounded up.
    Quarter,
    /// Everything, up to half a ring.
    All,
}

/// The shape of a P's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shape {
    /// A ring: the runtime. Owner and thieves change the same word.
    Ring,
    /// Blocks of this many goroutines (BWoS). Thieves take a block that the owner does not use, so
    /// the owner's operations are plain but for one in a block.
    Blocks(u32),
}

/// How the latency class is served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    /// By its lane and the reserved Ps: the runtime.
    Off,
    /// A controller looks at the queueing delay of the class and preempts a goroutine of another
    /// class while it is too long (Caladan).
    Delay {
        /// How often it looks.
        period_ns: u64,
        /// The delay that it tolerates.
        bound_ns: u64,
    },
}

/// A policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    /// How idle Ps steal.
    pub steal: StealPolicy,
    /// Whether they do.
    pub balance: Balance,
    /// How they find victims.
    pub victims: Victims,
    /// How much they take.
    pub take: Take,
    /// How many of them look at once.
    pub spin_cap: SpinCap,
    /// When they wake others.
    pub chain: Chain,
    /// Once in how many ticks the global queue goes first.
    pub global_check_ticks: u32,
    /// Goroutines that a ring holds, at most heist-core's 256.
    pub ring: u32,
    /// The shape of the queue.
    pub shape: Shape,
    /// Parts of the global queue.
    pub global_shards: u32,
    /// Whether an M that found nothing lingers before it sleeps. Go's does not.
    pub lingers: bool,
    /// The shortest time for which it does so.
    pub linger_min_ns: u64,
    /// Whether an M watches. Go's does not.
    pub watches: bool,
    /// How the latency class is served.
    pub control: Control,
}

impl Tuning {
    /// The policy of this runtime.
    #[must_use]
    pub const fn heist() -> Self {
        Self {
            steal: StealPolicy::go(),
            balance: Balance::Steal,
            victims: Victims::Walk,
            take: Take::Policy,
            spin_cap: SpinCap::HalfOfBusy,
            chain: Chain::Always,
            global_check_ticks: policy::GLOBAL_CHECK_TICKS,
            ring: policy::RING_CAPACITY,
            shape: Shape::Ring,
            global_shards: 1,
            lingers: true,
            linger_min_ns: policy::LINGER_MIN_NS,
            watches: true,
            control: Control::Off,
        }
    }

    /// Go's policy: as the runtime's, without lingering and watching.
    #[must_use]
    pub const fn go() -> Self {
        Self { lingers: false, watches: false, ..Self::heist() }
    }

    /// The runtime with the gentle steal policy.
    #[must_use]
    pub const fn gentle() -> Self {
        Self { steal: StealPolicy::gentle(), ..Self::heist() }
    }

    /// Work sharing in place of stealing.
    #[must_use]
    pub const fn sharing() -> Self {
        Self { balance: Balance::Share, ..Self::heist() }
    }

    /// Whether a P with this tick takes from the global queue first.
    #[must_use]
    pub const fn global_first(&self, tick: u32) -> bool {
        if self.global_check_ticks == policy::GLOBAL_CHECK_TICKS {
            policy::global_first(tick)
        } else {
            tick.is_multiple_of(self.global_check_ticks)
        }
    }

    /// Whether one more M may look for work.
    #[must_use]
    pub const fn may_spin(&self, n_spinning: u32, procs: u32, n_idle: u32) -> bool {
        match self.spin_cap {
            SpinCap::HalfOfBusy => policy::may_spin(n_spinning, procs, n_idle),
            SpinCap::OfBusy(times, parts) => {
                parts * n_spinning < times * procs.saturating_sub(n_idle)
            }
            SpinCap::AtMost(n) => n_spinning < n,
        }
    }
}

impl Default for Tuning {
    fn default() -> Self {
        Self::heist()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_default_is_the_policy_of_the_runtime() {
        let tuning = Tuning::default();
        for tick in 0..1000 {
            assert_eq!(tuning.global_first(tick), policy::global_first(tick));
        }
        let half = Tuning { spin_cap: SpinCap::OfBusy(1, 2), ..tuning };
        for (n, procs, idle) in [(0, 4, 4), (0, 4, 3), (1, 4, 2), (1, 4, 1), (9, 20, 1)] {
            let expected = policy::may_spin(n, procs, idle);
            assert_eq!(tuning.may_spin(n, procs, idle), expected);
            assert_eq!(half.may_spin(n, procs, idle), expected);
        }
    }
}

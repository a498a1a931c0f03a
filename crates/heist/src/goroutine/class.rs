//! Classes: how urgent a goroutine is.

use crate::gmp::flags::Flag;

/// How urgent a goroutine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Runs before the others: on the processors reserved for it
    /// ([`Builder::latency_procs`](crate::Builder::latency_procs)) and, before everything else that
    /// waits, on all. For goroutines that do little and must do it soon.
    Latency,
    /// As most goroutines.
    #[default]
    Normal,
    /// Runs only where a processor would sleep, and gives way as soon as somebody else has
    /// something to do. It may never run.
    Idle,
}

impl Class {
    pub(super) const fn flag(self) -> Flag {
        match self {
            Self::Latency => Flag::LATENCY,
            Self::Normal => Flag::NONE,
            Self::Idle => Flag::IDLE,
        }
    }
}

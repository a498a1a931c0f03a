//! Classes: how urgent a goroutine is.

use crate::gmp::flags::Flag;

/// How urgent a goroutine is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Class {
    /// Runs before the others: on the processors that are reserved for its class
    /// ([`Builder::latency_procs`](crate::Builder::latency_procs)), and on the others before
    /// everything else that waits. For goroutines that do little work and must do it soon.
    Latency,
    /// The class of most goroutines.
    #[default]
    Normal,
    /// Runs only where a processor would otherwise be idle, and is preempted as soon as a goroutine
    /// of another class is runnable. It may never run.
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

heist_core::named_policy!(Class, "class", [
    "latency" => Class::Latency,
    "normal" => Class::Normal,
    "idle" => Class::Idle,
]);

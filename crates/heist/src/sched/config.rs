//! What a runtime was built with.

use super::stacks::overflow::OverflowPolicy;
use super::world::{ProcsChoice, ProcsDefault};
use crate::coro::stack::Class;
use crate::gmp::P;
use heist_core::policy::StealPolicy;
use std::time::Duration;

/// What to do when a goroutine panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The panic ends its goroutine and is handed to whoever joins it.
    #[default]
    Isolate,
    /// Go's behaviour: a panic that nobody caught ends the process with exit code 2.
    Abort,
}

/// How much a trace of the scheduler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// One line.
    Summary,
    /// One for each P, M and goroutine besides.
    All,
}

/// What a runtime was built with.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) procs: u32,
    /// The first so many Ps are reserved for goroutines of the latency class.
    pub(crate) latency_procs: u32,
    /// Whether the number of Ps was chosen, or is the default.
    pub(crate) procs_choice: ProcsChoice,
    /// What the default is.
    pub(crate) procs_default: ProcsDefault,
    pub(crate) stack: Class,
    pub(crate) max_threads: u32,
    pub(crate) steal: StealPolicy,
    pub(crate) on_panic: PanicPolicy,
    pub(crate) on_overflow: OverflowPolicy,
    pub(crate) shutdown_timeout: Duration,
    /// How long a goroutine may run while others wait.
    pub(crate) quantum_ns: u64,
    /// How long a goroutine that the clock or the network woke waits for a P that is not given back.
    pub(crate) wake_up_ns: u64,
    /// Whether goroutines that make no calls are stopped by a signal.
    pub(crate) forced_preemption: bool,
    /// Whether a process in which nothing can happen any more is ended.
    pub(crate) deadlock_detection: bool,
    /// Seeds the scheduler's random numbers.
    pub(crate) seed: u64,
    /// Chaos mode: the seed of its disturbances.
    pub(crate) chaos: Option<u64>,
    /// Whether the threads ask the kernel for short turns.
    pub(crate) short_turns: bool,
    /// Whether to record where goroutines that move have addresses of thread-locals.
    pub(crate) tls_report: bool,
    /// How often sysmon prints a line about the scheduler, and how much; never if None.
    pub(crate) trace: Option<(u64, Detail)>,
}

impl Config {
    /// A new P for this runtime.
    pub(super) fn new_p(&self, id: u32) -> P {
        P::new(id, self.stack, self.seed, self.chaos, id < self.latency_procs)
    }
}

//! What a runtime was built with.

use super::stacks::overflow::OverflowPolicy;
use super::world::{ProcsChoice, ProcsDefault};
use crate::coro::stack::Class;
use crate::gmp::P;
use crate::gmp::flags::Flag;
use crate::sys::numa::Nodes;
use heist_core::policy::StealPolicy;
use heist_core::sync::Ordering;
use std::time::Duration;

/// What to do when a goroutine panics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum PanicPolicy {
    /// The panic ends its goroutine and is handed to the goroutine or thread that joins it.
    #[default]
    Isolate,
    /// Go's behaviour: a panic that is not caught ends the process with exit code 2.
    Abort,
}

heist_core::named_policy!(PanicPolicy, "panic policy", [
    "isolate" => PanicPolicy::Isolate,
    "abort" => PanicPolicy::Abort,
]);

/// How much a trace of the scheduler says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Detail {
    /// One line.
    Summary,
    /// The summary, and one line for each P, M and goroutine.
    All,
}

/// The options of a runtime, after they were checked.
#[derive(Clone, Debug)]
pub(crate) struct Config {
    pub(crate) name: String,
    pub(crate) procs: u32,
    /// How many Ps, from P0 on, are reserved for goroutines of the latency class.
    pub(crate) latency_procs: u32,
    /// Whether the number of Ps was chosen or is the default.
    pub(crate) procs_choice: ProcsChoice,
    /// How the default number of Ps is found.
    pub(crate) procs_default: ProcsDefault,
    pub(crate) stack: Class,
    pub(crate) max_threads: u32,
    pub(crate) steal: StealPolicy,
    /// The NUMA nodes that the Ps are on, as far as they matter to thieves.
    pub(crate) nodes: Nodes,
    pub(crate) on_panic: PanicPolicy,
    pub(crate) on_overflow: OverflowPolicy,
    pub(crate) shutdown_timeout: Duration,
    /// How long a goroutine may run while others wait for a P.
    pub(crate) quantum_ns: u64,
    /// How long a goroutine that the clock or the network woke waits for a P while every P is busy.
    pub(crate) wake_up_ns: u64,
    /// Whether a signal preempts goroutines that make no calls into the runtime.
    pub(crate) forced_preemption: bool,
    /// Whether a deadlock ends the process: no goroutine runs, and nothing can wake one.
    pub(crate) deadlock_detection: bool,
    /// Seeds the scheduler's random numbers.
    pub(crate) seed: u64,
    /// The seed of chaos mode; None turns it off.
    pub(crate) chaos: Option<u64>,
    /// Whether every thread that runs goroutines asks the kernel for short turns when it starts.
    pub(crate) short_turns: bool,
    /// Whether to record where a goroutine that changes threads has addresses of thread-locals.
    pub(crate) tls_report: bool,
    /// Flags with which every goroutine begins: none, or [`Flag::PINNED`].
    pub(crate) born_with: Flag,
    /// How often sysmon prints a trace of the scheduler, in ns, and in which detail; never if None.
    pub(crate) trace: Option<(u64, Detail)>,
}

impl Config {
    /// A new P for this runtime.
    pub(super) fn new_p(&self, id: u32) -> P {
        let pp = P::new(id, self.stack, self.seed, self.chaos, id < self.latency_procs);
        pp.node.store(self.nodes.at_first(id, self.procs), Ordering::Relaxed);
        pp
    }
}

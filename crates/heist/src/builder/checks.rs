//! The checks that turn options into the configuration of a scheduler.

use super::{BuildError, Builder};
use crate::coro::stack::{self, Class};
use crate::gmp::flags::Flag;
use crate::sched::Config;
use crate::sched::world::{ProcsChoice, ProcsDefault};
use crate::sys::numa::Nodes;
use heist_core::policy::PROCS_MAX;
use std::path::Path;
use std::time::Duration;

/// The least bound of a wake-up. Detecting an overdue goroutine and preempting another takes about
/// as long.
const WAKE_UP_LEAST: Duration = Duration::from_micros(100);

fn wrong<T>(option: &'static str, problem: String) -> Result<T, BuildError> {
    Err(BuildError::Option { option, problem })
}

impl Builder {
    pub(super) fn check(self) -> Result<Config, BuildError> {
        let procs_default = ProcsDefault {
            cgroup_root: self.cgroup_root.clone(),
            cpus: self.cpus,
            rounding: self.fractional_quota,
            follow: self.follow_procs,
        };
        let procs = self.checked_procs(&procs_default)?;
        let stack = self.checked_stack()?;
        self.check_the_rest()?;
        let nodes = self.nodes();
        Ok(Config {
            name: self.name,
            procs,
            latency_procs: self.latency_procs as u32,
            procs_choice: match self.procs {
                Some(_) => ProcsChoice::Chosen,
                None => ProcsChoice::Default,
            },
            procs_default,
            stack,
            // A number beyond a u32 means no limit.
            max_threads: self.max_threads.min(u32::MAX as usize) as u32,
            steal: self.steal,
            nodes,
            on_panic: self.on_panic,
            on_overflow: self.on_overflow,
            shutdown_timeout: self.shutdown_timeout,
            quantum_ns: self.quantum.as_nanos().min(u64::MAX.into()) as u64,
            wake_up_ns: self.wake_up_bound.as_nanos().min(u64::MAX.into()) as u64,
            forced_preemption: self.forced_preemption,
            deadlock_detection: self.deadlock_detection,
            seed: self.seed.unwrap_or_else(crate::sys::clock::now_ns),
            chaos: self.chaos,
            short_turns: self.short_turns,
            tls_report: self.tls_report,
            born_with: if self.pinned { Flag::PINNED } else { Flag::NONE },
            trace: (self.trace_ms != 0)
                .then(|| (self.trace_ms.saturating_mul(1_000_000), self.trace_detail)),
        })
    }

    /// The nodes of the machine, or those of a simulated one; one if thieves are to regard all Ps
    /// alike.
    fn nodes(&self) -> Nodes {
        match self.fake_nodes {
            _ if !self.steal.near_first => Nodes::One,
            Some(n) => Nodes::Fake(n),
            None => Nodes::read(self.cgroup_root.as_deref().unwrap_or(Path::new("/"))),
        }
    }

    /// The number of processors, of which at least one is not reserved.
    fn checked_procs(&self, default: &ProcsDefault) -> Result<u32, BuildError> {
        let reserved = self.latency_procs;
        // A default leaves one processor for other goroutines besides those that are reserved.
        let procs = self
            .procs
            .unwrap_or_else(|| (default.source().now() as usize).max(reserved.saturating_add(1)));
        if procs == 0 {
            let problem = "0 processors can run nothing; leave it out for one per CPU";
            return wrong("procs", problem.into());
        }
        if procs > PROCS_MAX as usize {
            return wrong("procs", format!("{procs} is more than the maximum, {PROCS_MAX}"));
        }
        if reserved >= procs {
            return wrong(
                "latency_procs",
                format!("{reserved} of {procs} processors reserved leave none for the others"),
            );
        }
        Ok(procs as u32)
    }

    fn checked_stack(&self) -> Result<Class, BuildError> {
        let (bytes, least, most) = (self.stack_bytes, stack::MIN_BYTES, stack::MAX_BYTES);
        if bytes < least {
            let problem =
                format!("{bytes} bytes are less than a panic needs; the minimum is {least}");
            return wrong("stack_size", problem);
        }
        match Class::for_bytes(bytes) {
            Some(stack) => Ok(stack),
            None => wrong("stack_size", format!("{bytes} bytes are more than the maximum, {most}")),
        }
    }

    fn check_the_rest(&self) -> Result<(), BuildError> {
        if self.max_threads < 2 {
            let problem = "a goroutine that computes or blocks keeps its thread, and the others need \
                           one more; the minimum is 2";
            return wrong("max_threads", problem.into());
        }
        if self.quantum.is_zero() {
            return wrong("quantum", "in a slice of no time a goroutine makes no progress".into());
        }
        if self.wake_up_bound < WAKE_UP_LEAST {
            let (bound, least) = (self.wake_up_bound, WAKE_UP_LEAST);
            return wrong(
                "wake_up_bound",
                format!("{bound:?} is less than detection takes; the minimum is {least:?}"),
            );
        }
        if self.name.contains('\0') {
            return wrong("name", "the name of a thread cannot contain a zero byte".into());
        }
        if self.steal.tries == 0 {
            return wrong("steal_policy", "with 0 tries nothing would ever be stolen".into());
        }
        Ok(())
    }
}

//! A diagnosis of the system: the features that it offers to a runtime, and those that are
//! degraded.

use crate::coro::stack;
use crate::sys::cpu::{self, DefaultProcs};
use crate::sys::degraded::Lack;
use crate::sys::limits::{self, Limit};
use crate::sys::{probe, thread};
use heist_core::policy::FractionalQuota;
use std::fmt;
use std::path::Path;

/// An inspection of the system: the kernel, the limits of the process and of its control group,
/// their effect on a runtime, and what is degraded. The program `heist doctor` prints it.
///
/// # Examples
/// ```
/// let diagnosis = heist::Diagnosis::new();
/// println!("{diagnosis}");
/// for finding in diagnosis.findings().filter(|finding| finding.degraded.is_some()) {
///     eprintln!("{}: {}", finding.topic, finding.found);
/// }
/// # assert!(diagnosis.to_string().contains("descriptors"));
/// ```
#[derive(Clone, Debug)]
pub struct Diagnosis {
    findings: Vec<Finding>,
}

/// One thing that was inspected.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Finding {
    /// The topic.
    pub topic: &'static str,
    /// The finding, and its effect on a runtime.
    pub found: String,
    /// The degraded feature, and how to fix it.
    pub degraded: Option<String>,
}

/// With fewer descriptors the runtime keeps fewer than it wants.
const DESCRIPTORS_WANTED: u64 = 256;
/// With fewer threads a program with blocking calls most likely runs out of them.
const THREADS_WANTED: u64 = 64;
/// With less address space stacks are mapped in small pieces.
const SPACE_WANTED: u64 = 256 << 20;

impl Diagnosis {
    /// Inspects the system as it is now.
    #[must_use]
    pub fn new() -> Self {
        let findings = vec![
            Finding { topic: "kernel", found: probe::kernel(), degraded: None },
            processors(),
            descriptors(),
            threads(),
            address_space(),
            group_memory(),
            thread_states(),
            fences(),
            guards(),
            missed(),
        ];
        Self { findings }
    }

    /// The findings, topic by topic.
    pub fn findings(&self) -> impl Iterator<Item = &Finding> {
        self.findings.iter()
    }

    /// Whether something is degraded here.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        self.findings.iter().any(|finding| finding.degraded.is_some())
    }
}

impl Default for Diagnosis {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Display for Diagnosis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for Finding { topic, found, degraded } in &self.findings {
            let mark = if degraded.is_some() { "degraded" } else { "ok" };
            writeln!(f, "{mark:<9} {topic:<14} {found}")?;
            if let Some(degraded) = degraded {
                writeln!(f, "{:<24} {degraded}", "")?;
            }
        }
        Ok(())
    }
}

fn finding(topic: &'static str, found: String, degraded: Option<&str>) -> Finding {
    Finding { topic, found, degraded: degraded.map(str::to_owned) }
}

/// A limit as text.
fn or_unlimited(limit: Option<u64>, unit: &str) -> String {
    limit.map_or_else(|| "unlimited".to_owned(), |n| format!("{n}{unit}"))
}

fn processors() -> Finding {
    let cpus = cpu::affinity_count();
    let procs = DefaultProcs::new(Some(Path::new("/")), None, FractionalQuota::default()).now();
    finding("processors", format!("{cpus} CPUs, {procs} processors by default"), None)
}

fn descriptors() -> Finding {
    let limit = Limit::Descriptors.get();
    let open = probe::open_descriptors();
    let found = format!("limit {}, open {}", or_unlimited(limit, ""), or_unlimited(open, ""));
    let few = limit.is_some_and(|limit| limit < DESCRIPTORS_WANTED);
    let why = "a runtime keeps fewer files of threads and pipes open, and connections are refused \
               early: raise `ulimit -n`";
    finding("descriptors", found, few.then_some(why))
}

fn threads() -> Finding {
    let user = Limit::Threads.get();
    let group = probe::of_group("pids", "pids.max", "pids.max");
    let found = format!(
        "limit of the user {}, of the control group {}",
        or_unlimited(user, ""),
        or_unlimited(group, "")
    );
    let few = [user, group].into_iter().flatten().any(|limit| limit < THREADS_WANTED);
    let why = "goroutines that block or compute keep others waiting when no thread can be started: raise \
               `ulimit -u` or pids.max";
    finding("threads", found, few.then_some(why))
}

fn address_space() -> Finding {
    let kib = |limit: Limit| or_unlimited(limit.get().map(|bytes| bytes / 1024), " KiB");
    let default_kib = stack::DEFAULT_BYTES / 1024;
    let found = format!(
        "limit {}, of data {}; stacks of {default_kib} KiB",
        kib(Limit::AddressSpace),
        kib(Limit::Data)
    );
    let little = !limits::room().has(SPACE_WANTED);
    let why = "there is room for few stacks, for which goroutines wait: raise `ulimit -v` and `ulimit -d`, \
               or make stacks smaller";
    finding("address space", found, little.then_some(why))
}

fn group_memory() -> Finding {
    let limit = probe::of_group("memory", "memory.max", "memory.limit_in_bytes");
    let used = probe::of_group("memory", "memory.current", "memory.usage_in_bytes");
    let mib = |bytes: Option<u64>| or_unlimited(bytes.map(|bytes| bytes >> 20), " MiB");
    let found = match limit {
        None => "no limit of the control group".to_owned(),
        Some(_) => format!("limit of the control group {}, used {}", mib(limit), mib(used)),
    };
    let full = limit.zip(used).is_some_and(|(limit, used)| used > limit / 10 * 9);
    let why =
        "the kernel reclaims memory or ends the process when a stack is touched: raise memory.max";
    finding("memory", found, full.then_some(why))
}

fn thread_states() -> Finding {
    if thread::has_own_proc() {
        return finding("thread states", "read in /proc".to_owned(), None);
    }
    let why = "blocked calls keep their processor for 4 ms, and deadlocks are not found: mount /proc of this \
               pid namespace";
    finding("thread states", "no /proc of this process: CPU clocks".to_owned(), Some(why))
}

fn fences() -> Finding {
    if probe::has_membarrier() {
        return finding("fences", "membarrier".to_owned(), None);
    }
    let why = "every call into the runtime costs a fence: allow membarrier in the sandbox";
    finding("fences", "no membarrier".to_owned(), Some(why))
}

fn guards() -> Finding {
    if probe::has_light_guards() {
        return finding("stack guards", "MADV_GUARD_INSTALL, without a limit".to_owned(), None);
    }
    let found = format!(
        "mprotect, two mappings for each stack; vm.max_map_count {}",
        or_unlimited(probe::max_mappings(), "")
    );
    let why =
        "the number of goroutines is limited by vm.max_map_count: raise it, or use Linux 6.13";
    finding("stack guards", found, Some(why))
}

/// The refusals in this process so far.
fn missed() -> Finding {
    let counts = [
        ("threads refused", Lack::Thread.count()),
        ("stacks refused", Lack::Stack.count()),
        ("goroutines ended for lack of a stack", Lack::Goroutine.count()),
        ("thread states not read", Lack::ThreadState.count()),
    ];
    let parts: Vec<_> =
        counts.iter().filter(|(_, n)| *n != 0).map(|(what, n)| format!("{n} {what}")).collect();
    if parts.is_empty() {
        return finding("so far", "nothing was refused in this process".to_owned(), None);
    }
    let why = "the limits above were reached; the metrics in /heist/degraded continue the count";
    finding("so far", parts.join(", "), Some(why))
}

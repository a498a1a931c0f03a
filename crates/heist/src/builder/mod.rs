//! Building a runtime: options, environment, checks.

use crate::coro::guard;
use crate::coro::stack::{self, Class};
use crate::runtime::Runtime;
use crate::sched::overflow::OverflowPolicy;
use crate::sched::{Config, Detail, PanicPolicy, procs};
use heist_core::policy::{
    FractionalQuota, PROCS_MAX, QUANTUM_NS, StealPolicy, THREADS_MAX, WAKE_UP_NS,
};
use std::error::Error;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

/// How long a shutdown waits for goroutines that do not park.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Why a runtime could not be built.
#[derive(Debug)]
#[non_exhaustive]
pub enum BuildError {
    /// An option has a value that makes no sense.
    Option {
        /// Which option.
        option: &'static str,
        /// What is wrong with it, and what to do.
        problem: String,
    },
    /// An environment variable cannot be understood.
    Environment {
        /// The variable.
        variable: &'static str,
        /// What it is set to.
        value: String,
        /// What it may be set to.
        expected: &'static str,
    },
    /// The system refused a thread or memory.
    System(std::io::Error),
}

impl fmt::Display for BuildError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Option { option, problem } => write!(f, "{option}: {problem}"),
            Self::Environment { variable, value, expected } => {
                write!(f, "{variable}={value:?} makes no sense: expected {expected}")
            }
            Self::System(error) => write!(f, "the system refuses to start a runtime: {error}"),
        }
    }
}

impl Error for BuildError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            Self::System(error) => Some(error),
            _ => None,
        }
    }
}

/// Sets up a [`Runtime`].
///
/// Environment variables win over the program, so that an operator can change a deployed one:
/// `HEIST_PROCS`, `HEIST_STACK_SIZE` (bytes, `k` and `m` understood), `HEIST_MAX_THREADS`,
/// `HEIST_STEAL_POLICY` (`go` or `gentle`) and `HEIST_DEBUG` (a comma-separated list:
/// `quantum=DURATION`, such as `500us` or `10ms`, is how long a goroutine may run while others wait;
/// `schedtrace=MS` prints a line about the scheduler every so many milliseconds, with
/// `scheddetail=1` also one for each processor, thread and goroutine, see [`docs::operating`](crate::docs::operating);
/// `containermaxprocs=0` leaves the CPU quota of the control group out of the default number of
/// processors, and `updatemaxprocs=0` does not look at that default again;
/// `tlsreport` prints, when the runtime ends, where goroutines that moved to another thread had an
/// address of a thread-local, see `docs/SAFETY.md`;
/// `shortturns=1` has the threads ask the kernel for short turns;
/// `chaos=SEED` disturbs the scheduling on purpose, `guard=protect` guards stacks in the way of older
/// kernels; the last three for tests).
///
/// # Examples
/// ```
/// let rt = unsafe { heist::Runtime::builder().procs(2).name("worker").build() }?;
/// assert_eq!(rt.run(|| heist::go(|| 1).join().unwrap()), 1);
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder does nothing until it builds"]
pub struct Builder {
    name: String,
    procs: Option<usize>,
    latency_procs: usize,
    cgroup_root: Option<PathBuf>,
    cpus: Option<u32>,
    fractional_quota: FractionalQuota,
    follow_procs: bool,
    stack_bytes: usize,
    max_threads: usize,
    steal: StealPolicy,
    on_panic: PanicPolicy,
    on_overflow: OverflowPolicy,
    shutdown_timeout: Duration,
    quantum: Duration,
    exact_quantum: bool,
    wake_up_bound: Duration,
    forced_preemption: bool,
    deadlock_detection: bool,
    seed: Option<u64>,
    chaos: Option<u64>,
    short_turns: bool,
    tls_report: bool,
    trace_ms: u64,
    trace_detail: Detail,
}

/// The least bound of a wake-up. To find out who is late and to stop another takes about as long.
const WAKE_UP_LEAST: Duration = Duration::from_micros(100);

impl Default for Builder {
    fn default() -> Self {
        Self {
            name: "heist".into(),
            procs: None,
            latency_procs: 0,
            cgroup_root: Some("/".into()),
            cpus: None,
            fractional_quota: FractionalQuota::Up,
            follow_procs: true,
            stack_bytes: stack::DEFAULT_BYTES,
            max_threads: THREADS_MAX as usize,
            steal: StealPolicy::go(),
            on_panic: PanicPolicy::Isolate,
            on_overflow: OverflowPolicy::Exit,
            shutdown_timeout: SHUTDOWN_TIMEOUT,
            quantum: Duration::from_nanos(QUANTUM_NS),
            exact_quantum: false,
            wake_up_bound: Duration::from_nanos(WAKE_UP_NS),
            forced_preemption: true,
            deadlock_detection: true,
            seed: None,
            chaos: None,
            short_turns: false,
            tls_report: false,
            trace_ms: 0,
            trace_detail: Detail::Summary,
        }
    }
}

impl Builder {
    /// The defaults: a P per CPU, stacks of 256 KiB of address space, Go's stealing, panics
    /// isolated.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many goroutines run at the same time.
    ///
    /// Without it, as many as there are CPUs in the affinity mask, or fewer if the control group of
    /// the process, or one above it, has a CPU quota; looked at again once a second while goroutines
    /// run. A number that is chosen stays.
    #[doc(alias = "GOMAXPROCS")]
    pub const fn procs(mut self, n: usize) -> Self {
        self.procs = Some(n);
        self
    }

    /// How many of the processors are kept for goroutines of
    /// [`Class::Latency`](crate::goroutine::Class::Latency): they run nothing else, so such a
    /// goroutine finds one free whatever the others do. None unless told otherwise, and fewer than
    /// there are processors.
    ///
    /// # Examples
    /// ```
    /// use heist::goroutine::{Builder, Class};
    /// use std::sync::atomic::{AtomicBool, Ordering};
    ///
    /// static DONE: AtomicBool = AtomicBool::new(false);
    ///
    /// let rt = unsafe { heist::Runtime::builder().procs(2).latency_procs(1).build() }?;
    /// rt.run(|| {
    ///     // Has the other processor for itself.
    ///     let hog = heist::go(|| while !DONE.load(Ordering::Relaxed) {});
    ///     let urgent = Builder::new().class(Class::Latency);
    ///     let urgent = urgent.spawn(|| DONE.store(true, Ordering::Relaxed)).unwrap();
    ///     hog.join().unwrap();
    ///     urgent.join().unwrap();
    /// });
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn latency_procs(mut self, n: usize) -> Self {
        self.latency_procs = n;
        self
    }

    /// How many processors a CPU quota that is no whole number gives.
    pub const fn fractional_quota(mut self, rounding: FractionalQuota) -> Self {
        self.fractional_quota = rounding;
        self
    }

    /// Another machine: where `/proc` and the control groups are looked for, and how many CPUs it
    /// has. For tests.
    #[doc(hidden)]
    pub fn machine(mut self, root: impl Into<PathBuf>, cpus: Option<u32>) -> Self {
        self.cgroup_root = Some(root.into());
        self.cpus = cpus;
        self
    }

    /// Address space of a goroutine's stack, from 32 KiB to 1 GiB, rounded up to a power of two;
    /// 256 KiB unless told otherwise. Only touched pages cost memory.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// Most threads the runtime makes; 10,000 unless told otherwise. Needing more ends the process,
    /// as in Go.
    #[doc(alias = "SetMaxThreads")]
    pub const fn max_threads(mut self, n: usize) -> Self {
        self.max_threads = n;
        self
    }

    /// How idle Ps take work from busy ones; [`StealPolicy::go`] unless told otherwise.
    ///
    /// # Examples
    /// ```
    /// use heist::{Runtime, StealPolicy};
    ///
    /// // Goroutines that share memory with the one that spawned them stay near it.
    /// let rt = unsafe { Runtime::builder().steal_policy(StealPolicy::gentle()).build() }?;
    /// assert_eq!(rt.run(|| heist::go(|| 1).join().unwrap()), 1);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn steal_policy(mut self, policy: StealPolicy) -> Self {
        self.steal = policy;
        self
    }

    /// What a panic that nobody caught does; [`PanicPolicy::Isolate`] unless told otherwise.
    ///
    /// # Examples
    /// ```no_run
    /// use heist::{PanicPolicy, Runtime};
    ///
    /// // As in Go: whoever panics ends the program, with exit code 2.
    /// let rt = unsafe { Runtime::builder().panic_policy(PanicPolicy::Abort).build() }?;
    /// rt.run(|| heist::go(|| panic!("no luck")).join());
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn panic_policy(mut self, policy: PanicPolicy) -> Self {
        self.on_panic = policy;
        self
    }

    /// What a stack overflow does; [`OverflowPolicy::Exit`] unless told otherwise.
    pub const fn overflow_policy(mut self, policy: OverflowPolicy) -> Self {
        self.on_overflow = policy;
        self
    }

    /// Names the runtime's threads.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long dropping the runtime waits for goroutines that do not park; 5 s unless told otherwise. Those that
    /// have not ended by then are reported and go on by themselves; see [`Runtime`].
    pub const fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// How long a goroutine may run while others wait; 10 ms unless told otherwise. Whoever computes
    /// for longer is asked to yield at its next call into heist, and stopped by a signal if it makes
    /// none.
    pub const fn quantum(mut self, quantum: Duration) -> Self {
        self.quantum = quantum;
        self
    }

    /// The same, and the environment does not change it. For tests about slices, or about an order
    /// that the end of one would disturb.
    #[doc(hidden)]
    pub const fn exact_quantum(mut self, quantum: Duration) -> Self {
        self.exact_quantum = true;
        self.quantum(quantum)
    }

    /// How long a goroutine whose timer is due, or whose socket is ready, waits while every
    /// processor runs something that does not let go; 1 ms unless told otherwise, 100 us at least. Then the
    /// one that has run longest gives way.
    pub const fn wake_up_bound(mut self, bound: Duration) -> Self {
        self.wake_up_bound = bound;
        self
    }

    /// Whether a goroutine that makes no calls into the runtime is stopped by a signal when its
    /// time is up. On by default. Without it such a goroutine keeps its processor.
    pub const fn forced_preemption(mut self, on: bool) -> Self {
        self.forced_preemption = on;
        self
    }

    /// Whether the process ends, with a report and exit code 2, when a thread waits in
    /// [`Runtime::run`] and no goroutine can ever run again. On by default. It is silent as long as
    /// the process has a thread that is not the runtime's.
    ///
    /// # Examples
    /// ```no_run
    /// // Everything is done by the signal that ends the process, of which the runtime knows nothing.
    /// let rt = unsafe { heist::Runtime::builder().deadlock_detection(false).build() }?;
    /// rt.run(|| heist::chan::never::<()>().recv()).unwrap();
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn deadlock_detection(mut self, on: bool) -> Self {
        self.deadlock_detection = on;
        self
    }

    /// Seeds the scheduler's random numbers. What threads do when stays theirs.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Chaos mode for tests: `run_next` is dropped half of the time, batches are shuffled, and
    /// goroutines yield at park points, all drawn from this seed.
    ///
    /// # Examples
    /// ```
    /// // A result that must not depend on who runs when.
    /// for seed in 0..20 {
    ///     let rt = unsafe { heist::Runtime::builder().procs(2).chaos(seed).build() }?;
    ///     let sum: u32 = rt.run(|| {
    ///         let parts: Vec<_> = (0..10).map(|i| heist::go(move || i)).collect();
    ///         parts.into_iter().map(|part| part.join().unwrap()).sum()
    ///     });
    ///     assert_eq!(sum, 45, "with the seed {seed}");
    /// }
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn chaos(mut self, seed: u64) -> Self {
        self.chaos = Some(seed);
        self
    }

    /// Starts the runtime.
    ///
    /// # Errors
    /// If an option or an environment variable makes no sense, or the system refuses what a runtime needs: a
    /// few descriptors, two threads for goroutines besides two of its own, the memory of two stacks. The text
    /// says which limit to raise.
    ///
    /// # Safety
    /// A goroutine may come back from a park on another thread. The caller promises that no code
    /// run on this runtime's goroutines keeps something that is bound to its thread across a park:
    /// a reference to a thread-local or its address as a number, an `Rc` out of one, a guard that must
    /// be released on the thread that took it, or any other value that is not `Send`. [`docs::safety`](crate::docs::safety)
    /// shows what that means in practice.
    pub unsafe fn build(self) -> Result<Runtime, BuildError> {
        Runtime::start(self.with_environment()?.check()?).map_err(BuildError::System)
    }

    fn with_environment(mut self) -> Result<Self, BuildError> {
        if let Some(procs) = parsed("HEIST_PROCS", "a number of processors, 1 or more", number)? {
            self.procs = Some(procs);
        }
        let bytes = parsed("HEIST_STACK_SIZE", "a size such as 262144, 256k or 1m", size)?;
        self.stack_bytes = bytes.unwrap_or(self.stack_bytes);
        let threads = parsed("HEIST_MAX_THREADS", "a number of threads, 1 or more", number)?;
        self.max_threads = threads.unwrap_or(self.max_threads);
        let policy = parsed("HEIST_STEAL_POLICY", "go or gentle", |value| match value {
            "go" => Some(StealPolicy::go()),
            "gentle" => Some(StealPolicy::gentle()),
            _ => None,
        })?;
        self.steal = policy.unwrap_or(self.steal);
        self.with_debug()
    }

    /// `HEIST_DEBUG`: an error shows the whole list, and what its first wrong item may be.
    fn with_debug(mut self) -> Result<Self, BuildError> {
        let variable = "HEIST_DEBUG";
        let list = std::env::var_os(variable).unwrap_or_default();
        let list = list.to_string_lossy();
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let wrong = |expected| {
                Err(BuildError::Environment {
                    variable,
                    value: list.clone().into_owned(),
                    expected,
                })
            };
            match item.split_once('=').unwrap_or((item, "")) {
                ("chaos", seed) => match seed.parse() {
                    Ok(seed) => self.chaos = Some(seed),
                    Err(_) => return wrong("chaos=SEED with a number"),
                },
                ("quantum", text) => match duration(text) {
                    Some(_) if self.exact_quantum => {}
                    Some(quantum) => self.quantum = quantum,
                    None => {
                        return wrong("quantum=DURATION with a unit, such as 500us, 10ms or 1s");
                    }
                },
                ("schedtrace", ms) => match ms.parse() {
                    Ok(ms) => self.trace_ms = ms,
                    Err(_) => return wrong("schedtrace=MILLISECONDS"),
                },
                ("containermaxprocs", "0") => self.cgroup_root = None,
                ("updatemaxprocs", "0") => self.follow_procs = false,
                ("containermaxprocs" | "updatemaxprocs", "1") => {}
                ("containermaxprocs" | "updatemaxprocs", _) => {
                    return wrong("containermaxprocs=0 and updatemaxprocs=0, or 1 for the default");
                }
                ("scheddetail", "0") => self.trace_detail = Detail::Summary,
                ("scheddetail", "1") => self.trace_detail = Detail::All,
                ("scheddetail", _) => return wrong("scheddetail=0 or scheddetail=1"),
                ("shortturns", "0") => self.short_turns = false,
                ("shortturns", "1") => self.short_turns = true,
                ("shortturns", _) => return wrong("shortturns=0 or shortturns=1"),
                ("tlsreport", "" | "1") => self.tls_report = true,
                ("tlsreport", "0") => self.tls_report = false,
                ("tlsreport", _) => return wrong("tlsreport, or tlsreport=0"),
                ("guard", way) if guard::protect_by(way) => {}
                ("guard", _) => return wrong("guard=protect, or guard=install for the default"),
                _ => {
                    return wrong(
                        "a list of chaos=SEED, guard=WAY, quantum=DURATION, schedtrace=MS, \
                         scheddetail=1, shortturns=1, tlsreport, containermaxprocs=0 and updatemaxprocs=0",
                    );
                }
            }
        }
        Ok(self)
    }

    fn check(self) -> Result<Config, BuildError> {
        let wrong = |option, problem: String| Err(BuildError::Option { option, problem });
        let procs_default = procs::Default {
            cgroup_root: self.cgroup_root,
            cpus: self.cpus,
            rounding: self.fractional_quota,
            follow: self.follow_procs,
        };
        let procs_choice =
            if self.procs.is_some() { procs::Choice::Chosen } else { procs::Choice::Default };
        // One for the others besides those that are reserved, if nobody says how many there are.
        let procs = self.procs.unwrap_or_else(|| {
            (procs_default.source().now() as usize).max(self.latency_procs.saturating_add(1))
        });
        if procs == 0 {
            return wrong(
                "procs",
                "0 processors can run nothing; leave it out for one per CPU".into(),
            );
        }
        if procs > PROCS_MAX as usize {
            return wrong(
                "procs",
                format!("{procs} is more than the most there can be, {PROCS_MAX}"),
            );
        }
        if self.latency_procs >= procs {
            let reserved = self.latency_procs;
            return wrong(
                "latency_procs",
                format!("{reserved} of {procs} processors reserved leave none for the others"),
            );
        }
        if self.stack_bytes < stack::MIN_BYTES {
            let (bytes, least) = (self.stack_bytes, stack::MIN_BYTES);
            return wrong(
                "stack_size",
                format!("{bytes} bytes are less than a panic needs; the least is {least}"),
            );
        }
        let Some(stack) = Class::for_bytes(self.stack_bytes) else {
            let (bytes, most) = (self.stack_bytes, stack::MAX_BYTES);
            return wrong("stack_size", format!("{bytes} bytes are more than the most, {most}"));
        };
        if self.max_threads == 0 {
            return wrong("max_threads", "a runtime needs at least one thread".into());
        }
        if self.quantum.is_zero() {
            return wrong("quantum", "after no time at all nobody would get anything done".into());
        }
        if self.wake_up_bound < WAKE_UP_LEAST {
            let (bound, least) = (self.wake_up_bound, WAKE_UP_LEAST);
            return wrong(
                "wake_up_bound",
                format!("{bound:?} is less than it takes to find out; the least is {least:?}"),
            );
        }
        if self.name.contains('\0') {
            return wrong("name", "a thread's name cannot contain a zero byte".into());
        }
        if self.steal.tries == 0 {
            return wrong("steal_policy", "with 0 tries nothing would ever be stolen".into());
        }
        Ok(Config {
            name: self.name,
            procs: procs as u32,
            latency_procs: self.latency_procs as u32,
            procs_choice,
            procs_default,
            stack,
            // Whatever is beyond a u32 is no limit at all.
            max_threads: self.max_threads.min(u32::MAX as usize) as u32,
            steal: self.steal,
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
            trace: (self.trace_ms != 0)
                .then(|| (self.trace_ms.saturating_mul(1_000_000), self.trace_detail)),
        })
    }
}

/// An environment variable, if it is set and not empty.
fn parsed<T>(
    variable: &'static str,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, BuildError> {
    let value = match std::env::var_os(variable) {
        None => return Ok(None),
        Some(value) => value.to_string_lossy().into_owned(),
    };
    match value.trim() {
        "" => Ok(None),
        text => match parse(text) {
            Some(parsed) => Ok(Some(parsed)),
            None => Err(BuildError::Environment { variable, value, expected }),
        },
    }
}

fn number(text: &str) -> Option<usize> {
    text.parse().ok().filter(|&n| n > 0)
}

/// A whole number with a unit.
fn duration(text: &str) -> Option<Duration> {
    let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    let number: u64 = digits.parse().ok()?;
    match &text[digits.len()..] {
        "ns" => Some(Duration::from_nanos(number)),
        "us" | "\u{b5}s" => Some(Duration::from_micros(number)),
        "ms" => Some(Duration::from_millis(number)),
        "s" => Some(Duration::from_secs(number)),
        _ => None,
    }
}

fn size(text: &str) -> Option<usize> {
    let text = text.to_ascii_lowercase();
    let (digits, unit) = match text.strip_suffix(['k', 'm']) {
        Some(digits) if text.ends_with('k') => (digits, 1 << 10),
        Some(digits) => (digits, 1 << 20),
        None => (&*text, 1),
    };
    digits.parse::<usize>().ok()?.checked_mul(unit)
}

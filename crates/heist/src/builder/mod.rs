//! The options of a runtime.
//!
//! [`Builder::build`] lets the environment override the options (`environment`), checks them
//! (`checks`) and starts the runtime.

mod checks;
mod environment;
mod error;
mod recording;

pub use error::BuildError;
pub(crate) use recording::RunningTraces;

use crate::coro::stack;
use crate::debug;
use crate::runtime::{AsyncRuntime, Runtime};
use crate::sched::stacks::overflow::OverflowPolicy;
use crate::sched::{Detail, PanicPolicy};
use crate::watchdog::Orders;
use heist_core::policy::{FractionalQuota, QUANTUM_NS, StealPolicy, THREADS_MAX, WAKE_UP_NS};
use std::path::PathBuf;
use std::time::Duration;

/// How long a shutdown waits for goroutines that do not park.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(5);

/// Sets up a [`Runtime`].
///
/// Environment variables override the program, so that an operator can change a deployed one:
/// `HEIST_PROCS`, `HEIST_STACK_SIZE` (bytes, with `k` and `m` as units), `HEIST_MAX_THREADS`,
/// `HEIST_STEAL_POLICY` (`go` or `gentle`), `HEIST_TRACE` (a file for an execution trace, and after
/// a comma the seconds that it lasts; see [`trace`](crate::trace)) and `HEIST_DEBUG` (a
/// comma-separated list: `quantum=DURATION`, such as `500us` or `10ms`, is how long a goroutine may
/// run while others wait; `schedtrace=MS` prints a line about the scheduler at this interval in
/// milliseconds, with `scheddetail=1` also one for each processor, thread and goroutine, see
/// [`docs::operating`](crate::docs::operating); `containermaxprocs=0` leaves the CPU quota of the
/// control group out of the default number of processors, and `updatemaxprocs=0` does not update
/// that default; `server=ADDRESS` and `socket` start a [debug server](crate::debug) with the
/// runtime, at a loopback address or at a Unix socket; `frames=all` shows the functions of heist in
/// the stacks of dumps and reports; `sigquit=0` leaves SIGQUIT alone, which otherwise shows all
/// goroutines before it ends the process, see [`docs::operating`](crate::docs::operating);
/// `tlsreport` prints, when the runtime ends, where goroutines that moved to another thread had an
/// address of a thread-local, see `docs/SAFETY.md`; `flightrecorder=SECONDS` keeps the events of
/// the last seconds, see [`trace::FlightRecorder`](crate::trace::FlightRecorder); `shortturns=1`
/// makes the threads ask the kernel for short turns; `chaos=SEED` disturbs the scheduling on
/// purpose, `guard=protect` guards stacks as on older kernels; the last three are for tests). A
/// program that runs with more rights than its caller has (set-user-ID) ignores them all.
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
    fake_nodes: Option<u32>,
    chaos: Option<u64>,
    short_turns: bool,
    tls_report: bool,
    pinned: bool,
    trace_ms: u64,
    /// What the watchdog looks for.
    orders: Orders,
    trace_detail: Detail,
    debug_servers: Vec<debug::Place>,
    traces: recording::Traces,
}

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
            fake_nodes: None,
            chaos: None,
            short_turns: false,
            tls_report: false,
            pinned: false,
            trace_ms: 0,
            orders: Orders::default(),
            trace_detail: Detail::Summary,
            debug_servers: Vec::new(),
            traces: recording::Traces::default(),
        }
    }
}

impl Builder {
    /// The defaults: one P per CPU, stacks of 256 KiB of address space, Go's steal policy, isolated
    /// panics.
    pub fn new() -> Self {
        Self::default()
    }

    /// How many goroutines run at the same time.
    ///
    /// The default is one for each CPU in the affinity mask, or fewer if the control group of the
    /// process, or one above it, has a CPU quota. It is updated once a second while goroutines run.
    /// A number that is chosen does not change.
    #[doc(alias = "GOMAXPROCS")]
    pub const fn procs(mut self, n: usize) -> Self {
        self.procs = Some(n);
        self
    }

    /// How many of the processors are reserved for goroutines of
    /// [`Class::Latency`](crate::goroutine::Class::Latency). They run nothing else, so such a
    /// goroutine finds one free whatever the others do. The default is none, and at least one
    /// processor must not be reserved.
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

    /// How a CPU quota that is not a whole number is rounded to a number of processors.
    pub const fn fractional_quota(mut self, rounding: FractionalQuota) -> Self {
        self.fractional_quota = rounding;
        self
    }

    /// Simulates another machine: the folder that holds `/proc` and the control groups, and the
    /// number of CPUs. For tests.
    #[doc(hidden)]
    pub fn machine(mut self, root: impl Into<PathBuf>, cpus: Option<u32>) -> Self {
        self.cgroup_root = Some(root.into());
        self.cpus = cpus;
        self
    }

    /// Simulates a machine with so many NUMA nodes, each with an equal part of the Ps. For tests.
    #[doc(hidden)]
    pub const fn fake_nodes(mut self, n: u32) -> Self {
        self.fake_nodes = Some(n);
        self
    }

    /// The address space of a goroutine's stack, from 32 KiB to 1 GiB, rounded up to a power of
    /// two; 256 KiB by default. Only touched pages use memory.
    pub const fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_bytes = bytes;
        self
    }

    /// The maximum number of threads that run goroutines; 10,000 by default, at least 2. If a
    /// processor with runnable goroutines needs one more, the process ends, as in Go.
    ///
    /// A goroutine that is preempted by force keeps its thread until it parks, yields or ends. If
    /// as many of them compute as there are threads, they take turns and no other goroutine can
    /// start: the process does not end, and reports it once on standard error.
    #[doc(alias = "SetMaxThreads")]
    pub const fn max_threads(mut self, n: usize) -> Self {
        self.max_threads = n;
        self
    }

    /// How idle Ps take work from busy ones; [`StealPolicy::go`] by default.
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

    /// Sets the effect of an uncaught panic; [`PanicPolicy::Isolate`] by default.
    ///
    /// # Examples
    /// ```no_run
    /// use heist::{PanicPolicy, Runtime};
    ///
    /// // As in Go: a goroutine that panics ends the program, with exit code 2.
    /// let rt = unsafe { Runtime::builder().panic_policy(PanicPolicy::Abort).build() }?;
    /// rt.run(|| heist::go(|| panic!("no luck")).join());
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn panic_policy(mut self, policy: PanicPolicy) -> Self {
        self.on_panic = policy;
        self
    }

    /// Sets the effect of a stack overflow; [`OverflowPolicy::Exit`] by default.
    pub const fn overflow_policy(mut self, policy: OverflowPolicy) -> Self {
        self.on_overflow = policy;
        self
    }

    /// Names the runtime's threads.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }

    /// How long dropping the runtime waits for goroutines that do not park; 5 s by default. Those
    /// that have not ended by then are reported and run on by themselves; see [`Runtime`].
    pub const fn shutdown_timeout(mut self, timeout: Duration) -> Self {
        self.shutdown_timeout = timeout;
        self
    }

    /// How long a goroutine may run while others wait; 10 ms by default. A goroutine that computes
    /// for longer is asked to yield at its next call into heist, and preempted by a signal if it
    /// makes none.
    pub const fn quantum(mut self, quantum: Duration) -> Self {
        self.quantum = quantum;
        self
    }

    /// The same, but the environment does not override it. For tests about slices, or about an
    /// order that the end of a slice would disturb.
    #[doc(hidden)]
    pub const fn exact_quantum(mut self, quantum: Duration) -> Self {
        self.exact_quantum = true;
        self.quantum(quantum)
    }

    /// How long a goroutine whose timer is due, or whose socket is ready, waits while every
    /// processor runs a goroutine that does not yield; 1 ms by default, at least 100 us. Then the
    /// goroutine that has run longest is preempted.
    pub const fn wake_up_bound(mut self, bound: Duration) -> Self {
        self.wake_up_bound = bound;
        self
    }

    /// Whether a goroutine that makes no calls into the runtime is preempted by a signal when its
    /// slice ends. On by default. Without it such a goroutine keeps its processor.
    pub const fn forced_preemption(mut self, on: bool) -> Self {
        self.forced_preemption = on;
        self
    }

    /// Whether the process ends, with a report and exit code 2, when a thread waits in
    /// [`Runtime::run`] and no goroutine can ever run again. On by default. Detection is off while
    /// the process has a thread that is not the runtime's, as those of a second runtime are. The
    /// runtime looks when everything has come to rest, and not again: if such a thread ends after
    /// that, there is no report.
    ///
    /// # Examples
    /// ```no_run
    /// // A signal will end the process, and the runtime does not know of it.
    /// let rt = unsafe { heist::Runtime::builder().deadlock_detection(false).build() }?;
    /// rt.run(|| heist::chan::never::<()>().recv()).unwrap();
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub const fn deadlock_detection(mut self, on: bool) -> Self {
        self.deadlock_detection = on;
        self
    }

    /// Seeds the scheduler's random numbers. The timing of threads stays random.
    pub const fn seed(mut self, seed: u64) -> Self {
        self.seed = Some(seed);
        self
    }

    /// Chaos mode for tests: `run_next` is dropped half of the time, batches are shuffled, and
    /// goroutines yield at park points, all drawn from this seed.
    ///
    /// # Examples
    /// ```
    /// // A result that must not depend on the order of execution.
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
    /// If an option or an environment variable is invalid, or the system refuses what a runtime
    /// needs: a few descriptors, two threads for goroutines besides two of its own, the memory of
    /// two stacks. The text says which limit to raise.
    ///
    /// # Safety
    /// A goroutine may continue after a park on another thread. The caller promises that no code
    /// that runs on this runtime's goroutines keeps a value that is bound to its thread across a
    /// park: a reference to a thread-local or its address as a number, an `Rc` out of one, a guard
    /// that must be released on the thread that took it, or any other value that is not `Send`.
    /// [`docs::safety`](crate::docs::safety) shows what that means in practice.
    pub unsafe fn build(self) -> Result<Runtime, BuildError> {
        let mut builder = self.with_environment()?;
        let (traces, orders) = (builder.traces.clone(), builder.orders);
        let servers = std::mem::take(&mut builder.debug_servers);
        let mut rt = Runtime::start(builder.check()?).map_err(BuildError::System)?;
        traces.begin(&mut rt)?;
        rt.watch(orders).map_err(BuildError::System)?;
        rt.serve_at(&servers);
        Ok(rt)
    }

    /// Starts a runtime for futures, which needs no promise.
    ///
    /// The compiler checks what moves between threads: a future is `Send`, and it moves between two
    /// polls only. What is on the stack of a poll stays on its thread: see [`AsyncRuntime`].
    ///
    /// # Errors
    /// As [`build`](Self::build).
    ///
    /// # Examples
    /// ```
    /// let rt = heist::Runtime::builder().procs(2).build_async()?;
    /// let task = rt.spawn(async { 6 * 7 });
    /// assert_eq!(rt.block_on(task).unwrap(), 42);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    pub fn build_async(mut self) -> Result<AsyncRuntime, BuildError> {
        self.pinned = true;
        // SAFETY: no goroutine of this runtime moves to another thread after it has begun, and
        // neither does a poll: whatever they keep on their stacks stays on its thread.
        unsafe { self.build() }.map(AsyncRuntime::new)
    }
}

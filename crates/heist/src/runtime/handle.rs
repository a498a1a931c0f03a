//! A handle to a runtime, by which any thread uses it.
//!
//! A [`Runtime`](crate::Runtime) dereferences to its handle: what both can do is written here once.

use crate::current;
use crate::goroutine::task::{self, Task};
use crate::goroutine::{self, Beginning, JoinHandle, SpawnError};
use crate::metrics::{Metrics, ProcStats};
use crate::procs;
use crate::sched::life;
use crate::sched::stacks::overflow::OverflowPolicy;
use crate::sched::{PanicPolicy, Phase, Sched};
use heist_core::policy::StealPolicy;
use std::fmt;
use std::future::Future;
use std::panic::Location;
use std::sync::Arc;
use std::time::Duration;

/// Spawns on a runtime, watches it and resizes it, from any thread.
///
/// A handle is cheap to clone and does not keep the runtime running. A [`Runtime`](crate::Runtime)
/// dereferences to its handle, so it has all methods below.
///
/// # Examples
/// A thread outside the runtime gives it work:
/// ```
/// let rt = unsafe { heist::Runtime::builder().build() }?;
/// let handle = rt.handle();
/// let thread = std::thread::spawn(move || {
///     let squares: Vec<_> = (0..10).map(|i| handle.spawn(move || i * i)).collect();
///     squares.into_iter().map(|square| square.join().unwrap()).sum::<u32>()
/// });
/// assert_eq!(thread.join().unwrap(), 285);
///
/// // A handle whose runtime has ended refuses to spawn.
/// let handle = rt.handle();
/// drop(rt);
/// assert!(handle.try_spawn(|| ()).is_err());
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Clone)]
pub struct Handle {
    sched: Arc<Sched>,
}

impl Handle {
    pub(super) const fn new(sched: Arc<Sched>) -> Self {
        Self { sched }
    }

    pub(crate) const fn sched(&self) -> &Arc<Sched> {
        &self.sched
    }

    /// The runtime of the calling goroutine, None on a plain thread.
    ///
    /// # Examples
    /// A library lets a thread of its own spawn on the runtime of its caller:
    /// ```
    /// use heist::Handle;
    ///
    /// assert!(Handle::current().is_none());
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let handle = Handle::current().expect("called on a goroutine");
    /// let thread = std::thread::spawn(move || handle.spawn(|| 6 * 7).join().unwrap());
    /// assert_eq!(heist::blocking(|| thread.join().unwrap()), 42);
    /// # });
    /// ```
    #[must_use]
    pub fn current() -> Option<Self> {
        let sched = current::goroutine()?.sched.get();
        // SAFETY: the calling goroutine's runtime outlives it.
        Some(Self { sched: unsafe { &*sched }.life.share() })
    }

    /// Runs `f` on a new goroutine.
    ///
    /// # Panics
    /// If the runtime has shut down or memory is exhausted. [`try_spawn`](Self::try_spawn) returns
    /// these as errors.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let handle = rt.handle();
    /// let thread = std::thread::spawn(move || handle.spawn(|| 5).join().unwrap());
    /// assert_eq!(thread.join().unwrap(), 5);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        match self.try_spawn(f) {
            Ok(handle) => handle,
            Err(error) => panic!("heist::Handle::spawn: {error}"),
        }
    }

    /// Runs `f` on a new goroutine, or returns why it cannot.
    ///
    /// # Errors
    /// If the runtime has shut down or memory is exhausted.
    #[track_caller]
    pub fn try_spawn<F, T>(&self, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        // SAFETY: everything is `'static`.
        unsafe {
            goroutine::spawn_on(&self.sched, f, Location::caller(), Beginning::Anywhere, None)
        }
    }

    /// Runs a future as a new task; see [`heist::spawn`](crate::spawn).
    ///
    /// # Panics
    /// If the runtime has shut down or memory is exhausted.
    /// [`try_spawn_async`](Self::try_spawn_async) returns these as errors.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let handle = rt.handle();
    /// let thread = std::thread::spawn(move || handle.spawn_async(async { 5 }).join().unwrap());
    /// assert_eq!(thread.join().unwrap(), 5);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn_async<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        match self.try_spawn_async(future) {
            Ok(task) => task,
            Err(error) => panic!("heist::Handle::spawn_async: {error}"),
        }
    }

    /// Runs a future as a new task, or returns why it cannot.
    ///
    /// # Errors
    /// If the runtime has shut down or memory is exhausted.
    #[track_caller]
    pub fn try_spawn_async<F>(&self, future: F) -> Result<Task<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        let flags = crate::gmp::flags::Flag::NONE;
        // SAFETY: everything is `'static`.
        unsafe { task::spawn_on(Some(&self.sched), future, Location::caller(), flags, None) }
    }

    /// The metrics of the scheduler so far.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// rt.run(|| heist::go(|| ()).join().unwrap());
    /// let metrics = rt.metrics();
    /// assert_eq!(metrics.get("/sched/goroutines-created:goroutines"), Some(2));
    /// for metric in metrics.iter() {
    ///     println!("{} {}", metric.description.name, metric.value);
    /// }
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::read(&self.sched)
    }

    /// Every goroutine of this runtime as text; see [`dump_goroutines`](crate::dump_goroutines).
    /// Any thread can ask, also when no goroutine makes progress.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let (_tx, rx) = heist::chan::bounded::<()>(0);
    /// rt.handle().spawn(move || rx.recv());
    /// // goroutine 1 [chan receive]:
    /// // created by ...
    /// assert!(rt.dump_goroutines().starts_with("goroutine 1 ["));
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn dump_goroutines(&self) -> String {
        self.sched.dump(crate::traceback::here())
    }

    /// The goroutines of this runtime, counted by what they do; see
    /// [`census`](crate::goroutine::census).
    #[must_use]
    #[doc(alias = "GoroutineProfile")]
    pub fn census(&self) -> Vec<crate::goroutine::Group> {
        self.sched.census()
    }

    /// The counters of each processor so far.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().procs(2).build() }?;
    /// rt.run(|| {
    ///     let group = heist::sync::WaitGroup::new();
    ///     (0..1000).for_each(|_| group.go(|| ()));
    ///     group.wait();
    /// });
    /// for proc in rt.per_proc() {
    ///     println!("P{}: ran {}, stole {}", proc.id, proc.executed, proc.stolen);
    /// }
    /// assert!(rt.per_proc().iter().map(|proc| proc.executed).sum::<u64>() > 1000);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn per_proc(&self) -> Vec<ProcStats> {
        ProcStats::read(&self.sched)
    }

    /// The name of the runtime, with which the names of its threads begin.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().name("api").build() }?;
    /// assert_eq!(rt.name(), "api");
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn name(&self) -> &str {
        &self.sched.config.name
    }

    /// How many goroutines have been spawned and have not ended.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// assert_eq!(rt.num_goroutines(), 0);
    /// assert_eq!(rt.run(|| heist::Handle::current().unwrap().num_goroutines()), 1);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    #[doc(alias = "NumGoroutine")]
    pub fn num_goroutines(&self) -> usize {
        life::n_live(&self.sched) as usize
    }

    /// Whether the runtime accepts goroutines. False from the moment at which its [`Runtime`] is
    /// dropped.
    ///
    /// [`Runtime`]: crate::Runtime
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let handle = rt.handle();
    /// assert!(handle.is_running());
    /// drop(rt);
    /// assert!(!handle.is_running());
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn is_running(&self) -> bool {
        self.sched.phase() == Phase::Running
    }

    /// How many of the processors are reserved; see
    /// [`Builder::latency_procs`](crate::Builder::latency_procs).
    #[must_use]
    pub fn latency_procs(&self) -> usize {
        self.sched.config.latency_procs as usize
    }

    /// The address space of a goroutine's stack in bytes; see
    /// [`Builder::stack_size`](crate::Builder::stack_size).
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().stack_size(100 << 10).build() }?;
    /// println!("each stack has {} bytes", rt.stack_size());
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[must_use]
    pub fn stack_size(&self) -> usize {
        self.sched.config.stack.bytes()
    }

    /// The maximum number of threads that run goroutines; see
    /// [`Builder::max_threads`](crate::Builder::max_threads).
    #[must_use]
    pub fn max_threads(&self) -> usize {
        self.sched.config.max_threads as usize
    }

    /// How idle processors take work; see [`Builder::steal_policy`](crate::Builder::steal_policy).
    #[must_use]
    pub fn steal_policy(&self) -> StealPolicy {
        self.sched.config.steal
    }

    /// The effect of an uncaught panic; see
    /// [`Builder::panic_policy`](crate::Builder::panic_policy).
    #[must_use]
    pub fn panic_policy(&self) -> PanicPolicy {
        self.sched.config.on_panic
    }

    /// The effect of a stack overflow; see
    /// [`Builder::overflow_policy`](crate::Builder::overflow_policy).
    #[must_use]
    pub fn overflow_policy(&self) -> OverflowPolicy {
        self.sched.config.on_overflow
    }

    /// How long a goroutine may run while others wait; see
    /// [`Builder::quantum`](crate::Builder::quantum).
    #[must_use]
    pub fn quantum(&self) -> Duration {
        Duration::from_nanos(self.sched.config.quantum_ns)
    }

    /// How long a shutdown waits; see
    /// [`Builder::shutdown_timeout`](crate::Builder::shutdown_timeout).
    #[must_use]
    pub fn shutdown_timeout(&self) -> Duration {
        self.sched.config.shutdown_timeout
    }

    /// Whether both are handles of the same runtime.
    #[must_use]
    pub fn same_runtime(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.sched, &other.sched)
    }

    /// How many goroutines can run at the same time.
    #[must_use]
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(&self) -> usize {
        self.sched.procs() as usize
    }

    /// Changes how many goroutines can run at the same time. Returns the previous number.
    ///
    /// The world stops for about ten microseconds: running goroutines are stopped where they are
    /// and continue afterwards, on the same thread. The goroutines in the queues of processors that
    /// are removed go to the front of the global queue. Setting the current number stops nothing.
    /// From now on the number does not follow the CPUs and the quota of the control group any more,
    /// until [`set_default_procs`](Self::set_default_procs). A runtime that has shut down does not
    /// change.
    ///
    /// # Panics
    /// If `n` is 0, if it is more than 4096, the maximum, or if it is not more than the number of
    /// processors reserved for latency goroutines.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().procs(4).build() }?;
    /// assert_eq!(rt.set_procs(2), 4);
    /// assert_eq!(rt.procs(), 2);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[doc(alias = "GOMAXPROCS")]
    #[track_caller]
    pub fn set_procs(&self, n: usize) -> usize {
        procs::set_procs_of(&self.sched, n)
    }

    /// Returns to the default number of processors, which follows the CPUs and the quota of the
    /// control group again, whatever was chosen before, in the environment too. Returns the
    /// previous number.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().procs(64).build() }?;
    /// assert_eq!(rt.set_default_procs(), 64);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[doc(alias = "SetDefaultGOMAXPROCS")]
    pub fn set_default_procs(&self) -> usize {
        procs::set_default_procs_of(&self.sched)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle")
            .field("name", &self.name())
            .field("procs", &self.procs())
            .field("goroutines", &self.num_goroutines())
            .finish_non_exhaustive()
    }
}

impl goroutine::Builder {
    /// Runs `f` on a new goroutine of the runtime of `handle`, from any thread.
    ///
    /// # Errors
    /// As [`Handle::try_spawn`], and if the stack is larger than 1 GiB.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let builder = heist::goroutine::Builder::new().name("parser").stack_size(1 << 20);
    /// let parser = builder.spawn_on(&rt.handle(), || 1 + 1).unwrap();
    /// assert_eq!(parser.name(), Some("parser"));
    /// assert_eq!(parser.join().unwrap(), 2);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    pub fn spawn_on<F, T>(self, handle: &Handle, f: F) -> Result<JoinHandle<T>, SpawnError>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let (site, extras) = (Location::caller(), Some(self.extras()?));
        // SAFETY: nothing is borrowed.
        unsafe { goroutine::spawn_on(&handle.sched, f, site, Beginning::Anywhere, extras) }
    }
}

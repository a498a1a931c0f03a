//! A runtime: its handle, running on it, ending it.

use crate::builder::Builder;
use crate::coro::{layout, stack};
use crate::current;
use crate::goroutine::{self, Beginning, JoinError, JoinHandle, SpawnError};
use crate::metrics::{Metrics, ProcStats};
use crate::procs;
use crate::sched::guest::Guest;
use crate::sched::helper::Helper;
use crate::sched::shutdown::Closed;
use crate::sched::sysmon::Sysmon;
use crate::sched::{Config, Sched, overflow, syscall};
use crate::scope;
use crate::sys::thread_state::ThreadStates;
use crate::sys::{limits, membarrier, signal, stderr, stopwatch, thread};
use crate::throw;
use crate::{panic_report, preempt, schedtrace, tls_report};
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

/// A scheduler with its threads.
///
/// Dropping it ends its goroutines: those that are parked, or park later, are unwound so that
/// their destructors run. It waits for that, for a bounded time
/// ([`Builder::shutdown_timeout`]), and reports what it leaves behind: those goroutines go on by themselves until
/// their next park, and the threads and the memory of the runtime go with the last of them. In a program that is built with `panic = "abort"` nothing can be unwound: it waits until all that are left
/// are parked, and leaves those behind.
///
/// Several runtimes may live in one process; their goroutines may use each other's channels and
/// handles.
pub struct Runtime {
    sched: Arc<Sched>,
    helper: Option<std::thread::JoinHandle<()>>,
    sysmon: Option<std::thread::JoinHandle<()>>,
}

/// With fewer threads that run goroutines, one that blocks or computes would stop all others.
const THREADS_LEAST: u32 = 2;

impl Runtime {
    /// Starts to set up a runtime.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn start(config: Config) -> std::io::Result<Self> {
        // A goroutine of another runtime blocks its thread here, and takes locks with which it must not be stopped.
        syscall::blocking(|| Self::start_blocking(config))
    }

    fn start_blocking(config: Config) -> std::io::Result<Self> {
        throw::install();
        panic_report::install();
        overflow::install();
        signal::install_interrupt_handler(preempt::signal::on_interrupt);
        membarrier::prepare();
        stopwatch::prepare();
        let name = format!("{}-helper", config.name);
        let no_descriptors = |error| limits::explain(&error, "descriptors for the poller");
        let sched = Sched::start(config).map_err(no_descriptors)?;
        let no_stack = |error| limits::explain(&error, "memory for a stack");
        let class = sched.config.stack;
        stack::reserve_last(class).and_then(|()| layout::learn(class)).map_err(no_stack)?;
        let helper = Helper::new(Arc::clone(&sched));
        let no_thread = |error| limits::explain(&error, "thread for the runtime");
        let helper = thread::spawn_patiently(&name, move || helper.run()).map_err(no_thread)?;
        let watched = Arc::clone(&sched);
        let name = format!("{}-sysmon", sched.config.name);
        let states = ThreadStates::new();
        let watch = move || Sysmon::new(&watched, states, schedtrace::print).run();
        let sysmon = thread::spawn_patiently(&name, watch);
        let mut rt = Self { sched, helper: Some(helper), sysmon: None };
        // If it cannot be started, dropping the runtime stops the helper.
        rt.sysmon = Some(sysmon.map_err(no_thread)?);
        let name = format!("{}-probe", rt.sched.config.name);
        let no_threads = |error| limits::explain(&error, "two threads for goroutines");
        thread::probe(&name, THREADS_LEAST).map_err(no_threads)?;
        Ok(rt)
    }

    pub(crate) fn sched(&self) -> &Sched {
        &self.sched
    }

    /// Runs `f` as a goroutine and waits for it: the main goroutine of a program.
    ///
    /// `f` may borrow, because this returns only when it has ended. Goroutines that it spawned run
    /// on until the runtime is dropped.
    ///
    /// # Panics
    /// If `f` panics, with the same payload; if it was cancelled, ended itself or overflowed its
    /// stack; if there is no memory.
    ///
    /// # Examples
    /// ```
    /// let words = vec!["a", "bc"];
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// assert_eq!(rt.run(|| words.concat()), "abc");
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        match self.outcome_of(f, Location::caller()) {
            Ok(result) => result,
            Err(error) => resume(error),
        }
    }

    /// As [`run`](Self::run), on the calling thread: the goroutine is locked to it from beginning to
    /// end, as by [`lock_os_thread`](crate::lock_os_thread).
    ///
    /// For what must happen on one thread, above all on the first thread of a process: many GUI and
    /// graphics libraries ask for that.
    ///
    /// # Panics
    /// As [`run`](Self::run); and on a goroutine, whose thread is not its own.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let own = std::thread::current().id();
    /// rt.run_here(|| {
    ///     heist::go(|| heist::yield_now()).join().unwrap();
    ///     assert_eq!(std::thread::current().id(), own);
    /// });
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    #[doc(alias = "LockOSThread")]
    pub fn run_here<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        assert!(current::goroutine().is_none(), "heist::Runtime::run_here: called on a goroutine");
        let guest = Guest::new(&self.sched)
            .unwrap_or_else(|error| panic!("heist::Runtime::run_here: no signal stack: {error}"));
        let site = Location::caller();
        // SAFETY: the goroutine has ended when the join returns, and this function does not return
        // or unwind before.
        match unsafe { goroutine::spawn_on(&self.sched, f, site, Beginning::On(guest.m()), None) } {
            Ok(handle) => {
                guest.run();
                drop(guest);
                handle.join_shielded().unwrap_or_else(|error| resume(error))
            }
            Err(error) => panic!("heist::Runtime::run_here: {error}"),
        }
    }

    /// Runs `f` as a goroutine and waits for its end.
    fn outcome_of<F, T>(&self, f: F, site: &'static Location<'static>) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // A goroutine that waits here is one that waits; a plain thread does nothing else, and nothing
        // unwinds it.
        let ended = if current::goroutine().is_some() {
            scope::run_on(&self.sched, f, site)
        } else {
            // SAFETY: the goroutine has ended when the join returns, and this function does not return
            // or unwind before.
            let spawned =
                unsafe { goroutine::spawn_on(&self.sched, f, site, Beginning::Awaited, None) };
            let ended = spawned.map(JoinHandle::join_shielded);
            if let Ok(Err(error)) = &ended
                && error.is_stack_overflow()
            {
                // It was abandoned, not ended: others may still use what it borrows.
                thread::sleep_for_ever();
            }
            ended
        };
        ended.unwrap_or_else(|error| panic!("heist::Runtime::run: {error}"))
    }

    /// [`run`](Self::run) for the main function of a program: if it ends itself by
    /// [`exit_current`](crate::exit_current), the others run on, and when none is left the process
    /// ends with Go's error and exit code 2.
    #[doc(hidden)]
    #[track_caller]
    pub fn run_main<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        match self.outcome_of(f, Location::caller()) {
            Ok(result) => result,
            Err(error) if error.is_exited() => {
                self.sched.stay_to_the_end();
                stderr::report(format_args!(
                    "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n"
                ));
                stderr::exit_now(2);
            }
            Err(error) => resume(error),
        }
    }

    /// A handle by which any thread can spawn on this runtime.
    #[must_use]
    pub fn handle(&self) -> Handle {
        Handle { sched: Arc::clone(&self.sched) }
    }

    /// What the scheduler has counted so far.
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
    /// Any thread can ask, also when no goroutine gets on.
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
        self.sched.dump()
    }

    /// How many goroutines of this runtime do what; see [`census`](crate::goroutine::census).
    #[must_use]
    #[doc(alias = "GoroutineProfile")]
    pub fn census(&self) -> Vec<crate::goroutine::Group> {
        self.sched.census()
    }

    /// What each processor did so far.
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

    /// How many goroutines can run at the same time.
    #[must_use]
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(&self) -> usize {
        self.sched.procs() as usize
    }

    /// Changes how many goroutines can run at the same time, and returns how many it were.
    ///
    /// The world stops for that, for some ten microseconds: goroutines that run are stopped where
    /// they are and go on afterwards, on the same thread. What lay in the queues of processors that
    /// are taken away goes to the front of the global queue. Setting what is set already stops
    /// nothing. From now on the number does not follow the CPUs and the quota of the control group
    /// any more, until [`set_default_procs`](Self::set_default_procs). A runtime that has shut down stays as it is.
    ///
    /// # Panics
    /// If `n` is 0, more than a runtime can have, 4096, or not more than are reserved for latency
    /// goroutines.
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

    /// Goes back to the default number of processors and lets it follow the CPUs and the quota of the
    /// control group again, whatever was chosen before, the environment included. Returns how many
    /// there were.
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

/// Goes on with the panic of the main goroutine, or makes one of how else it ended.
fn resume(error: JoinError) -> ! {
    match error.into_panic() {
        Ok(payload) => std::panic::resume_unwind(payload),
        Err(error) => panic!("heist::Runtime::run: {error}"),
    }
}

/// The threads of a runtime that run no goroutines.
struct System {
    sysmon: Option<std::thread::JoinHandle<()>>,
    helper: Option<std::thread::JoinHandle<()>>,
}

impl System {
    /// Ends a runtime whose goroutines have ended, or are left where they are.
    fn end(self, sched: &Sched, closed: Closed) {
        sched.stop(closed);
        // They do not panic; if one did, the process has been told.
        let _ = self.sysmon.map(std::thread::JoinHandle::join);
        if closed == Closed::Clean {
            let _ = self.helper.map(std::thread::JoinHandle::join);
        }
    }
}

impl Runtime {
    fn close(&mut self) {
        let system = System { sysmon: self.sysmon.take(), helper: self.helper.take() };
        match self.sched.end_goroutines() {
            Closed::Leaked => {
                let sched = Arc::clone(&self.sched);
                let name = format!("{}-last", sched.config.name);
                // Without a thread for it the runtime is there for good: its own threads keep it.
                let _ = thread::spawn(name, move || {
                    sched.wait_until_empty();
                    system.end(&sched, Closed::Clean);
                });
            }
            closed => system.end(&self.sched, closed),
        }
        if self.sched.config.tls_report
            && let Some(report) = tls_report::take()
        {
            stderr::report(format_args!("{report}"));
        }
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(gp) = current::goroutine()
            && std::ptr::eq(gp.sched.get(), &*self.sched)
        {
            stderr::report(format_args!(
                "heist: a Runtime was dropped by one of its own goroutines, which cannot wait for itself; it is \
                 left running\n"
            ));
            return;
        }
        // A goroutine of another runtime blocks its thread here, and takes locks of this one, with which it must
        // not be stopped.
        syscall::blocking(|| self.close());
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("name", &self.sched.config.name)
            .field("procs", &self.procs())
            .field("goroutines", &self.sched.n_live())
            .finish_non_exhaustive()
    }
}

/// Spawns on a runtime from any thread. Cheap to clone; it does not keep the runtime running.
///
/// # Examples
/// A thread that is not the runtime's gives it work:
/// ```
/// let rt = unsafe { heist::Runtime::builder().build() }?;
/// let handle = rt.handle();
/// let thread = std::thread::spawn(move || {
///     let squares: Vec<_> = (0..10).map(|i| handle.spawn(move || i * i)).collect();
///     squares.into_iter().map(|square| square.join().unwrap()).sum::<u32>()
/// });
/// assert_eq!(thread.join().unwrap(), 285);
///
/// // Without its runtime it is good for nothing, and says so.
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
    pub(crate) fn sched(&self) -> &Sched {
        &self.sched
    }

    /// The runtime of the calling goroutine, None on a plain thread.
    ///
    /// # Examples
    /// A library that has a thread of its own lets it spawn where it was called:
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
        Some(Self { sched: unsafe { &*sched }.share() })
    }

    /// Runs `f` on a new goroutine.
    ///
    /// # Panics
    /// If the runtime has shut down or there is no memory. [`try_spawn`](Self::try_spawn) returns
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

    /// Runs `f` on a new goroutine, or says why it cannot.
    ///
    /// # Errors
    /// If the runtime has shut down or there is no memory.
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

    /// What the scheduler has counted so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        Metrics::read(&self.sched)
    }

    /// How many goroutines can run at the same time.
    #[must_use]
    #[doc(alias = "GOMAXPROCS")]
    pub fn procs(&self) -> usize {
        self.sched.procs() as usize
    }

    /// Changes how many goroutines can run at the same time, and returns how many it were.
    ///
    /// The world stops for that, for some ten microseconds: goroutines that run are stopped where
    /// they are and go on afterwards, on the same thread. What lay in the queues of processors that
    /// are taken away goes to the front of the global queue. Setting what is set already stops
    /// nothing. From now on the number does not follow the CPUs and the quota of the control group
    /// any more, until [`set_default_procs`](Self::set_default_procs). A runtime that has shut down stays as it is.
    ///
    /// # Panics
    /// If `n` is 0, more than a runtime can have, 4096, or not more than are reserved for latency
    /// goroutines.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().procs(4).build() }?;
    /// assert_eq!(rt.handle().set_procs(2), 4);
    /// assert_eq!(rt.handle().procs(), 2);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[doc(alias = "GOMAXPROCS")]
    #[track_caller]
    pub fn set_procs(&self, n: usize) -> usize {
        procs::set_procs_of(&self.sched, n)
    }

    /// Goes back to the default number of processors and lets it follow the CPUs and the quota of the
    /// control group again, whatever was chosen before, the environment included. Returns how many
    /// there were.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().procs(64).build() }?;
    /// assert_eq!(rt.handle().set_default_procs(), 64);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[doc(alias = "SetDefaultGOMAXPROCS")]
    pub fn set_default_procs(&self) -> usize {
        procs::set_default_procs_of(&self.sched)
    }
}

impl fmt::Debug for Handle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Handle").field("name", &self.sched.config.name).finish_non_exhaustive()
    }
}

impl goroutine::Builder {
    /// Runs `f` on a new goroutine of that runtime, from any thread.
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

//! A runtime: starting it, running on it, ending it.

mod async_runtime;
mod handle;

pub use async_runtime::{AsyncHandle, AsyncRuntime};
pub use handle::Handle;

use crate::builder::{Builder, RunningTraces};
use crate::coro::{layout, stack_pool};
use crate::current;
use crate::debug;
use crate::debug::DebugServer;
use crate::gmp::debugger;
use crate::goroutine::{self, Beginning, JoinError, JoinHandle, task};
use crate::sched::life;
use crate::sched::life::Closed;
use crate::sched::stacks::overflow;
use crate::sched::stall::blocking;
use crate::sched::stall::sysmon::Sysmon;
use crate::sched::threads::guest::Guest;
use crate::sched::threads::helper::Helper;
use crate::sched::{Config, Sched};
use crate::scope;
use crate::sys::thread_state::ThreadStates;
use crate::sys::{limits, membarrier, signal, stderr, stopwatch, thread};
use crate::throw;
use crate::watchdog::{Orders, Watchdog};
use crate::{panic_report, schedtrace, tls_report, traceback};
use std::fmt;
use std::future::Future;
use std::ops::Deref;
use std::panic::Location;
use std::sync::Arc;

/// A scheduler with its threads.
///
/// Dropping it ends its goroutines: those that are parked, or park later, are unwound so that their
/// destructors run. The drop waits for that, for a bounded time ([`Builder::shutdown_timeout`]),
/// and reports the goroutines that it leaves behind. They run on until their next park, and the
/// threads and the memory of the runtime are released with the last of them. In a program that is
/// built with `panic = "abort"` nothing can be unwound: the drop waits until all remaining
/// goroutines are parked, and leaves them behind.
///
/// Several runtimes may live in one process; their goroutines may use each other's channels and
/// handles.
///
/// A runtime dereferences to its [`Handle`], which has the methods to spawn, to read metrics and to
/// change the number of processors.
pub struct Runtime {
    handle: Handle,
    helper: Option<std::thread::JoinHandle<()>>,
    sysmon: Option<std::thread::JoinHandle<()>>,
    /// The servers that the environment asks for. They stop last.
    debug_servers: Vec<DebugServer>,
    /// Looks at the runtime, if the environment asked for that.
    watchdog: Option<Watchdog>,
    /// The traces that the environment asked for.
    traces: RunningTraces,
}

/// With fewer threads that run goroutines, one that blocks or computes would stall all others.
const THREADS_LEAST: u32 = 2;

impl Runtime {
    /// A builder with the default options.
    pub fn builder() -> Builder {
        Builder::new()
    }

    pub(crate) fn start(config: Config) -> std::io::Result<Self> {
        // A goroutine of another runtime blocks its thread here, and takes locks. It must not be
        // preempted while it holds them.
        blocking::blocking(|| Self::start_blocking(config))
    }

    /// Starts the debug servers that the environment asks for.
    pub(crate) fn serve_at(&mut self, places: &[debug::Place]) {
        let start = |place: &debug::Place| place.serve(&self.handle);
        self.debug_servers = places.iter().filter_map(start).collect();
    }

    fn start_blocking(config: Config) -> std::io::Result<Self> {
        throw::install();
        panic_report::install();
        overflow::install();
        signal::install_interrupt_handler(crate::sched::stall::signal::on_interrupt);
        membarrier::prepare();
        stopwatch::prepare();
        limits::spare_room();
        debugger::prepare();
        let name = format!("{}-helper", config.name);
        let no_descriptors = |error| limits::explain(&error, "descriptors for the poller");
        let sched = Sched::start(config).map_err(no_descriptors)?;
        traceback::reports::install(&sched);
        let no_stack = |error| limits::explain(&error, "memory for a stack");
        let class = sched.config.stack;
        stack_pool::reserve_last(class).and_then(|()| layout::learn(class)).map_err(no_stack)?;
        let helper = Helper::new(Arc::clone(&sched));
        let no_thread = |error| limits::explain(&error, "thread for the runtime");
        let helper = thread::spawn_patiently(&name, move || helper.run()).map_err(no_thread)?;
        let watched = Arc::clone(&sched);
        let name = format!("{}-sysmon", sched.config.name);
        let states = ThreadStates::new();
        let watch = move || Sysmon::new(&watched, states, schedtrace::print).run();
        let sysmon = thread::spawn_patiently(&name, watch);
        let (handle, traces) = (Handle::new(sched), RunningTraces::default());
        let helper = Some(helper);
        let (debug_servers, watchdog) = (Vec::new(), None);
        let mut rt = Self { handle, helper, sysmon: None, debug_servers, watchdog, traces };
        // If sysmon cannot be started, dropping the runtime stops the helper.
        rt.sysmon = Some(sysmon.map_err(no_thread)?);
        let name = format!("{}-probe", rt.sched().config.name);
        let no_threads = |error| limits::explain(&error, "two threads for goroutines");
        thread::probe(&name, THREADS_LEAST).map_err(no_threads)?;
        Ok(rt)
    }

    /// Keeps the traces that the environment asked for, until the runtime ends.
    pub(crate) fn set_traces(&mut self, traces: RunningTraces) {
        self.traces = traces;
    }

    /// Starts the watchdog, if the environment asked for one.
    pub(crate) fn watch(&mut self, orders: Orders) -> std::io::Result<()> {
        self.watchdog = Watchdog::start(self.sched(), orders, self.traces.flight())?;
        Ok(())
    }

    /// A handle by which any thread can use this runtime.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Runs `f` as a goroutine and waits for it: the main goroutine of a program.
    ///
    /// `f` may borrow, because `run` returns only when `f` has ended. Goroutines that it spawned
    /// run on until the runtime is dropped.
    ///
    /// # Panics
    /// If `f` panics, with the same payload; if it was cancelled, ended itself or overflowed its
    /// stack; if memory is exhausted.
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

    /// Runs `f` as [`run`](Self::run) does, but on the calling thread: the goroutine is locked to
    /// it from beginning to end, as by [`lock_os_thread`](crate::lock_os_thread).
    ///
    /// It is for code that must stay on one thread, above all on the first thread of a process.
    /// Many GUI and graphics libraries require that.
    ///
    /// # Panics
    /// As [`run`](Self::run), and if it is called on a goroutine, which does not own its thread.
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
        let guest = Guest::new(self.sched())
            .unwrap_or_else(|error| panic!("heist::Runtime::run_here: no signal stack: {error}"));
        let site = Location::caller();
        // SAFETY: the goroutine has ended when the join returns, and this function neither returns
        // nor unwinds before that.
        match unsafe { goroutine::spawn_on(self.sched(), f, site, Beginning::On(guest.m()), None) }
        {
            Ok(handle) => {
                guest.run();
                drop(guest);
                handle.join_shielded().unwrap_or_else(|error| resume(error))
            }
            Err(error) => panic!("heist::Runtime::run_here: {error}"),
        }
    }

    /// Polls `future` until it is ready, on the calling thread, as a goroutine that is locked to
    /// it: [`run_here`](Self::run_here) with [`block_on`](crate::block_on). The future may borrow,
    /// and need not be `Send`.
    ///
    /// # Panics
    /// As [`run_here`](Self::run_here).
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let name = std::rc::Rc::new("heist");
    /// let length = rt.block_on(async {
    ///     heist::time::sleep_async(std::time::Duration::from_millis(1)).await;
    ///     heist::spawn(async { 1 }).await.unwrap() + name.len()
    /// });
    /// assert_eq!(length, 6);
    /// # Ok::<(), heist::BuildError>(())
    /// ```
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        /// A value that does not leave its thread.
        struct Stays<T>(T);
        // SAFETY: `run_here` runs the closure on the calling thread from beginning to end, and
        // returns its result there.
        unsafe impl<T> Send for Stays<T> {}
        impl<T> Stays<T> {
            fn into_inner(self) -> T {
                self.0
            }
        }
        let future = Stays(future);
        self.run_here(move || Stays(task::block_on(future.into_inner()))).into_inner()
    }

    /// Runs `f` as a goroutine and waits for its end.
    fn outcome_of<F, T>(&self, f: F, site: &'static Location<'static>) -> Result<T, JoinError>
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        // A goroutine waits here as in any other wait, and can be cancelled. A plain thread does
        // nothing else meanwhile, and nothing unwinds it.
        let ended = if current::goroutine().is_some() {
            scope::run_on(self.sched(), f, site)
        } else {
            // SAFETY: the goroutine has ended when the join returns, and this function neither
            // returns nor unwinds before that.
            let spawned =
                unsafe { goroutine::spawn_on(self.sched(), f, site, Beginning::Awaited, None) };
            let ended = spawned.map(JoinHandle::join_shielded);
            if let Ok(Err(error)) = &ended
                && error.is_stack_overflow()
            {
                // It was abandoned and has not ended: its borrows may still be in use.
                thread::sleep_for_ever();
            }
            ended
        };
        ended.unwrap_or_else(|error| panic!("heist::Runtime::run: {error}"))
    }

    /// [`run`](Self::run) for the main function of a program. If the main goroutine ends itself by
    /// [`exit_current`](crate::exit_current), the others run on; when none is left, the process
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
                life::stay_to_the_end(self.sched());
                stderr::report(format_args!(
                    "fatal error: no goroutines (main called runtime.Goexit) - deadlock!\n"
                ));
                stderr::exit_now(2);
            }
            Err(error) => resume(error),
        }
    }
}

/// Continues the panic of the main goroutine, or panics with the other reason for its end.
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
    /// Ends a runtime whose goroutines have ended or are left behind.
    fn end(self, sched: &Sched, closed: Closed) {
        life::stop(sched, closed);
        // These threads do not panic; if one did, its panic has been reported.
        let _ = self.sysmon.map(std::thread::JoinHandle::join);
        if closed == Closed::Clean {
            let _ = self.helper.map(std::thread::JoinHandle::join);
        }
    }
}

impl Runtime {
    fn close(&mut self) {
        drop(self.watchdog.take());
        let system = System { sysmon: self.sysmon.take(), helper: self.helper.take() };
        match life::end_goroutines(self.sched()) {
            Closed::Leaked => {
                let sched = Arc::clone(self.sched());
                let name = format!("{}-last", sched.config.name);
                // If this thread cannot be made, the runtime stays: its own threads keep it alive.
                let _ = thread::spawn(name, move || {
                    life::wait_until_empty(&sched);
                    system.end(&sched, Closed::Clean);
                });
            }
            closed => system.end(self.sched(), closed),
        }
        self.traces.end();
        if self.sched().config.tls_report
            && let Some(report) = tls_report::take()
        {
            stderr::report(format_args!("{report}"));
        }
    }
}

impl Deref for Runtime {
    type Target = Handle;

    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        if let Some(gp) = current::goroutine()
            && std::ptr::eq(gp.sched.get(), &**self.sched())
        {
            stderr::report(format_args!(
                "heist: a Runtime was dropped by one of its own goroutines, which cannot wait for \
                 itself; it is left running\n"
            ));
            return;
        }
        // A goroutine of another runtime blocks its thread here, and takes locks of this runtime.
        // It must not be preempted while it holds them.
        blocking::blocking(|| self.close());
    }
}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("name", &self.sched().config.name)
            .field("procs", &self.procs())
            .field("goroutines", &life::n_live(self.sched()))
            .finish_non_exhaustive()
    }
}

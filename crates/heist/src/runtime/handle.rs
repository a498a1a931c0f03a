//! A handle to a runtime, by which any thread uses it.
//!
//! A [`Runtime`](crate::Runtime) dereferences to its handle: what both can do is written here once.

use crate::current;
use crate::goroutine::{self, Beginning, JoinHandle, SpawnError};
use crate::metrics::{Metrics, ProcStats};
use crate::procs;
use crate::sched::Sched;
use std::fmt;
use std::panic::Location;
use std::sync::Arc;

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
        f.debug_struct("Handle").field("name", &self.sched.config.name).finish_non_exhaustive()
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

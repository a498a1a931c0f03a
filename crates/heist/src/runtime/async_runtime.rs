//! A runtime for futures that needs no promise.

use super::{Handle, Runtime};
use crate::goroutine::SpawnError;
use crate::goroutine::task::Task;
use crate::metrics::Metrics;
use std::fmt;
use std::future::Future;

/// A runtime for futures; made by [`Builder::build_async`](crate::Builder::build_async), without
/// `unsafe`.
///
/// It is the same scheduler as that of a [`Runtime`], and everything async works: tasks, channels,
/// locks, timers. It offers no goroutines that move between threads. A poll may call what blocks,
/// such as a `recv` that waits, or [`go`](crate::go), and these work, too. But there the poll, or
/// the goroutine, keeps its thread until it ends, as a thread of the operating system does. So a
/// thousand polls that wait in this way need a thousand threads. Use the async forms.
///
/// Dropping it ends its tasks, as dropping a [`Runtime`] does.
///
/// # Examples
/// ```
/// let rt = heist::Runtime::builder().build_async()?;
/// let sum = rt.block_on(async {
///     let (tx, rx) = heist::chan::bounded(1);
///     heist::spawn(async move {
///         for i in 0..10 {
///             tx.send_async(i).await.unwrap();
///         }
///     });
///     let mut sum = 0;
///     while let Ok(i) = rx.recv_async().await {
///         sum += i;
///     }
///     sum
/// });
/// assert_eq!(sum, 45);
/// # Ok::<(), heist::BuildError>(())
/// ```
/// It does not run closures as goroutines; this does not compile:
/// ```compile_fail,E0599
/// let rt = heist::Runtime::builder().build_async().unwrap();
/// rt.run(|| ());
/// ```
pub struct AsyncRuntime {
    rt: Runtime,
}

impl AsyncRuntime {
    pub(crate) const fn new(rt: Runtime) -> Self {
        Self { rt }
    }

    /// Polls `future` until it is ready, on the calling thread. It may borrow, and need not be
    /// `Send`.
    ///
    /// # Panics
    /// If the future panics, and if it is called on a goroutine or in a task.
    #[track_caller]
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        self.rt.block_on(future)
    }

    /// Runs a future as a new task.
    ///
    /// # Panics
    /// If memory is exhausted.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.rt.spawn_async(future)
    }

    /// A handle by which any thread can spawn on this runtime.
    #[must_use]
    pub fn handle(&self) -> AsyncHandle {
        AsyncHandle { handle: self.rt.handle() }
    }

    /// The metrics of the scheduler so far.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        self.rt.metrics()
    }

    /// How many tasks can run at the same time.
    #[must_use]
    pub fn procs(&self) -> usize {
        self.rt.procs()
    }

    /// Every task as text; see [`dump_goroutines`](crate::dump_goroutines).
    #[must_use]
    pub fn dump_tasks(&self) -> String {
        self.rt.dump_goroutines()
    }
}

impl fmt::Debug for AsyncRuntime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AsyncRuntime").field(&self.rt).finish()
    }
}

/// Spawns tasks on an [`AsyncRuntime`], from any thread. It does not keep the runtime running.
///
/// # Examples
/// ```
/// let rt = heist::Runtime::builder().build_async()?;
/// let handle = rt.handle();
/// let thread = std::thread::spawn(move || handle.spawn(async { 5 }).join().unwrap());
/// assert_eq!(thread.join().unwrap(), 5);
/// # Ok::<(), heist::BuildError>(())
/// ```
#[derive(Clone)]
pub struct AsyncHandle {
    handle: Handle,
}

impl AsyncHandle {
    /// Runs a future as a new task.
    ///
    /// # Panics
    /// If the runtime has shut down or memory is exhausted.
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.spawn_async(future)
    }

    /// Runs a future as a new task, or returns why it cannot.
    ///
    /// # Errors
    /// If the runtime has shut down or memory is exhausted.
    #[track_caller]
    pub fn try_spawn<F>(&self, future: F) -> Result<Task<F::Output>, SpawnError>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.handle.try_spawn_async(future)
    }
}

impl fmt::Debug for AsyncHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AsyncHandle { .. }")
    }
}

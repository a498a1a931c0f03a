//! The tokio runtime, and the ways to use it.

use crate::{InTokio, Metrics};
use std::fmt;
use std::future::Future;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use tokio::runtime::{Builder, Handle, Runtime};

/// A tokio runtime that is entered for each poll of the futures that need it.
///
/// Clones are the same runtime. When the last clone and the last wrapped future are dropped, the
/// runtime ends: its tasks are dropped, and nobody waits for its blocking calls.
///
/// # Examples
/// ```
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| -> std::io::Result<()> {
/// let tokio = heist_tokio::TokioContext::new(2)?;
/// let listener = tokio.block_on(async { tokio::net::TcpListener::bind("127.0.0.1:0").await })?;
/// assert!(listener.local_addr()?.ip().is_loopback());
/// assert_eq!(tokio.metrics().workers, 2);
/// # Ok(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct TokioContext {
    shared: Arc<Shared>,
}

pub(crate) struct Shared {
    handle: Handle,
    /// None only while it is dropped.
    runtime: Option<Runtime>,
    /// Wrapped futures that exist.
    pub(crate) n_wrapped: AtomicUsize,
    pub(crate) n_polls: AtomicU64,
}

impl TokioContext {
    /// Starts a tokio runtime with as many workers, at least one, with its sockets and timers.
    ///
    /// One is right if the libraries only need sockets and timers: those are little work. Libraries
    /// that spawn their connections, such as reqwest, do the work of these connections there.
    ///
    /// # Errors
    /// If the system has no thread or descriptor left.
    pub fn new(workers: usize) -> io::Result<Self> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(workers.max(1))
            .thread_name("tokio-context")
            .enable_all()
            .build()?;
        Ok(Self {
            shared: Arc::new(Shared {
                handle: runtime.handle().clone(),
                runtime: Some(runtime),
                n_wrapped: AtomicUsize::new(0),
                n_polls: AtomicU64::new(0),
            }),
        })
    }

    /// A future that is polled and dropped inside the context, by whichever executor.
    ///
    /// A function that makes a future may need the context already before the first poll, as
    /// `tokio::time::sleep` does: call it in an `async` block.
    pub fn wrap<F: Future>(&self, future: F) -> InTokio<F> {
        InTokio::new(Arc::clone(&self.shared), future)
    }

    /// Spawns a future on heist that is polled inside the context.
    ///
    /// # Panics
    /// As [`heist::spawn`].
    #[track_caller]
    pub fn spawn<F>(&self, future: F) -> heist::Task<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        heist::spawn(self.wrap(future))
    }

    /// Waits for a future that is polled inside the context: a goroutine parks, and other threads
    /// block.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| -> std::io::Result<()> {
    /// let tokio = heist_tokio::TokioContext::new(1)?;
    /// let sum = tokio.block_on(async { tokio::spawn(async { 1 }).await.unwrap() + 2 });
    /// assert_eq!(sum, 3);
    /// # Ok(())
    /// # }).unwrap();
    /// ```
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        heist::block_on(self.wrap(future))
    }

    /// Calls `f` inside the context. The calling goroutine stays on its thread until it returns.
    ///
    /// For constructors that need the context. A function that waits for long should be a future:
    /// the thread waits with it.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| -> std::io::Result<()> {
    /// let tokio = heist_tokio::TokioContext::new(1)?;
    /// let std = std::net::UdpSocket::bind("127.0.0.1:0")?;
    /// std.set_nonblocking(true)?;
    /// let socket = tokio.enter(|| tokio::net::UdpSocket::from_std(std))?;
    /// assert!(socket.local_addr()?.ip().is_loopback());
    /// # Ok(())
    /// # }).unwrap();
    /// ```
    pub fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        self.shared.enter(f)
    }

    /// How much runs in the context now.
    #[must_use]
    pub fn metrics(&self) -> Metrics {
        let tokio = self.shared.handle.metrics();
        Metrics {
            workers: tokio.num_workers(),
            tasks: tokio.num_alive_tasks(),
            queued: tokio.global_queue_depth(),
            wrapped: self.shared.n_wrapped.load(Ordering::Relaxed),
            polls: self.shared.n_polls.load(Ordering::Relaxed),
        }
    }

    /// tokio's own handle of the runtime, to spawn on its workers.
    #[must_use]
    pub fn handle(&self) -> &Handle {
        &self.shared.handle
    }
}

impl fmt::Debug for TokioContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TokioContext").field("metrics", &self.metrics()).finish_non_exhaustive()
    }
}

impl Shared {
    /// Calls `f` inside the context, on one thread from beginning to end.
    pub(crate) fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        // Dropped after the context is left, also when `f` panics or is cancelled.
        let _thread = heist::lock_os_thread();
        let _entered = self.handle.enter();
        f()
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        // The usual way would wait for its threads, and panics on one of them.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

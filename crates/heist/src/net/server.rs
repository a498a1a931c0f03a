//! Serving connections until shutdown, and a shutdown that lets connections finish.

use super::bind::Watched;
use super::watch::Watch;
use super::{TcpListener, TcpStream, is_closed};
use crate::context::{self, Canceller, Context};
use crate::current;
use crate::goroutine::{self, JoinHandle, SpawnError};
use crate::sched::life::cancel::CAN_UNWIND;
use crate::sync::{Mutex, MutexGuard, WaitGroup};
use crate::sys::{fd, stderr};
use crate::time;
use std::collections::HashMap;
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

/// How long the accept loop pauses when there is no descriptor left, or after an error of a new
/// connection: the first pause and the longest; each is twice the last.
const ACCEPT_PAUSE: (Duration, Duration) = (Duration::from_millis(5), Duration::from_secs(1));

/// Accepts connections, runs a goroutine for each, and stops gracefully.
///
/// Clones are the same server.
///
/// # Examples
/// ```
/// use heist::net::{Server, TcpListener, TcpStream};
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// # fn main() -> std::io::Result<()> {
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| -> std::io::Result<()> {
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let address = listener.local_addr()?;
/// let server = Server::new();
/// let serving = {
///     let server = server.clone();
///     heist::go(move || {
///         server.serve(listener, |mut stream, _| {
///             // A broken connection ends its goroutine.
///             let _ = stream.write_all(b"hello");
///         })
///     })
/// };
///
/// let mut text = String::new();
/// TcpStream::connect(address)?.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
///
/// let left = server.shutdown(Duration::from_secs(10));
/// assert_eq!(left.cancelled, 0);
/// serving.join().unwrap()?;
/// # Ok(())
/// # })
/// # }
/// ```
#[derive(Clone)]
pub struct Server {
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    connections: WaitGroup,
    /// The maximum number of connections that are served at the same time.
    max_connections: AtomicUsize,
    n_refused: AtomicU64,
    /// Cancelled when shutdown begins.
    running: Context,
    stop: Canceller,
}

#[derive(Default)]
struct State {
    listeners: Vec<Arc<TcpListener>>,
    handles: HashMap<u64, Connection>,
    n_accepted: u64,
    is_closing: bool,
    /// The grace period is over.
    is_cancelling: bool,
    /// Whether the lack of descriptors was reported.
    has_warned: bool,
}

/// A connection that is served.
struct Connection {
    /// None while it is being spawned.
    handle: Option<JoinHandle<()>>,
    /// Its stream. None if goroutines can be unwound, because then it is not needed.
    stream: Option<Arc<Watch>>,
}

impl Connection {
    /// Ends it. A goroutine that cannot be unwound ends when it sees the end of its connection.
    fn cancel(&self) {
        if let Some(handle) = &self.handle {
            handle.cancel();
        }
        if let Some(stream) = &self.stream {
            stream.shut_down();
        }
    }
}

/// How a server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Left {
    /// Connections that had not ended in time and were cancelled.
    pub cancelled: usize,
}

impl Server {
    /// A server that serves nothing yet.
    #[must_use]
    pub fn new() -> Self {
        let (running, stop) = context::background().with_cancel();
        let state = Mutex::new(State::default());
        Self {
            shared: Arc::new(Shared {
                state,
                connections: WaitGroup::new(),
                max_connections: AtomicUsize::new(usize::MAX),
                n_refused: AtomicU64::new(0),
                running,
                stop,
            }),
        }
    }

    /// The same server with a limit: it serves at most `n` connections at the same time, from all
    /// its listeners together. A connection above the limit is accepted, closed and counted
    /// ([`refused`](Self::refused)). By default there is no limit.
    ///
    /// # Examples
    /// ```
    /// use heist::net::Server;
    ///
    /// let server = Server::new().max_connections(10_000);
    /// assert_eq!(server.refused(), 0);
    /// ```
    #[must_use]
    pub fn max_connections(self, n: usize) -> Self {
        self.shared.max_connections.store(n, Ordering::Relaxed);
        self
    }

    /// Serves until [`shutdown`](Self::shutdown): calls `handle` for each connection, on its own
    /// goroutine. Several listeners may be served at once, each by its own call.
    ///
    /// If there are no descriptors left, it reports that once on standard error, pauses, and tries
    /// again: waiting connections are served when others end. A connection for which there is no
    /// memory, or that is above the limit ([`max_connections`](Self::max_connections)), is closed
    /// and counted ([`refused`](Self::refused)).
    ///
    /// When it returns, for any reason, the listener is closed.
    ///
    /// # Errors
    /// If accepting fails for another reason than the lack of descriptors or memory, or an error of
    /// the one connection; after those it pauses and tries again.
    ///
    /// # Panics
    /// Outside a runtime.
    #[doc(alias = "Serve")]
    #[track_caller]
    pub fn serve<H>(&self, listener: TcpListener, handle: H) -> io::Result<()>
    where
        H: Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    {
        // What is said of the goroutines of its connections.
        let site = Location::caller();
        let listener = Arc::new(listener);
        let handle = Arc::new(handle);
        {
            let mut state = self.shared.state();
            if state.is_closing {
                return Ok(());
            }
            state.listeners.push(Arc::clone(&listener));
        }
        let _listening = Listening { shared: &self.shared, listener: &listener };
        let mut pause = ACCEPT_PAUSE.0;
        loop {
            match listener.accept() {
                Ok((stream, address)) => {
                    pause = ACCEPT_PAUSE.0;
                    self.start(stream, address, Arc::clone(&handle), site);
                }
                Err(error) if is_closed(&error) => return Ok(()),
                Err(error) if fd::is_exhaustion(&error) || fd::is_of_the_network(&error) => {
                    self.warn_once(&error);
                    time::sleep(pause);
                    pause = (pause * 2).min(ACCEPT_PAUSE.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    fn start<H>(
        &self,
        stream: TcpStream,
        address: SocketAddr,
        handle: Arc<H>,
        site: &'static Location<'static>,
    ) where
        H: Fn(TcpStream, SocketAddr) + Send + Sync + 'static,
    {
        let id = {
            let mut state = self.shared.state();
            if state.is_closing {
                return; // It came too late, like those that were not accepted any more.
            }
            if state.handles.len() >= self.shared.max_connections.load(Ordering::Relaxed) {
                return self.refuse();
            }
            state.n_accepted += 1;
            let id = state.n_accepted;
            let watch = (!CAN_UNWIND).then(|| stream.watch());
            state.handles.insert(id, Connection { handle: None, stream: watch });
            // With the lock: a shutdown waits for the connections that were admitted before it.
            self.shared.connections.add(1);
            id
        };
        let ended = Ended { shared: Arc::clone(&self.shared), id };
        // Without the lock: if the goroutine cannot be spawned, the closure is dropped, and its
        // `Ended` removes the connection.
        let serve = move || {
            let _ended = ended;
            handle(stream, address);
        };
        let spawned = goroutine::spawn_here(serve, site, None);
        let handle = match spawned {
            Ok(handle) => handle,
            Err(SpawnError::NoMemory) => return self.refuse(),
            // The runtime is ending, and so does this goroutine.
            Err(_) => return,
        };
        let mut state = self.shared.state();
        if state.is_cancelling {
            handle.cancel();
        }
        // The connection may have ended already.
        if let Some(connection) = state.handles.get_mut(&id) {
            connection.handle = Some(handle);
        }
    }

    /// Counts a connection that is not served. The caller drops it, which closes it.
    fn refuse(&self) {
        self.shared.n_refused.fetch_add(1, Ordering::Relaxed);
        current::with_sched(|sched| sched.stats.refused.add_shared(1));
    }

    fn warn_once(&self, error: &io::Error) {
        if !std::mem::replace(&mut self.shared.state().has_warned, true) {
            stderr::report(format_args!(
                "heist: cannot accept connections for now ({error}); trying again\n"
            ));
        }
    }

    /// Connections that are being served.
    #[must_use]
    pub fn connections(&self) -> usize {
        self.shared.state().handles.len()
    }

    /// Connections that were closed unserved: for lack of memory, or because of the limit
    /// [`max_connections`](Self::max_connections).
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.shared.n_refused.load(Ordering::Relaxed)
    }

    /// A context that is done when [`shutdown`](Self::shutdown) begins. A handler that keeps a
    /// connection alive checks it before it waits for the next request. It should end idle
    /// connections, for example with a deadline in the past that
    /// [`after_func`](Context::after_func) sets; otherwise `shutdown` waits for them until the
    /// grace period is over.
    ///
    /// # Examples
    /// ```
    /// use std::time::Duration;
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// let server = heist::net::Server::new();
    /// let running = server.context();
    /// assert!(running.err().is_none());
    /// server.shutdown(Duration::from_secs(1));
    /// assert!(running.done().recv().is_err() && running.err().is_some());
    /// # });
    /// ```
    #[must_use]
    #[doc(alias = "RegisterOnShutdown")]
    pub fn context(&self) -> Context {
        self.shared.running.clone()
    }

    /// Stops accepting, and waits until all connections have ended. A connection that has not ended
    /// after `grace` is cancelled: its goroutine unwinds at its next wait, and `shutdown` waits for
    /// that. Destructors that would wait for the network meanwhile, such as that of a `BufWriter`,
    /// fail instead.
    ///
    /// With `panic = "abort"` nothing can be unwound. Then the connection is shut down, so that a
    /// goroutine that waits for it sees its end.
    ///
    /// # Panics
    /// Outside a runtime.
    #[doc(alias = "Shutdown")]
    pub fn shutdown(&self, grace: Duration) -> Left {
        let listeners = {
            let mut state = self.shared.state();
            state.is_closing = true;
            std::mem::take(&mut state.listeners)
        };
        for listener in listeners {
            // It may have been closed already.
            let _ = listener.close();
        }
        self.shared.stop.cancel();
        let cancelled = Arc::new(AtomicUsize::new(0));
        let late = {
            let (shared, cancelled) = (Arc::clone(&self.shared), Arc::clone(&cancelled));
            time::after_func(grace, move || {
                let mut state = shared.state();
                state.is_cancelling = true;
                state.handles.values().for_each(Connection::cancel);
                cancelled.store(state.handles.len(), Ordering::Relaxed);
            })
        };
        self.shared.connections.wait();
        late.stop();
        Left { cancelled: cancelled.load(Ordering::Relaxed) }
    }
}

impl Shared {
    /// Held for a short time only. It is a mutex of heist, because spawning or cancelling while it
    /// is held may yield to other goroutines. A goroutine cannot be cancelled while it waits for
    /// it, because it may be about to count a connection off.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock_shielded()
    }
}

impl Default for Server {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("connections", &self.connections()).finish()
    }
}

/// Closes a listener when its `serve` ends, in whatever way.
struct Listening<'a> {
    shared: &'a Shared,
    listener: &'a Arc<TcpListener>,
}

impl Drop for Listening<'_> {
    fn drop(&mut self) {
        self.shared.state().listeners.retain(|other| !Arc::ptr_eq(other, self.listener));
        // A shutdown closes it too.
        let _ = self.listener.close();
    }
}

/// Removes a connection from the table, however it ended.
struct Ended {
    shared: Arc<Shared>,
    id: u64,
}

impl Drop for Ended {
    fn drop(&mut self) {
        // Counted off even if this function unwinds.
        let _done = Done(&self.shared.connections);
        let handle = self.shared.state().handles.remove(&self.id);
        drop(handle);
    }
}

/// Counts a connection off.
struct Done<'a>(&'a WaitGroup);

impl Drop for Done<'_> {
    fn drop(&mut self) {
        self.0.done();
    }
}

//! The options of a console server, and its handle.

use crate::book::Limits;
use crate::record::{self, Recorder};
use crate::serve;
use crate::shared::Shared;
use heist::Handle;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener, ToSocketAddrs};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::sync::oneshot;

/// Sets up a [`Console`].
///
/// # Examples
/// ```
/// use std::time::Duration;
///
/// let rt = unsafe { heist::Runtime::builder().build() }?;
/// let console = heist_console::Builder::new()
///     .publish_interval(Duration::from_millis(250))
///     .record_always()
///     .serve_on(&rt.handle(), "127.0.0.1:0")?;
/// rt.run(|| heist::go(|| ()).join().unwrap());
/// # drop(console);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they serve"]
pub struct Builder {
    any_address: bool,
    recorder: Recorder,
    limits: Limits,
}

impl Default for Builder {
    fn default() -> Self {
        let limits = Limits {
            retention: Duration::from_secs(10),
            ended_max: 10_000,
            goroutines_max: 100_000,
        };
        let recorder = Recorder { interval: Duration::from_secs(1), is_always_on: false };
        Self { any_address: false, recorder, limits }
    }
}

impl Builder {
    /// The defaults: loopback addresses only, an update each second, recording while somebody
    /// watches.
    pub fn new() -> Self {
        Self::default()
    }

    /// Allows an address that other machines can reach. Every one of them can then see names of
    /// goroutines, paths of source files and what the goroutines do; there is no password.
    pub const fn any_address(mut self) -> Self {
        self.any_address = true;
        self
    }

    /// How often clients get an update; a second by default, at least 10 ms and at most a minute.
    /// For each update every thread of the runtime begins a new trace buffer.
    pub fn publish_interval(mut self, interval: Duration) -> Self {
        self.recorder.interval = interval.clamp(Duration::from_millis(10), Duration::from_secs(60));
        self
    }

    /// Records from the start, and also while nobody watches. Then the times count from the
    /// creation of each goroutine, and the program pays for the trace all the time.
    pub const fn record_always(mut self) -> Self {
        self.recorder.is_always_on = true;
        self
    }

    /// How long ended goroutines are shown to clients that connect later; ten seconds by default.
    /// tokio-console itself removes them after its own `--retain-for`.
    pub const fn retention(mut self, retention: Duration) -> Self {
        self.limits.retention = retention;
        self
    }

    /// The most ended goroutines that are kept; 10,000 by default. The oldest ones are forgotten
    /// first. In a program that makes many short goroutines, clients do not get to see all of them.
    pub const fn ended_max(mut self, n: usize) -> Self {
        self.limits.ended_max = n;
        self
    }

    /// The most living goroutines that are shown; 100,000 by default, with some 300 bytes for each.
    pub const fn goroutines_max(mut self, n: usize) -> Self {
        self.limits.goroutines_max = n;
        self
    }

    /// Shows the runtime of the calling goroutine at a TCP address; port 0 lets the system choose.
    ///
    /// # Errors
    /// If the caller is not a goroutine, the address is not a loopback address and
    /// [`any_address`](Self::any_address) was not called, or the system refuses the address or a
    /// thread.
    pub fn serve(self, addr: impl ToSocketAddrs) -> io::Result<Console> {
        let Some(handle) = Handle::current() else {
            let why = "heist_console: the caller is not a goroutine; name the runtime with \
                       Builder::serve_on";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        self.serve_on(&handle, addr)
    }

    /// Shows a runtime at a TCP address, from any thread.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_on(self, handle: &Handle, addr: impl ToSocketAddrs) -> io::Result<Console> {
        // A name may have to be looked up.
        heist::blocking(|| {
            let addrs: Vec<SocketAddr> = addr.to_socket_addrs()?.collect();
            if !self.any_address && addrs.iter().any(|addr| !addr.ip().is_loopback()) {
                let why = "heist_console: not a loopback address; other machines may look with \
                           Builder::any_address";
                return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
            }
            let listener = TcpListener::bind(&addrs[..])?;
            self.start(handle, listener)
        })
    }

    fn start(self, handle: &Handle, listener: TcpListener) -> io::Result<Console> {
        let addr = listener.local_addr()?;
        let shared = Arc::new(Shared::new(self.limits));
        let (stop, stopped) = oneshot::channel();
        let server = serve::start(listener, Arc::clone(&shared), stopped)?;
        let mut console = Console { addr, shared, stop: Some(stop), threads: vec![server] };
        let recorder = record::start(handle, Arc::clone(&console.shared), self.recorder)?;
        console.threads.push(recorder);
        Ok(console)
    }
}

/// A running console server. Dropping it stops the server and closes its connections.
///
/// It does not keep its runtime running. After the runtime has ended, all goroutines are shown as
/// completed.
#[must_use = "the server stops when this value is dropped; `detach` lets it run"]
pub struct Console {
    addr: SocketAddr,
    shared: Arc<Shared>,
    stop: Option<oneshot::Sender<()>>,
    threads: Vec<JoinHandle<()>>,
}

impl Console {
    /// The address at which it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Lets the server run until the process ends.
    pub fn detach(mut self) {
        // Dropping the sender would stop the server.
        std::mem::forget(self.stop.take());
        self.threads.clear();
    }
}

impl Drop for Console {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            self.shared.stop();
            // The thread may have ended already.
            let _ = stop.send(());
            heist::blocking(|| {
                for thread in self.threads.drain(..) {
                    // A panic of the thread was reported when it happened.
                    let _ = thread.join();
                }
            });
        }
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Console").field("addr", &self.addr).finish_non_exhaustive()
    }
}

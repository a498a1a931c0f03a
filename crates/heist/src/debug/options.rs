//! The options of a debug server.

use super::DebugServer;
use super::listener::Listener;
use crate::runtime::Handle;
use std::io;
use std::net::ToSocketAddrs;
use std::path::Path;
use std::time::Duration;

/// Sets up a [`DebugServer`].
///
/// # Examples
/// Stacks, profiles and traces, which cost the program time, need a token:
/// ```
/// let rt = unsafe { heist::Runtime::builder().build() }?;
/// let server = heist::debug::Options::new()
///     .token("a long random text")
///     .serve_on(&rt.handle(), "127.0.0.1:0")?;
/// println!("http://{}/debug/sched", server.local_addr().unwrap());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use = "options do nothing until they serve"]
pub struct Options {
    pub(super) token: Option<String>,
    pub(super) hosts: Vec<String>,
    pub(super) any_address: bool,
    pub(super) connections_max: usize,
    pub(super) head_timeout: Duration,
    pub(super) write_timeout: Duration,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            token: None,
            hosts: Vec::new(),
            any_address: false,
            connections_max: 64,
            head_timeout: Duration::from_secs(5),
            write_timeout: Duration::from_secs(10),
        }
    }
}

impl Options {
    /// The defaults: only loopback addresses, no token.
    pub fn new() -> Self {
        Self::default()
    }

    /// Stacks, profiles and traces are served only to clients that know this text: as the header
    /// `Authorization: Bearer TEXT` or the parameter `token=TEXT`. An empty text means no token.
    pub fn token(mut self, token: impl Into<String>) -> Self {
        self.token = Some(token.into()).filter(|token| !token.is_empty());
        self
    }

    /// Allows an address that other machines can reach. Every one of them can then read the state
    /// of the scheduler: metrics, and where goroutines were spawned and wait. Stacks, profiles and
    /// traces are served to them with a [token](Self::token) only.
    pub const fn any_address(mut self) -> Self {
        self.any_address = true;
        self
    }

    /// Also answers requests to this host name. Without it only addresses and `localhost` are
    /// answered, so that a web page cannot reach the server under a name of its own.
    pub fn host(mut self, name: impl Into<String>) -> Self {
        self.hosts.push(name.into());
        self
    }

    /// The most connections at a time; 64 by default, at least 1. When another one comes, the one
    /// that has been sending its request or reading its answer longest is closed.
    pub const fn connections_max(mut self, n: usize) -> Self {
        self.connections_max = if n == 0 { 1 } else { n };
        self
    }

    /// How long a client may take to send its request; 5 s by default, at most an hour.
    pub const fn head_timeout(mut self, timeout: Duration) -> Self {
        self.head_timeout = at_most_an_hour(timeout);
        self
    }

    /// How long a client may take to read the next part of its answer; 10 s by default, at most an
    /// hour.
    pub const fn write_timeout(mut self, timeout: Duration) -> Self {
        self.write_timeout = at_most_an_hour(timeout);
        self
    }

    /// Serves the runtime of the calling goroutine at a TCP address; port 0 lets the system choose.
    ///
    /// # Errors
    /// If the caller is not a goroutine, the address is not a loopback address and
    /// [`any_address`](Self::any_address) was not called, or the system refuses the address or a
    /// thread.
    pub fn serve(self, addr: impl ToSocketAddrs) -> io::Result<DebugServer> {
        let Some(handle) = Handle::current() else {
            let why = "heist::debug: the caller is not a goroutine; name the runtime with \
                       Options::serve_on";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, why));
        };
        self.serve_on(&handle, addr)
    }

    /// Serves a runtime at a TCP address, from any thread.
    ///
    /// # Errors
    /// As [`serve`](Self::serve).
    pub fn serve_on(self, handle: &Handle, addr: impl ToSocketAddrs) -> io::Result<DebugServer> {
        let any_address = self.any_address;
        // A name may have to be looked up.
        let bind = || Listener::tcp(addr.to_socket_addrs()?, any_address);
        let listener = crate::blocking(bind)?;
        DebugServer::start(handle, listener, self)
    }

    /// Serves a runtime at a Unix socket, which only processes of the same user can use. A socket
    /// that an ended process left at this path is replaced. The socket is removed when the server
    /// stops.
    ///
    /// # Errors
    /// If another process serves there, or the system refuses the path or a thread.
    ///
    /// # Examples
    /// ```
    /// let rt = unsafe { heist::Runtime::builder().build() }?;
    /// let path = std::env::temp_dir().join(format!("heist-doc-{}.sock", std::process::id()));
    /// let server = heist::debug::Options::new().serve_at_path(&rt.handle(), &path)?;
    /// assert!(path.exists());
    /// drop(server);
    /// assert!(!path.exists());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn serve_at_path(self, handle: &Handle, path: impl AsRef<Path>) -> io::Result<DebugServer> {
        let listener = crate::blocking(|| Listener::unix(path.as_ref()))?;
        DebugServer::start(handle, listener, self)
    }
}

/// A longer time may be later than any that the clock can show.
const fn at_most_an_hour(time: Duration) -> Duration {
    const HOUR: Duration = Duration::from_secs(3600);
    if time.as_secs() < HOUR.as_secs() { time } else { HOUR }
}

#[test]
fn a_timeout_can_be_added_to_the_time() {
    let options = Options::new().head_timeout(Duration::MAX).write_timeout(Duration::MAX);
    let now = std::time::Instant::now();
    assert!(now.checked_add(options.head_timeout).is_some());
    assert!(now.checked_add(options.write_timeout).is_some());
}

//! A server that shows a running program: metrics, dumps, profiles, and a live page of the
//! scheduler.
//!
//! [`serve`] starts it. It speaks HTTP/1.1 and answers at Go's paths where Go has one:
//!
//! | path | answers |
//! |---|---|
//! | `/` | the list of all paths |
//! | `/metrics` | all metrics, for Prometheus |
//! | `/debug/sched` | a page that shows the scheduler at work |
//! | `/debug/sched.json` | what the page shows, as JSON |
//! | `/debug/goroutines` | every goroutine; `?debug=1` groups them, `?id=` shows one |
//! | `/debug/goroutines.json` | goroutines as JSON; `?state=`, `?site=` and `?limit=` choose |
//! | `/debug/trace` | an execution trace of the next `?seconds=`, for `go tool trace` |
//! | `/debug/pprof/...` | profiles for `go tool pprof`: `profile`, `goroutine`, `block`, ... |
//! | `/debug/rates` | how much each counter rises per second, over `?seconds=` |
//!
//! ```
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| {
//! let server = heist::debug::serve("127.0.0.1:0")?;
//! println!("look at http://{}/debug/sched", server.local_addr().unwrap());
//! # std::io::Result::Ok(())
//! # }).unwrap();
//! ```
//!
//! # Where it runs
//! On a thread of its own, so that it answers when all processors are stuck, which is when people
//! look. It wakes no goroutines and does not keep a deadlock from being reported.
//!
//! # Who may ask
//! By default it listens at loopback addresses only, and refuses what a web page of another site
//! could send. [`Options`] has a token, and what is needed to be reached from other machines. No
//! answer contains memory or the environment of the program: paths of source files, names and
//! numbers only.
//!
//! # Without changing the program
//! `HEIST_DEBUG=server=127.0.0.1:6060` starts a server with the runtime, and
//! `HEIST_DEBUG=socket` one at a Unix socket that the program `heist` finds by the process id
//! ([`docs::operating`](crate::docs::operating)).

mod access;
mod bystander;
mod connection;
mod environment;
mod goroutines;
mod json;
mod listener;
mod options;
mod page;
mod pprof;
mod prometheus;
mod rates;
mod request;
mod response;
mod routes;
mod server;
mod socket;
mod state;
mod trace;
mod watch;
mod worker;

pub use bystander::{Bystander, bystander};
pub(crate) use environment::Place;
pub use options::Options;
pub use socket::socket_dir;

use crate::runtime::Handle;
use crate::sched::stall::blocking;
use crate::sys::thread;
use listener::Listener;
use routes::Context;
use server::{Control, Server};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread::JoinHandle;

/// Serves the runtime of the calling goroutine at a loopback address; port 0 lets the system
/// choose. [`Options`] has more.
///
/// # Errors
/// If the caller is not a goroutine, the address is not a loopback address, or the system refuses
/// the address or a thread.
///
/// # Examples
/// ```
/// use std::io::{Read, Write};
///
/// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
/// # rt.run(|| {
/// let server = heist::debug::serve("127.0.0.1:0")?;
/// let mut client = heist::net::TcpStream::connect(server.local_addr().unwrap())?;
/// client.write_all(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.contains("heist_sched_gomaxprocs_threads"));
/// # std::io::Result::Ok(())
/// # }).unwrap();
/// ```
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<DebugServer> {
    Options::new().serve(addr)
}

/// A running debug server. Dropping it stops the server and closes its connections.
///
/// It does not keep its runtime running. After the runtime has ended, every request is answered
/// with an error.
#[must_use = "the server stops when this value is dropped; `detach` lets it run"]
pub struct DebugServer {
    control: Arc<Control>,
    thread: Option<JoinHandle<()>>,
    addr: Option<SocketAddr>,
    path: Option<PathBuf>,
}

impl DebugServer {
    fn start(handle: &Handle, listener: Listener, options: Options) -> io::Result<Self> {
        let control = Arc::new(Control::new()?);
        let (addr, path) = (listener.local_addr(), listener.path().map(Path::to_owned));
        let name = format!("{}-debug", handle.sched().config.name);
        let context = Context::new(handle.clone(), options);
        let server = Server::new(Arc::clone(&control), listener, context, name.clone());
        let thread = blocking::blocking(|| thread::spawn(name, move || server.run()))?;
        Ok(Self { control, thread: Some(thread), addr, path })
    }

    /// The address at which it listens, None if that is a Unix socket.
    #[must_use]
    pub const fn local_addr(&self) -> Option<SocketAddr> {
        self.addr
    }

    /// The path of its Unix socket, if it listens at one.
    #[must_use]
    pub fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// Lets the server run until the process ends.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.run(|| {
    /// heist::debug::serve("127.0.0.1:0")?.detach();
    /// # std::io::Result::Ok(())
    /// # }).unwrap();
    /// ```
    pub fn detach(mut self) {
        self.thread = None;
    }
}

impl Drop for DebugServer {
    fn drop(&mut self) {
        if let Some(thread) = self.thread.take() {
            self.control.stop();
            // A panic of the thread was reported when it happened.
            let _ = blocking::blocking(|| thread.join());
        }
    }
}

impl fmt::Debug for DebugServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = f.debug_struct("DebugServer");
        debug.field("addr", &self.addr).field("path", &self.path).finish_non_exhaustive()
    }
}

//! Sockets and pipes in blocking style: a goroutine per connection, as fast as an event loop.
//!
//! The types have the names and methods of std's. A call that would block parks its goroutine, and
//! the thread runs others. On a plain thread the call blocks the thread.
//!
//! ```
//! use heist::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! # fn main() -> std::io::Result<()> {
//! # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
//! # rt.run(|| -> std::io::Result<()> {
//! let listener = TcpListener::bind("127.0.0.1:0")?;
//! let address = listener.local_addr()?;
//! heist::go(move || {
//!     for stream in listener.incoming() {
//!         heist::go(move || -> std::io::Result<()> {
//!             let mut stream = stream?;
//!             let mut buffer = [0; 1024];
//!             loop {
//!                 let n = stream.read(&mut buffer)?;
//!                 if n == 0 {
//!                     return Ok(());
//!                 }
//!                 stream.write_all(&buffer[..n])?;
//!             }
//!         });
//!     }
//! });
//!
//! let mut stream = TcpStream::connect(address)?;
//! stream.write_all(b"hello")?;
//! let mut answer = [0; 5];
//! stream.read_exact(&mut answer)?;
//! assert_eq!(&answer, b"hello");
//! # Ok(())
//! # })
//! # }
//! ```
//!
//! # Deadlines
//! Beside std's timeouts, which bound each operation by itself, there are Go's deadlines: a moment
//! after which every operation fails with [`TimedOut`](std::io::ErrorKind::TimedOut), whether data
//! is there or not, until the deadline is changed. A deadline in the past wakes every waiter.
//!
//! # Sharing
//! Reading and writing work on shared references, so a stream in an `Arc` can be read by one
//! goroutine and written by another. Several readers take turns, and so do several writers.
//!
//! # Closing
//! Dropping closes. `close` closes while other goroutines use the descriptor: their operations
//! fail, now and later, with an error for which [`is_closed`] is true. The number of the descriptor
//! is not reused before the value is dropped.
//!
//! # Runtimes
//! A descriptor belongs to the runtime of the goroutine that first waits for it, until that runtime
//! has ended. A goroutine of another runtime may use it; its waits block a thread of its runtime,
//! and cannot be cancelled.
//!
//! # Contexts
//! [`Context::bind`](crate::context::Context::bind) ends the operations of a descriptor when a
//! context is done, and leaves it as it was before when its guard is dropped. [`context_error`]
//! tells such an error from a timeout.
//!
//! # Traits of other libraries
//! [`TcpStream`] and [`UnixStream`] implement the traits for asynchronous reading and writing of
//! other libraries, each behind a feature of this crate: `futures-io`, `tokio` (tokio's traits
//! only, not its runtime) and `hyper`.
//!
//! # Cancelling
//! A goroutine that is cancelled while it waits unwinds. Destructors that run meanwhile, such as
//! that of a `BufWriter`, may write. Where they would wait, they fail instead: the other end may
//! never become ready, and the wait could not be cancelled again. The same holds
//! for the destructors of a goroutine that panics, from the moment at which it is cancelled.

mod bind;
mod descriptor;
mod error;
mod operation;
mod pipe;
mod poll_fd;
mod poll_traits;
mod queue;
mod server;
mod source;
mod state;
mod tcp_listener;
mod tcp_stream;
mod udp;
mod unix_datagram;
mod unix_listener;
mod unix_stream;
mod watch;

pub use bind::{Bindable, Bound};
pub use error::{context_error, is_closed};
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use poll_fd::PollFd;
pub use server::{Left, Server};
pub use tcp_listener::{Incoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp::UdpSocket;
pub use unix_datagram::UnixDatagram;
pub use unix_listener::{UnixIncoming, UnixListener};
pub use unix_stream::UnixStream;

use crate::current;
use crate::sched::stall::blocking;
use crate::time;
use crate::wait;
use descriptor::{
    both_limits, descriptor, owned_fd, read_limits, reads, std_socket, write_limits, writes,
};
use socket2::SockAddr;
use std::ffi::OsStr;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net as unix;
use std::time::Duration;

/// The addresses of a host. The lookup may block; other goroutines run meanwhile.
///
/// # Errors
/// If the name is not known, or no name server can be reached.
///
/// # Examples
/// ```
/// let mut addresses = heist::net::lookup_host("localhost:80")?;
/// assert!(addresses.all(|address| address.ip().is_loopback()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "LookupHost")]
pub fn lookup_host(host: impl ToSocketAddrs) -> io::Result<impl Iterator<Item = SocketAddr>> {
    blocking::blocking(|| host.to_socket_addrs())
}

/// Calls `f` with one address after the other until one works. The number is how many addresses are
/// left, including this one.
fn each_address<T>(
    host: impl ToSocketAddrs,
    mut f: impl FnMut(SocketAddr, u32) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    let addresses: Vec<_> = lookup_host(host)?.collect();
    for (address, n_left) in addresses.iter().zip((1..=addresses.len() as u32).rev()) {
        match f(*address, n_left) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")
    }))
}

/// An address of a Unix socket as system calls take it.
fn unix_address(address: &unix::SocketAddr) -> io::Result<SockAddr> {
    match (address.as_pathname(), address.as_abstract_name()) {
        (Some(path), _) => SockAddr::unix(path),
        (None, Some(name)) => SockAddr::unix(OsStr::from_bytes(&[b"\0", name].concat())),
        (None, None) => SockAddr::unix(""),
    }
}

/// Pauses between retries where no event is delivered: each is longer than the last, up to a limit.
struct Backoff(Duration);

impl Backoff {
    const LONGEST: Duration = Duration::from_millis(5);

    const fn new() -> Self {
        Self(Duration::from_micros(50))
    }

    /// Fails in a destructor of a goroutine that was cancelled, as other waits for the network do.
    fn sleep(&mut self) -> io::Result<()> {
        if current::enter().is_some_and(|rt| wait::is_cancelled_but_spared(&rt)) {
            return Err(error::cancelled());
        }
        time::sleep(self.0);
        self.0 = (2 * self.0).min(Self::LONGEST);
        Ok(())
    }
}

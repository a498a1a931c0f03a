//! Sockets and pipes in blocking style: a goroutine per connection, as fast as an event loop.
//!
//! The types are std's, with the same names and methods. A call that would block parks its
//! goroutine, and the thread goes on with others. On a plain thread the call blocks the thread.
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
//! is there or not, until the deadline is moved. Moving it into the past wakes whoever waits.
//!
//! # Sharing
//! Reading and writing work on shared references, so a stream in an `Arc` can be read by one
//! goroutine and written by another. Several readers take turns, and so do several writers.
//!
//! # Closing
//! Dropping closes. `close` does it while others use the descriptor: they fail, now and later, with
//! an error that [`is_closed`] knows. The number of the descriptor is not given to another before
//! the value is dropped.
//!
//! # Runtimes
//! A descriptor belongs to the runtime of the goroutine that first waits for it. A goroutine of
//! another runtime may use it; its waits block a thread there, and cannot be cancelled.

mod descriptor;
mod error;
mod pipe;
mod poll_fd;
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

pub use error::is_closed;
pub use pipe::{PipeReader, PipeWriter, pipe};
pub use poll_fd::PollFd;
pub use server::{Left, Server};
pub use tcp_listener::{Incoming, TcpListener};
pub use tcp_stream::TcpStream;
pub use udp::UdpSocket;
pub use unix_datagram::UnixDatagram;
pub use unix_listener::{UnixIncoming, UnixListener};
pub use unix_stream::UnixStream;

use crate::sched::syscall;
use descriptor::{both_limits, descriptor, read_limits, reads, write_limits, writes};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// The addresses of a host. Asking for them may block; the other goroutines go on meanwhile.
///
/// # Errors
/// If the name is not known, or nobody can be asked.
///
/// # Examples
/// ```
/// let mut addresses = heist::net::lookup_host("localhost:80")?;
/// assert!(addresses.all(|address| address.ip().is_loopback()));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "LookupHost")]
pub fn lookup_host(host: impl ToSocketAddrs) -> io::Result<impl Iterator<Item = SocketAddr>> {
    syscall::blocking(|| host.to_socket_addrs())
}

/// Calls `f` with one address after the other until one works.
fn each_address<T>(
    host: impl ToSocketAddrs,
    mut f: impl FnMut(SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for address in lookup_host(host)? {
        match f(address) {
            Ok(done) => return Ok(done),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| {
        io::Error::new(io::ErrorKind::InvalidInput, "could not resolve to any addresses")
    }))
}

//! A connection within the machine.

use super::source::{Ends, Source};
use heist_core::fd_lock::Way;
use socket2::{Domain, Socket, Type};
use std::future::Future;
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;
use std::task::Poll;

/// A connection within the machine, as [`std::os::unix::net::UnixStream`].
///
/// # Examples
/// ```
/// use heist::net::UnixStream;
/// use std::io::{Read, Write};
///
/// let (mut a, mut b) = UnixStream::pair()?;
/// a.write_all(b"hello")?;
/// drop(a);
/// let mut text = String::new();
/// b.read_to_string(&mut text)?;
/// assert_eq!(text, "hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "UnixConn")]
pub struct UnixStream {
    source: Source<net::UnixStream>,
}

super::descriptor!(UnixStream);
super::owned_fd!(UnixStream, net::UnixStream, Ends::Unseen);
super::both_limits!(UnixStream);
super::reads!(UnixStream);
super::writes!(UnixStream);
super::operation::async_reads!(UnixStream, net::UnixStream);
super::operation::async_writes!(UnixStream, net::UnixStream);
super::poll_traits::poll_traits!(UnixStream);
super::std_socket!(UnixStream, net::UnixStream, Ends::Unseen);

impl UnixStream {
    /// Connects to the listener at `path`. If its queue is full, this waits.
    ///
    /// # Errors
    /// If there is no listener, or the system returns an error.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        // Through std's address, which checks the path.
        Self::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to the listener at `address`, which may be an abstract one.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        let address = super::unix_address(address)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        let mut backoff = super::Backoff::new();
        loop {
            match socket.connect(&address) {
                // The listener's queue is full. No event reports when that changes.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => backoff.sleep()?,
                other => break other?,
            }
        }
        Self::accepted(socket.into())
    }

    /// Two ends of one connection.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = net::UnixStream::pair()?;
        Ok((Self::from_std(a)?, Self::from_std(b)?))
    }

    /// Takes over a connection that is in non-blocking mode.
    ///
    /// A read may end early at a descriptor that was sent with the data, so a short read does not
    /// mean that nothing is left.
    pub(super) fn accepted(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { source: Source::nonblocking(stream.into(), Ends::Unseen)? })
    }

    /// Shuts down one direction or both. Goroutines that wait there are woken.
    ///
    /// # Errors
    /// If it is closed.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.with(|inner| inner.shutdown(how))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// If it is closed.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UnixStream::peer_addr)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UnixStream::local_addr)
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::UnixStream::take_error)
    }
}

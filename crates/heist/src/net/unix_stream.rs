//! A connection within the machine.

use super::source::{Ends, Source};
use crate::sched::syscall;
use crate::sys::fd;
use socket2::{Domain, SockAddr, Socket, Type};
use std::io;
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

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
super::both_limits!(UnixStream);
super::reads!(UnixStream);
super::writes!(UnixStream);

impl UnixStream {
    /// Connects to who listens at a path. If too many wait there, this waits too.
    ///
    /// # Errors
    /// If nobody does, or the system says so.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        let address = SockAddr::unix(path)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        match socket.connect(&address) {
            // The listener's queue is full. No event tells when it is not.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                fd::set_nonblocking(socket.as_raw_fd(), false)?;
                syscall::blocking(|| socket.connect(&address))?;
                fd::set_nonblocking(socket.as_raw_fd(), true)?;
            }
            other => other?,
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
    /// A read may end early at a descriptor that was sent along, so less than was asked for does
    /// not mean that nothing is left.
    pub(super) fn accepted(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { source: Source::nonblocking(stream.into(), Ends::Unseen)? })
    }

    /// Takes over a connection of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(stream: net::UnixStream) -> io::Result<Self> {
        Ok(Self { source: Source::new(stream, Ends::Unseen)? })
    }

    /// Makes it a connection of std, in blocking mode. Deadlines and timeouts are left behind.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<net::UnixStream> {
        self.source.into_inner()
    }

    /// A second handle of the same connection, with deadlines of its own.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(net::UnixStream::try_clone)?;
        Ok(Self { source: Source::nonblocking(clone, Ends::Unseen)? })
    }

    /// Ends one direction or both. Whoever waits there is woken.
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

    /// Takes the error that is pending, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::UnixStream::take_error)
    }
}

impl TryFrom<net::UnixStream> for UnixStream {
    type Error = io::Error;

    fn try_from(stream: net::UnixStream) -> io::Result<Self> {
        Self::from_std(stream)
    }
}

impl TryFrom<UnixStream> for net::UnixStream {
    type Error = io::Error;

    fn try_from(stream: UnixStream) -> io::Result<Self> {
        stream.into_std()
    }
}

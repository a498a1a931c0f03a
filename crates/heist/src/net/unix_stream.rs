//! A connection within the machine.

use super::source::{Ends, Source};
use socket2::{Domain, Socket, Type};
use std::io;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
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
super::std_socket!(UnixStream, net::UnixStream, Ends::Unseen);

impl UnixStream {
    /// Connects to who listens at a path. If too many wait there, this waits too.
    ///
    /// # Errors
    /// If nobody does, or the system says so.
    pub fn connect(path: impl AsRef<Path>) -> io::Result<Self> {
        // By way of std's address, which knows what a path must not be.
        Self::connect_addr(&SocketAddr::from_pathname(path)?)
    }

    /// Connects to who listens at an address, which may be an abstract one.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    pub fn connect_addr(address: &SocketAddr) -> io::Result<Self> {
        let address = super::unix_address(address)?;
        let socket = Socket::new(Domain::UNIX, Type::STREAM.nonblocking().cloexec(), None)?;
        let mut rest = super::Rest::new();
        loop {
            match socket.connect(&address) {
                // The listener's queue is full. No event tells when it is not.
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => rest.sleep()?,
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
    /// A read may end early at a descriptor that was sent along, so less than was asked for does
    /// not mean that nothing is left.
    pub(super) fn accepted(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { source: Source::nonblocking(stream.into(), Ends::Unseen)? })
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

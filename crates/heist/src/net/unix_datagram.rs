//! Datagrams within the machine.

use super::source::{Ends, Source};
use std::io;
use std::net::Shutdown;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A socket for datagrams within the machine, as [`std::os::unix::net::UnixDatagram`].
///
/// # Examples
/// ```
/// use heist::net::UnixDatagram;
///
/// let (a, b) = UnixDatagram::pair()?;
/// a.send(b"hello")?;
/// let mut buffer = [0; 16];
/// let n = b.recv(&mut buffer)?;
/// assert_eq!(&buffer[..n], b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct UnixDatagram {
    source: Source<net::UnixDatagram>,
}

super::descriptor!(UnixDatagram);
super::both_limits!(UnixDatagram);

impl UnixDatagram {
    /// A socket at a path, where nothing must be.
    ///
    /// # Errors
    /// If something is there, or the system says so.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind(path)?)
    }

    /// A socket without an address.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn unbound() -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::unbound()?)
    }

    /// Two sockets connected to each other.
    ///
    /// # Errors
    /// If there is no descriptor left.
    pub fn pair() -> io::Result<(Self, Self)> {
        let (a, b) = net::UnixDatagram::pair()?;
        Ok((Self::from_std(a)?, Self::from_std(b)?))
    }

    /// Takes over a socket of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(socket: net::UnixDatagram) -> io::Result<Self> {
        Ok(Self { source: Source::new(socket, Ends::Unseen)? })
    }

    /// Makes it a socket of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<net::UnixDatagram> {
        self.source.into_inner()
    }

    /// A second handle of the same socket, with deadlines of its own.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(net::UnixDatagram::try_clone)?;
        Ok(Self { source: Source::nonblocking(clone, Ends::Unseen)? })
    }

    /// From now on it sends to who is at a path.
    ///
    /// # Errors
    /// If nobody is, or the system says so.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.source.with(|inner| inner.connect(path))
    }

    /// Waits for a datagram. What does not fit into `buf` is lost.
    ///
    /// # Errors
    /// If it is closed, the deadline is over, or the system says so.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.source.read(|inner| inner.recv(buf))
    }

    /// The same, with the sender's address.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.read(|inner| inner.recv_from(buf))
    }

    /// Sends a datagram to the one it is connected to.
    ///
    /// # Errors
    /// If it is not connected, closed, the deadline is over, or the system says so.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.source.write(|inner| inner.send(buf))
    }

    /// Sends a datagram to who is at a path.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        let path = path.as_ref();
        self.source.write(|inner| inner.send_to(buf, path))
    }

    /// Ends one direction or both.
    ///
    /// # Errors
    /// If it is closed or not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.with(|inner| inner.shutdown(how))
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UnixDatagram::local_addr)
    }

    /// The address it is connected to.
    ///
    /// # Errors
    /// If it is closed or not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UnixDatagram::peer_addr)
    }
}

impl TryFrom<net::UnixDatagram> for UnixDatagram {
    type Error = io::Error;

    fn try_from(socket: net::UnixDatagram) -> io::Result<Self> {
        Self::from_std(socket)
    }
}

impl TryFrom<UnixDatagram> for net::UnixDatagram {
    type Error = io::Error;

    fn try_from(socket: UnixDatagram) -> io::Result<Self> {
        socket.into_std()
    }
}

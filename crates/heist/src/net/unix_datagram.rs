//! Unix sockets for datagrams.

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
super::owned_fd!(UnixDatagram, net::UnixDatagram, Ends::Unseen);
super::both_limits!(UnixDatagram);
super::std_socket!(UnixDatagram, net::UnixDatagram, Ends::Unseen);

impl UnixDatagram {
    /// A socket at a path, which must not exist.
    ///
    /// # Errors
    /// If the path exists, or the system returns an error.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind(path)?)
    }

    /// A socket at an address, which may be an abstract one.
    ///
    /// # Errors
    /// If the address is in use, or the system returns an error.
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::from_std(net::UnixDatagram::bind_addr(address)?)
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

    /// Connects the socket to the one at `path`, to which it then sends.
    ///
    /// # Errors
    /// If there is no socket, or the system returns an error.
    pub fn connect(&self, path: impl AsRef<Path>) -> io::Result<()> {
        self.source.with(|inner| inner.connect(path))
    }

    /// Connects the socket to the one at `address`, which may be an abstract one.
    ///
    /// # Errors
    /// If there is no socket, or the system returns an error.
    pub fn connect_addr(&self, address: &SocketAddr) -> io::Result<()> {
        self.source.with(|inner| inner.connect_addr(address))
    }

    /// Waits for a datagram. The part that does not fit into `buf` is lost.
    ///
    /// # Errors
    /// If it is closed, the deadline is over, or the system returns an error.
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.source.read(|inner| inner.recv(buf))
    }

    /// As [`recv`](Self::recv), with the sender's address.
    ///
    /// # Errors
    /// As [`recv`](Self::recv).
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.read(|inner| inner.recv_from(buf))
    }

    /// Sends a datagram to the socket it is connected to.
    ///
    /// # Errors
    /// If it is not connected or closed, the deadline is over, or the system returns an error.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.source.write(|inner| inner.send(buf))
    }

    /// Sends a datagram to the socket at `path`.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to(&self, buf: &[u8], path: impl AsRef<Path>) -> io::Result<usize> {
        self.send_to_addr(buf, &SocketAddr::from_pathname(path)?)
    }

    /// Sends a datagram to an address, which may be an abstract one.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    pub fn send_to_addr(&self, buf: &[u8], address: &SocketAddr) -> io::Result<usize> {
        let mut backoff = super::Backoff::new();
        self.source.write(|inner| match inner.send_to_addr(buf, address) {
            // The receiver's queue is full. Events report only this socket's own room, of which
            // there is enough, so the send is tried again as after an interruption.
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                backoff.sleep()?;
                Err(io::ErrorKind::Interrupted.into())
            }
            other => other,
        })
    }

    /// Shuts down one direction or both.
    ///
    /// # Errors
    /// If it is closed or not connected.
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.with(|inner| inner.shutdown(how))
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::UnixDatagram::take_error)
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

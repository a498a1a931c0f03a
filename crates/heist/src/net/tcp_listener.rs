//! A listener for TCP connections.

use super::TcpStream;
use super::source::{Ends, Source};
use crate::sys::fd;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::io;
use std::net::{self, SocketAddr, ToSocketAddrs};
use std::os::fd::{AsRawFd, OwnedFd};

/// The maximum number of connections that wait to be accepted. The system may allow fewer.
const BACKLOG: i32 = 4096;

/// A socket that waits for TCP connections, as [`std::net::TcpListener`].
///
/// Several goroutines may accept; they take turns. The read deadline bounds accepting.
///
/// # Examples
/// ```
/// use heist::net::{TcpListener, TcpStream};
///
/// let listener = TcpListener::bind("127.0.0.1:0")?;
/// let near = TcpStream::connect(listener.local_addr()?)?;
/// let (far, address) = listener.accept()?;
/// assert_eq!(address, near.local_addr()?);
/// assert_eq!(far.local_addr()?, near.peer_addr()?);
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TCPListener")]
pub struct TcpListener {
    source: Source<net::TcpListener>,
}

super::descriptor!(TcpListener);
super::owned_fd!(TcpListener, net::TcpListener, Ends::Unseen);
super::read_limits!(TcpListener);

impl TcpListener {
    /// Listens at the first address of `host` that is available. Port 0 means any free port.
    ///
    /// # Errors
    /// The error of the last address, if no address is available.
    #[doc(alias = "Listen")]
    pub fn bind(host: impl ToSocketAddrs) -> io::Result<Self> {
        super::each_address(host, |address, _| {
            let kind = Type::STREAM.nonblocking().cloexec();
            let socket = Socket::new(Domain::for_address(address), kind, Some(Protocol::TCP))?;
            // As in std: a server that restarts can bind its port again.
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            Ok(Self { source: Source::nonblocking(socket.into(), Ends::Unseen)? })
        })
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// If the listener is closed or its deadline is over, or if the system returns an error. "Too
    /// many open files" may be temporary; a [`Server`](super::Server) waits until it is over.
    #[doc(alias = "Accept")]
    pub fn accept(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accepted(self.source.read(accept)?)
    }

    /// Waits for a connection, as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, no connection was accepted.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_async(&self) -> io::Result<(TcpStream, SocketAddr)> {
        accepted(self.source.read_async(accept).await?)
    }

    /// The connections, one after the other, until the listener is closed.
    pub fn incoming(&self) -> Incoming<'_> {
        Incoming { listener: self }
    }

    /// Takes over a listener of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(listener: net::TcpListener) -> io::Result<Self> {
        Ok(Self { source: Source::new(listener, Ends::Unseen)? })
    }

    /// Converts it to a listener of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<net::TcpListener> {
        self.source.into_inner()
    }

    /// A second handle of the same listener, with its own deadline.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(net::TcpListener::try_clone)?;
        Ok(Self { source: Source::nonblocking(clone, Ends::Unseen)? })
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// If it is closed.
    #[doc(alias = "Addr")]
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::TcpListener::local_addr)
    }

    /// The time to live of the packets of its connections.
    ///
    /// # Errors
    /// If it is closed, or the system refuses the number.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.source.with(|inner| inner.set_ttl(ttl))
    }

    /// The time to live of the packets of its connections.
    ///
    /// # Errors
    /// If it is closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.source.with(net::TcpListener::ttl)
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::TcpListener::take_error)
    }
}

/// Accepts a connection, if there is one.
fn accept(inner: &net::TcpListener) -> io::Result<(OwnedFd, SockAddr)> {
    match fd::accept(inner.as_raw_fd()) {
        // The peer ended the connection before it was accepted.
        Err(error) if error.kind() == io::ErrorKind::ConnectionAborted => {
            Err(io::ErrorKind::Interrupted.into())
        }
        other => other,
    }
}

fn accepted((stream, address): (OwnedFd, SockAddr)) -> io::Result<(TcpStream, SocketAddr)> {
    let address = address.as_socket().ok_or(io::ErrorKind::InvalidData)?;
    Ok((TcpStream::accepted(stream)?, address))
}

impl TryFrom<net::TcpListener> for TcpListener {
    type Error = io::Error;

    fn try_from(listener: net::TcpListener) -> io::Result<Self> {
        Self::from_std(listener)
    }
}

impl TryFrom<TcpListener> for net::TcpListener {
    type Error = io::Error;

    fn try_from(listener: TcpListener) -> io::Result<Self> {
        listener.into_std()
    }
}

/// The connections of a [`TcpListener`].
#[derive(Debug)]
pub struct Incoming<'a> {
    listener: &'a TcpListener,
}

impl Iterator for Incoming<'_> {
    type Item = io::Result<TcpStream>;

    /// The next connection, or None when the listener was closed.
    fn next(&mut self) -> Option<Self::Item> {
        match self.listener.accept() {
            Ok((stream, _)) => Some(Ok(stream)),
            Err(error) if super::is_closed(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

//! A listener for connections within the machine.

use super::UnixStream;
use super::source::{Ends, Source};
use crate::sys::fd;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::net::{self, SocketAddr};
use std::path::Path;

/// A socket that waits for connections within the machine, as [`std::os::unix::net::UnixListener`].
///
/// Several goroutines may accept; they take turns. The read deadline bounds accepting.
pub struct UnixListener {
    source: Source<net::UnixListener>,
}

super::descriptor!(UnixListener);
super::owned_fd!(UnixListener, net::UnixListener, Ends::Unseen);
super::read_limits!(UnixListener);

impl UnixListener {
    /// Listens at a path, which must not exist. Closing does not remove the path.
    ///
    /// # Errors
    /// If the path exists, or the system returns an error.
    pub fn bind(path: impl AsRef<Path>) -> io::Result<Self> {
        Self::from_std(net::UnixListener::bind(path)?)
    }

    /// Listens at an address, which may be an abstract one.
    ///
    /// # Errors
    /// If the address is in use, or the system returns an error.
    ///
    /// # Examples
    /// ```
    /// use heist::net::{UnixListener, UnixStream};
    /// use std::os::linux::net::SocketAddrExt;
    /// use std::os::unix::net::SocketAddr;
    ///
    /// # let name = format!("heist-doc-{}", std::process::id());
    /// # /*
    /// let name = "my program";
    /// # */
    /// let address = SocketAddr::from_abstract_name(&name)?;
    /// let listener = UnixListener::bind_addr(&address)?;
    /// let stream = UnixStream::connect_addr(&address)?;
    /// let (accepted, _) = listener.accept()?;
    /// # drop((stream, accepted));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn bind_addr(address: &SocketAddr) -> io::Result<Self> {
        Self::from_std(net::UnixListener::bind_addr(address)?)
    }

    /// Waits for a connection.
    ///
    /// # Errors
    /// If the listener is closed or its deadline is over, or if the system returns an error.
    pub fn accept(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let (stream, address) = self.source.read(|inner| fd::accept(inner.as_raw_fd()))?;
        // The connecting socket usually has no address.
        let address = address.as_unix().map_or_else(|| SocketAddr::from_pathname(""), Ok)?;
        Ok((UnixStream::accepted(stream)?, address))
    }

    /// Waits for a connection, as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, no connection was accepted.
    ///
    /// # Errors
    /// As [`accept`](Self::accept).
    pub async fn accept_async(&self) -> io::Result<(UnixStream, SocketAddr)> {
        let accept = |inner: &net::UnixListener| fd::accept(inner.as_raw_fd());
        let (stream, address) = self.source.read_async(accept).await?;
        let address = address.as_unix().map_or_else(|| SocketAddr::from_pathname(""), Ok)?;
        Ok((UnixStream::accepted(stream)?, address))
    }

    /// The connections, one after the other, until the listener is closed.
    pub fn incoming(&self) -> UnixIncoming<'_> {
        UnixIncoming { listener: self }
    }

    /// Takes over a listener of std.
    ///
    /// # Errors
    /// If it cannot be put into non-blocking mode.
    pub fn from_std(listener: net::UnixListener) -> io::Result<Self> {
        Ok(Self { source: Source::new(listener, Ends::Unseen)? })
    }

    /// Converts it to a listener of std, in blocking mode.
    ///
    /// # Errors
    /// If it is closed, or cannot be put into blocking mode.
    pub fn into_std(self) -> io::Result<net::UnixListener> {
        self.source.into_inner()
    }

    /// A second handle of the same listener, with its own deadline.
    ///
    /// # Errors
    /// If it is closed, or there is no descriptor left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let clone = self.source.with(net::UnixListener::try_clone)?;
        Ok(Self { source: Source::nonblocking(clone, Ends::Unseen)? })
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::UnixListener::take_error)
    }

    /// The address it listens at.
    ///
    /// # Errors
    /// If it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UnixListener::local_addr)
    }
}

impl TryFrom<net::UnixListener> for UnixListener {
    type Error = io::Error;

    fn try_from(listener: net::UnixListener) -> io::Result<Self> {
        Self::from_std(listener)
    }
}

impl TryFrom<UnixListener> for net::UnixListener {
    type Error = io::Error;

    fn try_from(listener: UnixListener) -> io::Result<Self> {
        listener.into_std()
    }
}

impl<'a> IntoIterator for &'a UnixListener {
    type Item = io::Result<UnixStream>;
    type IntoIter = UnixIncoming<'a>;

    fn into_iter(self) -> UnixIncoming<'a> {
        self.incoming()
    }
}

/// The connections of a [`UnixListener`].
#[derive(Debug)]
pub struct UnixIncoming<'a> {
    listener: &'a UnixListener,
}

impl Iterator for UnixIncoming<'_> {
    type Item = io::Result<UnixStream>;

    /// The next connection, or None when the listener was closed.
    fn next(&mut self) -> Option<Self::Item> {
        match self.listener.accept() {
            Ok((stream, _)) => Some(Ok(stream)),
            Err(error) if super::is_closed(&error) => None,
            Err(error) => Some(Err(error)),
        }
    }
}

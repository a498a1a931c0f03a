//! A TCP connection.

use super::source::{Ends, Source};
use crate::context::Context;
use crate::sys::fd;
use heist_core::fd_lock::Way;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::future::Future;
use std::io;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::task::Poll;
use std::time::{Duration, Instant};

/// The minimum time for which one of several addresses is tried, if that much time is left.
const LEAST_PART: Duration = Duration::from_secs(2);

/// A TCP connection, as [`std::net::TcpStream`].
///
/// `&TcpStream` reads and writes too: one goroutine may read while another writes.
///
/// # Examples
/// ```no_run
/// use std::io::{Read, Write};
///
/// let mut stream = heist::net::TcpStream::connect("example.com:80")?;
/// stream.write_all(b"GET / HTTP/1.0\r\nHost: example.com\r\n\r\n")?;
/// let mut page = String::new();
/// stream.read_to_string(&mut page)?;
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "TCPConn")]
pub struct TcpStream {
    source: Source<net::TcpStream>,
}

super::descriptor!(TcpStream);
super::owned_fd!(TcpStream, net::TcpStream, Ends::Seen);
super::both_limits!(TcpStream);
super::reads!(TcpStream);
super::writes!(TcpStream);
super::operation::async_reads!(TcpStream, net::TcpStream);
super::operation::async_writes!(TcpStream, net::TcpStream);
super::poll_traits::poll_traits!(TcpStream);
super::std_socket!(TcpStream, net::TcpStream, Ends::Seen);

impl TcpStream {
    /// Connects to the first address of `host` that answers.
    ///
    /// # Errors
    /// The error of the last address, if none answers.
    #[doc(alias = "Dial")]
    pub fn connect(host: impl ToSocketAddrs) -> io::Result<Self> {
        super::each_address(host, |address, _| Self::connect_to(&address, None, None))
    }

    /// Connects to an address, within `timeout`.
    ///
    /// # Errors
    /// If the connection fails, or takes longer ([`io::ErrorKind::TimedOut`]), or `timeout` is
    /// zero.
    ///
    /// # Examples
    /// ```no_run
    /// use std::time::Duration;
    ///
    /// let address = ([192, 0, 2, 1], 80).into();
    /// heist::net::TcpStream::connect_timeout(&address, Duration::from_millis(100)).unwrap_err();
    /// ```
    #[doc(alias = "DialTimeout")]
    pub fn connect_timeout(address: &SocketAddr, timeout: Duration) -> io::Result<Self> {
        if timeout.is_zero() {
            let text = "cannot set a 0 duration timeout";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        }
        // A moment that cannot be represented means no deadline.
        Self::connect_to(address, Instant::now().checked_add(timeout), None)
    }

    /// Connects to the first address of `host` that answers before `deadline`. Each address gets an
    /// equal part of the remaining time, but at least two seconds of it. The lookup of a name is
    /// not bounded by the deadline.
    ///
    /// # Errors
    /// If the connection fails, or takes longer ([`io::ErrorKind::TimedOut`]).
    pub fn connect_deadline(host: impl ToSocketAddrs, deadline: Instant) -> io::Result<Self> {
        super::each_address(host, |address, n_left| {
            let left = deadline.saturating_duration_since(Instant::now());
            let part = (left / n_left).max(LEAST_PART).min(left);
            Self::connect_to(&address, Instant::now().checked_add(part), None)
        })
    }

    /// Connects to the first address of `host` that answers before the context is done. The lookup
    /// of a name is not ended by the context.
    ///
    /// # Errors
    /// If the connection fails, or the context is done; see
    /// [`context_error`](super::context_error).
    ///
    /// # Examples
    /// ```
    /// use heist::context::{self, ContextError};
    /// use heist::net::{self, TcpStream};
    ///
    /// let (ctx, canceller) = context::background().with_cancel();
    /// canceller.cancel();
    /// let error = TcpStream::connect_context(&ctx, "127.0.0.1:1").unwrap_err();
    /// assert_eq!(net::context_error(&error), Some(ContextError::Canceled));
    /// ```
    #[doc(alias = "DialContext")]
    pub fn connect_context(ctx: &Context, host: impl ToSocketAddrs) -> io::Result<Self> {
        super::each_address(host, |address, _| match ctx.err() {
            Some(error) => Err(super::error::interrupted(error)),
            None => Self::connect_to(&address, None, Some(ctx)),
        })
    }

    /// Connects to an address, as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, the connection is closed.
    ///
    /// # Errors
    /// If the connection fails.
    ///
    /// # Examples
    /// ```
    /// # let rt = unsafe { heist::Runtime::builder().build() }.unwrap();
    /// # rt.block_on(async {
    /// use heist::net::{TcpListener, TcpStream};
    /// let listener = TcpListener::bind("127.0.0.1:0")?;
    /// let near = TcpStream::connect_async(listener.local_addr()?).await?;
    /// let (far, _) = listener.accept_async().await?;
    /// near.write_all_async(b"hello").await?;
    /// let mut buf = [0; 5];
    /// assert_eq!(far.read_async(&mut buf).await?, 5);
    /// # Ok::<(), std::io::Error>(())
    /// # }).unwrap();
    /// ```
    pub async fn connect_async(address: SocketAddr) -> io::Result<Self> {
        let stream = Self::begin_connect(&address)?;
        if let Begun::InProgress = stream.1 {
            stream.0.source.write_async(is_connected).await?;
        }
        Ok(stream.0)
    }

    fn connect_to(
        address: &SocketAddr,
        deadline: Option<Instant>,
        ctx: Option<&Context>,
    ) -> io::Result<Self> {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(super::error::timeout());
        }
        let (stream, begun) = Self::begin_connect(address)?;
        stream.set_write_deadline(deadline)?;
        let bound = ctx.map(|ctx| ctx.bind(&stream));
        if let Begun::InProgress = begun {
            stream.source.write(is_connected)?;
        }
        drop(bound);
        if deadline.is_some() {
            stream.set_write_deadline(None)?;
        }
        Ok(stream)
    }

    /// Begins to connect.
    fn begin_connect(address: &SocketAddr) -> io::Result<(Self, Begun)> {
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(*address), kind, Some(Protocol::TCP))?;
        let stream = Self { source: Source::nonblocking(socket.into(), Ends::Seen)? };
        let began = stream.source.with(|inner| SockRef::from(inner).connect(&(*address).into()));
        match began {
            Ok(()) => Ok((stream, Begun::Done)),
            Err(error) if fd::is_in_progress(&error) => {
                // No try can succeed before the next event.
                stream.source.forget_ready(Way::Write);
                Ok((stream, Begun::InProgress))
            }
            // An interrupted connect continues by itself.
            Err(error) => Err(error),
        }
    }

    /// Takes over a connection that is in non-blocking mode.
    pub(super) fn accepted(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { source: Source::nonblocking(stream.into(), Ends::Seen)? })
    }

    /// Reads without removing the data.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return self.source.transfer_none(|inner| inner.peek(buf));
        }
        self.source.read(|inner| inner.peek(buf))
    }

    /// Shuts down one direction or both. Goroutines that wait there are woken.
    ///
    /// # Errors
    /// If it is closed, or was never connected.
    #[doc(alias("CloseRead", "CloseWrite"))]
    pub fn shutdown(&self, how: Shutdown) -> io::Result<()> {
        self.source.with(|inner| inner.shutdown(how))
    }

    /// The address of the other end.
    ///
    /// # Errors
    /// If it is closed or not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::TcpStream::peer_addr)
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::TcpStream::local_addr)
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_nodelay(&self, nodelay: bool) -> io::Result<()> {
        self.source.with(|inner| inner.set_nodelay(nodelay))
    }

    /// Whether small writes are sent at once.
    ///
    /// # Errors
    /// If it is closed.
    pub fn nodelay(&self) -> io::Result<bool> {
        self.source.with(net::TcpStream::nodelay)
    }

    /// Sets how long the connection may be silent before keepalive probes are sent, in whole
    /// seconds, rounded up. With None there are no probes.
    ///
    /// # Errors
    /// If it is closed, or the time is zero or longer than the system allows; then nothing has
    /// changed.
    #[doc(alias("SetKeepAlive", "SetKeepAlivePeriod"))]
    pub fn set_keepalive(&self, silence: Option<Duration>) -> io::Result<()> {
        self.source.with(|inner| match silence {
            None => SockRef::from(inner).set_keepalive(false),
            Some(time) => {
                let socket = SockRef::from(inner);
                let before = socket.keepalive()?;
                let time = whole_seconds(time);
                let keepalive = TcpKeepalive::new().with_time(time).with_interval(time);
                socket.set_tcp_keepalive(&keepalive).inspect_err(|_| {
                    // The call enables keepalive before it checks the time, so an error must undo
                    // that.
                    let _ = socket.set_keepalive(before);
                })
            }
        })
    }

    /// How long the connection may be silent before keepalive probes are sent.
    ///
    /// # Errors
    /// If it is closed.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        self.source.with(|inner| {
            let socket = SockRef::from(inner);
            if socket.keepalive()? { socket.tcp_keepalive_time().map(Some) } else { Ok(None) }
        })
    }

    /// Sets how long closing waits until everything is delivered, in whole seconds, rounded up.
    /// With None it does not wait. With zero it resets the connection.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_linger(&self, linger: Option<Duration>) -> io::Result<()> {
        self.source.with(|inner| SockRef::from(inner).set_linger(linger.map(whole_seconds)))
    }

    /// How long closing waits until everything is delivered.
    ///
    /// # Errors
    /// If it is closed.
    pub fn linger(&self) -> io::Result<Option<Duration>> {
        self.source.with(|inner| SockRef::from(inner).linger())
    }

    /// The time to live of its packets.
    ///
    /// # Errors
    /// If it is closed, or the system refuses the number.
    pub fn set_ttl(&self, ttl: u32) -> io::Result<()> {
        self.source.with(|inner| inner.set_ttl(ttl))
    }

    /// The time to live of its packets.
    ///
    /// # Errors
    /// If it is closed.
    pub fn ttl(&self) -> io::Result<u32> {
        self.source.with(net::TcpStream::ttl)
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::TcpStream::take_error)
    }
}

/// How far a connection is.
enum Begun {
    Done,
    InProgress,
}

/// Whether a connection that was begun is there; `WouldBlock` if not yet.
fn is_connected(inner: &net::TcpStream) -> io::Result<()> {
    match inner.take_error()? {
        Some(error) => Err(error),
        // Events may come early; the socket is connected when it has a peer.
        None => match inner.peer_addr() {
            Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                Err(io::ErrorKind::WouldBlock.into())
            }
            other => other.map(drop),
        },
    }
}

/// A time in whole seconds, rounded up: rounded down, half a second would be none.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() != 0)))
}

//! A TCP connection.

use super::source::{Ends, Source};
use super::watch::Watch;
use crate::sys::fd;
use heist_core::fd_lock::Way;
use socket2::{Domain, Protocol, SockRef, Socket, TcpKeepalive, Type};
use std::io;
use std::net::{self, Shutdown, SocketAddr, ToSocketAddrs};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The least time for which one of several addresses is tried, if there is so much.
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
super::both_limits!(TcpStream);
super::reads!(TcpStream);
super::writes!(TcpStream);
super::std_socket!(TcpStream, net::TcpStream, Ends::Seen);

impl TcpStream {
    /// Connects to the first address of `host` that answers.
    ///
    /// # Errors
    /// The last address's error, if none does.
    #[doc(alias = "Dial")]
    pub fn connect(host: impl ToSocketAddrs) -> io::Result<Self> {
        super::each_address(host, |address, _| Self::connect_to(&address, None))
    }

    /// Connects to an address, within a time.
    ///
    /// # Errors
    /// If that fails, or takes longer ([`io::ErrorKind::TimedOut`]), or `timeout` is zero.
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
        // What is too far away to be a moment is never.
        Self::connect_to(address, Instant::now().checked_add(timeout))
    }

    /// Connects to the first address of `host` that answers, before a moment. Each address gets its
    /// part of the time, but not less than two seconds of what is left. To ask for the addresses of
    /// a name takes as long as it takes.
    ///
    /// # Errors
    /// If that fails, or takes longer ([`io::ErrorKind::TimedOut`]).
    #[doc(alias = "DialContext")]
    pub fn connect_deadline(host: impl ToSocketAddrs, deadline: Instant) -> io::Result<Self> {
        super::each_address(host, |address, n_left| {
            let left = deadline.saturating_duration_since(Instant::now());
            let part = (left / n_left).max(LEAST_PART).min(left);
            Self::connect_to(&address, Instant::now().checked_add(part))
        })
    }

    /// Lets somebody else shut it down.
    pub(super) fn watch(&mut self) -> Arc<Watch> {
        self.source.watch()
    }

    fn connect_to(address: &SocketAddr, deadline: Option<Instant>) -> io::Result<Self> {
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(super::error::timeout());
        }
        let kind = Type::STREAM.nonblocking().cloexec();
        let socket = Socket::new(Domain::for_address(*address), kind, Some(Protocol::TCP))?;
        let stream = Self { source: Source::nonblocking(socket.into(), Ends::Seen)? };
        stream.set_write_deadline(deadline)?;
        let began = stream.source.with(|inner| SockRef::from(inner).connect(&(*address).into()));
        match began {
            Ok(()) => {}
            Err(error) if fd::is_in_progress(&error) => {
                // There is nothing to try before the next event.
                stream.source.forget_ready(Way::Write);
                stream.source.write(|inner| match inner.take_error()? {
                    Some(error) => Err(error),
                    // Events may come early; it is connected when it has a peer.
                    None => match inner.peer_addr() {
                        Err(error) if error.kind() == io::ErrorKind::NotConnected => {
                            Err(io::ErrorKind::WouldBlock.into())
                        }
                        other => other.map(drop),
                    },
                })?;
            }
            // An interrupted connect goes on by itself.
            Err(error) => return Err(error),
        }
        if deadline.is_some() {
            stream.set_write_deadline(None)?;
        }
        Ok(stream)
    }

    /// Takes over a connection that is in non-blocking mode.
    pub(super) fn accepted(stream: OwnedFd) -> io::Result<Self> {
        Ok(Self { source: Source::nonblocking(stream.into(), Ends::Seen)? })
    }

    /// Reads without taking away.
    ///
    /// # Errors
    /// As for a read.
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        if buf.is_empty() {
            return self.source.transfer_none(|inner| inner.peek(buf));
        }
        self.source.read(|inner| inner.peek(buf))
    }

    /// Ends one direction or both. Whoever waits there is woken.
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

    /// Asks the other end for a sign of life after so long a silence, in whole seconds, rounded up;
    /// None: never.
    ///
    /// # Errors
    /// If it is closed, or the time is zero or longer than the system takes; then nothing has
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
                    // It is switched on before the time is looked at.
                    let _ = socket.set_keepalive(before);
                })
            }
        })
    }

    /// After how long a silence the other end is asked for a sign of life.
    ///
    /// # Errors
    /// If it is closed.
    pub fn keepalive(&self) -> io::Result<Option<Duration>> {
        self.source.with(|inner| {
            let socket = SockRef::from(inner);
            if socket.keepalive()? { socket.tcp_keepalive_time().map(Some) } else { Ok(None) }
        })
    }

    /// How long closing waits until everything is delivered, in whole seconds, rounded up; None: it
    /// does not wait. Zero breaks the connection off.
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
    /// If it is closed, or the number is not one the system takes.
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

    /// Takes the error that is pending, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::TcpStream::take_error)
    }
}

/// What the system counts in seconds, rounded up: cut off, half a second would be none.
fn whole_seconds(time: Duration) -> Duration {
    Duration::from_secs(time.as_secs().saturating_add(u64::from(time.subsec_nanos() != 0)))
}

//! UDP sockets.

use super::source::{Ends, Source};
use std::io;
use std::net::{self, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};

/// A UDP socket, as [`std::net::UdpSocket`].
///
/// # Examples
/// ```
/// use heist::net::UdpSocket;
///
/// let a = UdpSocket::bind("127.0.0.1:0")?;
/// let b = UdpSocket::bind("127.0.0.1:0")?;
/// a.send_to(b"hello", b.local_addr()?)?;
/// let mut buffer = [0; 16];
/// let (n, from) = b.recv_from(&mut buffer)?;
/// assert_eq!((&buffer[..n], from), (&b"hello"[..], a.local_addr()?));
/// # Ok::<(), std::io::Error>(())
/// ```
#[doc(alias = "UDPConn")]
pub struct UdpSocket {
    source: Source<net::UdpSocket>,
}

super::descriptor!(UdpSocket);
super::owned_fd!(UdpSocket, net::UdpSocket, Ends::Unseen);
super::both_limits!(UdpSocket);
super::std_socket!(UdpSocket, net::UdpSocket, Ends::Unseen);

impl UdpSocket {
    /// A socket at the first address of `host` that is available. Port 0 means any free port.
    ///
    /// # Errors
    /// The error of the last address, if none is usable.
    #[doc(alias = "ListenPacket")]
    pub fn bind(host: impl ToSocketAddrs) -> io::Result<Self> {
        super::each_address(host, |address, _| Self::from_std(net::UdpSocket::bind(address)?))
    }

    /// Waits for a datagram. The part that does not fit into `buf` is lost.
    ///
    /// # Errors
    /// If it is closed, the deadline is over, or the system returns an error.
    #[doc(alias = "ReadFrom")]
    pub fn recv_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.read(|inner| inner.recv_from(buf))
    }

    /// As [`recv_from`](Self::recv_from), as a future, which is awaited inside a runtime.
    ///
    /// # Cancel safety
    /// If the future is dropped, no datagram was received.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub async fn recv_from_async(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.read_async(|inner: &net::UdpSocket| inner.recv_from(buf)).await
    }

    /// As [`send_to`](Self::send_to), as a future, to an address.
    ///
    /// # Cancel safety
    /// If the future is dropped, nothing was sent.
    ///
    /// # Errors
    /// As [`send_to`](Self::send_to).
    pub async fn send_to_async(&self, buf: &[u8], address: SocketAddr) -> io::Result<usize> {
        self.source.write_async(|inner: &net::UdpSocket| inner.send_to(buf, address)).await
    }

    /// Waits for a datagram and leaves it in the queue.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        self.source.read(|inner| inner.peek_from(buf))
    }

    /// Sends a datagram to the first address of `host`.
    ///
    /// # Errors
    /// If it is closed, the deadline is over, or the system returns an error.
    #[doc(alias = "WriteTo")]
    pub fn send_to(&self, buf: &[u8], host: impl ToSocketAddrs) -> io::Result<usize> {
        let Some(address) = super::lookup_host(host)?.next() else {
            let text = "no addresses to send data to";
            return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
        };
        self.source.write(|inner| inner.send_to(buf, address))
    }

    /// Connects the socket to the first address of `host` that works: it then exchanges datagrams
    /// with that address only.
    ///
    /// # Errors
    /// The error of the last address, if none is usable.
    pub fn connect(&self, host: impl ToSocketAddrs) -> io::Result<()> {
        super::each_address(host, |address, _| self.source.with(|inner| inner.connect(address)))
    }

    /// Waits for a datagram from the address it is connected to.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn recv(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.source.read(|inner| inner.recv(buf))
    }

    /// Waits for a datagram from the address it is connected to, and leaves it in the queue.
    ///
    /// # Errors
    /// As [`recv_from`](Self::recv_from).
    pub fn peek(&self, buf: &mut [u8]) -> io::Result<usize> {
        self.source.read(|inner| inner.peek(buf))
    }

    /// Sends a datagram to the address it is connected to.
    ///
    /// # Errors
    /// If it is not connected or closed, the deadline is over, or the system returns an error.
    pub fn send(&self, buf: &[u8]) -> io::Result<usize> {
        self.source.write(|inner| inner.send(buf))
    }

    /// The address of this end.
    ///
    /// # Errors
    /// If it is closed.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UdpSocket::local_addr)
    }

    /// The address it is connected to.
    ///
    /// # Errors
    /// If it is closed or not connected.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.source.with(net::UdpSocket::peer_addr)
    }

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    /// If it is closed.
    pub fn set_broadcast(&self, broadcast: bool) -> io::Result<()> {
        self.source.with(|inner| inner.set_broadcast(broadcast))
    }

    /// Whether it may send to broadcast addresses.
    ///
    /// # Errors
    /// If it is closed.
    pub fn broadcast(&self) -> io::Result<bool> {
        self.source.with(net::UdpSocket::broadcast)
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
        self.source.with(net::UdpSocket::ttl)
    }

    /// Whether IPv4 datagrams that it sends to a group are delivered to this machine too.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn set_multicast_loop_v4(&self, comes_back: bool) -> io::Result<()> {
        self.source.with(|inner| inner.set_multicast_loop_v4(comes_back))
    }

    /// Whether IPv4 datagrams that it sends to a group are delivered to this machine too.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn multicast_loop_v4(&self) -> io::Result<bool> {
        self.source.with(net::UdpSocket::multicast_loop_v4)
    }

    /// Whether IPv6 datagrams that it sends to a group are delivered to this machine too.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn set_multicast_loop_v6(&self, comes_back: bool) -> io::Result<()> {
        self.source.with(|inner| inner.set_multicast_loop_v6(comes_back))
    }

    /// Whether IPv6 datagrams that it sends to a group are delivered to this machine too.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn multicast_loop_v6(&self) -> io::Result<bool> {
        self.source.with(net::UdpSocket::multicast_loop_v6)
    }

    /// The time to live of IPv4 datagrams to a group: 1 is the local network.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn set_multicast_ttl_v4(&self, ttl: u32) -> io::Result<()> {
        self.source.with(|inner| inner.set_multicast_ttl_v4(ttl))
    }

    /// The time to live of IPv4 datagrams to a group: 1 is the local network.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn multicast_ttl_v4(&self) -> io::Result<u32> {
        self.source.with(net::UdpSocket::multicast_ttl_v4)
    }

    /// Joins a group at an interface.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn join_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.source.with(|inner| inner.join_multicast_v4(group, interface))
    }

    /// Leaves a group at an interface.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn leave_multicast_v4(&self, group: &Ipv4Addr, interface: &Ipv4Addr) -> io::Result<()> {
        self.source.with(|inner| inner.leave_multicast_v4(group, interface))
    }

    /// Joins a group at an interface.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn join_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.source.with(|inner| inner.join_multicast_v6(group, interface))
    }

    /// Leaves a group at an interface.
    ///
    /// # Errors
    /// If it is closed, or the system returns an error.
    pub fn leave_multicast_v6(&self, group: &Ipv6Addr, interface: u32) -> io::Result<()> {
        self.source.with(|inner| inner.leave_multicast_v6(group, interface))
    }

    /// Takes the pending error, if there is one.
    ///
    /// # Errors
    /// If it is closed.
    pub fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.source.with(net::UdpSocket::take_error)
    }
}

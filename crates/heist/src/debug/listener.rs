//! The place where a debug server listens, and the streams that come from there.

use super::access::Via;
use crate::sys::{peer, thread};
use socket2::{Domain, SockAddr, Socket, Type};
use std::fs::Permissions;
use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::os::fd::{AsFd, AsRawFd, RawFd};
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Where connections come from. Nothing here blocks.
#[derive(Debug)]
pub(super) enum Listener {
    Tcp(TcpListener),
    /// The file is removed with the listener.
    Unix(UnixListener, PathBuf),
}

impl Listener {
    pub(super) fn tcp(
        addrs: impl Iterator<Item = SocketAddr>,
        any_address: bool,
    ) -> io::Result<Self> {
        let addrs: Vec<_> = addrs.collect();
        let reachable = addrs.iter().find(|addr| !addr.ip().to_canonical().is_loopback());
        if let (Some(addr), false) = (reachable, any_address) {
            let why = format!(
                "heist::debug: other machines can reach {addr}; if they may see this program, say \
                 so with Options::any_address"
            );
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, why));
        }
        let listener = TcpListener::bind(&*addrs)?;
        listener.set_nonblocking(true)?;
        Ok(Self::Tcp(listener))
    }

    pub(super) fn unix(path: &Path) -> io::Result<Self> {
        remove_stale(path)?;
        let listener = UnixListener::bind(path)?;
        // The folder may let others in; the peer's user is checked for each connection as well.
        std::fs::set_permissions(path, Permissions::from_mode(0o600))?;
        listener.set_nonblocking(true)?;
        Ok(Self::Unix(listener, path.to_owned()))
    }

    pub(super) fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Self::Tcp(listener) => listener.local_addr().ok(),
            Self::Unix(..) => None,
        }
    }

    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Tcp(_) => None,
            Self::Unix(_, path) => Some(path),
        }
    }

    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(listener) => listener.as_raw_fd(),
            Self::Unix(listener, _) => listener.as_raw_fd(),
        }
    }

    /// The next connection. A peer of another user is dropped, and the next one is tried.
    pub(super) fn accept(&self) -> Accepted {
        loop {
            let accepted = match self {
                Self::Tcp(listener) => listener.accept().and_then(|(stream, peer)| {
                    stream.set_nonblocking(true)?;
                    let is_near = peer.ip().to_canonical().is_loopback();
                    let via = if is_near { Via::Loopback } else { Via::Network };
                    Ok((Stream::Tcp(stream), via))
                }),
                Self::Unix(listener, _) => match listener.accept() {
                    Ok((stream, _)) if !is_of_this_user(&stream) => continue,
                    Ok((stream, _)) => {
                        stream.set_nonblocking(true).map(|()| (Stream::Unix(stream), Via::Socket))
                    }
                    Err(error) => Err(error),
                },
            };
            return match accepted {
                Ok((stream, via)) => Accepted::One(stream, via),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => Accepted::Nothing,
                // The connection that is gone is no reason to stop.
                Err(error) if is_about_one(&error) => continue,
                Err(_) => Accepted::Refused,
            };
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        if let Self::Unix(_, path) = self {
            // It may have been removed already.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// The outcome of an accept.
pub(super) enum Accepted {
    One(Stream, Via),
    Nothing,
    /// The process has no descriptors or memory left, or a sandbox forbids it.
    Refused,
}

/// Whether an error concerns only one connection, which is gone.
fn is_about_one(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::ConnectionAborted | io::ErrorKind::Interrupted)
}

fn is_of_this_user(stream: &UnixStream) -> bool {
    let own = peer::own_uid();
    // The administrator can read everything of the process anyway.
    peer::uid_of(stream.as_fd()).is_ok_and(|uid| uid == own || uid == 0)
}

/// Removes a socket that nothing listens at any more.
fn remove_stale(path: &Path) -> io::Result<()> {
    let Ok(found) = std::fs::symlink_metadata(path) else { return Ok(()) };
    if !found.file_type().is_socket() {
        let why = format!("heist::debug: {} exists and is not a socket", path.display());
        return Err(io::Error::new(io::ErrorKind::AlreadyExists, why));
    }
    if !dead(std::iter::once(path.to_owned())).is_empty() {
        return std::fs::remove_file(path);
    }
    let why = format!("heist::debug: another process serves at {}", path.display());
    Err(io::Error::new(io::ErrorKind::AddrInUse, why))
}

/// The sockets among these at which nothing listens any more.
pub(super) fn dead(paths: impl Iterator<Item = PathBuf>) -> Vec<PathBuf> {
    /// A process that has just made its socket does not listen yet.
    const MAKING: Duration = Duration::from_millis(2);
    let mut dead: Vec<_> = paths.filter(|path| refuses(path)).collect();
    if !dead.is_empty() {
        thread::nap(MAKING);
        dead.retain(|path| refuses(path));
    }
    dead
}

/// Whether a socket refuses connections. This does not wait: the queue of a process that is stopped
/// may be full.
fn refuses(path: &Path) -> bool {
    let connect = || {
        let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
        socket.set_nonblocking(true)?;
        socket.connect(&SockAddr::unix(path)?)
    };
    connect().is_err_and(|error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused)
}

/// One connection.
#[derive(Debug)]
pub(super) enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Stream {
    pub(super) fn fd(&self) -> RawFd {
        match self {
            Self::Tcp(stream) => stream.as_raw_fd(),
            Self::Unix(stream) => stream.as_raw_fd(),
        }
    }

    /// Says that nothing more is sent.
    pub(super) fn end_writing(&self) {
        // If the connection is gone already, so is the reader.
        let _ = match self {
            Self::Tcp(stream) => stream.shutdown(Shutdown::Write),
            Self::Unix(stream) => stream.shutdown(Shutdown::Write),
        };
    }

    pub(super) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).read(buffer),
            Self::Unix(stream) => (&mut &*stream).read(buffer),
        }
    }

    pub(super) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Tcp(stream) => (&mut &*stream).write(bytes),
            Self::Unix(stream) => (&mut &*stream).write(bytes),
        }
    }
}

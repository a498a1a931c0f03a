//! Descriptors: their mode and their kind, and accepting one.

use super::poll::Bell;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::sync::OnceLock;

fn checked(result: libc::c_int) -> io::Result<libc::c_int> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// Opens a file by a short formatted name. It is closed on exec. No allocation: sysmon and a signal
/// handler call this.
pub(crate) fn open_named(path: std::fmt::Arguments<'_>, flags: libc::c_int) -> io::Result<RawFd> {
    let mut name = PathBuffer { bytes: [0; 48], len: 0 };
    if std::fmt::Write::write_fmt(&mut name, path).is_err() {
        return Err(io::ErrorKind::InvalidFilename.into());
    }
    // SAFETY: the path ends with a zero byte, because the buffer began with zeroes.
    let file = unsafe { libc::open(name.bytes.as_ptr().cast(), flags | libc::O_CLOEXEC) };
    checked(file)
}

struct PathBuffer {
    bytes: [u8; 48],
    len: usize,
}

impl std::fmt::Write for PathBuffer {
    fn write_str(&mut self, text: &str) -> std::fmt::Result {
        // One byte stays zero: the end.
        let end = self.len + text.len();
        if end >= self.bytes.len() {
            return Err(std::fmt::Error);
        }
        self.bytes[self.len..end].copy_from_slice(text.as_bytes());
        self.len = end;
        Ok(())
    }
}

/// Sets whether calls on the descriptor, and on all others of the same open file, block.
pub(crate) fn set_nonblocking(fd: RawFd, nonblocking: bool) -> io::Result<()> {
    let mut value = libc::c_int::from(nonblocking);
    // SAFETY: reads one int.
    checked(unsafe { libc::ioctl(fd, libc::FIONBIO, &raw mut value) }).map(drop)
}

/// Whether the descriptor is a plain file or a folder, which are always ready.
pub(crate) fn is_plain_file(fd: RawFd) -> io::Result<bool> {
    let mut stat = std::mem::MaybeUninit::<libc::stat>::uninit();
    // SAFETY: room for one answer.
    checked(unsafe { libc::fstat(fd, stat.as_mut_ptr()) })?;
    // SAFETY: filled in by the call.
    let mode = unsafe { stat.assume_init() }.st_mode & libc::S_IFMT;
    Ok(matches!(mode, libc::S_IFREG | libc::S_IFDIR))
}

/// Accepts a connection that is non-blocking and closed on exec, in one call, with its address.
pub(crate) fn accept(listener: RawFd) -> io::Result<(OwnedFd, socket2::SockAddr)> {
    let flags = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
    // SAFETY: the kernel writes an address no longer than the storage, and its length.
    unsafe {
        socket2::SockAddr::try_init(|storage, len| {
            let fd = checked(libc::accept4(listener, storage.cast(), len, flags))?;
            Ok(OwnedFd::from_raw_fd(fd))
        })
    }
}

/// Closes the file behind the descriptor and keeps its number in use, by a dead file: code that has
/// borrowed the number must not reach another file by it. If no descriptor is left for that, a
/// socket is at least shut down; it stays open until its owner closes it.
pub(crate) fn retire(fd: RawFd) {
    match dead() {
        // SAFETY: both are open; the caller owns `fd`.
        Some(dead) => unsafe { libc::dup3(dead, fd, libc::O_CLOEXEC) },
        // SAFETY: touches no memory; a file that is not a socket returns an error.
        None => unsafe { libc::shutdown(fd, libc::SHUT_RDWR) },
    };
}

/// A descriptor of a dead file. None while no descriptor is left for it.
fn dead() -> Option<RawFd> {
    static DEAD: OnceLock<Bell> = OnceLock::new();
    if DEAD.get().is_none() {
        // Another thread may be faster; then this one is closed again.
        let _ = DEAD.set(Bell::new().ok()?);
    }
    DEAD.get().map(Bell::fd)
}

/// A descriptor that becomes readable when the process ends.
pub(crate) fn of_process(pid: u32) -> io::Result<OwnedFd> {
    let flags = 0;
    // SAFETY: makes a descriptor and touches nothing; it is closed on exec.
    let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, flags) };
    let fd = checked(fd as libc::c_int)?;
    // SAFETY: just made here, and not used elsewhere.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Whether an error means too many descriptors, in the process, in the system or in the poller, or
/// no memory for another.
pub(crate) fn is_exhaustion(error: &io::Error) -> bool {
    let codes = [libc::EMFILE, libc::ENFILE, libc::ENOBUFS, libc::ENOMEM, libc::ENOSPC];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether an error of `accept` concerns only the new connection: the next one may succeed.
pub(crate) fn is_of_the_network(error: &io::Error) -> bool {
    let codes = [
        libc::ENETDOWN,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::EHOSTDOWN,
        libc::ENONET,
        libc::EHOSTUNREACH,
        libc::ENETUNREACH,
        libc::ETIMEDOUT,
        libc::EPERM,
    ];
    error.raw_os_error().is_some_and(|code| codes.contains(&code))
}

/// Whether a connect has begun and not ended.
pub(crate) fn is_in_progress(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::EINPROGRESS)
}

/// Shuts both directions of a socket down. One that is not connected stays as it is.
pub(crate) fn shut_down(socket: RawFd) {
    // SAFETY: takes no pointers.
    unsafe { libc::shutdown(socket, libc::SHUT_RDWR) };
}

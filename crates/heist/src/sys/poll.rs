//! Waiting for one descriptor on the calling thread, and a bell to end such a wait.

use super::clock;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// The result of a wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Polled {
    /// An operation on the descriptor may succeed.
    Ready,
    /// An operation on the descriptor may succeed, and the other end has hung up or there is an
    /// error.
    HungUp,
    /// Only an error, or the other end has hung up.
    Broken,
    /// The bell rang, the timeout came, or a signal came: the caller should check again.
    Again,
}

/// The direction to wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    Reading,
    Writing,
}

/// Ends a [`wait`].
#[derive(Debug)]
pub(crate) struct Bell(OwnedFd);

impl Bell {
    pub(crate) fn new() -> io::Result<Self> {
        // SAFETY: makes a descriptor and touches nothing.
        let fd = unsafe { libc::eventfd(0, libc::EFD_NONBLOCK | libc::EFD_CLOEXEC) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made here, and not used elsewhere.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd) }))
    }

    pub(crate) fn fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }

    /// Ends the current wait, or the next one.
    pub(crate) fn ring(&self) {
        let one = 1u64;
        // SAFETY: eight valid bytes. It fails only after 2^64 rings, and then the bell still rings.
        unsafe { libc::write(self.fd(), (&raw const one).cast(), size_of::<u64>()) };
    }
}

/// No bell: the kernel ignores it.
pub(crate) const NO_BELL: RawFd = -1;

/// Forgets earlier rings.
pub(crate) fn silence(bell: RawFd) {
    let mut count = 0u64;
    // SAFETY: room for eight bytes. If the bell did not ring, nothing is read.
    unsafe { libc::read(bell, (&raw mut count).cast(), size_of::<u64>()) };
}

/// Blocks the thread until `fd` is ready, `bell` rings or the clock shows `until_ns`.
pub(crate) fn wait(fd: RawFd, what: For, bell: RawFd, until_ns: Option<u64>) -> io::Result<Polled> {
    let events = match what {
        For::Reading => libc::POLLIN | libc::POLLPRI,
        For::Writing => libc::POLLOUT,
    };
    let mut fds = [
        libc::pollfd { fd, events, revents: 0 },
        libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 },
    ];
    let left = until_ns.map(left_until);
    let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    // SAFETY: two valid entries, and a time that lives until the end of this function or none.
    let n = unsafe { libc::ppoll(fds.as_mut_ptr(), 2, left, std::ptr::null()) };
    if n < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::Interrupted => Ok(Polled::Again),
            _ => Err(error),
        };
    }
    Ok(match fds[0].revents {
        0 => Polled::Again,
        found if found & events == 0 => Polled::Broken,
        found if found & (libc::POLLHUP | libc::POLLERR | libc::POLLPRI) != 0 => Polled::HungUp,
        _ => Polled::Ready,
    })
}

/// Blocks the thread until one of the descriptors can be read or the clock shows `until_ns`. May
/// return early. Allocates.
pub(crate) fn wait_any(fds: impl Iterator<Item = RawFd>, until_ns: Option<u64>) {
    let mut fds: Vec<_> =
        fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let left = until_ns.map(left_until);
    let left = left.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let n = fds.len() as libc::nfds_t;
    // SAFETY: the entries are valid, and the time lives until the end of this function or is null.
    unsafe { libc::ppoll(fds.as_mut_ptr(), n, left, std::ptr::null()) };
}

/// The time from now until the clock shows `until_ns`.
fn left_until(until_ns: u64) -> libc::timespec {
    let left = until_ns.saturating_sub(clock::now_ns());
    libc::timespec {
        tv_sec: (left / 1_000_000_000) as libc::time_t,
        tv_nsec: (left % 1_000_000_000) as libc::c_long,
    }
}

/// Blocks the thread for a while, or until `bell` rings.
pub(crate) fn pause(bell: RawFd, time: std::time::Duration) {
    let mut fds = [libc::pollfd { fd: bell, events: libc::POLLIN, revents: 0 }];
    // SAFETY: one valid entry.
    unsafe { libc::poll(fds.as_mut_ptr(), 1, time.as_millis() as libc::c_int) };
}

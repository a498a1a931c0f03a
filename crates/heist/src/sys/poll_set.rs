//! Waiting for many descriptors on the calling thread.

use std::io;
use std::os::fd::RawFd;
use std::time::Duration;

/// What to wait for at a descriptor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    Reading,
    Writing,
    /// Only for its end: an error, or the other end sends nothing more.
    End,
}

/// The descriptors of one wait. Allocates.
#[derive(Default)]
pub(crate) struct PollSet {
    fds: Vec<libc::pollfd>,
}

impl PollSet {
    /// Forgets all descriptors.
    pub(crate) fn clear(&mut self) {
        self.fds.clear();
    }

    /// Adds a descriptor. Returns its position.
    pub(crate) fn add(&mut self, fd: RawFd, interest: Interest) -> usize {
        let events = match interest {
            Interest::Reading => libc::POLLIN,
            Interest::Writing => libc::POLLOUT,
            Interest::End => libc::POLLRDHUP,
        };
        self.fds.push(libc::pollfd { fd, events, revents: 0 });
        self.fds.len() - 1
    }

    /// Blocks the thread until one of them is ready, or for as long as `timeout`, rounded up to
    /// milliseconds. A signal may end the wait early; then none is ready.
    pub(crate) fn wait(&mut self, timeout: Option<Duration>) -> io::Result<()> {
        let ms = timeout.map_or(-1, |timeout| {
            let ms = timeout.as_nanos().div_ceil(1_000_000);
            ms.min(libc::c_int::MAX as u128) as libc::c_int
        });
        let n = self.fds.len() as libc::nfds_t;
        // SAFETY: the entries are valid.
        if unsafe { libc::poll(self.fds.as_mut_ptr(), n, ms) } >= 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        for entry in &mut self.fds {
            entry.revents = 0;
        }
        if error.kind() == io::ErrorKind::Interrupted { Ok(()) } else { Err(error) }
    }

    /// Whether something happened at the descriptor at this position.
    pub(crate) fn is_ready(&self, at: usize) -> bool {
        self.fds.get(at).is_some_and(|entry| entry.revents != 0)
    }
}

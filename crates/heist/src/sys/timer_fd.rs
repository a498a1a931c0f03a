//! A timer that a poller can wait for as for a descriptor, as exact as the kernel's clock.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::ptr::null_mut;

/// No moment: a timer that is set to it never fires.
const STOPPED: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 0 };

/// A timer of the monotonic clock.
#[derive(Debug)]
pub(crate) struct TimerFd(OwnedFd);

impl TimerFd {
    pub(crate) fn new() -> io::Result<Self> {
        let flags = libc::TFD_NONBLOCK | libc::TFD_CLOEXEC;
        // SAFETY: makes a descriptor and touches nothing.
        let fd = unsafe { libc::timerfd_create(libc::CLOCK_MONOTONIC, flags) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: just made here, and not used elsewhere.
        let timer = Self(unsafe { OwnedFd::from_raw_fd(fd) });
        // A sandbox may allow the one call and refuse the other.
        timer.arm(STOPPED)?;
        Ok(timer)
    }

    pub(crate) fn fd(&self) -> i32 {
        self.0.as_raw_fd()
    }

    /// Fires once at `when_ns` of the monotonic clock, at once if that has passed. Replaces an
    /// earlier setting, and an earlier firing that was not read.
    pub(crate) fn set(&self, when_ns: u64) {
        // All zeroes would stop the timer.
        let when_ns = when_ns.max(1);
        let when = libc::timespec {
            tv_sec: (when_ns / 1_000_000_000) as libc::time_t,
            tv_nsec: (when_ns % 1_000_000_000) as libc::c_long,
        };
        if let Err(error) = self.arm(when) {
            heist_core::throw!("TimerFd::set: {error}");
        }
    }

    fn arm(&self, when: libc::timespec) -> io::Result<()> {
        let setting = libc::itimerspec { it_interval: STOPPED, it_value: when };
        // SAFETY: the setting lives until the call returns; the old one is not requested.
        let set = unsafe {
            libc::timerfd_settime(
                self.fd(),
                libc::TFD_TIMER_ABSTIME,
                &raw const setting,
                null_mut(),
            )
        };
        if set == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }
}

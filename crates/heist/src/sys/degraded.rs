//! The refusals of the system to this process: reported once on standard error, and counted.
//!
//! For each entry the runtime has a fallback. The counts are per process, because the limits are.

use super::stderr;
use heist_core::sync::{AtomicU64, Ordering};
use std::fmt;
use std::io;

/// Something that is missing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub(crate) enum Lack {
    /// The state of a thread could not be read in `/proc`.
    ThreadState,
    /// The kernel refuses `membarrier`.
    Membarrier,
    /// The system refused a thread.
    Thread,
    /// The system refused the memory of a stack.
    Stack,
    /// A goroutine ended because there was no stack for it.
    Goroutine,
}

static COUNTS: [AtomicU64; 5] = [const { AtomicU64::new(0) }; 5];

impl Lack {
    /// Counts it. The first time, the reason is written to standard error. No allocation: the
    /// scheduler and sysmon call this.
    pub(crate) fn missed(self, reason: fmt::Arguments<'_>) {
        if COUNTS[self as usize].fetch_add(1, Ordering::Relaxed) == 0 {
            stderr::report(format_args!("heist: {reason}\n"));
        }
    }

    /// How often it was counted.
    pub(crate) fn count(self) -> u64 {
        COUNTS[self as usize].load(Ordering::Relaxed)
    }
}

/// An error of the system as text, without the allocation of its own `Display`.
pub(crate) struct Plain<'a>(pub(crate) &'a io::Error);

impl fmt::Display for Plain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(code) = self.0.raw_os_error() else { return write!(f, "{:?}", self.0.kind()) };
        let text = match code {
            libc::EMFILE => "too many open files in the process, ",
            libc::ENFILE => "too many open files in the system, ",
            libc::ENOMEM => "no memory, ",
            libc::ENOENT => "no such file, ",
            libc::EAGAIN => "too many threads, ",
            libc::EPERM | libc::EACCES => "not permitted, ",
            _ => "",
        };
        write!(f, "{text}os error {code}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_named() {
        let text = |code| Plain(&io::Error::from_raw_os_error(code)).to_string();
        assert_eq!(text(libc::EMFILE), "too many open files in the process, os error 24");
        assert_eq!(text(libc::EIO), "os error 5");
        assert_eq!(Plain(&io::ErrorKind::Unsupported.into()).to_string(), "Unsupported");
    }
}

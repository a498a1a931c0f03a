//! Sleeping on a word in memory.

use heist_core::note::Futex;
use heist_core::sync::AtomicU32;
use std::ptr::null;
use std::time::Duration;

/// The kernel's futex, private to this process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kernel;

impl Futex for Kernel {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let time = timeout.map(|left| libc::timespec {
            // A wait that is cut short is retried by the caller, so a cap is harmless.
            tv_sec: left.as_secs().min(1 << 30) as libc::time_t,
            tv_nsec: left.subsec_nanos().into(),
        });
        let time = time.as_ref().map_or(null(), std::ptr::from_ref);
        // SAFETY: `word` is valid during the call and `time` is null or points to a timespec that
        // lives until the end of this function.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG,
                expected,
                time,
            );
        }
    }

    fn wake(&self, word: &AtomicU32) {
        // SAFETY: FUTEX_WAKE only uses the address as a key; it need not even be mapped.
        unsafe {
            libc::syscall(
                libc::SYS_futex,
                word.as_ptr(),
                libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG,
                1,
            );
        }
    }
}

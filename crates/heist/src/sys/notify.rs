//! Signals from outside as bytes in a pipe.
//!
//! The handler only writes the number of the signal; it may run on any thread, at any moment.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, RawFd};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};

pub(crate) const HANGUP: i32 = libc::SIGHUP;
pub(crate) const INTERRUPT: i32 = libc::SIGINT;
pub(crate) const QUIT: i32 = libc::SIGQUIT;
pub(crate) const USER1: i32 = libc::SIGUSR1;
pub(crate) const USER2: i32 = libc::SIGUSR2;
pub(crate) const TERMINATE: i32 = libc::SIGTERM;
pub(crate) const CHILD: i32 = libc::SIGCHLD;
pub(crate) const WINDOW_CHANGE: i32 = libc::SIGWINCH;

/// The descriptor that the handler writes to; -1 if there is none yet.
static PIPE: AtomicI32 = AtomicI32::new(-1);

/// How many threads read the pipe without a receiver of signals.
static IDLE_READERS: AtomicU32 = AtomicU32::new(0);

/// Says whether the thread that reads the pipe has a receiver of signals.
pub(crate) fn set_idle_readers(n: u32) {
    // ORDERING: SeqCst: stored before a goroutine begins to wait for a signal.
    IDLE_READERS.store(n, Ordering::SeqCst);
}

/// Threads that read the pipe without a receiver, and so cannot wake a goroutine.
pub(crate) fn idle_readers() -> u32 {
    // ORDERING: see `set_idle_readers`.
    IDLE_READERS.load(Ordering::SeqCst)
}

/// Whether a program may receive a signal: not those that cannot be caught, that report a fault, or
/// that the runtime uses itself.
pub(crate) fn may_be_caught(signal: i32) -> bool {
    let refused = [
        libc::SIGKILL,
        libc::SIGSTOP,
        libc::SIGSEGV,
        libc::SIGBUS,
        libc::SIGFPE,
        libc::SIGILL,
        libc::SIGTRAP,
        libc::SIGABRT,
        libc::SIGURG,
    ];
    (1..=64).contains(&signal) && !refused.contains(&signal)
}

/// From now on the handler writes to `pipe`, which stays open forever.
pub(crate) fn write_to(pipe: &'static impl AsRawFd) -> io::Result<()> {
    super::fd::set_nonblocking(pipe.as_raw_fd(), true)?;
    // ORDERING: Release pairs with the load in the handler.
    PIPE.store(pipe.as_raw_fd(), Ordering::Release);
    Ok(())
}

/// The previous action of a signal.
pub(crate) struct Before {
    signal: i32,
    action: libc::sigaction,
}

/// Catches a signal until the result is passed to [`restore`].
pub(crate) fn catch(signal: i32) -> io::Result<Before> {
    // SAFETY: zeroes are a valid action, filled in below.
    let mut action: libc::sigaction = unsafe { MaybeUninit::zeroed().assume_init() };
    action.sa_sigaction = on_signal as extern "C" fn(libc::c_int) as usize;
    action.sa_flags = libc::SA_RESTART | libc::SA_ONSTACK;
    let mut before = MaybeUninit::<libc::sigaction>::uninit();
    // SAFETY: both are valid for the call; the handler only writes to a pipe.
    let done = unsafe {
        libc::sigfillset(&raw mut action.sa_mask);
        libc::sigaction(signal, &raw const action, before.as_mut_ptr())
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call.
    Ok(Before { signal, action: unsafe { before.assume_init() } })
}

/// Restores the previous action of a signal.
pub(crate) fn restore(before: &Before) {
    // SAFETY: the action was in force before.
    unsafe { libc::sigaction(before.signal, &raw const before.action, null_mut()) };
}

extern "C" fn on_signal(signal: libc::c_int) {
    // SAFETY: the address of this thread's errno.
    let errno = unsafe { *libc::__errno_location() };
    let byte = signal as u8;
    // ORDERING: Acquire: see `write_to`.
    let pipe: RawFd = PIPE.load(Ordering::Acquire);
    // SAFETY: one valid byte. If the pipe is full, the reader has enough to do already.
    unsafe {
        libc::write(pipe, (&raw const byte).cast(), 1);
        *libc::__errno_location() = errno;
    }
}

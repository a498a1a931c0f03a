//! The user on the other end of a Unix socket.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsRawFd, BorrowedFd};

/// The effective user of this process.
pub(crate) fn own_uid() -> u32 {
    // SAFETY: geteuid only returns a value.
    unsafe { libc::geteuid() }
}

/// The effective user of the process that connected to a Unix socket, when it did.
#[doc(alias = "SO_PEERCRED")]
pub(crate) fn uid_of(socket: BorrowedFd<'_>) -> io::Result<u32> {
    let mut peer = MaybeUninit::<libc::ucred>::uninit();
    let mut len = size_of::<libc::ucred>() as libc::socklen_t;
    // SAFETY: room for the credentials, and its size.
    let done = unsafe {
        libc::getsockopt(
            socket.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_PEERCRED,
            peer.as_mut_ptr().cast(),
            &raw mut len,
        )
    };
    if done != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: filled in by the call.
    Ok(unsafe { peer.assume_init() }.uid)
}

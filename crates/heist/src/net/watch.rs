//! `Watch`: a way to shut a connection down that somebody else owns.
//!
//! The owner takes its descriptor's number out before it closes the descriptor, under the same lock
//! under which the number is used: so the number is never another's.

use crate::sync::Mutex;
use crate::sys::fd;
use std::os::fd::RawFd;

/// The descriptor of a socket, as long as its owner has it.
pub(super) struct Watch(Mutex<Option<RawFd>>);

impl Watch {
    pub(super) const fn new(socket: RawFd) -> Self {
        Self(Mutex::new(Some(socket)))
    }

    /// The owner closes the socket, or gives it away.
    pub(super) fn forget(&self) {
        *self.0.lock_shielded() = None;
    }

    /// Shuts both directions down, if the socket is there: who waits for it goes on, and finds its
    /// end.
    pub(super) fn shut_down(&self) {
        if let Some(socket) = *self.0.lock_shielded() {
            fd::shut_down(socket);
        }
    }
}

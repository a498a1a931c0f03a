//! `Watch`: a way to shut down a connection that another goroutine owns.
//!
//! The owner removes the descriptor's number before it closes the descriptor, under the same lock
//! under which the number is used. So the number never names another descriptor.

use crate::sync::Mutex;
use crate::sys::fd;
use std::os::fd::RawFd;

/// The descriptor of a socket, as long as its owner has it.
pub(super) struct Watch(Mutex<Option<RawFd>>);

impl Watch {
    pub(super) const fn new(socket: RawFd) -> Self {
        Self(Mutex::new(Some(socket)))
    }

    /// Removes the number. For the owner, before it closes the socket or gives it away.
    pub(super) fn forget(&self) {
        *self.0.lock_shielded() = None;
    }

    /// Shuts down both directions, if the socket is there: a goroutine that waits for it continues,
    /// and sees its end.
    pub(super) fn shut_down(&self) {
        if let Some(socket) = *self.0.lock_shielded() {
            fd::shut_down(socket);
        }
    }
}

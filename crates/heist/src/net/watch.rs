//! `Watch`: a way to reach a descriptor that another goroutine owns.
//!
//! The owner removes the state of the descriptor before it closes the descriptor or gives it away,
//! under the same lock under which it is used. So the state never names another descriptor, and a
//! watch that is kept for longer, or leaked, does no harm.

use super::state::State;
use crate::sync::Mutex;
use crate::sys::fd;
use std::sync::Arc;

/// A descriptor, as long as its owner has it.
pub struct Watch(Mutex<Option<Arc<State>>>);

impl Watch {
    pub(super) const fn new(state: Arc<State>) -> Self {
        Self(Mutex::new(Some(state)))
    }

    /// Removes the descriptor. For the owner, before it closes it or gives it away.
    pub(super) fn forget(&self) {
        let state = self.0.lock_shielded().take();
        drop(state);
    }

    /// Calls `f` with the descriptor, if it is there.
    pub(super) fn with(&self, f: impl FnOnce(&State)) {
        if let Some(state) = &*self.0.lock_shielded() {
            f(state);
        }
    }

    /// Shuts down both directions, if the socket is there: a goroutine that waits for it continues,
    /// and sees its end.
    pub(super) fn shut_down(&self) {
        self.with(|state| fd::shut_down(state.fd));
    }
}

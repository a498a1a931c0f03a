//! Waiting for an event that never happens: Go's nil channels.

use super::state::Patience;
use crate::current;
use crate::wait::{self, Terms, WaitReason};

/// Waits until the time is over. Without a limit, a goroutine waits until it is cancelled, and a
/// plain thread waits forever.
pub(super) fn wait(reason: WaitReason, patience: Patience) {
    if let Patience::Until(deadline_ns) = patience {
        let rt = wait::park_point(current::enter());
        wait::wait_alone(rt, Terms::new(reason).until(deadline_ns));
    }
}

//! Waiting for what never comes: Go's nil channels.

use super::state::Patience;
use crate::current;
use crate::wait::{self, Terms, WaitReason};

/// Waits until the time is over: without a limit until the goroutine is cancelled, and on a plain
/// thread for ever.
pub(super) fn wait(reason: WaitReason, patience: Patience) {
    if let Patience::Until(deadline_ns) = patience {
        let rt = wait::park_point(current::enter());
        wait::wait_alone(rt, Terms::new(reason).until(deadline_ns));
    }
}

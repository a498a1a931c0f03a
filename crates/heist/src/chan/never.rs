//! Waiting for what never comes: Go's nil channels.

use super::state::Patience;
use super::waiter::{Awoken, Wait};
use crate::current;
use crate::gmp::G;
use crate::gmp::g::WaitReason;
use crate::sched::life::cancel::{self, Why};
use crate::sched::life::park;
use std::ptr::{NonNull, null_mut};

/// Waits until the time is over: without a limit until the goroutine is cancelled, and on a plain
/// thread for ever.
pub(super) fn wait(reason: WaitReason, patience: Patience) {
    let Patience::Until(deadline_ns) = patience else { return };
    let rt = current::enter().map(|rt| cancel::check(park::chaos_point(rt)));
    let wait = Wait::new(rt.as_ref());
    // SAFETY: there is no lock to release.
    let (rt, awoken) = unsafe { wait.sleep(rt, reason, nothing, null_mut(), deadline_ns) };
    drop(rt);
    match awoken {
        Awoken::TimedOut => {}
        Awoken::Cancelled => cancel::unwind(Why::Cancelled),
        Awoken::Claimed => heist_core::throw!("never::wait: somebody came"),
    }
}

unsafe fn nothing(_: NonNull<G>, _: *mut ()) -> bool {
    true
}

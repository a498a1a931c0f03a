//! Counting the Ms that look for work.
//!
//! GO: proc.go becomeSpinning, resetspinning.

use super::{wake, watch};
use crate::gmp::M;
use crate::sched::Sched;
use crate::sys::clock;

/// Counts `m` among those who look for work.
#[doc(alias = "becomeSpinning")]
pub(crate) fn become_spinning(sched: &Sched, m: &M) {
    begin_spin(sched, m);
    sched.rest.spinning.start();
    m.p().stats.spins.bump();
}

/// `m` looks for work from now on, and is counted.
pub(crate) fn begin_spin(sched: &Sched, m: &M) {
    m.spinning.set(true);
    m.spins_since_ns.set(clock::now_ns());
    m.readied_before.set(watch::n_readied(sched));
}

/// If `m` looks for work, it does no longer.
pub(crate) fn end_spin(sched: &Sched, m: &M) -> bool {
    let was_spinning = m.spinning.replace(false);
    if was_spinning {
        sched.rest.spinning.stop();
        sched.stats.spin_ns.add_shared(clock::now_ns() - m.spins_since_ns.get());
    }
    was_spinning
}

/// A spinner found work: if it was the last, somebody else must look in its place.
#[doc(alias = "resetspinning")]
pub(crate) fn stop_spinning(sched: &Sched, m: &M) {
    end_spin(sched, m);
    // There may be more where this came from.
    wake::wake_p(sched);
}

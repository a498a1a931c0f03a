//! Counts the Ms that spin.
//!
//! GO: proc.go becomeSpinning, resetspinning.

use super::{wake, watch};
use crate::gmp::M;
use crate::sched::Sched;
use crate::sys::clock;
use crate::trace::emit;

/// Makes `m` a spinning M, and counts it.
#[doc(alias = "becomeSpinning")]
pub(crate) fn become_spinning(sched: &Sched, m: &M) {
    begin_spin(sched, m);
    sched.rest.spinning.start();
    m.p().stats.spins.bump();
}

/// Makes `m` a spinning M. The caller counts it, or the waker of `m` has done so.
pub(crate) fn begin_spin(sched: &Sched, m: &M) {
    emit::spin_start(m);
    m.spinning.set(true);
    m.spins_since_ns.set(clock::now_ns());
    m.readied_before.set(watch::n_readied(sched));
}

/// Ends the spinning of `m`, and discounts it. False if `m` did not spin.
pub(crate) fn end_spin(sched: &Sched, m: &M) -> bool {
    let was_spinning = m.spinning.get();
    if was_spinning {
        emit::spin_stop(m);
        m.spinning.set(false);
        sched.rest.spinning.stop();
        sched.stats.spin_ns.add_shared(clock::now_ns() - m.spins_since_ns.get());
    }
    was_spinning
}

/// Ends the spinning of an M that found work. If it was the last spinner, another M must search in
/// its place.
#[doc(alias = "resetspinning")]
pub(crate) fn stop_spinning(sched: &Sched, m: &M) {
    end_spin(sched, m);
    // There may be more work where this came from.
    wake::wake_p(sched);
}

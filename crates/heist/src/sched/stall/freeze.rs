//! Freezing a goroutine in place: it stays on its thread, which sleeps until it gets a P again.

use super::bell;
use crate::gmp::{M, g};
use crate::sched::Sched;
use crate::sched::rest;
use crate::sched::run::find::Found;
use crate::sched::threads::bound;
use crate::sys::clock;
use heist_core::status::Status;
use std::ptr::null;

/// Sleeps until whoever found this M's goroutine in a queue lends a P for it. Undoes one
/// binding.
pub(crate) fn wait_for_turn(sched: &Sched, m: &M) {
    sched.stats.m_parks.add_shared(1);
    m.note.sleep(&m.doorbell);
    let Found::Retry = rest::take_over(sched, m) else {
        heist_core::throw!("wait_for_turn: M{} was woken without a P", m.id);
    };
    let Some(gp) = m.current() else {
        heist_core::throw!("wait_for_turn: M{} runs nothing", m.id);
    };
    bound::unbind(m, gp);
    gp.status.transition(Status::Runnable, Status::Running);
    // After a stop of the world it goes on with what is left of its slice.
    if m.stopped_p.replace(null()).is_null() {
        m.word.mark_next_stay();
        m.p().begin_slice(clock::now_ns());
        if !gp.has_flag(g::HOG) {
            bell::expect_no_hog(sched);
        }
    }
}

//! Freezing a goroutine in place: it stays on its thread, which sleeps until it is lent a P.

use super::sysmon::bell;
use crate::gmp::flags::Flag;
use crate::gmp::{G, M};
use crate::sched::run;
use crate::sched::run::Found as Turn;
use crate::sched::threads::bound;
use crate::sched::{Locked, Sched, rest};
use crate::sys::clock;
use crate::trace::emit;
use heist_core::status::Status;
use heist_trace::record::Found;
use std::ptr::{NonNull, null};

/// A frozen goroutine: runnable, without a P, and bound to its M. Before the M sleeps, the
/// goroutine is put where another M finds it, or its P is counted as stopped.
#[must_use]
pub(crate) struct Frozen<'m> {
    m: &'m M,
    gp: &'m G,
}

/// Freezes the goroutine that runs on `m`. For the thread of `m`, under the scheduler lock.
pub(crate) fn freeze(m: &M) -> Frozen<'_> {
    let Some(gp) = m.current() else {
        heist_core::throw!("freeze: M{} runs nothing", m.id);
    };
    if m.has_p() {
        heist_core::throw!("freeze: M{} holds a P", m.id);
    }
    gp.status.transition(Status::Running, Status::Runnable);
    bound::bind(m, gp);
    Frozen { m, gp }
}

impl Frozen<'_> {
    /// Puts the goroutine among the frozen ones of the global queue.
    pub(super) fn queue(&self, sched: &Sched, locked: &mut Locked) {
        // SAFETY: the goroutine is runnable, and no other M runs it, because it is bound.
        unsafe { run::push_frozen(sched, locked, NonNull::from(self.gp)) };
        sched.stats.global_put.add_shared(1);
    }

    /// Sleeps until another thread hands this M a P for the goroutine, which then continues.
    pub(crate) fn wait_for_turn(self, sched: &Sched) {
        let Self { m, gp } = self;
        sched.stats.m_parks.add_shared(1);
        emit::m_park(m);
        m.note.sleep(&m.doorbell);
        emit::m_unpark(m);
        let Turn::Retry = rest::take_over(sched, m) else {
            heist_core::throw!("wait_for_turn: M{} was woken without a P", m.id);
        };
        bound::unbind(m, gp);
        gp.status.transition(Status::Runnable, Status::Running);
        emit::go_start(m, gp, Found::Resumed);
        // After a stop of the world the goroutine continues with what is left of its slice.
        if m.stopped_p.replace(null()).is_null() {
            m.word.mark_next_stay();
            m.p().begin_slice(clock::now_ns());
            if !gp.flags.has(Flag::HOG) {
                bell::expect_no_hog(sched);
            }
        }
    }
}

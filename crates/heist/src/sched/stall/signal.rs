//! The signal handler that preempts a goroutine by force.
//!
//! # What it may do
//! It runs between any two instructions of user code, on the M's alternate stack. It makes system
//! calls, uses atomics and the scheduler lock (which no user code holds), and does nothing else.

use super::sysmon::bell;
use super::{blocking, freeze};
use crate::coro::extra;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::{M, capture};
use crate::sched::{rest, world};
use crate::sys::membarrier::no_fence;
use crate::sys::signal::Interrupted;
use crate::sys::{halt, thread};
use crate::trace::emit;
use heist_core::m_word::{PREEMPT, Place, STOP};
use heist_core::policy::DOORBELLS_MAX;
use heist_trace::record::Freeze;

/// Handles the preemption signal. The request may be gone by now.
pub(crate) fn on_interrupt(interrupted: &Interrupted<'_>) {
    halt::stand_still(interrupted.registers().sp, current::m().addr(), extra::addresses());
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else { return };
    capture::answer(m, interrupted.registers());
    if m.word.attention() & (PREEMPT | STOP) == 0 || m.word.stamp().place() != Place::User {
        return;
    }
    let may_be_preempted = !interrupted.in_another_handler(m.blocked.get());
    if may_be_preempted && m.current().is_some_and(|gp| gp.may_be_forced()) {
        m.captured.begin_sleep(interrupted.registers());
        stop(m);
        m.captured.end_sleep();
    } else {
        bell::expect_no_hog(m.sched());
    }
}

/// Gives the P away and freezes the goroutine until its turn comes again.
fn stop(m: &M) {
    let sched = m.sched();
    if m.word.enter(no_fence) {
        // The P is gone, or is being taken, because this thread looked asleep. There is no P to
        // give away, but one to wait for.
        m.word.clear_attention(PREEMPT);
        blocking::regain_p(sched, m);
        return go_on(m);
    }
    let Some(gp) = m.current() else { return m.word.leave(Place::User) };
    if m.word.attention() & STOP != 0 {
        return go_on(m);
    }
    m.doorbell.open(m.id, DOORBELLS_MAX);
    let mut locked = sched.lock.lock();
    let next = rest::next_frozen(sched, &mut locked, m.p());
    let Some(taker) = next.or_else(|| rest::find_taker(sched, &mut locked, m.p())) else {
        drop(locked);
        sched.threads.helper().ask_for_spare();
        bell::expect_no_hog(sched);
        return go_on(m);
    };
    m.word.clear_attention(PREEMPT);
    emit::go_freeze(m, Freeze::Signal);
    let pp = m.release_p();
    let frozen = freeze::freeze(m);
    frozen.queue(sched, &mut locked);
    drop(locked);
    sched.stats.forced.add_shared(1);
    sched.stall.predictor().stopped(gp.kind());
    // The thread that will wake this one is about to sleep itself at that moment.
    let lets_sleep = !gp.flags.has(Flag::LATENCY) && thread::let_wakers_sleep();
    // SAFETY: the taker was idle, or waits for its goroutine's turn; this thread took it off the
    // list.
    unsafe { rest::hand_over(sched, taker, pp, crate::sched::rest::Start::Working) };
    if next.is_none() {
        bell::expect_no_hog(sched);
    }
    frozen.wait_for_turn(sched);
    if lets_sleep {
        thread::drive_wakers_out();
    }
    go_on(m);
}

/// Returns to user code, but not while the world is stopped.
fn go_on(m: &M) {
    while m.word.attention() & STOP != 0 {
        world::stop_here(m.sched(), m);
    }
    m.word.leave(Place::User);
}

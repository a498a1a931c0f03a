//! Abandoning a goroutine forever, together with its thread.
//!
//! A goroutine that overflowed its stack can neither continue nor be unwound. It stays `Running`
//! forever, and its thread sleeps forever inside the fault handler, as the thread of a frozen
//! goroutine sleeps inside the handler of the preemption signal. So what they hold (locks, borrowed
//! thread-locals, the count of panics, the alternate stack) is never seen half changed by another
//! goroutine: it belongs to a thread that does not run. Only two things are given up: the P, which
//! goes to another M, and the wait of the joiner, which ends.
//!
//! # Invariants
//! - The record keeps the runtime's share of its join word, so it is never recycled, and dumps list
//!   it.
//! - The thread keeps its share of the runtime, so nothing that its frames refer to is freed.
//! - An abandoned goroutine counts as finished. Its M counts as a thread of the runtime.

use crate::current::InRuntime;
use crate::gmp::flags::Flag;
use crate::gmp::g::Outcome;
use crate::gmp::{G, M};
use crate::sched::waiter::Waiter;
use crate::sched::{futures, life, outside, stall, world};
use crate::sys::membarrier::no_fence;
use crate::sys::thread;
use crate::trace::emit;
use heist_core::join::Finished;
use heist_core::m_word::{PREEMPT, STOP};
use heist_core::sync::{Ordering, fence};
use std::ptr::NonNull;

/// Abandons the goroutine `gp` and its M, the caller's, where they are. Called in a signal handler
/// that interrupted user code.
pub(super) fn abandon(m: &M, gp: &G) -> ! {
    let sched = m.sched();
    if m.word.enter(no_fence) {
        m.word.clear_attention(PREEMPT);
        stall::regain_p(sched, m);
    }
    while m.word.attention() & STOP != 0 {
        world::stop_here(sched, m);
    }
    gp.outcome.set(Outcome::Overflowed);
    gp.flags.set(Flag::ABANDONED);
    m.abandoned.set(true);
    if gp.flags.has(Flag::IDLE) {
        sched.run.idle_class_ends();
    }
    sched.stats.overflowed.add_shared(1);
    // ORDERING: pairs with the fence of `life::n_live`: a closer that counts this goroutine as
    // finished sees the marks.
    fence(Ordering::SeqCst);
    m.p().stats.finished.bump();
    if gp.flags.has(Flag::TASK) {
        // SAFETY: the record of a task that has not ended.
        unsafe { gp.task_word() }.finish();
    }
    if let Finished::Wake(waiter) = gp.join.finish() {
        // SAFETY: this is the calling thread's M, and it is in the runtime.
        let rt = unsafe { InRuntime::from_switch(NonNull::from(m)) };
        if waiter == futures::waker::JOINS {
            futures::waker::wake_joiner_within(&rt, gp);
        } else {
            // SAFETY: the address was left by a waiter that waits until it is woken.
            unsafe { Waiter::joiner_of(gp, waiter).wake(Some(&rt)) };
        }
        let _ = rt.into_m();
    }
    life::after_finish(sched);
    outside::leave_timers(sched, m);
    emit::go_end(m, gp);
    let pp = m.release_p();
    stall::handoff_p(sched, pp);
    thread::sleep_for_ever()
}

//! A task between two polls.
//!
//! A task runs as a goroutine does, from the same queues, and each poll is a run on a stack of its
//! own. When a poll returns without a result, the stack goes back to the P, and the task waits
//! until a waker or a canceller queues it (`heist_core::task_word`).

use crate::gmp::flags::Flag;
use crate::gmp::g::WaitReason;
use crate::gmp::{G, Holder};
use crate::sched::rest;
use crate::sched::run::queue;
use crate::trace::emit;
use heist_core::run_queue::Slot;
use heist_core::task_word::Pended;
use heist_core::timer_heap::NEVER;
use heist_trace::record::Stop;
use std::ptr::NonNull;

/// Flags of one poll, which the next one does not inherit.
const OF_ONE_POLL: Flag = Flag::WATCHED.with(Flag::BLOCKS).with(Flag::HOG).with(Flag::LOCKED);

/// Makes a task idle whose poll returned without a result, and whose stack was taken, or queues it
/// again if it was woken meanwhile.
#[inline(never)]
pub(super) fn set_aside(m: Holder<'_>, gp: NonNull<G>) {
    // SAFETY: the task has just left this M, which still owns it.
    let g = unsafe { gp.as_ref() };
    g.set_started(false);
    if g.flags.has(OF_ONE_POLL) {
        g.flags.clear(OF_ONE_POLL);
    }
    // SAFETY: the record of a task that has not ended.
    let word = unsafe { g.task_word() };
    if word.pend_if_notified() {
        return queue::requeue(m, gp, Stop::Yield);
    }
    g.set_due(NEVER);
    g.set_wait_reason(WaitReason::Task);
    g.set_waits_since(m.sched().life.minute());
    m.p().parks[WaitReason::Task as usize].bump();
    emit::go_block(&m, g);
    let ticket = g.status.begin_idle_wait();
    if word.pend() == Pended::Again {
        if !g.status.claim(ticket) {
            heist_core::throw!("set_aside: a sealed wait was claimed");
        }
        return queue_again(m, gp);
    }
    // From here on the task may run anywhere or have ended, and the record may serve another one.
    // Then the steps below have no effect, because the ticket belongs to this wait.
    g.status.unseal(ticket);
    if g.is_cancelled() && g.status.claim(ticket) {
        // SAFETY: just claimed, so the task is this M's again.
        unsafe { g.task_word() }.claimed_by_canceller();
        queue_again(m, gp);
    }
}

#[cold]
fn queue_again(m: Holder<'_>, gp: NonNull<G>) {
    m.p().stats.readied.bump();
    // SAFETY: the task was just claimed by this M, and is in no queue.
    unsafe {
        emit::go_unblock(&m.sched().recorder, gp.as_ref());
        queue::push_local(m, gp, Slot::Tail);
    }
    rest::wake_p(m.sched());
}

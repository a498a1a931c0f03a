//! The loop of an M: it finds a goroutine, runs it and does what the goroutine asked for.
//!
//! GO: proc.go schedule, execute, park_m, gosched_m, goyield_m, goexit0.

mod poll_end;

use super::queue;
use super::{find, latency};
use crate::coro::stack_pool;
use crate::coro::switch::Switched;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::g::Woken;
use crate::gmp::m::{Commit, Request, Seal};
use crate::gmp::{G, Holder, M, pool};
use crate::sched::life::cancel;
use crate::sched::outside;
use crate::sched::run::find::{Next, Slice};
use crate::sched::stacks::moves;
use crate::sched::threads::bound;
use crate::sched::{forks, futures, life, rest, stacks, threads};
use crate::sys::membarrier::light_fence;
use crate::sys::registers::stack_pointer;
use crate::trace::emit;
use crate::trace::recorder::is_on;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use heist_core::{m_word, policy};
use heist_trace::record::Stop;
use std::ptr::{NonNull, null_mut};

/// Runs goroutines on the thread of a new M, until the runtime ends or the thread is no longer
/// needed.
#[doc(alias = "schedule")]
pub(crate) fn run(m: &M) {
    m.stack_base.set(stack_pointer());
    current::set_m(m);
    if matches!(threads::first_p(m.sched(), m), super::find::Found::Retry) {
        run_goroutines(m, Runs::Any);
    }
    current::set_m(std::ptr::null());
}

/// Runs the goroutine that is bound to `m`, and no other, until it has ended.
pub(crate) fn run_bound(m: &M) {
    m.stack_base.set(stack_pointer());
    current::set_m(m);
    run_goroutines(m, Runs::Bound);
    current::set_m(std::ptr::null());
}

/// Which goroutines an M runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Runs {
    /// Any that it finds. While one is bound to the M, only that one.
    Any,
    /// The goroutine that is bound to the M, and no other.
    Bound,
}

fn run_goroutines(m: &M, runs: Runs) {
    let sched = m.sched();
    // SAFETY: `m` is the M of the calling thread, which is in the runtime. It holds a P whenever it
    // searches for a goroutine or has found one.
    let holder = unsafe { Holder::new(m) };
    loop {
        let bound = runs == Runs::Bound || !m.bound_g.get().is_null();
        let found = if bound {
            threads::wait_for_bound(sched, m)
        } else {
            find::find_runnable(sched, holder)
        };
        let Some(next) = found else { return };
        if m.spinning.get() {
            rest::stop_spinning(sched, m);
        }
        // SAFETY: a goroutine that was found is valid.
        let bound_m = unsafe { next.gp.as_ref() }.bound_m.get();
        if bound_m.is_null() || std::ptr::eq(bound_m, m) {
            execute(holder, next);
        } else if !threads::keeps_p(sched, holder, next.gp) && !threads::lend_p(sched, m, next.gp) {
            return;
        }
    }
}

/// Runs a goroutine until it switches back, and does what it asks for.
fn execute(m: Holder<'_>, next: Next) {
    let pp = m.p();
    // SAFETY: a goroutine that was found is valid and this M's to run.
    let gp = unsafe { next.gp.as_ref() };
    if !gp.has_started() {
        if !stacks::attach_stack(m, next.gp) {
            return;
        }
    // SAFETY: it has started, so it has run before, and it is this M's to run.
    } else if unsafe { gp.coro.is_of_another_thread(m.thread.get()) } {
        moves::move_here(&m, gp);
    }
    gp.status.transition(Status::Runnable, Status::Running);
    if next.slice() == Slice::Fresh {
        pp.advance_tick();
    }
    pp.stats.executed.bump();
    if is_on() {
        tell_start(m, gp, next);
    }
    if let Some(number) = gp.take_sampled() {
        latency::record_latency(m.sched(), m, number);
    }
    loop {
        let special = gp.flags.has(Flag::IDLE | Flag::BLOCKS);
        if special {
            before_special(&m, gp);
        }
        // ORDERING: Release pairs with `M::current` on other threads, which look into the record.
        m.cur.store(next.gp.as_ptr(), Ordering::Release);
        // SAFETY: `m` is the M of the calling thread. It owns the goroutine, which has a context
        // and does not run.
        let switched = unsafe { gp.coro.resume(NonNull::from(m.m())) };
        m.cur.store(null_mut(), Ordering::Relaxed);
        forks::suspend(&m);
        if special {
            after_special(&m, gp);
        }
        m.word.clear_attention(m_word::PREEMPT | m_word::GIVE_P | m_word::MOVED);
        match (switched, m.request.get()) {
            (Switched::Returned, _) => return finish(m, next.gp),
            (Switched::Suspended, Request::Yield) => {
                return queue::requeue(m, next.gp, Stop::Yield);
            }
            (Switched::Suspended, Request::Preempted) => {
                return queue::requeue(m, next.gp, Stop::Preempted);
            }
            (Switched::Suspended, Request::GiveWay) => return queue::requeue_here(m, next.gp),
            (Switched::Suspended, Request::Park { commit, arg, seal, deadline_ns }) => {
                gp.set_due(deadline_ns);
                // SAFETY: the goroutine asked for this and has left its stack.
                let parked = unsafe { commit_park(m, next.gp, commit, arg, seal) };
                if parked == Parked::Yes {
                    if deadline_ns != NEVER {
                        // The goroutine may be awake again, or have ended. Then the timer finds
                        // that the wait is over.
                        outside::add_timer(m.sched(), m, deadline_ns, next.gp);
                    }
                    return;
                }
                // The wait was refused: the goroutine continues at once, on the same slice.
                gp.status.transition(Status::Runnable, Status::Running);
                emit::go_refused(&m, gp);
            }
            (Switched::Suspended, Request::Exit | Request::Pend) => {
                heist_core::throw!("execute: a goroutine switched back without a request");
            }
        }
    }
}

/// Tells the trace which goroutine runs, and every now and then how long the queues are: before, as
/// the goroutine is not the current one of `m` yet.
#[cold]
#[inline(never)]
fn tell_start(m: Holder<'_>, gp: &G, next: Next) {
    if next.slice() == Slice::Fresh && policy::global_first(m.p().tick()) {
        emit::queues(&m, m.p().queue.len(), m.sched().global_len().get());
    }
    emit::go_start(&m, gp, next.origin);
}

/// Prepares the run of a goroutine of the idle class, or of one that is predicted to block.
#[cold]
fn before_special(m: &M, gp: &G) {
    if gp.flags.has(Flag::BLOCKS) {
        m.word.call_attention(m_word::GIVE_P);
    }
    if gp.flags.has(Flag::IDLE) {
        m.sched().run.idle_class_begins();
    }
}

/// Undoes [`before_special`] after the goroutine has switched back. Its attention flag is cleared
/// by the caller.
#[cold]
fn after_special(m: &M, gp: &G) {
    if gp.flags.has(Flag::IDLE) {
        m.sched().run.idle_class_ends();
    }
}

#[derive(PartialEq, Eq)]
enum Parked {
    Yes,
    No,
}

/// The second half of a park, on the scheduler's stack.
///
/// # Safety
/// `gp` has just left this M, and asked to be parked with `commit` and `arg`.
unsafe fn commit_park(
    m: Holder<'_>,
    gp: NonNull<G>,
    commit: Commit,
    arg: *mut (),
    seal: Seal,
) -> Parked {
    // SAFETY: records are never unmapped. After the commit the goroutine may run anywhere or have
    // ended, and the record may serve another one. Then the steps below have no effect, because the
    // ticket belongs to this wait.
    let g = unsafe { gp.as_ref() };
    m.p().parks[g.wait_reason() as usize].bump();
    emit::go_block(&m, g);
    let is_cancelled = || cancel::forbids_waiting(g);
    if seal == Seal::Sealed {
        let ticket = g.status.begin_sealed_wait();
        // SAFETY: by the caller's promise.
        let committed = unsafe { commit(gp, arg) };
        g.status.unseal(ticket);
        // If this claim fails, another thread has woken the goroutine already.
        if (committed && !is_cancelled()) || !g.status.claim(ticket) {
            return Parked::Yes;
        }
        if committed {
            g.woken.set(Woken::Cancelled);
        }
        return Parked::No;
    }
    let ticket = g.status.begin_wait(light_fence);
    // This comes before the commit, which lets others find the wait: what happens after the
    // cancellation must not serve this wait. A canceller that comes later sees the wait and claims
    // it.
    let gives_up = is_cancelled() && g.status.claim(ticket);
    // SAFETY: by the caller's promise.
    let committed = unsafe { commit(gp, arg) };
    if gives_up {
        if committed {
            g.woken.set(Woken::Cancelled);
        }
        return Parked::No;
    }
    if committed || !g.status.claim(ticket) { Parked::Yes } else { Parked::No }
}

/// Cleans up after a goroutine that has returned, or after a poll of a task.
#[doc(alias = "goexit0")]
fn finish(m: Holder<'_>, gp: NonNull<G>) {
    let sched = m.sched();
    // SAFETY: the goroutine ended on this M, which still owns it.
    let g = unsafe { gp.as_ref() };
    let pp = m.p();
    // SAFETY: it has returned, and its stack was not taken yet.
    let stack = unsafe { g.coro.take_stack() };
    pp.stats.stacks_detached.bump();
    let is_rare = g.flags.has(Flag::WATCHED | Flag::STACKLESS);
    if is_rare && g.flags.has(Flag::WATCHED) {
        stacks::look_at_stack(sched, g, &stack);
    }
    if is_rare && g.flags.has(Flag::STACKLESS) {
        stack_pool::give_last(stack);
    } else if pp.with_local(|local| local.stacks.give(stack)) {
        sched.threads.helper().ask_to_scavenge();
    }
    bound::end(&m, g);
    let is_task = g.flags.began_with(Flag::TASK);
    if is_task && matches!(m.request.get(), Request::Pend) {
        return poll_end::set_aside(m, gp);
    }
    emit::go_end(&m, g);
    g.status.transition(Status::Running, Status::Dead);
    // A reader that counts this end must also count the beginning, on whatever P that was counted.
    pp.stats.finished.bump_last();
    // SAFETY: the runtime's share of the record was just given up, and the handle is gone.
    if g.join.release_runtime() && (!is_task || unsafe { futures::waker::is_unused(g) }) {
        recycle(m, gp);
    }
    life::after_finish(sched);
}

/// Puts the record of an ended goroutine, which is no longer used, on the free list of this P.
#[doc(alias = "gfput")]
pub(crate) fn recycle(m: Holder<'_>, gp: NonNull<G>) {
    m.p().with_local(|local| {
        // SAFETY: the record is valid, and a record that is recycled is in no list.
        unsafe { local.free_gs.push_front(gp) };
        if local.free_gs.len() >= policy::FREE_G_MAX {
            pool::spill(&mut local.free_gs, policy::FREE_G_KEEP - 1);
        }
    });
}

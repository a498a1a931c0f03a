//! The loop of an M: find a goroutine, run it, do what it asked for, again.
//!
//! GO: proc.go schedule, execute, park_m, gosched_m, goyield_m, goexit0.

use super::find_runnable::{Next, Slice};
use super::{body, cancel, moves, park};
use crate::coro::stack;
use crate::coro::switch::Switched;
use crate::current;
use crate::gmp::g::{self, Woken};
use crate::gmp::m::{Commit, Request, Seal};
use crate::gmp::{G, M, pool};
use crate::sys::membarrier::light_fence;
use heist_core::run_queue::Slot;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use heist_core::{m_word, policy};
use std::ptr::{NonNull, null_mut};

/// The life of an M: it has been woken for the first time when this is called.
#[doc(alias = "schedule")]
pub(crate) fn run(m: &M) {
    current::set_m(m);
    if matches!(m.sched().first_p(m), super::find_runnable::Found::Retry) {
        serve(m, Whom::Everybody);
    }
    current::set_m(std::ptr::null());
}

/// The life of an M that has a goroutine already and runs nothing else: until that has ended.
pub(crate) fn run_bound(m: &M) {
    current::set_m(m);
    serve(m, Whom::ItsOwn);
    current::set_m(std::ptr::null());
}

/// Whom an M runs.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Whom {
    /// Whoever it finds; while one is bound to it, that one and nobody else.
    Everybody,
    /// The goroutine that is bound to it.
    ItsOwn,
}

fn serve(m: &M, whom: Whom) {
    let sched = m.sched();
    loop {
        let bound = whom == Whom::ItsOwn || !m.bound_g.get().is_null();
        let found = if bound { sched.wait_for_bound(m) } else { sched.find_runnable(m) };
        let Some(next) = found else { return };
        if m.spinning.get() {
            sched.stop_spinning(m);
        }
        // SAFETY: a goroutine that was found is valid.
        let bound_m = unsafe { next.gp.as_ref() }.bound_m.get();
        if bound_m.is_null() || std::ptr::eq(bound_m, m) {
            execute(m, next);
        } else if !sched.keeps_p(m, next.gp) && !sched.lend_p(m, next.gp) {
            return;
        }
    }
}

/// Runs a goroutine until it comes back, and does what it asks for.
fn execute(m: &M, next: Next) {
    let pp = m.p();
    // SAFETY: a goroutine that was found is valid and this M's to run.
    let gp = unsafe { next.gp.as_ref() };
    if !gp.has_started() {
        if !attach_stack(m, next.gp) {
            return;
        }
    // SAFETY: it has started, so it has run, and is this M's to run.
    } else if unsafe { gp.coro.is_of_another_thread(m.thread.get()) } {
        moves::move_here(m, gp);
    }
    gp.status.transition(Status::Runnable, Status::Running);
    if next.slice == Slice::Fresh {
        pp.advance_tick();
    }
    pp.stats.executed.bump();
    if let Some(number) = gp.take_sampled() {
        m.sched().record_latency(m, number);
    }
    loop {
        let special = gp.has_flag(g::IDLE | g::BLOCKS);
        if special {
            before_special(m, gp);
        }
        m.cur.store(next.gp.as_ptr(), Ordering::Relaxed);
        // SAFETY: this is the M, it owns the goroutine, which has a context and is not running.
        let switched = unsafe { gp.coro.resume(NonNull::from(m)) };
        m.cur.store(null_mut(), Ordering::Relaxed);
        if special {
            after_special(m, gp);
        }
        m.word.clear_attention(m_word::PREEMPT | m_word::PART | m_word::MOVED);
        match (switched, m.request.get()) {
            (Switched::Returned, _) => return finish(m, next.gp),
            (Switched::Suspended, Request::Yield) => return requeue(m, next.gp),
            (Switched::Suspended, Request::GiveWay) => return requeue_here(m, next.gp),
            (Switched::Suspended, Request::Park { commit, arg, seal, deadline_ns }) => {
                gp.set_due(deadline_ns);
                // SAFETY: the goroutine asked for it and is off its stack.
                let parked = unsafe { commit_park(m, next.gp, commit, arg, seal) };
                if parked == Parked::Yes {
                    if deadline_ns != NEVER {
                        // It may be awake again, or gone: then the timer finds the wait over.
                        m.sched().add_timer(m, deadline_ns, next.gp);
                    }
                    return;
                }
                // Refused: it goes on at once, on the same slice.
                gp.status.transition(Status::Runnable, Status::Running);
            }
            (Switched::Suspended, Request::Exit) => {
                heist_core::throw!("execute: a goroutine came back without a request");
            }
        }
    }
}

/// What few goroutines need before they run.
#[cold]
fn before_special(m: &M, gp: &G) {
    if gp.has_flag(g::BLOCKS) {
        m.word.call_attention(m_word::PART);
    }
    if gp.has_flag(g::IDLE) {
        m.sched().idle_running.fetch_add(1, Ordering::Relaxed);
    }
}

/// And when they come back.
#[cold]
fn after_special(m: &M, gp: &G) {
    if gp.has_flag(g::IDLE) {
        m.sched().idle_running.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Gives a new goroutine its stack. False if there is no memory for one: then it waits for
/// somebody else's.
fn attach_stack(m: &M, gp: NonNull<G>) -> bool {
    let pp = m.p();
    let sched = m.sched();
    // SAFETY: the goroutine is this M's to run.
    let g = unsafe { gp.as_ref() };
    let habit = sched.block_predictor.of(g.kind());
    if habit.keeps_thread && sched.holds_back(gp) {
        return false;
    }
    let class = sched.stack_class(g);
    // SAFETY: this M holds its P, and no other reference to its data is alive.
    let cache = unsafe { &mut pp.local().stacks };
    let taken = if class == cache.class() { cache.take() } else { stack::take(class) };
    let stack = match taken {
        Ok(stack) => stack,
        Err(error) => match sched.without_stack(gp, class, &error) {
            Some(last) => last,
            None => return false,
        },
    };
    pp.stats.stacks_attached.bump();
    if pp.stats.stacks_attached.get().is_multiple_of(policy::STACK_LOOK_PERIOD) {
        sched.watch_stack(g, &stack);
    }
    if habit.blocks {
        g.set_flag(g::BLOCKS);
    }
    // SAFETY: this M owns the goroutine, which has no context yet.
    unsafe { g.coro.start(stack, m.thread.get(), gp, body::goroutine_main) };
    g.set_started(true);
    true
}

/// Puts a goroutine that yielded at the end of the global queue, of which this P has a part.
fn requeue(m: &M, gp: NonNull<G>) {
    let pp = m.p();
    let sched = m.sched();
    pp.stats.yields.bump();
    // SAFETY: the goroutine just left this M, which still owns it.
    let g = unsafe { gp.as_ref() };
    g.status.transition(Status::Running, Status::Runnable);
    sched.maybe_sample(m, g);
    if g.is_classed() {
        // SAFETY: as above.
        return unsafe { sched.push_by_class(gp) };
    }
    pp.stats.global_put.bump();
    if !g.bound_m.get().is_null() && sched.threads_refused.load(Ordering::Relaxed) != 0 {
        // Its thread may be the only one that can take a P over.
        let mut locked = sched.lock.lock();
        // SAFETY: as above.
        return unsafe { sched.push_stopped(&mut locked, gp) };
    }
    // SAFETY: as above.
    unsafe { pp.yielded.push(gp) };
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    heist_core::sync::fence(Ordering::SeqCst);
    sched.wake_p();
}

/// Puts a goroutine that gave way behind those that wait at this P.
#[doc(alias = "goyield_m")]
fn requeue_here(m: &M, gp: NonNull<G>) {
    m.p().stats.yields.bump();
    // SAFETY: the goroutine just left this M, which still owns it.
    unsafe {
        gp.as_ref().status.transition(Status::Running, Status::Runnable);
        park::push_local(m, gp, Slot::Tail);
    }
    m.sched().wake_p();
}

#[derive(PartialEq, Eq)]
enum Parked {
    Yes,
    No,
}

/// The second half of parking, off the goroutine's stack.
///
/// # Safety
/// `gp` just left this M, and asked to be parked with `commit` and `arg`.
unsafe fn commit_park(m: &M, gp: NonNull<G>, commit: Commit, arg: *mut (), seal: Seal) -> Parked {
    // SAFETY: records are never unmapped. After the commit the goroutine may be anywhere, or gone,
    // and the record may serve another; what is done below then has no effect, because the ticket
    // is of this wait.
    let g = unsafe { gp.as_ref() };
    m.p().parks[g.wait_reason() as usize].bump();
    let is_cancelled = || cancel::forbids_waiting(g);
    if seal == Seal::Sealed {
        let ticket = g.status.begin_sealed_wait();
        // SAFETY: by the caller's promise.
        let committed = unsafe { commit(gp, arg) };
        g.status.unseal(ticket);
        // If it is not claimed here, somebody else woke it already.
        if (committed && !is_cancelled()) || !g.status.claim(ticket) {
            return Parked::Yes;
        }
        if committed {
            g.woken.set(Woken::Cancelled);
        }
        return Parked::No;
    }
    let ticket = g.status.begin_wait(light_fence);
    // Before the commit lets others find the wait: what comes after the cancellation must not serve it.
    // A canceller that comes later sees the wait and claims it.
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

/// A goroutine has left its stack for good.
#[doc(alias = "goexit0")]
fn finish(m: &M, gp: NonNull<G>) {
    let pp = m.p();
    let sched = m.sched();
    // SAFETY: the goroutine ended on this M, which still owns it.
    let g = unsafe { gp.as_ref() };
    // SAFETY: it returned, and its stack was not taken yet.
    let stack = unsafe { g.coro.take_stack() };
    pp.stats.stacks_detached.bump();
    if g.has_flag(g::WATCHED) {
        sched.look_at_stack(g, &stack);
    }
    // SAFETY: this M holds its P, and no other reference to its data is alive.
    let cache = unsafe { &mut pp.local().stacks };
    if g.has_flag(g::STACKLESS) {
        stack::give_last(stack);
    } else if stack.class() == cache.class() {
        if cache.give(stack) {
            sched.helper.ask_to_scavenge();
        }
    } else {
        stack::give(stack);
        sched.helper.ask_to_scavenge();
    }
    super::bound::end(m, g);
    g.status.transition(Status::Running, Status::Dead);
    // A reader that counts its end has to count its beginning, on whatever P that was.
    pp.stats.finished.bump_last();
    if g.join.release_runtime() {
        recycle(m, gp);
    }
    sched.after_finish();
}

/// Keeps the record of a goroutine that everybody is done with.
#[doc(alias = "gfput")]
pub(crate) fn recycle(m: &M, gp: NonNull<G>) {
    // SAFETY: this M holds its P, and no other reference to its data is alive.
    let free = unsafe { &mut m.p().local().free_gs };
    // SAFETY: the record is valid, and being recycled it is in no list.
    unsafe { free.push_front(gp) };
    if free.len() >= policy::FREE_G_MAX {
        pool::spill(free, policy::FREE_G_KEEP - 1);
    }
}

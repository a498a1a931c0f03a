//! The main function of every goroutine, on its own stack.
//!
//! The function runs the closure, catches what unwinds out of it, and hands the outcome to the
//! handle. For the M word all of this is user code: the goroutine may allocate, be preempted and be
//! moved.

mod task;

use super::shutdown;
use crate::current::{self, InRuntime};
use crate::gmp::flags::Flag;
use crate::gmp::g::{Extras, Outcome, Vtable};
use crate::gmp::{G, M};
use crate::sched::futures::waker;
use crate::sched::life::cancel::{Ending, Shield, Why};
use crate::sched::threads::bound;
use crate::sched::waiter::Waiter;
use crate::sched::{PanicPolicy, Sched, forks};
use crate::sys::stderr;
use crate::trace::emit;
use heist_core::join::Finished;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Runs a goroutine from beginning to end, or one poll of a task.
pub(crate) fn goroutine_main(m: NonNull<M>, gp: NonNull<G>) {
    // SAFETY: `m` switched here and is in the runtime; leaving it is the drop of this evidence.
    let rt = unsafe { InRuntime::from_switch(m) };
    // SAFETY: records are never unmapped, and this one is this goroutine's.
    let g = unsafe { gp.as_ref() };
    let rt = if g.flags.began_with(Flag::TASK | Flag::PINNED) {
        match begin_special(rt, g) {
            Some(rt) => rt,
            None => return,
        }
    } else {
        rt
    };
    // SAFETY: extras live as long as the goroutine.
    if unsafe { g.extras.get().as_ref() }.is_some_and(|extras| extras.os_thread) {
        bound::lock(rt.m(), g);
    }
    drop(rt);
    let outcome = run_closure(g);
    g.outcome.set(outcome);
    // This comes before the handle can take the outcome away.
    if outcome == Outcome::Panicked {
        on_panic(g);
    }
    tell_handle(g);
    // The extras go last: the size of the stack is in them.
    drop_extras(g);
    forks::end(g);
    // The return goes back to the scheduler, which expects the M in the runtime.
    if let Some(rt) = current::enter() {
        rt.m().request.set(crate::gmp::m::Request::Exit);
        if g.flags.began_with(Flag::PINNED) {
            bound::unbind(rt.m(), g);
        }
        let _ = rt.into_m();
    }
}

/// Runs one poll of a task, and returns None in the runtime; or binds a goroutine that stays on its
/// thread.
#[cold]
#[inline(never)]
fn begin_special(rt: InRuntime, g: &G) -> Option<InRuntime> {
    let pinned = g.flags.began_with(Flag::PINNED);
    if pinned {
        bound::bind(rt.m(), g);
    }
    if !g.flags.began_with(Flag::TASK) {
        return Some(rt);
    }
    task::run(rt, g);
    if pinned {
        // SAFETY: the M of the calling thread is alive. It is in the runtime, and is the one from
        // above, which a bound goroutine cannot leave.
        bound::unbind(unsafe { &*current::m() }, g);
    }
    None
}

/// Tells the handle that the outcome is there.
#[inline(always)]
pub(super) fn tell_handle(g: &G) {
    match g.join.finish() {
        Finished::Published => {}
        Finished::Unwanted => discard(g),
        Finished::Wake(waker::JOINS) => wake_joiner(g),
        Finished::Wake(waiter) => {
            let rt = current::enter();
            // SAFETY: the address was left by a waiter that waits until it is woken.
            unsafe { Waiter::joiner_of(g, waiter).wake(rt.as_ref()) };
        }
    }
}

/// Wakes the future that joins. Its waker may be the user's: it may wait, and panic.
#[cold]
#[inline(never)]
fn wake_joiner(g: &G) {
    let _shield = Shield::raise(g);
    if let Err(payload) = catch_unwind(AssertUnwindSafe(|| waker::wake_joiner(g))) {
        on_loud_end(g, payload);
    }
}

/// Ends an unborn goroutine, which the caller, of the same runtime, has claimed. Its closure never
/// runs. Called in user code.
pub(crate) fn end_unborn(g: &G) {
    drop_closure(g, vtable_of(g));
    drop_extras(g);
    g.flags.clear(Flag::UNBORN);
    g.outcome.set(Outcome::Cancelled);
    // SAFETY: a goroutine's runtime outlives it, and the caller's lives on.
    let sched = unsafe { &*g.sched.get() };
    let rt = current::enter();
    emit::go_drop(&sched.recorder, g);
    drop(rt);
    g.status.transition(Status::Runnable, Status::Running);
    g.status.transition(Status::Running, Status::Dead);
    if g.join.finish() != Finished::Published || g.join.release_runtime() {
        heist_core::throw!("end_unborn: the goroutine has lost its handle");
    }
    let rt = current::enter();
    // ORDERING: Release pairs with the Acquire in `shutdown::wait_for_the_last`.
    sched.life.unborn.fetch_sub(1, Ordering::Release);
    shutdown::after_finish(sched);
    drop(rt);
}

#[inline(always)]
pub(super) fn vtable_of(g: &G) -> &'static Vtable {
    // SAFETY: the pointer is null, or was made from a `&'static Vtable`.
    let Some(vtable) = (unsafe { g.vtable.get().as_ref() }) else {
        heist_core::throw!("goroutine_main: a goroutine without a closure");
    };
    vtable
}

pub(super) fn drop_closure(g: &G, vtable: &Vtable) {
    // SAFETY: a goroutine runs its closure once, or drops it once.
    let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (vtable.drop_closure)(g) }));
    if let Err(payload) = dropped {
        on_loud_end(g, payload);
    }
}

/// Handles a panic at the end of a goroutine: of a destructor of what it owned, or of the waker of
/// its joiner. No handle can receive it.
#[cold]
fn on_loud_end(g: &G, payload: Box<dyn Any + Send>) {
    // The ending of the caller is no panic. It resumes at the next park.
    if !payload.is::<Ending>() {
        abort_if_asked(g, &*payload);
    }
    // The panic hook has reported it. The payload is leaked, because dropping it could panic again.
    std::mem::forget(payload);
}

fn run_closure(g: &G) -> Outcome {
    let vtable = vtable_of(g);
    if g.flags.has(Flag::CANCELLED | Flag::STACKLESS) {
        // The destructors of the closure may wait, as those of a goroutine that is unwound.
        let _shield = Shield::raise(g);
        drop_closure(g, vtable);
        return if g.is_cancelled() { Outcome::Cancelled } else { Outcome::NoStack };
    }
    // The call goes through a pointer, so the compiler knows nothing of the callee, and this frame
    // can always be unwound into.
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a goroutine runs its closure once, or drops it once.
        unsafe { (vtable.run)(g) };
    }));
    match result {
        Ok(()) if g.flags.has(Flag::EXITING) => {
            // The goroutine caught its own ending, kept it from being dropped, and returned.
            g.outcome.set(Outcome::Returned);
            discard(g);
            if g.is_cancelled() { Outcome::Cancelled } else { Outcome::Exited }
        }
        Ok(()) => Outcome::Returned,
        Err(payload) => match payload.downcast::<Ending>() {
            Ok(ending) => match ending.disarm() {
                Why::Cancelled => Outcome::Cancelled,
                Why::Exited => Outcome::Exited,
            },
            Err(payload) => {
                // SAFETY: the closure is gone and there is no result, so the payload is unused; a
                // box of two words fits into it.
                unsafe { g.payload.as_ptr::<Box<dyn Any + Send>>().write(payload) };
                Outcome::Panicked
            }
        },
    }
}

/// Drops a result that no handle will take.
#[inline]
pub(super) fn discard(g: &G) {
    let _shield = g.flags.has(Flag::CANCELLED | Flag::EXITING).then(|| Shield::raise(g));
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the outcome says what the payload holds, and no thread takes it after this.
        unsafe {
            match g.outcome.get() {
                Outcome::Returned => {
                    (vtable_of(g).drop_result)(g);
                }
                Outcome::Panicked => g.payload.as_ptr::<Box<dyn Any + Send>>().drop_in_place(),
                _ => {}
            }
        }
    }));
    if let Err(payload) = dropped {
        on_loud_end(g, payload);
    }
}

/// Drops the record's share of the extras.
#[inline(always)]
pub(super) fn drop_extras(g: &G) {
    if !g.extras.get().is_null() {
        take_extras(g);
    }
}

#[inline(never)]
fn take_extras(g: &G) {
    let extras: *const Extras = {
        // A thread must not be preempted while it holds the pool.
        let _rt = current::enter();
        g.extras.take()
    };
    if !extras.is_null() {
        // SAFETY: the record owned one share, from `Arc::into_raw`.
        drop(unsafe { Arc::from_raw(extras) });
    }
}

pub(super) fn on_panic(g: &G) {
    sched_of(g).stats.panicked.add_shared(1);
    // SAFETY: the outcome is Panicked, so the payload holds the box.
    abort_if_asked(g, unsafe { &**g.payload.as_ptr::<Box<dyn Any + Send>>() });
}

/// Ends the process because of an uncaught panic, if the runtime was built with
/// `PanicPolicy::Abort`.
fn abort_if_asked(g: &G, payload: &(dyn Any + Send)) {
    if sched_of(g).config.on_panic != PanicPolicy::Abort {
        return;
    }
    let message = crate::panic_report::message(payload);
    let id = g.id.get();
    stderr::report(format_args!("panic: {message}\n\ngoroutine {id} [running]:\n"));
    match (g.spawn_site(), g.parent_id.get()) {
        (Some(site), 0) => {
            stderr::report(format_args!("created outside the runtime at {site}\n"));
        }
        (Some(site), parent) => {
            stderr::report(format_args!("created by goroutine {parent} at {site}\n"));
        }
        (None, _) => {}
    }
    stderr::exit_now(2);
}

fn sched_of(g: &G) -> &Sched {
    // SAFETY: a goroutine's runtime outlives it.
    unsafe { &*g.sched.get() }
}

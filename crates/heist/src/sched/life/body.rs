//! The main function of every goroutine, on its own stack.
//!
//! It runs the closure, catches whatever comes out, and hands the outcome to the handle. All of
//! this is user code in the sense of the M word: it may allocate, be stopped and be moved.

use super::shutdown;
use crate::current::{self, InRuntime};
use crate::gmp::flags::Flag;
use crate::gmp::g::{Extras, Outcome, Vtable};
use crate::gmp::{G, M};
use crate::sched::life::cancel::{Ending, Shield, Why};
use crate::sched::threads::bound;
use crate::sched::waiter::Waiter;
use crate::sched::{PanicPolicy, Sched};
use crate::sys::stderr;
use heist_core::join::Finished;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::NonNull;
use std::sync::Arc;

/// Runs a goroutine from beginning to end.
pub(crate) fn goroutine_main(m: NonNull<M>, gp: NonNull<G>) {
    // SAFETY: `m` switched here and is in the runtime; leaving it is the drop of this evidence.
    let rt = unsafe { InRuntime::from_switch(m) };
    // SAFETY: records are never unmapped, and this one is this goroutine's.
    let g = unsafe { gp.as_ref() };
    // SAFETY: extras live as long as the goroutine.
    if unsafe { g.extras.get().as_ref() }.is_some_and(|extras| extras.os_thread) {
        bound::lock(rt.m(), g);
    }
    drop(rt);
    let outcome = run_closure(g);
    g.outcome.set(outcome);
    // Before anybody can take the outcome away.
    if outcome == Outcome::Panicked {
        on_panic(g);
    }
    match g.join.finish() {
        Finished::Published => {}
        Finished::Unwanted => discard(g),
        Finished::Wake(waiter) => {
            let rt = current::enter();
            // SAFETY: the address was left by a waiter that waits until it is woken.
            unsafe { Waiter::joiner_of(g, waiter).wake(rt.as_ref()) };
        }
    }
    // Last: until then the size of the stack is in there.
    drop_extras(g);
    // Back to the scheduler, in the runtime.
    if let Some(rt) = current::enter() {
        rt.m().request.set(crate::gmp::m::Request::Exit);
        let _ = rt.into_m();
    }
}

/// Ends a goroutine that was to begin later, and that the caller, of the same runtime, has claimed: it
/// never runs. In user code.
pub(crate) fn end_unborn(g: &G) {
    drop_closure(g, vtable_of(g));
    drop_extras(g);
    g.flags.clear(Flag::UNBORN);
    g.outcome.set(Outcome::Cancelled);
    g.status.transition(Status::Runnable, Status::Running);
    g.status.transition(Status::Running, Status::Dead);
    // SAFETY: a goroutine's runtime outlives it, and the caller's lives on.
    let sched = unsafe { &*g.sched.get() };
    if g.join.finish() != Finished::Published || g.join.release_runtime() {
        heist_core::throw!("end_unborn: the goroutine has lost its handle");
    }
    let rt = current::enter();
    // ORDERING: Release pairs with the closer's look.
    sched.life.unborn.fetch_sub(1, Ordering::Release);
    shutdown::after_finish(sched);
    drop(rt);
}

fn vtable_of(g: &G) -> &'static Vtable {
    // SAFETY: null, or one of those that the compiler made.
    let Some(vtable) = (unsafe { g.vtable.get().as_ref() }) else {
        heist_core::throw!("goroutine_main: a goroutine without a closure");
    };
    vtable
}

fn drop_closure(g: &G, vtable: &Vtable) {
    // SAFETY: a goroutine runs its closure once, or drops it once.
    let dropped = catch_unwind(AssertUnwindSafe(|| unsafe { (vtable.drop_closure)(g) }));
    if let Err(payload) = dropped {
        on_loud_drop(g, payload);
    }
}

/// A destructor of what the goroutine owned has panicked, and nobody can be told.
#[cold]
fn on_loud_drop(g: &G, payload: Box<dyn Any + Send>) {
    // The caller's end is no panic. It goes on at the next park.
    if !payload.is::<Ending>() {
        abort_if_asked(g, &*payload);
    }
    // The hook has reported it; a payload whose drop panics again is leaked.
    std::mem::forget(payload);
}

fn run_closure(g: &G) -> Outcome {
    let vtable = vtable_of(g);
    if g.flags.has(Flag::CANCELLED | Flag::STACKLESS) {
        // Its destructors may wait, as those of a goroutine that is unwound.
        let _shield = Shield::raise(g);
        drop_closure(g, vtable);
        return if g.is_cancelled() { Outcome::Cancelled } else { Outcome::NoStack };
    }
    // Through a pointer the compiler knows nothing of the callee, so this frame can always be
    // unwound into.
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: a goroutine runs its closure once, or drops it once.
        unsafe { (vtable.run)(g) };
    }));
    match result {
        Ok(()) if g.flags.has(Flag::EXITING) => {
            // It caught its own ending, kept it from being dropped, and returned.
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
                // SAFETY: the closure is gone and there is no result, so the payload is free; a
                // box of two words fits.
                unsafe { g.payload.as_ptr::<Box<dyn Any + Send>>().write(payload) };
                Outcome::Panicked
            }
        },
    }
}

/// Drops a result that nobody will take.
fn discard(g: &G) {
    let _shield = g.flags.has(Flag::CANCELLED | Flag::EXITING).then(|| Shield::raise(g));
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the outcome says what the payload holds, and nobody takes it after this.
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
        on_loud_drop(g, payload);
    }
}

/// Gives the record's share of the extras back.
fn drop_extras(g: &G) {
    let extras: *const Extras = g.extras.replace(std::ptr::null());
    if !extras.is_null() {
        // SAFETY: the record owned one share, from `Arc::into_raw`.
        drop(unsafe { Arc::from_raw(extras) });
    }
}

fn on_panic(g: &G) {
    sched_of(g).stats.panicked.add_shared(1);
    // SAFETY: the outcome is Panicked, so the payload holds the box.
    abort_if_asked(g, unsafe { &**g.payload.as_ptr::<Box<dyn Any + Send>>() });
}

/// Ends the process for a panic that nobody caught, if it was built that way.
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

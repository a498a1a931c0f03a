//! A run of a task, on the stack of one poll.
//!
//! As for a goroutine, all of this is user code for the M word: a poll may allocate, be preempted,
//! block, and wait as any goroutine does. Then it keeps its stack until it returns.

use super::{discard, drop_closure, drop_extras, on_panic, tell_handle, vtable_of};
use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::g::Outcome;
use crate::gmp::m::Request;
use crate::sched::forks;
use crate::sched::life::cancel::{Ending, Shield, Why};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Polls a task once. If that ends it, hands the outcome over. Returns in the runtime.
pub(super) fn run(rt: InRuntime, g: &G) {
    // SAFETY: the record of a task that has not ended.
    let word = unsafe { g.task_word() };
    word.start();
    drop(rt);
    let ended = poll(g);
    if let Some(outcome) = ended {
        g.outcome.set(outcome);
        word.finish();
        // This comes before the handle can take the outcome away.
        if outcome == Outcome::Panicked {
            on_panic(g);
        }
        tell_handle(g);
        drop_extras(g);
    }
    forks::end(g);
    // The return goes back to the scheduler, which expects the M in the runtime.
    if let Some(rt) = current::enter() {
        rt.m().request.set(if ended.is_some() { Request::Exit } else { Request::Pend });
        let _ = rt.into_m();
    }
}

/// Polls the future, or drops it if the task was cancelled. None: it is pending.
fn poll(g: &G) -> Option<Outcome> {
    let vtable = vtable_of(g);
    if g.flags.has(Flag::CANCELLED | Flag::STACKLESS) {
        // The destructors of the future may wait, as those of a goroutine that is unwound.
        let _shield = Shield::raise(g);
        drop_closure(g, vtable);
        return Some(if g.is_cancelled() { Outcome::Cancelled } else { Outcome::NoStack });
    }
    let result = catch_unwind(AssertUnwindSafe(|| {
        // SAFETY: the future is there, and only this M uses it.
        unsafe { (vtable.run)(g) };
    }));
    // The poll sets it before it drops the future.
    let is_over = g.outcome.get() == Outcome::Returned;
    match result {
        Ok(()) if g.flags.has(Flag::EXITING) => {
            // The poll caught its own ending, kept it from being dropped, and returned.
            let _shield = Shield::raise(g);
            if is_over {
                discard(g)
            } else {
                drop_closure(g, vtable)
            }
            Some(if g.is_cancelled() { Outcome::Cancelled } else { Outcome::Exited })
        }
        Ok(()) => is_over.then_some(Outcome::Returned),
        Err(payload) => {
            let payload = payload.downcast::<Ending>();
            if !is_over {
                let _shield = payload.is_ok().then(|| Shield::raise(g));
                drop_closure(g, vtable);
            }
            Some(match payload {
                Ok(ending) => match ending.disarm() {
                    Why::Cancelled => Outcome::Cancelled,
                    Why::Exited => Outcome::Exited,
                },
                Err(payload) => {
                    // SAFETY: the future is gone and there is no result, so the room is unused; a
                    // box of two words fits into it.
                    unsafe { g.payload.as_ptr::<Box<dyn Any + Send>>().write(payload) };
                    Outcome::Panicked
                }
            })
        }
    }
}

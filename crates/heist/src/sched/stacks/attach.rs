//! The stack that a goroutine begins on.

use super::stackless;
use crate::coro::stack::{Class, Stack};
use crate::gmp::flags::Flag;
use crate::gmp::{G, Holder};
use crate::sched::life::body;
use crate::sched::{Sched, threads};
use heist_core::policy;
use std::ptr::NonNull;

/// The stack class of a goroutine.
fn stack_class(sched: &Sched, gp: &G) -> Class {
    // SAFETY: extras live as long as the goroutine, which the caller holds.
    let extras = unsafe { gp.extras.get().as_ref() };
    match extras.and_then(|extras| extras.stack) {
        Some(chosen) => chosen,
        None => sched.config.stack.larger(sched.stacks.needs.steps(gp.kind())),
    }
}

/// Gives a new goroutine its stack. False if it does not start now: there is no memory for a stack,
/// and it waits for one that another goroutine leaves, or it is held back because threads are
/// scarce.
pub(crate) fn attach_stack(m: Holder<'_>, gp: NonNull<G>) -> bool {
    let pp = m.p();
    let sched = m.sched();
    // SAFETY: the goroutine is this M's to run.
    let g = unsafe { gp.as_ref() };
    let predicted = sched.stall.predictor().of(g.kind());
    if predicted.keeps_thread && threads::holds_back(sched, gp) {
        return false;
    }
    let class = stack_class(sched, g);
    let taken = pp.with_local(|local| local.stacks.take(class));
    let stack = match taken {
        Ok(stack) => {
            // The goroutine was to end without having run, but then another one ended and left a
            // stack.
            if g.flags.has(Flag::STACKLESS) {
                g.flags.clear(Flag::STACKLESS);
            }
            if sched.stacks.n_waiting() != 0 {
                stackless::hand_on(sched);
            }
            stack
        }
        Err(error) => match stackless::without_stack(sched, gp, class, &error) {
            Some(last) => last,
            None => return false,
        },
    };
    pp.stats.stacks_attached.bump();
    if pp.stats.stacks_attached.get().is_multiple_of(policy::STACK_LOOK_PERIOD) {
        watch_stack(g, &stack);
    }
    if predicted.blocks {
        g.flags.set(Flag::BLOCKS);
    }
    // SAFETY: this M owns the goroutine, which has no context yet.
    unsafe { g.coro.start(stack, m.thread.get(), gp, body::goroutine_main) };
    g.set_started(true);
    true
}

/// Prepares a goroutine that is about to begin on `stack` for a look at the stack when it ends,
/// unless the size was chosen.
#[cold]
fn watch_stack(gp: &G, stack: &Stack) {
    // SAFETY: extras live as long as the goroutine.
    let extras = unsafe { gp.extras.get().as_ref() };
    if extras.is_none_or(|extras| extras.stack.is_none()) {
        stack.take_mark();
        gp.flags.set(Flag::WATCHED);
    }
}

/// Looks at the stack of a goroutine that has ended. If it came near the end of the stack, the next
/// goroutines of its kind get a larger one.
#[cold]
pub(crate) fn look_at_stack(sched: &Sched, gp: &G, stack: &Stack) {
    if stack.take_mark() {
        sched.stacks.needs.came_near(gp.kind(), stack.class().steps_above(sched.config.stack));
    }
}

//! Goroutines for whose stacks the system has no memory.
//!
//! Such a goroutine waits until another one ends and leaves its stack ([`wait_for_stack`]). If none
//! can end any more, because all of them wait, the stack never comes. Then the goroutines without
//! one end, one after the other, with an error for the joiner: the closure is dropped on a stack
//! that is kept for this.
//!
//! # When they try again
//! Only one goroutine at a time tries again. An attempt in vain asks the kernel, and thousands of
//! them would keep the Ps so busy that the helper would never see that the wait is hopeless. The
//! helper lets one try at every look; one that gets a stack lets the next one try ([`hand_on`]),
//! and so does a goroutine that ends and leaves its stack.
//!
//! # When the wait is hopeless
//! Every P is idle, no goroutine runs, none waits for the clock or for the network, and all of that
//! holds for [`ROUNDS`] looks of the helper in a row. A thread that is not the runtime's could
//! still wake a goroutine; it has that long to do so.

use crate::coro::stack::{Class, Stack};
use crate::coro::stack_pool;
use crate::current;
use crate::gmp::flags::Flag;
use crate::gmp::{G, pool};
use crate::sched::Sched;
use crate::sched::{outside, rest, run, stall};
use crate::sys::degraded::{Lack, Plain};
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// How many looks of the helper, 10 ms apart, must find that nothing happens in the runtime.
const ROUNDS: u32 = 30;

/// The state that the helper keeps about goroutines without stacks.
#[derive(Debug, Default)]
pub(crate) struct Patience {
    hopeless_rounds: u32,
    /// How many goroutines end at the next look if the wait is still hopeless: twice as many each
    /// time.
    n_ending: u32,
}

/// Handles a new goroutine for which there is no stack. It waits for one, or gets the last stack to
/// end on.
#[cold]
pub(super) fn without_stack(
    sched: &Sched,
    gp: NonNull<G>,
    class: Class,
    error: &std::io::Error,
) -> Option<Stack> {
    Lack::Stack.missed(format_args!(
        "the system refuses memory for a stack of {} KiB ({}); goroutines wait until others end",
        class.bytes() / 1024,
        Plain(error)
    ));
    // SAFETY: the goroutine is the caller's to run.
    let g = unsafe { gp.as_ref() };
    let last = g.flags.has(Flag::STACKLESS).then(stack_pool::take_last).flatten();
    if last.is_some() {
        Lack::Goroutine.missed(format_args!(
            "goroutine {} ends without having run: the system has no memory for its stack, and no \
             other goroutine can end; raise `ulimit -v` or make stacks smaller",
            g.id.get()
        ));
    } else {
        wait_for_stack(sched, gp);
    }
    last
}

/// Lets goroutines that wait for stacks end, if the wait is hopeless. For the helper, which calls
/// this at every look as long as a goroutine waits.
pub(crate) fn end_hopeless(sched: &Sched, patience: &mut Patience) {
    if !is_hopeless(sched) {
        *patience = Patience::default();
        return;
    }
    patience.hopeless_rounds += 1;
    if patience.hopeless_rounds <= ROUNDS {
        return;
    }
    // If that frees no stack, more goroutines end at the next look.
    patience.hopeless_rounds = ROUNDS;
    patience.n_ending = (2 * patience.n_ending).max(1);
    let locked = sched.lock.lock();
    // The goroutines behind the first one follow when it has ended.
    for g in locked.stackless.waiting.iter().take(patience.n_ending as usize) {
        g.flags.set(Flag::STACKLESS);
    }
}

fn is_hopeless(sched: &Sched) -> bool {
    if sched.rest.idle().count_all() != sched.procs()
        || sched.outside.has_waiters()
        || outside::earliest_timer(sched) != NEVER
    {
        return false;
    }
    let mut n_runnable = 0;
    let mut n_running = 0;
    pool::for_each(|gp| {
        if sched.is_mine(gp) {
            n_running += u32::from(gp.status.get() == Status::Running);
            n_runnable += u32::from(gp.status.get() == Status::Runnable);
        }
    });
    n_running == 0 && n_runnable == sched.stacks.n_stackless.load(Ordering::Relaxed)
}

/// Keeps a goroutine that found no memory for a stack until one is free.
#[cold]
fn wait_for_stack(sched: &Sched, gp: NonNull<G>) {
    let mut locked = sched.lock.lock();
    // SAFETY: runnable and just taken out of a queue.
    unsafe { locked.stackless.waiting.push_back(gp) };
    sched.stacks.n_stackless.store(locked.stackless.waiting.len(), Ordering::Relaxed);
    drop(locked);
    // The last stack may have become free before the goroutine was in the list, or may be kept by
    // an idle P: the helper looks after it.
    sched.threads.helper().ask();
}

/// Gives the unused stacks of the caller's P to all Ps: the goroutine that waits for one may run on
/// any of them.
#[cold]
pub(crate) fn release_stacks() {
    // SAFETY: the M of the calling thread is alive.
    if let Some(m) = unsafe { current::m().as_ref() }
        && m.has_p()
    {
        // SAFETY: in the runtime, so this M holds its P; the reference ends at once.
        unsafe { m.p().local() }.stacks.spill(0);
    }
}

/// Lets one goroutine that waits for a stack start, because one is free.
#[cold]
pub(crate) fn retry_stackless(sched: &Sched) {
    let mut locked = sched.lock.lock();
    if let Some(gp) = locked.stackless.waiting.pop_front() {
        sched.stacks.n_stackless.store(locked.stackless.waiting.len(), Ordering::Relaxed);
        // SAFETY: runnable and just taken out of its list.
        unsafe { run::push_locked(sched, &mut locked, gp) };
    }
}

/// Lets the next goroutine that waits for a stack try again, after a new goroutine has got one:
/// there may be more.
#[cold]
pub(super) fn hand_on(sched: &Sched) {
    release_stacks();
    try_next(sched);
}

/// Collects the stacks that idle Ps keep for themselves, and lets one goroutine that waits for a
/// stack try again. For the helper.
#[cold]
pub(crate) fn collect_stacks(sched: &Sched) {
    for pp in sched.all_ps() {
        if sched.lock.lock().idle_ps.take_this(sched.rest.idle(), pp.id) {
            // SAFETY: off the idle stack and without an M, the P is this thread's.
            unsafe { pp.local() }.stacks.spill(0);
            stall::handoff_p(sched, pp);
        }
    }
    try_next(sched);
}

/// Lets one goroutine that waits for a stack try again, on any P.
fn try_next(sched: &Sched) {
    retry_stackless(sched);
    rest::announce_work(sched);
}

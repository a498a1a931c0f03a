//! Goroutines for whose stacks the system has no memory.
//!
//! They wait until another goroutine ends and leaves its stack (`Sched::wait_for_stack`). If none can end any
//! more, because all of them wait, the stack never comes. Then those without one end, one after the other,
//! with an error for whoever joins them: the closure is dropped on a stack that is kept for this.
//!
//! # When it is hopeless
//! Every P rests, no goroutine runs, none waits for the clock or for the network, and that for [`ROUNDS`]
//! looks of the helper in a row. A thread that is not the runtime's could still wake somebody; it has as long
//! to do it.

use super::Sched;
use crate::coro::stack::{self, Class, Stack};
use crate::gmp::{G, g, pool};
use crate::sys::degraded::{Lack, Plain};
use heist_core::status::Status;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// Looks of the helper, 10 ms apart, at a runtime in which nothing happens.
const ROUNDS: u32 = 30;

/// What the helper remembers of goroutines without stacks.
#[derive(Debug, Default)]
pub(super) struct Patience {
    hopeless_rounds: u32,
}

impl Sched {
    /// No stack could be had for a new goroutine: it waits for one, or gets the last one to end on.
    #[cold]
    pub(super) fn without_stack(
        &self,
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
        let last = unsafe { gp.as_ref() }.has_flag(g::STACKLESS).then(stack::take_last).flatten();
        if last.is_none() {
            self.wait_for_stack(gp);
        }
        last
    }

    /// Lets one of those that wait for stacks end, if there is no hope for it. For the helper, which calls
    /// this at every look as long as somebody waits.
    pub(super) fn end_hopeless(&self, patience: &mut Patience) {
        if !self.is_hopeless() {
            patience.hopeless_rounds = 0;
            return;
        }
        patience.hopeless_rounds += 1;
        if patience.hopeless_rounds <= ROUNDS {
            return;
        }
        // If that brings no stack, the next one ends at the next look.
        patience.hopeless_rounds = ROUNDS;
        let locked = self.lock.lock();
        if let Some(gp) = locked.stackless.front() {
            // SAFETY: it is in the list, so it is valid and has not begun.
            let g = unsafe { gp.as_ref() };
            g.set_flag(g::STACKLESS);
            Lack::Goroutine.missed(format_args!(
                "goroutine {} ends without having run: the system has no memory for its stack, and no other \
                 goroutine can end; raise `ulimit -v` or make stacks smaller",
                g.id.get()
            ));
        }
    }

    fn is_hopeless(&self) -> bool {
        if self.idle.count_all() != self.procs()
            || self.poll.has_waiters()
            || self.earliest_timer() != NEVER
        {
            return false;
        }
        let mut n_runnable = 0;
        let mut n_running = 0;
        pool::for_each(|gp| {
            if self.is_mine(gp) {
                n_running += u32::from(gp.status.get() == Status::Running);
                n_runnable += u32::from(gp.status.get() == Status::Runnable);
            }
        });
        n_running == 0 && n_runnable == self.n_stackless.load(Ordering::Relaxed)
    }
}

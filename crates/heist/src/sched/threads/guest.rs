//! Guests: plain threads that become an M for the time of one goroutine.
//!
//! The goroutine is bound to the thread from the beginning, so the thread runs nothing else. When
//! the goroutine has ended, the thread is a plain one again. It is not among the threads that the
//! runtime counts and limits. The search for a deadlock counts it as a thread that waits in `run`,
//! which it would be otherwise.

use crate::gmp::M;
use crate::sched::Sched;
use crate::sched::run;
use crate::sys::alt_stack::AltStack;
use crate::sys::registers;
use crate::sys::signal::Unblocked;
use crate::sys::thread;
use std::ptr::NonNull;
use std::sync::Arc;

/// The record of a thread that is not the runtime's.
pub(crate) struct Guest<'a> {
    sched: &'a Sched,
    m: NonNull<M>,
    /// Lets the goroutine be preempted, even if the thread blocks all signals otherwise.
    unblocked: Unblocked,
    /// Dropped when the thread is plain again.
    _alt_stack: AltStack,
}

impl<'a> Guest<'a> {
    /// Makes a record for the calling thread, which is a plain one. Fails if there is no memory for
    /// its signal stack or for the record.
    pub(crate) fn new(sched: &'a Sched) -> std::io::Result<Self> {
        let alt_stack = AltStack::install()?;
        let free = sched.lock.lock().roster.free_guests.pop();
        let m = match free {
            Some(m) => m,
            None => sched.threads.all_ms.add(M::new(
                NonNull::from(sched),
                Arc::clone(&sched.recorder),
                sched.threads.all_ms.next_id(),
            ))?,
        };
        let unblocked = Unblocked::new();
        let guest = Self { sched, m, unblocked, _alt_stack: alt_stack };
        guest.m().reset();
        guest.m().set_tid(thread::id());
        guest.m().thread.set(registers::thread_pointer());
        guest.m().blocked.set(unblocked.rest);
        Ok(guest)
    }

    /// The record of the thread.
    pub(crate) const fn m(&self) -> &M {
        // SAFETY: records live as long as the runtime.
        unsafe { self.m.as_ref() }
    }

    /// Runs the goroutine that was bound to this M until it has ended.
    pub(crate) fn run(&self) {
        let unwinding = super::begin::NoUnwinding;
        run::run_bound(self.m());
        std::mem::forget(unwinding);
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.unblocked.restore();
        let mut locked = self.sched.lock.lock();
        // SAFETY: the record lives as long as the runtime, and is in no other list.
        unsafe { locked.roster.free_guests.push(self.m) };
    }
}

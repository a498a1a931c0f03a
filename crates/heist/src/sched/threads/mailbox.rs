//! How others reach the helper thread.

use crate::sys::futex::Kernel;
use crate::sys::registers;
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Somebody needs an M, or the runtime stops.
pub(super) const WORK: u32 = 1;
/// Stacks went to the pool that may not be needed for a while.
pub(super) const SCAVENGE: u32 = 2;
/// There should be an M at hand that has nothing to do.
pub(super) const SPARE: u32 = 4;

/// The default number of Ps may have changed.
pub(super) const PROCS: u32 = 8;
/// A thread that was made could not begin.
pub(super) const REFUSED: u32 = 16;

/// How others reach the helper.
pub(crate) struct Mailbox {
    asked: AtomicU32,
    /// The thread that stops the runtime.
    closer: AtomicUsize,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { asked: AtomicU32::new(0), closer: AtomicUsize::new(0) }
    }

    /// Says who stops the runtime, before that is stopped. It may be a thread that was an M of it: then the
    /// destructor of a thread-local does it, and nobody is to wait for the thread.
    pub(in crate::sched) fn set_closer(&self) {
        // The phase orders it.
        self.closer.store(registers::thread_pointer(), Ordering::Relaxed);
    }

    /// The thread pointer of the thread that stops the runtime.
    pub(super) fn closer(&self) -> usize {
        self.closer.load(Ordering::Relaxed)
    }

    /// Asks for a look at the orphans or at the phase.
    pub(crate) fn ask(&self) {
        self.post(WORK);
    }

    /// Says that there are stacks to give back some time. Cheap if that is known already.
    #[inline]
    pub(crate) fn ask_to_scavenge(&self) {
        if self.asked.load(Ordering::Relaxed) & SCAVENGE == 0 {
            self.post(SCAVENGE);
        }
    }

    /// Asks for an M to be made in advance.
    pub(crate) fn ask_for_spare(&self) {
        self.post(SPARE);
    }

    /// Asks for a look at the default number of Ps.
    pub(crate) fn ask_about_procs(&self) {
        self.post(PROCS);
    }

    /// Says that a thread that was made could not begin.
    pub(super) fn refuse(&self) {
        self.post(REFUSED);
    }

    fn post(&self, what: u32) {
        // ORDERING: AcqRel pairs with `take`: the helper sees what was written before.
        if self.asked.fetch_or(what, Ordering::AcqRel) & what == 0 {
            Kernel.wake(&self.asked);
        }
    }

    /// Sleeps until WORK is asked for, or SCAVENGE unless `scavenging`, or until `timeout`.
    pub(super) fn wait(&self, scavenging: bool, timeout: Option<Duration>) -> u32 {
        let until = timeout.map(|timeout| Instant::now() + timeout);
        let known = if scavenging { SCAVENGE } else { 0 };
        loop {
            // ORDERING: see `post`.
            let asked = self.asked.fetch_and(SCAVENGE, Ordering::AcqRel);
            if asked & !known != 0 {
                return asked;
            }
            let left = match until {
                None => None,
                Some(until) => match until.checked_duration_since(Instant::now()) {
                    Some(left) if !left.is_zero() => Some(left),
                    _ => return asked,
                },
            };
            Kernel.wait(&self.asked, asked, left);
        }
    }

    pub(super) fn scavenged(&self) {
        // ORDERING: see `post`.
        self.asked.fetch_and(!SCAVENGE, Ordering::AcqRel);
    }
}

//! The mailbox of the helper thread: how others ask it for something.

use crate::sys::futex::Kernel;
use crate::sys::registers;
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// There is something to look at: a P without an M, a thread that has ended, a goroutine without a
/// stack, or the phase of the runtime.
pub(super) const WORK: u32 = 1;
/// Stacks have gone to the pool, and may not be needed for a while.
pub(super) const SCAVENGE: u32 = 2;
/// There should be an idle M, made in advance.
pub(super) const SPARE: u32 = 4;

/// The default number of Ps may have changed.
pub(super) const PROCS: u32 = 8;
/// A thread that was made could not begin.
pub(super) const REFUSED: u32 = 16;

/// The requests to the helper, as flags, and the thread that stops the runtime.
pub(crate) struct Mailbox {
    asked: AtomicU32,
    /// The thread pointer of the thread that stops the runtime.
    closer: AtomicUsize,
}

impl Mailbox {
    pub(crate) fn new() -> Self {
        Self { asked: AtomicU32::new(0), closer: AtomicUsize::new(0) }
    }

    /// Records the calling thread as the one that stops the runtime, before the runtime is stopped.
    /// That thread may have been an M of the runtime. Then the destructor of a thread-local stops
    /// the runtime, and the helper must not wait for the thread.
    pub(in crate::sched) fn set_closer(&self) {
        // Relaxed is enough: the store of the phase, which follows, orders it.
        self.closer.store(registers::thread_pointer(), Ordering::Relaxed);
    }

    /// The thread pointer of the thread that stops the runtime.
    pub(super) fn closer(&self) -> usize {
        self.closer.load(Ordering::Relaxed)
    }

    /// Asks the helper to look at everything that `WORK` stands for.
    pub(crate) fn ask(&self) {
        self.post(WORK);
    }

    /// Says that there are stacks whose memory can be given back later. Cheap if the helper knows
    /// already.
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
        // ORDERING: AcqRel pairs with `wait`: the helper sees what the caller wrote before.
        if self.asked.fetch_or(what, Ordering::AcqRel) & what == 0 {
            Kernel.wake(&self.asked);
        }
    }

    /// Sleeps until something is asked for, or until `timeout`, and returns what was asked for.
    /// While `scavenging`, SCAVENGE alone does not end the sleep.
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

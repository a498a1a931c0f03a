//! The end of a runtime.
//!
//! 1. No new goroutines. All that live are cancelled: the parked ones unwind now, the running
//!    ones at their next park.
//! 2. Wait until all have ended, for a bounded time. What does not end is reported and left behind: the
//!    runtime goes on without its owner, takes no new goroutines, and unwinds at its next park whatever runs.
//!    A thread of its own waits for the last one. Stopping the Ms instead would strand goroutines that
//!    were stopped by force with a lock in their hands, the allocator's perhaps.
//! 3. The Ms leave, the helper joins them.
//!
//! With `panic = "abort"` nothing is unwound. Then it waits only until every goroutine that is left is
//! parked, and those are left behind without a word, as Go leaves its goroutines when `main` returns.

use super::{Config, Phase, Sched, cancel};
use crate::gmp::described::Described;
use crate::gmp::pool;
use crate::sys::futex::Kernel;
use crate::sys::membarrier::{heavy_fence, light_fence};
use crate::sys::stderr;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use std::ptr::null;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

/// Most goroutines named in the report of those that did not end.
const REPORT_MAX: usize = 20;

/// How often to look whether all goroutines wait that cannot be unwound.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// Whether everything of the runtime is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Closed {
    /// Yes: its threads can be joined.
    Clean,
    /// Not in time: some goroutines run on.
    Leaked,
    /// No: those that are left wait and cannot be unwound.
    Parked,
}

/// # What keeps a scheduler alive
/// Its threads, its `Runtime` and every `Handle` have a share of it. A goroutine has none: a live one is
/// counted, and its runtime is not stopped before none is left, so its `sched` is valid for as long as it lives.
/// Where goroutines cannot be unwound and the runtime is stopped all the same, one share is never given
/// back. A record whose goroutine has ended keeps an address that is compared and never followed.
impl Sched {
    /// The scheduler of a new runtime, in the place where it stays.
    pub(crate) fn start(config: Config) -> std::io::Result<Arc<Self>> {
        let mut sched = Self::new(config)?;
        Ok(Arc::new_cyclic(|this| {
            sched.this = Weak::clone(this);
            sched
        }))
    }

    /// One more share. For who knows that it is alive: a goroutine of it, or the thread that shuts it down.
    pub(crate) fn share(&self) -> Arc<Self> {
        let Some(shared) = self.this.upgrade() else {
            heist_core::throw!("Sched::share: the scheduler is gone");
        };
        shared
    }

    /// Ends all goroutines, and waits for that.
    pub(crate) fn end_goroutines(&self) -> Closed {
        self.set_phase(Phase::Closing);
        self.watch_endings();
        // A record that is this runtime's stays so for as long as the look takes.
        pool::for_each_held(|gp| {
            if self.is_mine(gp) {
                cancel::mark(gp);
            }
        });
        heavy_fence();
        // One that was made meanwhile sees to itself.
        pool::for_each(|gp| cancel::wake_marked(None, gp, Some(self)));
        let closed = self.wait_for_the_last(Some(self.config.shutdown_timeout));
        let asked = self.config.trace.is_some();
        if closed == Closed::Leaked || (closed == Closed::Parked && asked) {
            self.report_leaked();
        }
        closed
    }

    /// Stops the Ms, which have nothing to run any more, or are not to.
    pub(crate) fn stop(&self, closed: Closed) {
        self.stop_ms();
        self.wait_for_outsiders();
        if closed == Closed::Clean {
            self.poll.poller.shared().end();
        } else {
            // Whatever is left behind can still be woken, by anybody and at any time: it keeps its scheduler.
            std::mem::forget(self.share());
        }
    }

    /// From now on every end of a goroutine is told to who waits for the last.
    fn watch_endings(&self) {
        self.endings.watch(heavy_fence);
    }

    /// Waits until no goroutine lives, however long that takes.
    pub(crate) fn wait_until_empty(&self) {
        self.watch_endings();
        let _ = self.wait_for_the_last(None);
    }

    fn wait_for_the_last(&self, limit: Option<Duration>) -> Closed {
        // What is too far away to be a moment is never.
        let until = limit.and_then(|limit| Instant::now().checked_add(limit));
        loop {
            let seen = self.endings.seen();
            // The unborn first: one that is born between the two looks is seen by the second.
            // ORDERING: Acquire: see `bear_one`.
            if self.unborn.load(Ordering::Acquire) == 0 && self.n_live() == 0 {
                return Closed::Clean;
            }
            let mut left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Closed::Leaked;
            }
            if !cancel::CAN_UNWIND && limit.is_some() {
                if self.all_wait() {
                    return Closed::Parked;
                }
                // Nobody tells of a goroutine that begins to wait.
                left = Some(left.unwrap_or(LOOK_PERIOD).min(LOOK_PERIOD));
            }
            self.endings.sleep(&Kernel, seen, left);
        }
    }

    /// Whether every goroutine that is left waits for something.
    fn all_wait(&self) -> bool {
        let mut all = true;
        pool::for_each(|gp| all &= !self.is_mine(gp) || gp.status.get() == Status::Waiting);
        all
    }

    /// A goroutine has ended: the closer may wait for it, or somebody for its stack.
    #[inline]
    pub(crate) fn after_finish(&self) {
        if self.n_stackless.load(Ordering::Relaxed) != 0 {
            self.release_stacks();
            self.retry_stackless();
        }
        self.endings.tell(&Kernel, light_fence);
    }

    /// Waits for those who woke the last goroutines from outside and have not got over it: for moments.
    fn wait_for_outsiders(&self) {
        // ORDERING: Acquire: see `park::ready_from_outside`.
        while self.outsiders.load(Ordering::Acquire) != 0 {
            std::thread::yield_now();
        }
    }

    fn report_leaked(&self) {
        let mut n = 0;
        pool::for_each(|gp| {
            if self.is_mine(gp) {
                n += 1;
            }
        });
        stderr::report(format_args!(
            "heist: {n} goroutines did not end within {:?} of the shutdown and are left behind:\n",
            self.config.shutdown_timeout,
        ));
        let mut named = 0;
        pool::for_each(|gp| {
            if self.is_mine(gp) && named < REPORT_MAX {
                named += 1;
                stderr::report(format_args!("{}", Described::at(gp, self.minute_now())));
            }
        });
    }

    fn stop_ms(&self) {
        self.helper.set_closer();
        // A stop of the world ends before, and none begins after.
        let reins = self.reins.lock();
        self.set_phase(Phase::Stopped);
        drop(reins);
        loop {
            let Some(m) = self.lock.lock().idle_ms.pop() else {
                break;
            };
            // SAFETY: an idle M is alive and, off the list, this thread's to wake.
            let m = unsafe { m.as_ref() };
            m.next_p.set(null());
            m.note.wake(&m.doorbell);
        }
        self.break_poller();
        // Ms that look for work right now see the phase before they sleep.
        self.helper.ask();
        self.bell.ring();
    }
}

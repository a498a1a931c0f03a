//! The end of a runtime.
//!
//! 1. No new goroutines. All that live are cancelled: the parked ones unwind now, the running
//!    ones at their next park.
//! 2. Wait until all have ended, for a bounded time. What does not end is reported and leaked, its
//!    threads with it.
//! 3. The Ms leave, the helper joins them.

use super::{Phase, Sched, cancel};
use crate::gmp::described::Described;
use crate::gmp::{G, pool};
use crate::sys::futex::Kernel;
use crate::sys::membarrier::heavy_fence;
use crate::sys::stderr;
use heist_core::note::Futex;
use heist_core::sync::Ordering;
use std::ptr::null;
use std::time::{Duration, Instant};

/// Most goroutines named in the report of those that did not end.
const REPORT_MAX: usize = 20;

/// Whether everything of the runtime is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Closed {
    /// Yes: its threads can be joined.
    Clean,
    /// Some goroutines run on: leave their threads alone.
    Leaked,
}

impl Sched {
    /// Ends all goroutines and stops the Ms.
    pub(crate) fn shut_down(&self) -> Closed {
        self.set_phase(Phase::Closing);
        self.watch_endings();
        let each_of_mine = |f: fn(&G)| {
            pool::for_each(|gp| {
                if self.is_mine(gp) {
                    f(gp);
                }
            });
        };
        each_of_mine(cancel::mark);
        heavy_fence();
        each_of_mine(|gp| {
            // One that was made meanwhile sees to itself.
            if gp.is_cancelled() {
                cancel::wake_marked(None, gp);
            }
        });
        let closed = self.wait_for_the_last(Some(self.config.shutdown_timeout));
        if closed == Closed::Leaked {
            self.report_leaked();
        }
        self.stop_ms();
        self.wait_for_outsiders();
        if closed == Closed::Clean {
            self.poll.poller.shared().end();
        }
        closed
    }

    /// From now on every end of a goroutine is told to who waits for the last.
    fn watch_endings(&self) {
        // ORDERING: SeqCst pairs with `after_finish`: an end that is not told was counted before.
        self.endings_watched.store(1, Ordering::SeqCst);
        heist_core::sync::fence(Ordering::SeqCst);
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
            // ORDERING: Acquire pairs with `after_finish`: if the count did not move, the last end
            // has been seen.
            let seen = self.endings.load(Ordering::Acquire);
            // The unborn first: one that is born between the two looks is seen by the second.
            // ORDERING: Acquire: see `bear_one`.
            if self.unborn.load(Ordering::Acquire) == 0 && self.n_live() == 0 {
                return Closed::Clean;
            }
            let left = until.map(|until| until.saturating_duration_since(Instant::now()));
            if left.is_some_and(|left| left.is_zero()) {
                return Closed::Leaked;
            }
            Kernel.wait(&self.endings, seen, left);
        }
    }

    /// A goroutine has ended: the closer may wait for it, or somebody for its stack.
    #[inline]
    pub(crate) fn after_finish(&self) {
        if self.n_stackless.load(Ordering::Relaxed) != 0 {
            self.release_stacks();
            self.retry_stackless();
        }
        // ORDERING: see `watch_endings`.
        if self.endings_watched.load(Ordering::SeqCst) != 0 {
            // ORDERING: see `wait_for_the_last`.
            self.endings.fetch_add(1, Ordering::Release);
            Kernel.wake(&self.endings);
        }
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

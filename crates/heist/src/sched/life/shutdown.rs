//! The end of a runtime.
//!
//! 1. No new goroutines are accepted. All live ones are cancelled: the parked ones unwind now, the
//!    running ones at their next park.
//! 2. The closer waits until all have ended, for a bounded time. Goroutines that do not end are
//!    reported and left behind. Their runtime continues without its owner, takes no new goroutines,
//!    and unwinds every goroutine at its next park. A thread of its own waits for the last one.
//!    Stopping the Ms instead would strand frozen goroutines that hold a lock, perhaps the
//!    allocator's.
//! 3. The Ms leave, and the helper joins their threads.
//!
//! With `panic = "abort"` nothing is unwound. Then the closer waits only until every goroutine that
//! is left is parked. Those are left behind, as Go leaves its goroutines when `main` returns, and
//! are reported only if the trace of the scheduler is on.
//!
//! # What keeps a scheduler alive
//! Its threads, its `Runtime` and every `Handle` have a share of it. A goroutine has none: a live
//! goroutine is counted, and its runtime is not stopped before none is left, so its `sched` is
//! valid for as long as it lives. Where goroutines cannot be unwound and the runtime is stopped all
//! the same, one share is never given back. The record of a goroutine that has ended keeps an
//! address that is compared and never followed.

use crate::gmp::described::Described;
use crate::gmp::pool;
use crate::metrics::shard::Shard;
use crate::sched::life::cancel;
use crate::sched::{Phase, Sched};
use crate::sched::{outside, stacks};
use crate::sys::futex::Kernel;
use crate::sys::membarrier::{heavy_fence, light_fence};
use crate::sys::stderr;
use heist_core::status::Status;
use heist_core::sync::Ordering;
use std::ptr::null;
use std::time::{Duration, Instant};

/// The largest number of goroutines that the report of those left behind names.
const REPORT_MAX: usize = 20;

/// How often the closer checks whether all goroutines that cannot be unwound wait.
const LOOK_PERIOD: Duration = Duration::from_millis(1);

/// How far the goroutines of a runtime have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Closed {
    /// All have ended: the threads of the runtime can be joined.
    Clean,
    /// Some have not ended in time and continue to run.
    Leaked,
    /// Those that are left wait and cannot be unwound.
    Parked,
}

/// Ends all goroutines, and waits until they have ended or the shutdown timeout is over.
pub(crate) fn end_goroutines(sched: &Sched) -> Closed {
    sched.life.set_phase(Phase::Closing);
    watch_endings(sched);
    // The pool is held during each look, so a record that is this runtime's stays so until it is
    // marked.
    pool::for_each_held(|gp| {
        if sched.is_mine(gp) {
            cancel::mark(gp);
        }
    });
    heavy_fence();
    // A goroutine that was spawned meanwhile is cancelled by its spawner (`spawn::after_spawn`).
    pool::for_each(|gp| cancel::wake_marked(None, gp, Some(sched)));
    let closed = wait_for_the_last(sched, Some(sched.config.shutdown_timeout));
    let asked = sched.config.trace.is_some();
    if closed == Closed::Leaked || (closed == Closed::Parked && asked) {
        report_leaked(sched);
    }
    closed
}

/// Stops the Ms. They have nothing to run any more, or are not to run it.
pub(crate) fn stop(sched: &Sched, closed: Closed) {
    stop_ms(sched);
    wait_for_external_wakers(sched);
    if closed == Closed::Clean {
        sched.outside.poller().shared().end();
    } else {
        // A goroutine that is left behind can still be woken, by any thread and at any time, so its
        // scheduler is kept.
        std::mem::forget(sched.life.share());
    }
}

/// From now on every end of a goroutine is announced to the thread that waits for the last one.
fn watch_endings(sched: &Sched) {
    sched.life.endings.watch(heavy_fence);
}

/// Waits until no goroutine is left, for as long as it takes.
pub(crate) fn wait_until_empty(sched: &Sched) {
    watch_endings(sched);
    let _ = wait_for_the_last(sched, None);
}

fn wait_for_the_last(sched: &Sched, limit: Option<Duration>) -> Closed {
    // A limit that no `Instant` can represent is no limit.
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let seen = sched.life.endings.seen();
        // The unborn are read first: a goroutine that is born between the two reads is counted by
        // the second.
        // ORDERING: Acquire pairs with the Release in `spawn::count_one_born`, `spawn_from_outside`
        // and `body::end_unborn`.
        if sched.life.unborn.load(Ordering::Acquire) == 0 && n_live(sched) == 0 {
            return Closed::Clean;
        }
        let mut left = until.map(|until| until.saturating_duration_since(Instant::now()));
        if left.is_some_and(|left| left.is_zero()) {
            return Closed::Leaked;
        }
        if !cancel::CAN_UNWIND && limit.is_some() {
            if all_wait(sched) {
                return Closed::Parked;
            }
            // A goroutine that begins to wait is not announced, so the closer looks again soon.
            left = Some(left.unwrap_or(LOOK_PERIOD).min(LOOK_PERIOD));
        }
        sched.life.endings.sleep(&Kernel, seen, left);
    }
}

/// Whether every goroutine that is left waits for something.
fn all_wait(sched: &Sched) -> bool {
    let mut all = true;
    pool::for_each(|gp| all &= !sched.is_mine(gp) || gp.status.get() == Status::Waiting);
    all
}

/// Follows the end of a goroutine: another goroutine may wait for its stack, and the closer for its
/// end.
#[inline]
pub(crate) fn after_finish(sched: &Sched) {
    if sched.stacks.n_waiting() != 0 {
        stacks::release_stacks();
        stacks::retry_stackless(sched);
    }
    sched.life.endings.tell(&Kernel, light_fence);
}

/// Waits for threads that woke the last goroutines from outside and still use the scheduler. That
/// takes moments.
fn wait_for_external_wakers(sched: &Sched) {
    // ORDERING: Acquire: see `park::ready_from_outside`.
    while sched.life.external_wakers.load(Ordering::Acquire) != 0 {
        std::thread::yield_now();
    }
}

fn report_leaked(sched: &Sched) {
    let mut n = 0;
    pool::for_each(|gp| {
        if sched.is_mine(gp) {
            n += 1;
        }
    });
    stderr::report(format_args!(
        "heist: {n} goroutines did not end within {:?} of the shutdown and are left behind:\n",
        sched.config.shutdown_timeout,
    ));
    let mut named = 0;
    pool::for_each(|gp| {
        if sched.is_mine(gp) && named < REPORT_MAX {
            named += 1;
            stderr::report(format_args!("{}", Described::with_stack(sched, gp)));
        }
    });
}

fn stop_ms(sched: &Sched) {
    sched.threads.helper().set_closer();
    // A stop of the world has ended when the lock is taken, and none begins after it is released.
    let world_lock = sched.world.lock();
    sched.life.set_phase(Phase::Stopped);
    drop(world_lock);
    loop {
        let Some(m) = sched.lock.lock().idle_ms.pop() else {
            break;
        };
        // SAFETY: an idle M is alive and, off the list, this thread's to wake.
        let m = unsafe { m.as_ref() };
        m.next_p.set(null());
        m.note.wake(&m.doorbell);
    }
    outside::break_poller(sched);
    // Ms that are looking for work see the phase before they sleep.
    sched.threads.helper().ask();
    sched.stall.bell().ring();
}

/// How many goroutines were spawned and have not ended.
pub(crate) fn n_live(sched: &Sched) -> u64 {
    let finished = |shard: &Shard| shard.finished.get();
    let created = |shard: &Shard| shard.created.get();
    let ended: u64 =
        sched.world.all_made().map(|pp| finished(&pp.stats)).sum::<u64>() + finished(&sched.stats);
    // ORDERING: the fence makes the counts of ends be read before the counts of beginnings, so an
    // end is never counted without its beginning.
    heist_core::sync::fence(Ordering::SeqCst);
    let begun: u64 =
        sched.world.all_made().map(|pp| created(&pp.stats)).sum::<u64>() + created(&sched.stats);
    begun.saturating_sub(ended)
}

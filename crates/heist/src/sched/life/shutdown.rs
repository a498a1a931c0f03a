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
//!
//! # What keeps a scheduler alive
//! Its threads, its `Runtime` and every `Handle` have a share of it. A goroutine has none: a live one is
//! counted, and its runtime is not stopped before none is left, so its `sched` is valid for as long as it lives.
//! Where goroutines cannot be unwound and the runtime is stopped all the same, one share is never given
//! back. A record whose goroutine has ended keeps an address that is compared and never followed.

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

/// Ends all goroutines, and waits for that.
pub(crate) fn end_goroutines(sched: &Sched) -> Closed {
    sched.life.set_phase(Phase::Closing);
    watch_endings(sched);
    // A record that is this runtime's stays so for as long as the look takes.
    pool::for_each_held(|gp| {
        if sched.is_mine(gp) {
            cancel::mark(gp);
        }
    });
    heavy_fence();
    // One that was made meanwhile sees to itself.
    pool::for_each(|gp| cancel::wake_marked(None, gp, Some(sched)));
    let closed = wait_for_the_last(sched, Some(sched.config.shutdown_timeout));
    let asked = sched.config.trace.is_some();
    if closed == Closed::Leaked || (closed == Closed::Parked && asked) {
        report_leaked(sched);
    }
    closed
}

/// Stops the Ms, which have nothing to run any more, or are not to.
pub(crate) fn stop(sched: &Sched, closed: Closed) {
    stop_ms(sched);
    wait_for_external_wakers(sched);
    if closed == Closed::Clean {
        sched.outside.poller().shared().end();
    } else {
        // Whatever is left behind can still be woken, by anybody and at any time: it keeps its scheduler.
        std::mem::forget(sched.life.share());
    }
}

/// From now on every end of a goroutine is told to who waits for the last.
fn watch_endings(sched: &Sched) {
    sched.life.endings.watch(heavy_fence);
}

/// Waits until no goroutine lives, however long that takes.
pub(crate) fn wait_until_empty(sched: &Sched) {
    watch_endings(sched);
    let _ = wait_for_the_last(sched, None);
}

fn wait_for_the_last(sched: &Sched, limit: Option<Duration>) -> Closed {
    // What is too far away to be a moment is never.
    let until = limit.and_then(|limit| Instant::now().checked_add(limit));
    loop {
        let seen = sched.life.endings.seen();
        // The unborn first: one that is born between the two looks is seen by the second.
        // ORDERING: Acquire: see `count_one_born`.
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
            // Nobody tells of a goroutine that begins to wait.
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

/// A goroutine has ended: the closer may wait for it, or somebody for its stack.
#[inline]
pub(crate) fn after_finish(sched: &Sched) {
    if sched.stacks.n_waiting() != 0 {
        stacks::release_stacks();
        stacks::retry_stackless(sched);
    }
    sched.life.endings.tell(&Kernel, light_fence);
}

/// Waits for those who woke the last goroutines from outside and have not got over it: for moments.
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
            stderr::report(format_args!("{}", Described::at(gp, sched.life.minute_now())));
        }
    });
}

fn stop_ms(sched: &Sched) {
    sched.threads.helper().set_closer();
    // A stop of the world ends before, and none begins after.
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
    // Ms that look for work right now see the phase before they sleep.
    sched.threads.helper().ask();
    sched.stall.bell().ring();
}

/// Goroutines that were spawned and have not ended.
pub(crate) fn n_live(sched: &Sched) -> u64 {
    let finished = |shard: &Shard| shard.finished.get();
    let created = |shard: &Shard| shard.created.get();
    let ended: u64 =
        sched.world.all_made().map(|pp| finished(&pp.stats)).sum::<u64>() + finished(&sched.stats);
    // ORDERING: the ends are read before the beginnings, so an end is never counted without
    // its beginning.
    heist_core::sync::fence(Ordering::SeqCst);
    let begun: u64 =
        sched.world.all_made().map(|pp| created(&pp.stats)).sum::<u64>() + created(&sched.stats);
    begun.saturating_sub(ended)
}

//! The life of a goroutine and of the runtime.
//!
//! A goroutine is spawned, runs its closure, parks and is made ready, is cancelled, ends. The
//! runtime ends when all its goroutines have ended. No other room changes the phase of the runtime
//! or adds up its live goroutines.

pub(crate) mod body;
pub(crate) mod cancel;
mod deadlock;
pub(crate) mod park;
mod shutdown;
pub(crate) mod spawn;

pub(crate) use deadlock::{check_dead, stay_to_the_end};
pub(crate) use shutdown::{Closed, after_finish, end_goroutines, n_live, stop, wait_until_empty};
pub(crate) use spawn::{count_born, count_one_born, may_take_jobs, take_job};

use super::Sched;
use crate::sys::clock;
use crossbeam_utils::CachePadded;
use heist_core::endings::Endings;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// How far a runtime is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub(crate) enum Phase {
    Running = 0,
    /// Goroutines are being unwound, and no new ones are accepted.
    Closing = 1,
    /// The Ms leave.
    Stopped = 2,
}

/// The phase and the age of a runtime, and the counts of what lives in it.
pub(crate) struct Life {
    /// The runtime's number. No other runtime of the process has or had it.
    number: u64,
    phase: AtomicU32,
    started_ns: u64,
    /// Minutes since the start, as sysmon last stored them; `minute_now` asks the clock.
    minute: AtomicU32,
    /// How many threads without a P of this runtime are waking one of its goroutines.
    external_wakers: AtomicU32,
    /// How many threads do nothing any more but wait for the last goroutine.
    exit_waiters: AtomicU32,
    /// How many goroutines are unborn (they were made to begin later and have not begun), or are
    /// just being spawned from outside.
    unborn: AtomicU64,
    /// Announces the end of a goroutine to the thread that waits for the last one.
    endings: Endings,
    /// The scheduler that this is a part of; see `share`.
    this: Weak<Sched>,
    /// How many goroutine ids have been handed out.
    ids: CachePadded<AtomicU64>,
}

impl Life {
    pub(super) fn new(this: Weak<Sched>) -> Self {
        static N_RUNTIMES: AtomicU64 = AtomicU64::new(0);
        Self {
            number: N_RUNTIMES.fetch_add(1, Ordering::Relaxed),
            phase: AtomicU32::new(Phase::Running as u32),
            started_ns: clock::now_ns(),
            minute: AtomicU32::new(0),
            external_wakers: AtomicU32::new(0),
            exit_waiters: AtomicU32::new(0),
            unborn: AtomicU64::new(0),
            endings: Endings::new(),
            this,
            ids: CachePadded::new(AtomicU64::new(0)),
        }
    }

    /// The runtime's number, which no other runtime of the process has or had.
    pub(crate) const fn number(&self) -> u64 {
        self.number
    }

    #[inline]
    pub(super) fn phase(&self) -> Phase {
        // ORDERING: SeqCst pairs with `set_phase`: if a spawner that has published its goroutine
        // still reads `Running`, the closer's walk over all goroutines finds that goroutine.
        match self.phase.load(Ordering::SeqCst) {
            0 => Phase::Running,
            1 => Phase::Closing,
            _ => Phase::Stopped,
        }
    }

    fn set_phase(&self, phase: Phase) {
        // ORDERING: see `phase`.
        self.phase.store(phase as u32, Ordering::SeqCst);
    }

    /// Minutes since the start, for marking the beginning of a wait. It costs a load and does not
    /// ask the clock.
    #[inline]
    pub(crate) fn minute(&self) -> u32 {
        self.minute.load(Ordering::Relaxed)
    }

    /// Minutes since the start, according to the clock.
    pub(crate) fn minute_now(&self) -> u32 {
        ((clock::now_ns() - self.started_ns) / 60_000_000_000) as u32
    }

    /// The age of the runtime at `now`.
    pub(crate) fn age_ns(&self, now: u64) -> u64 {
        now.saturating_sub(self.started_ns)
    }

    /// Updates `minute` from the clock. For sysmon.
    pub(super) fn advance_minute(&self) {
        let now = self.minute_now();
        if now != self.minute() {
            self.minute.store(now, Ordering::Relaxed);
        }
    }

    /// Reserves `n` goroutine ids and returns the first. Ids start at 1.
    fn reserve_ids(&self, n: u64) -> u64 {
        self.ids.fetch_add(n, Ordering::Relaxed) + 1
    }

    /// Takes one more share of the scheduler. The caller knows that the scheduler is alive: it is
    /// one of its goroutines, or the thread that shuts it down.
    pub(crate) fn share(&self) -> Arc<Sched> {
        let Some(shared) = self.this.upgrade() else {
            heist_core::throw!("Life::share: the scheduler is gone");
        };
        shared
    }
}

//! The channel of a timer: a receiver that has a message when a moment comes.
//!
//! There is no timer behind it, and nothing in any queue of the scheduler, until a receiver waits.
//! Then that receiver waits until the moment, as in any wait with a deadline, and takes the message
//! itself. So a message is made when it is received, with the time at which it was due. It cannot
//! be stale, and an alarm without waiters costs only its memory.
//!
//! A change of the moment wakes all waiters, and they check again.
//!
//! # Ordering
//! The moment changes under the lock. It is stored with Release. A load with Acquire, without the
//! lock, can show that it has not come; a caller for which it seems to have come takes the lock and
//! checks again.
//!
//! GO: time.go timer.maybeRunChan, needsAdd, blockTimerChan.

use super::queues::Queues;
use super::state::Patience;
use crate::current::{self, InRuntime};
use crate::sys::clock;
use crate::sys::lock::Lock;
use crate::time::deadline_at;
use crate::wait::{self, Ended, Entry, Terms, WaitReason, Wake, Wakers};
use heist_core::lock_rank::Rank;
use heist_core::timer_heap::NEVER;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The moment at which there is a message.
pub(crate) struct Alarm {
    pub(super) queues: Lock<Queues>,
    /// The next moment, in the scheduler's time; `NEVER` if none is set.
    when_ns: AtomicU64,
    /// The time from one moment to the next; zero if there is only one.
    period_ns: AtomicU64,
}

impl Alarm {
    /// An alarm after `delay`, and then every `period`, unless that is zero.
    pub(crate) fn new(delay: Duration, period: Duration) -> Arc<Self> {
        Self::build(from_now(delay), period)
    }

    /// An alarm at `moment`.
    pub(crate) fn at(moment: Instant) -> Arc<Self> {
        Self::build(deadline_at(moment), Duration::ZERO)
    }

    fn build(when_ns: u64, period: Duration) -> Arc<Self> {
        Arc::new(Self {
            queues: Lock::new(Rank::WaitQueue, Queues::new()),
            when_ns: AtomicU64::new(when_ns),
            period_ns: AtomicU64::new(in_ns(period)),
        })
    }

    /// When there will be a message.
    pub(super) fn when_ns(&self) -> u64 {
        self.when_ns.load(Ordering::Acquire)
    }

    /// Whether there is a message.
    pub(super) fn is_due(&self) -> bool {
        let when_ns = self.when_ns();
        when_ns != NEVER && when_ns <= clock::now_ns()
    }

    /// As [`take`](Self::take), from inside the runtime.
    #[inline]
    pub(super) fn take_in(&self, rt: &mut Option<InRuntime>) -> Option<Instant> {
        if !self.is_due() {
            return None;
        }
        drop(rt.take());
        let taken = self.take();
        *rt = current::enter();
        taken
    }

    /// Takes the message if there is one: the time at which it was due.
    pub(super) fn take(&self) -> Option<Instant> {
        if !self.is_due() {
            return None;
        }
        let rt = current::enter();
        let queues = self.queues.lock();
        let (when_ns, now_ns) = (self.when_ns(), clock::now_ns());
        let due = when_ns != NEVER && when_ns <= now_ns;
        if due {
            let period_ns = self.period_ns.load(Ordering::Relaxed);
            self.when_ns.store(after(when_ns, period_ns, now_ns), Ordering::Release);
        }
        drop(queues);
        drop(rt);
        due.then(|| clock::instant_of(when_ns))
    }

    /// Waits for the message and takes it. None if the time is over first.
    pub(super) fn recv(&self, patience: Patience) -> Option<Instant> {
        loop {
            if let Some(message) = self.take() {
                return Some(message);
            }
            let Patience::Until(deadline_ns) = patience else { return None };
            if deadline_ns != NEVER && deadline_ns <= clock::now_ns() {
                return None;
            }
            self.wait(deadline_ns);
        }
    }

    /// Waits until the moment or the deadline comes, or the moment changes.
    fn wait(&self, deadline_ns: u64) {
        let rt = wait::park_point(current::enter());
        let queues = self.queues.lock();
        let until_ns = self.when_ns().min(deadline_ns);
        // However the wait ended, the caller checks again.
        let _ = wait::wait_in(
            rt,
            queues,
            Terms::new(WaitReason::ChanReceive).until(until_ns),
            std::ptr::null_mut(),
            // SAFETY: the entry stays on the stack of `wait_in` until it is taken out.
            |queues, entry| unsafe { queues.receivers.push(entry) },
            |queues, entry| self.remove(queues, entry),
        );
    }

    /// Takes out a wait that is over, if it is still queued.
    pub(super) fn remove(&self, queues: &mut Queues, entry: &Entry) {
        if entry.is_listed() {
            // SAFETY: it is in this queue or in none.
            unsafe { queues.receivers.remove(entry) };
        }
    }

    /// Sets the moment to `delay` from now, or to never, and the period. True if a moment was set
    /// before; its message is then no longer received.
    pub(crate) fn set(&self, delay: Option<Duration>, period: Duration) -> bool {
        self.set_to(period, delay.map_or(NEVER, from_now))
    }

    /// Sets the moment to `moment`, without a period. Returns as [`set`](Self::set).
    pub(crate) fn set_at(&self, moment: Instant) -> bool {
        self.set_to(Duration::ZERO, deadline_at(moment))
    }

    fn set_to(&self, period: Duration, when_ns: u64) -> bool {
        let rt: Option<InRuntime> = current::enter();
        let mut queues = self.queues.lock();
        let old_ns = self.when_ns();
        self.when_ns.store(when_ns, Ordering::Release);
        self.period_ns.store(in_ns(period), Ordering::Relaxed);
        let waiting = queues.receivers.claim_all();
        drop(queues);
        let mut later = Wakers::new();
        waiting.wake_last_first(|wait| {
            wait.wake_or_collect(Ended::Changed, rt.as_ref(), &mut later);
        });
        old_ns != NEVER
    }
}

/// The moment `delay` from now, in the scheduler's time. It is counted in `Instant`s, because the
/// message is one: converted back it is exactly this moment, never before `delay` is over.
fn from_now(delay: Duration) -> u64 {
    Instant::now().checked_add(delay).map_or(NEVER - 1, deadline_at)
}

/// In nanoseconds. A duration that does not fit becomes the longest that does.
fn in_ns(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(NEVER)
}

/// The next moment after one that is over. Missed moments are dropped. However distant, the result
/// is a moment and not `NEVER`: a receiver that waits for it waits for an event that happens.
fn after(when_ns: u64, period_ns: u64, now_ns: u64) -> u64 {
    if period_ns == 0 {
        return NEVER;
    }
    let late_ns = now_ns.saturating_sub(when_ns);
    when_ns.saturating_add(period_ns.saturating_mul(1 + late_ns / period_ns)).min(NEVER - 1)
}

/// TM-29: missed ticks are dropped, the rhythm is kept; a period without end saturates.
#[test]
fn missed_ticks_are_dropped() {
    assert_eq!(after(100, 10, 100), 110);
    assert_eq!(after(100, 10, 109), 110);
    assert_eq!(after(100, 10, 110), 120);
    assert_eq!(after(100, 10, 157), 160);
    assert_eq!(after(100, 0, 157), NEVER);
    assert_eq!(after(100, u64::MAX - 5, 100), NEVER - 1);
}

//! The life of a task, and the number of its users, in one word.
//!
//! A task is a goroutine that polls a future and has no stack between two polls. Its wakers have no
//! ticket: any of them may wake it at any time, as often as it likes, also after it has ended. So a
//! task has this word beside its status word.
//!
//! ```text
//!            wake                 start                 finish
//!   Idle -----------> Scheduled --------> Running -------------> Done
//!    ^                    ^                 |  |                   ^
//!    |                    |      wake       |  |                   |
//!    +------ pend --------|-----------------+  v     finish        |
//!                         +------ pend ----- Notified -------------+
//! ```
//!
//! # The owner of the future
//! - `Idle`: no thread, until a wake-up succeeds; then the waker, which queues the task.
//! - `Scheduled`: the queue that the task is in, or the thread that is moving it.
//! - `Running`, `Notified`: the M that polls it.
//! - `Done`: the future is gone. Wake-ups have no effect.
//!
//! # A wake-up is not lost
//! A wake-up is a read-modify-write of this word, also where it changes nothing. `pend` is one,
//! too. Either the wake-up comes first: then the word is `Notified`, `pend` sees it and the task is
//! queued again. Or `pend` comes first: then the wake-up finds `Idle` and queues the task. A
//! wake-up that finds `Scheduled` comes before the `start` of the next poll, which therefore sees
//! everything that the waker did before.
//!
//! # Two words
//! The status word of an idle task says `Waiting`. It is set before `pend`, so that a waker finds
//! it there. A canceller may end this wait, too: it has no reference to the task and must not touch
//! this word, which may belong to something else by now, before it has claimed the status word with
//! the ticket that it read. Then it owns the task, and notes that here (`claimed_by_canceller`). So
//! a waker that has made an idle task `Scheduled` still has to claim the status word. If it fails,
//! a canceller has claimed it, and queues it. One of the two queues the task.
//!
//! A waker holds a reference until it has claimed the status word, so the record is still that of
//! its task. A task that a canceller claimed is never idle again: its next run drops the future.
//!
//! # References
//! Each waker counts one, and so do other handles that outlive the task. The runtime and the join
//! handle together count one, which is given up by the one of them that leaves the record last
//! (`join`). The thread that gives up the last reference recycles the record.
//!
//! # Ordering
//! All changes of the state are AcqRel, on one word: the next owner sees everything that the
//! previous one did, and a poll sees everything that happened before the wake-ups that it answers.
//! A new reference is made from an existing one, so its count is Relaxed. Giving one up is Release,
//! and the last user fences with Acquire: it sees that all others are done.
//!
//! The model `loom_task_word` runs the wake-ups against polls, ends, cancellations and the last
//! reference.

use crate::sync::{AtomicU64, Ordering, fence};

const STATE: u64 = 0b111;
const IDLE: u64 = 0;
const SCHEDULED: u64 = 1;
const RUNNING: u64 = 2;
const NOTIFIED: u64 = 3;
const DONE: u64 = 4;
const REFERENCE: u64 = 1 << 3;

/// More references than this are a leak that would make the count wrap.
const REFERENCES_MAX: u64 = 1 << 60;

/// The next step of a thread that woke a task.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Wakeup {
    /// Claim the status word of the task, and queue the task.
    Queue,
    /// Nothing: it is queued, or will be, or has ended.
    Nothing,
}

/// The next step of an M whose poll returned without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Pended {
    /// Nothing: the task is idle, and no longer the caller's.
    Idle,
    /// Queue the task: it was woken during the poll.
    Again,
}

/// The state of a task and the number of its users.
#[derive(Debug)]
pub struct TaskWord(AtomicU64);

impl TaskWord {
    /// A task that is about to be queued, with one reference.
    #[must_use]
    pub fn scheduled() -> Self {
        Self(AtomicU64::new(SCHEDULED | REFERENCE))
    }

    /// A task whose first poll is about to begin, with one reference.
    #[must_use]
    pub fn running() -> Self {
        Self(AtomicU64::new(RUNNING | REFERENCE))
    }

    /// Adds a reference. The caller has one.
    #[inline]
    pub fn add_reference(&self) {
        if self.0.fetch_add(REFERENCE, Ordering::Relaxed) > REFERENCES_MAX {
            crate::throw!("TaskWord: too many wakers of one task");
        }
    }

    /// Gives up a reference. True for the last: the caller recycles the record.
    #[inline]
    #[must_use]
    pub fn drop_reference(&self) -> bool {
        let before = self.0.fetch_sub(REFERENCE, Ordering::Release);
        if before < REFERENCE {
            crate::throw!("TaskWord: a reference was given up twice");
        }
        let is_last = before < 2 * REFERENCE;
        if is_last {
            fence(Ordering::Acquire);
        }
        is_last
    }

    /// Wakes the task. The caller has a reference.
    #[inline]
    pub fn wake(&self) -> Wakeup {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let next = match word & STATE {
                IDLE => SCHEDULED,
                RUNNING => NOTIFIED,
                same => same,
            };
            let next = (word & !STATE) | next;
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) if word & STATE == IDLE => return Wakeup::Queue,
                Ok(_) => return Wakeup::Nothing,
                Err(now) => word = now,
            }
        }
    }

    /// Notes that a canceller has claimed the status word of an idle task. The caller queues it.
    pub fn claimed_by_canceller(&self) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !matches!(word & STATE, IDLE | SCHEDULED) {
                crate::throw!("TaskWord: a canceller claimed a task that is not idle");
            }
            let next = (word & !STATE) | SCHEDULED;
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Begins a poll of a scheduled task.
    #[inline]
    pub fn start(&self) {
        let before = self.0.fetch_add(RUNNING - SCHEDULED, Ordering::AcqRel);
        if before & STATE != SCHEDULED {
            crate::throw!("TaskWord: a poll of a task that is not scheduled");
        }
    }

    /// Ends a poll that returned without a result. Before this, the status word says that the task
    /// waits.
    #[inline]
    pub fn pend(&self) -> Pended {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            let (next, pended) = match word & STATE {
                RUNNING => (IDLE, Pended::Idle),
                NOTIFIED => (SCHEDULED, Pended::Again),
                _ => crate::throw!("TaskWord: the end of a poll that was not begun"),
            };
            let next = (word & !STATE) | next;
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return pended,
                Err(now) => word = now,
            }
        }
    }

    /// Ends a poll if the task was woken during it. True: the task is scheduled. False: nothing has
    /// changed.
    #[inline]
    #[must_use]
    pub fn pend_if_notified(&self) -> bool {
        self.0.load(Ordering::Relaxed) & STATE == NOTIFIED && self.pend() == Pended::Again
    }

    /// Takes an idle or scheduled task back, for its owner that waited in another way and gave up.
    pub fn resume(&self) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !matches!(word & STATE, IDLE | SCHEDULED) {
                crate::throw!("TaskWord: a task that does not wait was taken back");
            }
            let next = (word & !STATE) | RUNNING;
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    /// Whether the future is gone.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.0.load(Ordering::Acquire) & STATE == DONE
    }

    /// Notes that the future is gone. Wake-ups have no effect from now on.
    #[inline]
    pub fn finish(&self) {
        let mut word = self.0.load(Ordering::Relaxed);
        loop {
            if !matches!(word & STATE, RUNNING | NOTIFIED) {
                crate::throw!("TaskWord: the end of a task that does not run");
            }
            let next = (word & !STATE) | DONE;
            match self.0.compare_exchange_weak(word, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }
}

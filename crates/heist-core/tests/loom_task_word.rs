//! Every interleaving of the polls of a task with its wakers, a canceller and the last reference:
//! `task_word.rs`.
//!
//! A wake-up is never lost, the task is never in two queues or on two threads, the future is
//! dropped exactly once, a poll sees what its waker did, and the record is recycled exactly once,
//! after the last user has left it.
//!
//! Mutations it catches, each tried on `task_word.rs` or `status.rs`:
//! - `pend` that goes from `Notified` to `Idle`, or a `wake` that leaves `Running` as it is (the
//!   task is never polled again),
//! - a `wake` that returns early where it would change nothing, or is Relaxed (the poll does not
//!   see what the waker did),
//! - an idle wait that is not sealed (a canceller claims a task that is still running),
//! - a waker that cannot claim a sealed wait (the task is never polled again),
//! - `drop_reference` with Relaxed, or without the fence (recycled while another user is at it).
#![cfg(loom)]

mod race;

use heist_core::status::{Status, StatusWord};
use heist_core::task_word::{Pended, TaskWord, Wakeup};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, Ordering as Loom};
use race::{Starts, race};
// Not loom's: they count for the check at the end and are not part of the protocol.
use std::sync::atomic::{AtomicU32, Ordering};

struct Task {
    status: StatusWord,
    word: TaskWord,
    cancelled: AtomicBool,
    /// Set by the waker before it wakes, without an ordering: the poll must see it all the same.
    events: [AtomicBool; 2],
    /// How many events the future waits for.
    n_events: usize,
    future: UnsafeCell<Option<u32>>,
    /// Used by every user until it leaves.
    record: UnsafeCell<u32>,
    n_queued: AtomicU32,
    n_ended: AtomicU32,
    n_recycled: AtomicU32,
}

impl Task {
    /// A task that is being polled.
    fn new(n_events: usize) -> Arc<Self> {
        let status = StatusWord::new();
        status.transition(Status::Dead, Status::Runnable);
        status.transition(Status::Runnable, Status::Running);
        Arc::new(Self {
            status,
            word: TaskWord::running(),
            cancelled: AtomicBool::new(false),
            events: [AtomicBool::new(false), AtomicBool::new(false)],
            n_events,
            future: UnsafeCell::new(Some(1)),
            record: UnsafeCell::new(0),
            n_queued: AtomicU32::new(0),
            n_ended: AtomicU32::new(0),
            n_recycled: AtomicU32::new(0),
        })
    }

    fn push(&self) {
        assert_eq!(self.n_queued.fetch_add(1, Ordering::SeqCst), 0, "queued twice");
    }

    /// The rest of a run, from the beginning of the poll.
    fn poll(&self) {
        let cancelled = self.cancelled.load(Loom::SeqCst);
        let happened = |event: &AtomicBool| event.load(Loom::Relaxed);
        let is_ready = self.events[..self.n_events].iter().all(happened);
        // SAFETY: only the thread that polls uses the future; loom checks.
        self.future.with_mut(|future| unsafe { *(*future).as_mut().unwrap() += 1 });
        if cancelled || is_ready {
            return self.end();
        }
        if self.word.pend_if_notified() {
            self.status.transition(Status::Running, Status::Runnable);
            return self.push();
        }
        let ticket = self.status.begin_idle_wait();
        if self.word.pend() == Pended::Again {
            assert!(self.status.claim(ticket), "nobody else may");
            return self.push();
        }
        self.status.unseal(ticket);
        if self.cancelled.load(Loom::SeqCst) && self.status.claim(ticket) {
            self.word.claimed_by_canceller();
            self.push();
        }
    }

    fn end(&self) {
        // SAFETY: as above.
        assert!(self.future.with_mut(|future| unsafe { (*future).take() }).is_some());
        self.n_ended.fetch_add(1, Ordering::Relaxed);
        self.word.finish();
        self.status.transition(Status::Running, Status::Dead);
        self.leave();
    }

    /// Runs the task as often as it is queued.
    fn run_queued(&self) {
        while self.n_queued.swap(0, Ordering::SeqCst) == 1 {
            self.status.transition(Status::Runnable, Status::Running);
            self.word.start();
            self.poll();
        }
    }

    /// Wakes the task; the caller has a reference.
    fn wake(&self) {
        if self.word.wake() == Wakeup::Queue && self.status.claim_idle(|| true) {
            self.push();
        }
    }

    fn happen(&self, n: usize) {
        self.events[n].store(true, Loom::Relaxed);
        self.wake();
    }

    fn cancel(&self) {
        self.cancelled.store(true, Loom::SeqCst);
        // The heavy fence of a canceller.
        loom::sync::atomic::fence(Loom::SeqCst);
        if self.status.claim_if(|| true) {
            self.word.claimed_by_canceller();
            self.push();
        }
    }

    /// Gives up a reference.
    fn leave(&self) {
        // SAFETY: the last user comes after all others; loom checks.
        self.record.with(|record| assert_eq!(unsafe { *record }, 0));
        if self.word.drop_reference() {
            // SAFETY: as above.
            self.record.with_mut(|record| unsafe { *record = 1 });
            self.n_recycled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn check_ended(&self) {
        assert_eq!(self.n_ended.load(Ordering::Relaxed), 1, "the task is never polled again");
        assert_eq!(self.n_recycled.load(Ordering::Relaxed), 1, "times recycled");
    }
}

/// Runs `other`, which has a reference, against a poll; then runs what was queued.
fn check(n_events: usize, other: impl Fn(&Task) + Clone + Send + Sync + 'static) {
    for starts in [Starts::Left, Starts::Right] {
        let other = other.clone();
        loom::model(move || {
            let task = Task::new(n_events);
            task.word.add_reference();
            let [polled, used] = [task.clone(), task.clone()];
            let other = other.clone();
            race(starts, move || polled.poll(), move || other(&used));
            task.run_queued();
            task.check_ended();
        });
    }
}

/// A wake-up during a poll that returns without a result is not lost.
#[test]
fn wake_versus_pend() {
    check(1, |task| {
        task.happen(0);
        task.leave();
    });
}

/// A waker that wakes twice does not queue the task twice.
#[test]
fn two_wakes_versus_pend() {
    check(2, |task| {
        task.happen(0);
        task.happen(1);
        task.leave();
    });
}

/// A waker may use the task after it has ended, and be the last to leave it.
#[test]
fn wake_versus_done() {
    check(0, |task| {
        task.wake();
        task.leave();
    });
}

/// A task that is cancelled ends, though no event happens.
#[test]
fn cancel_versus_poll() {
    check(1, |task| {
        task.cancel();
        task.leave();
    });
}

/// Two wakers and a poll: the task is queued once, and sees both events.
#[test]
fn two_wakers_versus_pend() {
    for starts in [Starts::Left, Starts::Right] {
        loom::model(move || {
            let task = Task::new(2);
            task.word.add_reference();
            task.word.add_reference();
            let [polled, first, second] = [task.clone(), task.clone(), task.clone()];
            let second = loom::thread::spawn(move || {
                second.happen(1);
                second.leave();
            });
            let left = move || polled.poll();
            race(starts, left, move || {
                first.happen(0);
                first.leave();
            });
            second.join().unwrap();
            task.run_queued();
            task.check_ended();
        });
    }
}

/// A waker and a canceller meet an idle task: one of them queues it.
#[test]
fn wake_versus_cancel() {
    for starts in [Starts::Left, Starts::Right] {
        loom::model(move || {
            let task = Task::new(1);
            task.word.add_reference();
            let [polled, wakes, cancels] = [task.clone(), task.clone(), task.clone()];
            let canceller = loom::thread::spawn(move || cancels.cancel());
            let left = move || polled.poll();
            race(starts, left, move || {
                wakes.happen(0);
                wakes.leave();
            });
            canceller.join().unwrap();
            task.run_queued();
            task.check_ended();
        });
    }
}

/// A wake-up that finds the task queued is seen by the poll that follows.
#[test]
fn wake_of_a_queued_task_is_seen() {
    for starts in [Starts::Left, Starts::Right] {
        loom::model(move || {
            let task = Task::new(1);
            task.word.add_reference();
            // The task is idle, and a spurious wake-up queues it.
            task.poll();
            task.wake();
            let [polled, wakes] = [task.clone(), task.clone()];
            let left = move || polled.run_queued();
            race(starts, left, move || {
                wakes.happen(0);
                wakes.leave();
            });
            task.run_queued();
            task.check_ended();
        });
    }
}

/// The last of two users, on either thread, recycles the record, after the other has left it.
#[test]
fn last_reference_recycles() {
    for starts in [Starts::Left, Starts::Right] {
        loom::model(move || {
            let task = Task::new(0);
            task.word.add_reference();
            let [ends, leaves] = [task.clone(), task.clone()];
            let right = move || leaves.leave();
            race(starts, move || ends.poll(), right);
            task.check_ended();
        });
    }
}

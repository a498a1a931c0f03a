//! Every interleaving of a finishing goroutine with its handle: `join.rs`.
//!
//! The result is taken or dropped exactly once, the waiter is woken exactly when it must be, and
//! the record is recycled exactly once, after both sides have left it.
//!
//! Mutations it catches, each tried on `join.rs`:
//! - `finish`, `is_finished`, or the failing CAS of `drop_handle` with Relaxed (the result is read
//!   before it is written),
//! - `release_handle` or `release_runtime` with Relaxed, or the early load of the latter
//!   (recycled while the other side still uses the record),
//! - `finish` that ignores the previous word (a detached result is leaked, a waiter sleeps
//!   forever),
//! - `release_handle` that does not check for `RUNTIME_DONE` (the record is leaked),
//! - `drop_handle`, `register` or `unregister` by load and store (a result is leaked, a waiter
//!   sleeps forever).
#![cfg(loom)]

mod race;

use heist_core::join::{Dropped, Finished, JoinWord, WAITER_ALIGN};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use race::{Starts, race};
use std::num::NonZeroUsize;
// Not loom's: they count for the check at the end and are not part of the protocol.
use std::sync::atomic::{AtomicU32, Ordering};

const ANSWER: u32 = 42;

/// The waiter for the result.
#[derive(Default)]
struct Waiter {
    woken: Mutex<bool>,
    changed: Condvar,
}

impl Waiter {
    fn wait(&self) {
        let mut woken = self.woken.lock().unwrap();
        while !*woken {
            woken = self.changed.wait(woken).unwrap();
        }
    }

    fn wake(&self) {
        assert!(!std::mem::replace(&mut *self.woken.lock().unwrap(), true), "woken twice");
        self.changed.notify_one();
    }
}

struct Record {
    word: JoinWord,
    result: UnsafeCell<Option<u32>>,
    /// Everything else in the record that both sides use until they leave.
    runtime_part: UnsafeCell<u32>,
    handle_part: UnsafeCell<u32>,
    waiter: Waiter,
    n_taken: AtomicU32,
    n_recycled: AtomicU32,
}

impl Record {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: JoinWord::new(),
            result: UnsafeCell::new(None),
            runtime_part: UnsafeCell::new(0),
            handle_part: UnsafeCell::new(0),
            waiter: Waiter::default(),
            n_taken: AtomicU32::new(0),
            n_recycled: AtomicU32::new(0),
        })
    }

    fn take_result(&self) {
        // SAFETY: only the side that is told to take the result uses it; loom checks.
        let result = self.result.with_mut(|place| unsafe { (*place).take() });
        assert_eq!(result, Some(ANSWER));
        self.n_taken.fetch_add(1, Ordering::Relaxed);
    }

    fn recycle(&self) {
        for part in [&self.runtime_part, &self.handle_part] {
            // SAFETY: only the last side to leave uses the record now; loom checks.
            part.with_mut(|place| unsafe { *place = u32::MAX });
        }
        // SAFETY: as above.
        self.result.with(|place| assert_eq!(unsafe { *place }, None, "leaked"));
        self.word.reset();
        self.n_recycled.fetch_add(1, Ordering::Relaxed);
    }

    /// The goroutine's last steps, and the runtime's after it left its stack.
    fn run(&self) {
        // SAFETY: the result is not read before `finish`; loom checks.
        self.result.with_mut(|place| unsafe { *place = Some(ANSWER) });
        match self.word.finish() {
            Finished::Published => {}
            Finished::Wake(waiter) => {
                assert_eq!(waiter, waiter_address());
                self.waiter.wake();
            }
            Finished::Unwanted => self.take_result(),
        }
        // SAFETY: only the runtime uses this part until it leaves; loom checks.
        self.runtime_part.with_mut(|place| unsafe { *place += 1 });
        if self.word.release_runtime() {
            self.recycle();
        }
    }

    fn use_handle(&self) {
        // SAFETY: only the handle uses this part until it leaves; loom checks.
        self.handle_part.with_mut(|place| unsafe { *place += 1 });
    }

    fn take_and_leave(&self) {
        self.take_result();
        self.use_handle();
        if self.word.release_handle() {
            self.recycle();
        }
    }

    fn drop_handle(&self) {
        self.use_handle();
        match self.word.drop_handle() {
            Dropped::Detached => {}
            Dropped::HasResult => self.take_and_leave(),
        }
    }
}

fn waiter_address() -> NonZeroUsize {
    NonZeroUsize::new(5 * WAITER_ALIGN).unwrap()
}

/// Runs the goroutine against `handle` and checks what must hold when both are gone.
fn check(handle: impl Fn(&Record) + Clone + Send + Sync + 'static) {
    for starts in [Starts::Left, Starts::Right] {
        let handle = handle.clone();
        loom::model(move || {
            let record = Record::new();
            let [runs, joins] = [record.clone(), record.clone()];
            let handle = handle.clone();
            race(starts, move || runs.run(), move || handle(&joins));
            let (n_taken, n_recycled) = (&record.n_taken, &record.n_recycled);
            assert_eq!(n_taken.load(Ordering::Relaxed), 1, "results taken or dropped");
            assert_eq!(n_recycled.load(Ordering::Relaxed), 1, "times recycled");
        });
    }
}

/// The handle waits: the result is there, or the goroutine sees the waiter.
#[test]
fn join_gets_the_result() {
    check(|record| {
        if record.word.register(waiter_address()) {
            record.waiter.wait();
        }
        record.take_and_leave();
    });
}

/// The handle is dropped without a join: one of the two sides drops the result.
#[test]
fn detached_result_is_dropped_once() {
    check(Record::drop_handle);
}

/// The handle only checks for the result, and is dropped if there is none.
#[test]
fn handle_that_only_checks_leaves_nothing() {
    check(|record| {
        if record.word.is_finished() {
            record.take_and_leave();
        } else {
            record.drop_handle();
        }
    });
}

/// The wait is given up: either the waiter will not be woken any more, or a waker has taken it and
/// must be awaited.
#[test]
fn wait_that_is_given_up_leaves_no_waiter() {
    check(|record| {
        let waits = record.word.register(waiter_address());
        if waits && record.word.unregister(waiter_address()) {
            record.drop_handle();
            return;
        }
        if waits {
            record.waiter.wait();
        }
        record.take_and_leave();
    });
}

/// A wait that was given up can be begun again.
#[test]
fn second_wait_gets_the_result() {
    check(|record| {
        let mut waits = record.word.register(waiter_address());
        if waits && record.word.unregister(waiter_address()) {
            waits = record.word.register(waiter_address());
        }
        if waits {
            record.waiter.wait();
        }
        record.take_and_leave();
    });
}

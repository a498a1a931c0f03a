//! Every interleaving of the three that meet at a latent job: `fork_job.rs`.
//!
//! The forker is cancelled while a thief makes a goroutine of its job and that goroutine runs. The
//! goroutine is cancelled exactly once, by the forker or at its beginning; the forker sees the
//! result; and it is woken if it waits.
//!
//! Mutations it catches, each tried on `fork_job.rs` or `join.rs`:
//! - `taken_by` or `cancel` by load and store (the cancellation is lost),
//! - `finish` that returns the ticket of an earlier wait (the forker is not woken),
//! - `finish` with Relaxed (the result is read before it is written).
#![cfg(loom)]

use heist_core::fork_job::JobWord;
use heist_core::status::Ticket;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Condvar, Mutex};
use loom::thread;
use std::num::NonZeroUsize;
// Not loom's: they count for the check at the end and are not part of the protocol.
use std::sync::atomic::{AtomicU32, Ordering};

const FIRST: Ticket = Ticket::from_bits(0x300);
const SECOND: Ticket = Ticket::from_bits(0x500);
const RECORD: NonZeroUsize = NonZeroUsize::new(128).unwrap();

struct Frame {
    word: JobWord,
    result: UnsafeCell<u32>,
    woken: Mutex<Option<Ticket>>,
    changed: Condvar,
    n_cancelled: AtomicU32,
}

impl Frame {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: JobWord::new(),
            result: UnsafeCell::new(0),
            woken: Mutex::new(None),
            changed: Condvar::new(),
            n_cancelled: AtomicU32::new(0),
        })
    }

    fn cancelled(&self) {
        self.n_cancelled.fetch_add(1, Ordering::Relaxed);
    }

    /// The taker, and then the goroutine that it made.
    fn take_and_run(&self) {
        if self.word.taken_by(RECORD) {
            self.cancelled();
        }
        // SAFETY: the forker reads it after the end; loom checks.
        self.result.with_mut(|result| unsafe { *result = 42 });
        if let Some(wait) = self.word.finish() {
            *self.woken.lock().unwrap() = Some(wait);
            self.changed.notify_one();
        }
    }

    fn wait(&self, ticket: Ticket) {
        if self.word.register(ticket) {
            let mut woken = self.woken.lock().unwrap();
            while *woken != Some(ticket) {
                woken = self.changed.wait(woken).unwrap();
            }
        }
        assert!(self.word.is_finished());
        assert_eq!(self.word.taker(), Some(RECORD));
        // SAFETY: the job has ended; loom checks.
        assert_eq!(self.result.with(|result| unsafe { *result }), 42);
    }
}

#[test]
fn the_forker_waits_for_the_end() {
    loom::model(|| {
        let frame = Frame::new();
        let taker = Arc::clone(&frame);
        let taker = thread::spawn(move || taker.take_and_run());
        frame.wait(FIRST);
        taker.join().unwrap();
    });
}

#[test]
fn cancellation_reaches_the_goroutine_once() {
    loom::model(|| {
        let frame = Frame::new();
        let taker = Arc::clone(&frame);
        let taker = thread::spawn(move || taker.take_and_run());
        if let Some(record) = frame.word.cancel() {
            assert_eq!(record, RECORD);
            frame.cancelled();
        }
        frame.wait(FIRST);
        taker.join().unwrap();
        assert_eq!(frame.n_cancelled.load(Ordering::Relaxed), 1);
    });
}

/// A canceller wakes the forker, which leaves the word, passes the cancellation on and waits again.
#[test]
fn a_forker_that_was_woken_early_waits_again() {
    loom::model(|| {
        let frame = Frame::new();
        let taker = Arc::clone(&frame);
        let taker = thread::spawn(move || taker.take_and_run());
        if frame.word.register(FIRST) && !frame.word.unregister(FIRST) {
            assert!(frame.word.is_finished(), "nobody else takes the forker out");
        }
        if frame.word.cancel().is_some() {
            frame.cancelled();
        }
        if !frame.word.is_finished() {
            frame.wait(SECOND);
        }
        taker.join().unwrap();
        assert_eq!(frame.n_cancelled.load(Ordering::Relaxed), 1);
    });
}

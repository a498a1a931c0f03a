//! The read-write word: a writer is alone, and no waiter is forgotten.
//!
//! A waiter that is forgotten hangs, which loom reports as a deadlock.
#![cfg(loom)]

use heist_core::rw_word::{Entered, RwWord};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex, Notify};
use std::cell::Cell;

struct Waiter {
    woken: Cell<bool>,
    note: Notify,
}

#[derive(Default)]
struct Queues {
    readers: Vec<Arc<Waiter>>,
    writer: Option<Arc<Waiter>>,
}

/// The lock as the runtime builds it, with loom's locks for the queue and for the writers' turn.
struct Model {
    word: RwWord,
    turn: Mutex<()>,
    queues: Mutex<Queues>,
    data: UnsafeCell<u32>,
}

// SAFETY: `woken` is used under the lock of the queues; the data under the lock, which loom checks.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: RwWord::new(),
            turn: Mutex::new(()),
            queues: Mutex::new(Queues::default()),
            data: UnsafeCell::new(0),
        })
    }

    fn waiter() -> Arc<Waiter> {
        Arc::new(Waiter { woken: Cell::new(false), note: Notify::new() })
    }

    /// Sleeps until woken. Loom's sleep may end early.
    fn sleep(&self, waiter: &Waiter) {
        loop {
            waiter.note.wait();
            let _queues = self.queues.lock().unwrap();
            if waiter.woken.get() {
                return;
            }
        }
    }

    fn read(&self) -> u32 {
        if self.word.read() != Entered::Yes {
            let mut queues = self.queues.lock().unwrap();
            if self.word.read_or_queue() != Entered::Yes {
                let waiter = Self::waiter();
                queues.readers.push(Arc::clone(&waiter));
                drop(queues);
                self.sleep(&waiter);
            }
        }
        // SAFETY: the lock is held to read; loom checks that no thread writes.
        let seen = self.data.with(|data| unsafe { *data });
        if self.word.read_done() {
            let mut queues = self.queues.lock().unwrap();
            let writer = if self.word.is_drained() { queues.writer.take() } else { None };
            if let Some(writer) = writer {
                writer.woken.set(true);
                drop(queues);
                writer.note.notify();
            }
        }
        seen
    }

    fn write(&self, gives_up: bool) -> u32 {
        let turn = self.turn.lock().unwrap();
        if !self.word.announce() {
            let mut queues = self.queues.lock().unwrap();
            if !self.word.is_drained() {
                let waiter = Self::waiter();
                queues.writer = Some(Arc::clone(&waiter));
                drop(queues);
                if gives_up {
                    // Whether it was chosen or not, it leaves as if it had entered.
                    self.queues.lock().unwrap().writer = None;
                    self.let_readers_in();
                    return 0;
                }
                self.sleep(&waiter);
                assert!(self.word.is_drained());
            }
        }
        // SAFETY: the lock is held to write; loom checks that no other thread uses the data.
        self.data.with_mut(|data| unsafe { *data += 1 });
        if !self.word.write_done() {
            self.let_readers_in();
        }
        drop(turn);
        1
    }

    fn let_readers_in(&self) {
        let mut queues = self.queues.lock().unwrap();
        let readers = std::mem::take(&mut queues.readers);
        self.word.admit(readers.len() as u32);
        for reader in &readers {
            reader.woken.set(true);
        }
        drop(queues);
        for reader in readers {
            reader.note.notify();
        }
    }
}

fn run(gives_up: bool, readers: usize, writers: usize) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(move || {
        let model = Model::new();
        let mut threads = Vec::new();
        for i in 0..readers + writers - 1 {
            let model = Arc::clone(&model);
            threads.push(loom::thread::spawn(move || {
                if i < readers {
                    model.read();
                    0
                } else {
                    model.write(false)
                }
            }));
        }
        let mut written = model.write(gives_up);
        written += threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u32>();
        assert_eq!(model.read(), written);
        assert!(!model.word.is_pending());
        assert_eq!(model.word.n_readers(), 0);
    });
}

/// SY-12: two readers and a writer. Fails if a reader does not note under the lock that it waits,
/// or if the last reader does not check for the writer.
#[test]
fn two_readers_and_a_writer() {
    run(false, 2, 1);
}

/// SY-12: a reader and two writers, which take turns.
#[test]
fn a_reader_and_two_writers() {
    run(false, 1, 2);
}

/// SY-12: the last reader before a writer may be late to wake it: that writer has entered and left
/// already, and the next writer waits for another reader. Fails if the late reader does not check
/// whether the lock is empty.
#[test]
fn a_reader_that_is_late_to_wake_a_writer() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        let (reads, writes) = (Arc::clone(&model), Arc::clone(&model));
        let reader = loom::thread::spawn(move || reads.read());
        let writer = loom::thread::spawn(move || writes.write(false) + writes.write(false));
        model.read();
        reader.join().unwrap();
        assert_eq!(writer.join().unwrap(), 2);
        assert_eq!(model.read(), 2);
    });
}

/// A writer that gives up admits the readers that waited behind it.
#[test]
fn a_writer_that_gives_up() {
    run(true, 2, 1);
}

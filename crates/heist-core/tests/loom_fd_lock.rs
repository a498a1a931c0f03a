//! Every interleaving of threads that use a descriptor, queue for it, give up and close it:
//! `fd_lock.rs`.
//!
//! One reader reads at a time, no queued reader is forgotten (which loom would report as a
//! deadlock), and the descriptor is destroyed once, after its last use.
//!
//! Mutations it catches, each tried on `fd_lock.rs`:
//! - `unlock` that does not check for queued readers, `queue` that does not note one or does so by
//!   load and store, `passed_on` that forgets the others (a reader sleeps forever),
//! - `queue` that does not check whether it is closed (the same),
//! - `close` without its own reference, or without a check for the last reference (destroyed twice,
//!   or while it is used),
//! - taking or returning with Relaxed (one reader does not see what the one before did).
#![cfg(loom)]

use heist_core::fd_lock::{FdLock, Taken, Unlocked, Way};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex, Notify};
use std::cell::Cell;
use std::collections::VecDeque;

/// The result with which a waiter is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Granted,
    Closed,
}

struct Waiter {
    outcome: Cell<Option<Outcome>>,
    note: Notify,
}

/// The behaviour of a reader that finds the descriptor busy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Patience {
    Endless,
    /// It leaves the queue again, if it has not been chosen yet.
    None,
}

/// A descriptor as the runtime builds it, with loom's lock around the queue of its readers.
struct Model {
    lock: FdLock,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    /// Only the reader whose turn it is uses it.
    n_read: UnsafeCell<u32>,
    /// Every user reads it during a call; the last user writes it.
    n_destroyed: UnsafeCell<u32>,
}

// SAFETY: `outcome` is used under the lock of the queue; the rest as described above, which loom
// checks.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            lock: FdLock::new(),
            queue: Mutex::new(VecDeque::new()),
            n_read: UnsafeCell::new(0),
            n_destroyed: UnsafeCell::new(0),
        })
    }

    /// One read. Returns whether it took place.
    fn read(&self, patience: Patience) -> bool {
        let mine = match self.lock.lock(Way::Read) {
            Taken::Busy => self.wait(patience),
            taken => taken == Taken::Yes,
        };
        if mine {
            self.call();
            // SAFETY: it is this reader's turn; loom checks.
            self.n_read.with_mut(|n| unsafe { *n += 1 });
            self.end(match self.lock.unlock(Way::Read) {
                Unlocked::Queued => self.pass_on(),
                ended => ended,
            });
        }
        mine
    }

    /// Waits for the turn of this reader. Returns whether it came.
    fn wait(&self, patience: Patience) -> bool {
        let mut queue = self.queue.lock().unwrap();
        let taken = self.lock.queue(Way::Read);
        if taken != Taken::Busy {
            return taken == Taken::Yes;
        }
        let waiter = Arc::new(Waiter { outcome: Cell::new(None), note: Notify::new() });
        queue.push_back(Arc::clone(&waiter));
        drop(queue);
        if patience == Patience::None {
            let mut queue = self.queue.lock().unwrap();
            if waiter.outcome.get().is_none() {
                queue.retain(|other| !Arc::ptr_eq(other, &waiter));
                return false;
            }
        }
        loop {
            // Loom's sleep may end early.
            waiter.note.wait();
            let _queue = self.queue.lock().unwrap();
            if let Some(outcome) = waiter.outcome.get() {
                return outcome == Outcome::Granted;
            }
        }
    }

    fn pass_on(&self) -> Unlocked {
        let mut queue = self.queue.lock().unwrap();
        let Some(first) = queue.pop_front() else {
            return self.lock.unlock_empty(Way::Read);
        };
        self.lock.passed_on(Way::Read, !queue.is_empty());
        first.outcome.set(Some(Outcome::Granted));
        drop(queue);
        first.note.notify();
        Unlocked::Done
    }

    /// A use that needs no turn. Returns whether it took place.
    fn ask(&self) -> bool {
        let taken = self.lock.acquire() == Taken::Yes;
        if taken {
            self.call();
            self.end(self.lock.release());
        }
        taken
    }

    fn close(&self) -> bool {
        if !self.lock.close() {
            return false;
        }
        let mut queue = self.queue.lock().unwrap();
        let waiters = std::mem::take(&mut *queue);
        waiters.iter().for_each(|waiter| waiter.outcome.set(Some(Outcome::Closed)));
        drop(queue);
        waiters.iter().for_each(|waiter| waiter.note.notify());
        self.call();
        self.end(self.lock.release());
        true
    }

    /// A system call with the descriptor.
    fn call(&self) {
        // SAFETY: this user holds a reference; loom checks that it is not destroyed meanwhile.
        assert_eq!(self.n_destroyed.with(|n| unsafe { *n }), 0, "used after its end");
    }

    fn end(&self, ended: Unlocked) {
        if ended == Unlocked::Last {
            // SAFETY: this was the last use; loom checks.
            self.n_destroyed.with_mut(|n| unsafe { *n += 1 });
        }
    }

    /// Closes it if it is open, and checks the final state.
    fn finish(&self, n_read: u32) {
        self.close();
        // SAFETY: all other threads have ended.
        let (read, destroyed) =
            unsafe { (self.n_read.with(|n| *n), self.n_destroyed.with(|n| *n)) };
        assert_eq!(read, n_read, "reads");
        assert_eq!(destroyed, 1, "times destroyed");
        assert!(self.lock.is_closed() && !self.ask());
    }
}

/// Runs each of `others` on its own thread and `main` on this one. Returns how many returned true.
fn run(
    model: &Arc<Model>,
    others: &[fn(&Model) -> bool],
    main: impl FnOnce(&Model) -> bool,
) -> u32 {
    let spawn = |&other: &fn(&Model) -> bool| {
        let model = Arc::clone(model);
        loom::thread::spawn(move || other(&model))
    };
    let threads: Vec<_> = others.iter().map(spawn).collect();
    let mine = main(model);
    threads.into_iter().map(|thread| u32::from(thread.join().unwrap())).sum::<u32>()
        + u32::from(mine)
}

fn read(model: &Model) -> bool {
    model.read(Patience::Endless)
}

fn read_or_give_up(model: &Model) -> bool {
    model.read(Patience::None)
}

/// For models that count something else.
fn ask_and_say_no(model: &Model) -> bool {
    model.ask();
    false
}

fn check(model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(model);
}

/// Readers take turns, and each gets one.
#[test]
fn three_readers_take_turns() {
    check(|| {
        let model = Model::new();
        assert_eq!(run(&model, &[read, read], read), 3);
        model.finish(3);
    });
}

/// A reader that leaves the queue does not consume a turn.
#[test]
fn a_reader_that_gives_up_leaves_the_turn_to_the_next() {
    check(|| {
        let model = Model::new();
        let n = run(&model, &[read_or_give_up, read], read);
        assert!(n >= 2, "two of them wait without a limit");
        model.finish(n);
    });
}

/// A close ends every wait, and the last user destroys.
#[test]
fn close_while_readers_wait() {
    check(|| {
        let model = Model::new();
        let n = run(&model, &[read, read], |model| !model.close());
        model.finish(n);
    });
}

/// The same with a use that needs no turn, and with two threads that close.
#[test]
fn close_while_it_is_used() {
    check(|| {
        let model = Model::new();
        assert_eq!(run(&model, &[ask_and_say_no, Model::close], Model::close), 1, "closed once");
        model.finish(0);
    });
}

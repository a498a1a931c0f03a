//! The mutex word: exclusion, and no waiter is forgotten.
//!
//! A waiter that is forgotten hangs, which loom reports as a deadlock.
#![cfg(loom)]

use heist_core::mutex_word::{Attempt, Contender, Enqueued, MutexWord, Released};
use loom::cell::UnsafeCell;
use loom::sync::{Arc, Mutex, Notify};
use std::collections::VecDeque;

/// The result with which a waiter is woken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Grant {
    Token,
    Mutex,
}

struct Waiter {
    grant: std::cell::Cell<Option<Grant>>,
    note: Notify,
}

/// The mutex as the runtime builds it, with loom's lock around the queue. `grant` is written under
/// that lock.
struct Model {
    word: MutexWord,
    queue: Mutex<VecDeque<Arc<Waiter>>>,
    data: UnsafeCell<u32>,
}

// SAFETY: `grant` is used under the queue's lock; the data under the mutex, which loom checks.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

/// How long a contender waits.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Patience {
    /// It waits until it has the mutex.
    Endless,
    /// It is woken too late each time: it asks for starvation mode.
    Starving,
    /// It gives up in the queue if it has not been chosen yet.
    None,
}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            word: MutexWord::new(),
            queue: Mutex::new(VecDeque::new()),
            data: UnsafeCell::new(0),
        })
    }

    fn lock(&self, patience: Patience) -> bool {
        if self.word.lock_fast() {
            return true;
        }
        let mut me = Contender::new();
        let mut waited = false;
        loop {
            match self.word.attempt(&mut me) {
                Attempt::Acquired => return true,
                Attempt::Busy => self.word.announce(&mut me),
                Attempt::Starving => {}
            }
            let waiter = Arc::new(Waiter { grant: None.into(), note: Notify::new() });
            let mut queue = self.queue.lock().unwrap();
            if self.word.enqueue(&mut me) == Enqueued::Acquired {
                return true;
            }
            if waited {
                queue.push_front(Arc::clone(&waiter));
            } else {
                queue.push_back(Arc::clone(&waiter));
            }
            drop(queue);
            if patience == Patience::None {
                let mut queue = self.queue.lock().unwrap();
                let before = queue.len();
                queue.retain(|other| !Arc::ptr_eq(other, &waiter));
                if queue.len() < before {
                    self.word.dequeued();
                    return false;
                }
            }
            waited = true;
            match self.wait(&waiter) {
                Grant::Mutex => return true,
                Grant::Token => me.woken(patience == Patience::Starving),
            }
        }
    }

    /// Sleeps until it is chosen. Loom's sleep may end early.
    fn wait(&self, waiter: &Waiter) -> Grant {
        loop {
            waiter.note.wait();
            let _queue = self.queue.lock().unwrap();
            if let Some(grant) = waiter.grant.get() {
                return grant;
            }
        }
    }

    fn unlock(&self) {
        let released = self.word.unlock();
        if released == Released::Done {
            return;
        }
        let mut queue = self.queue.lock().unwrap();
        let first = queue.pop_front();
        if first.is_some() {
            self.word.dequeued();
        }
        let grant = match (released, &first) {
            (Released::WakeOne, None) => return self.word.return_token(),
            (Released::WakeOne, Some(_)) => Grant::Token,
            (_, None) => return self.word.stop_starving(),
            (_, Some(_)) => {
                self.word.hand_over(true);
                Grant::Mutex
            }
        };
        if let Some(first) = first {
            first.grant.set(Some(grant));
            drop(queue);
            first.note.notify();
        }
    }

    fn count(&self, patience: Patience) -> bool {
        let locked = self.lock(patience);
        if locked {
            // SAFETY: the mutex is held; loom checks that no other thread uses the data.
            self.data.with_mut(|data| unsafe { *data += 1 });
            self.unlock();
        }
        locked
    }
}

fn run(patiences: &'static [Patience]) {
    let mut builder = loom::model::Builder::new();
    if patiences.len() > 2 && builder.preemption_bound.is_none() {
        builder.preemption_bound = Some(3);
    }
    builder.check(move || {
        let model = Model::new();
        let others: Vec<_> = patiences[1..]
            .iter()
            .map(|&patience| {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || u32::from(model.count(patience)))
            })
            .collect();
        let mut sum = u32::from(model.count(patiences[0]));
        sum += others.into_iter().map(|other| other.join().unwrap()).sum::<u32>();
        // The mutex is free again, with nothing left behind.
        assert!(model.word.lock_fast(), "{:?}", model.word);
        // SAFETY: the mutex is held.
        assert_eq!(model.data.with(|data| unsafe { *data }), sum);
        assert!(model.queue.lock().unwrap().is_empty());
    });
}

/// IN-37: two contenders exclude each other and none is forgotten. Fails if a releaser ignores the
/// count, or if a waiter is counted before it sees the mutex taken.
#[test]
fn two_contenders() {
    run(&[Patience::Endless; 2]);
}

/// IN-37: three contenders: the token keeps a second waiter asleep and is never lost. Fails if a
/// waiter that queues again keeps the token.
#[test]
fn three_contenders() {
    run(&[Patience::Endless; 3]);
}

/// IN-37: a starving waiter is handed the mutex, and the mutex becomes normal again.
#[test]
fn starving_waiters() {
    run(&[Patience::Endless, Patience::Starving, Patience::Starving]);
}

/// A waiter that gives up is not chosen, and a releaser that finds no waiter leaves the mutex
/// usable. Fails if the token is not returned, or if a starving mutex without waiters stays
/// starving.
#[test]
fn waiters_that_give_up() {
    run(&[Patience::Endless, Patience::None]);
    run(&[Patience::Endless, Patience::Starving, Patience::None]);
}

//! The protocol of the condition variable: no notification is missed, and the oldest waiter is
//! notified.
//!
//! The protocol is in `crates/heist/src/sync/condvar.rs`: draw a ticket with the mutex held,
//! release the mutex, park unless notified meanwhile. A waiter that misses a notification hangs,
//! which loom reports.
#![cfg(loom)]

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::sync::{Arc, Mutex, MutexGuard, Notify};
use std::cell::Cell;
use std::collections::VecDeque;

struct Entry {
    /// Whether it is parked: before that, removing it from the list is enough to notify it.
    parked: Cell<bool>,
    chosen: Cell<bool>,
    note: Notify,
}

/// The condition is a count of items.
struct Model {
    mutex: Mutex<u32>,
    list: Mutex<VecDeque<Arc<Entry>>>,
    n_waiting: AtomicU32,
}

// SAFETY: the cells of entries are used under the lock of the list.
unsafe impl Sync for Model {}
// SAFETY: as above.
unsafe impl Send for Model {}

impl Model {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            mutex: Mutex::new(0),
            list: Mutex::new(VecDeque::new()),
            n_waiting: AtomicU32::new(0),
        })
    }

    fn count(&self, list: &VecDeque<Arc<Entry>>) {
        self.n_waiting.store(list.len() as u32, Ordering::Relaxed);
    }

    /// True if it was notified, false if it gave up.
    fn wait(&self, guard: MutexGuard<'_, u32>, gives_up: bool) -> bool {
        let entry = Arc::new(Entry {
            parked: Cell::new(false),
            chosen: Cell::new(false),
            note: Notify::new(),
        });
        let mut list = self.list.lock().unwrap();
        list.push_back(Arc::clone(&entry));
        self.count(&list);
        drop(list);
        drop(guard);
        let mut list = self.list.lock().unwrap();
        if entry.chosen.get() {
            return true;
        }
        if gives_up {
            list.retain(|other| !Arc::ptr_eq(other, &entry));
            self.count(&list);
            return false;
        }
        entry.parked.set(true);
        drop(list);
        loop {
            entry.note.wait();
            let _list = self.list.lock().unwrap();
            if entry.chosen.get() {
                return true;
            }
        }
    }

    fn notify_one(&self) {
        if self.n_waiting.load(Ordering::Relaxed) == 0 {
            return;
        }
        let mut list = self.list.lock().unwrap();
        let first = list.pop_front();
        self.count(&list);
        if let Some(first) = first {
            first.chosen.set(true);
            let parked = first.parked.get();
            drop(list);
            if parked {
                first.note.notify();
            }
        }
    }

    fn take(&self, patient: bool) -> bool {
        loop {
            let mut guard = self.mutex.lock().unwrap();
            if *guard > 0 {
                *guard -= 1;
                return true;
            }
            if !self.wait(guard, !patient) {
                return false;
            }
        }
    }

    fn put(&self) {
        *self.mutex.lock().unwrap() += 1;
        self.notify_one();
    }
}

/// IN-39: a taker never sleeps while there is an item. Fails if the ticket is drawn after the mutex
/// was released, or if a notified waiter parks nevertheless.
#[test]
fn no_notification_is_missed() {
    loom::model(|| {
        let model = Model::new();
        let taker = {
            let model = Arc::clone(&model);
            loom::thread::spawn(move || model.take(true))
        };
        model.put();
        assert!(taker.join().unwrap());
    });
}

/// IN-39: two takers and two items. A notification for a waiter that has not parked yet does not go
/// to the other as well.
#[test]
fn two_takers() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(2);
    builder.check(|| {
        let model = Model::new();
        let takers: Vec<_> = (0..2)
            .map(|_| {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || model.take(true))
            })
            .collect();
        model.put();
        model.put();
        assert!(takers.into_iter().all(|taker| taker.join().unwrap()));
        assert_eq!(*model.mutex.lock().unwrap(), 0);
    });
}

/// A waiter that gives up does not consume a notification: the other one gets the item.
#[test]
fn a_waiter_that_gives_up() {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(3);
    builder.check(|| {
        let model = Model::new();
        let takers: Vec<_> = [true, false]
            .into_iter()
            .map(|patient| {
                let model = Arc::clone(&model);
                loom::thread::spawn(move || model.take(patient))
            })
            .collect();
        model.put();
        model.put();
        let taken = takers.into_iter().map(|taker| taker.join().unwrap());
        let taken = taken.map(u32::from).sum::<u32>();
        assert!(taken >= 1);
        assert_eq!(*model.mutex.lock().unwrap(), 2 - taken);
    });
}

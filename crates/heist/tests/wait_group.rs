//! `WaitGroup` between goroutines and plain threads.

mod matrix;

use heist::go;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// A group that waits for nothing does not wait.
#[test]
fn an_empty_group_does_not_wait() {
    WaitGroup::new().wait();
    WaitGroup::default().wait();
    let group = WaitGroup::new();
    group.add(0);
    group.wait();
    matrix::run(|| WaitGroup::new().wait());
}

/// Everything done before `done` is seen after `wait`.
#[test]
fn what_was_done_is_seen() {
    matrix::run(|| {
        let sum = Arc::new(AtomicUsize::new(0));
        let group = WaitGroup::new();
        for i in 0..200 {
            group.add(1);
            let (group, sum) = (group.clone(), Arc::clone(&sum));
            go(move || {
                sum.fetch_add(i, Ordering::Relaxed);
                group.done();
            });
        }
        group.wait();
        assert_eq!(sum.load(Ordering::Relaxed), 199 * 200 / 2);
    });
}

/// A group can be used again once it is empty.
#[test]
fn a_group_can_be_used_again() {
    matrix::run(|| {
        let group = WaitGroup::new();
        for round in 0..50 {
            group.add(round % 5);
            for _ in 0..round % 5 {
                let group = group.clone();
                go(move || group.done());
            }
            group.wait();
        }
    });
}

/// Plain threads and goroutines wait for each other.
#[test]
fn plain_threads_and_goroutines_mix() {
    matrix::each(|_, rt| {
        let (by_threads, by_goroutines) = (WaitGroup::new(), WaitGroup::new());
        by_threads.add(4);
        by_goroutines.add(4);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (ours, theirs) = (by_threads.clone(), by_goroutines.clone());
                scope.spawn(move || {
                    ours.done();
                    theirs.wait();
                });
                let (ours, theirs) = (by_goroutines.clone(), by_threads.clone());
                drop(rt.handle().spawn(move || {
                    theirs.wait();
                    ours.done();
                }));
            }
            by_goroutines.wait();
        });
    });
}

/// Many waiters of both kinds are woken by one `done`.
#[test]
fn one_done_wakes_everybody() {
    matrix::each(|_, rt| {
        let gate = WaitGroup::new();
        gate.add(1);
        let goroutines: Vec<_> = (0..100)
            .map(|_| {
                let gate = gate.clone();
                rt.handle().spawn(move || gate.wait())
            })
            .collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| gate.wait());
            }
            gate.done();
        });
        for goroutine in goroutines {
            goroutine.join().unwrap();
        }
    });
}

/// More `done` than `add` panics in the one who did it.
#[test]
fn a_negative_count_panics() {
    let text = std::panic::catch_unwind(|| WaitGroup::new().done()).unwrap_err();
    let text = text.downcast_ref::<&str>().unwrap();
    assert_eq!(*text, "sync: negative WaitGroup counter");
    matrix::run(|| {
        let error = go(|| WaitGroup::new().done()).join().unwrap_err();
        assert_eq!(error.panic_message(), Some("sync: negative WaitGroup counter"));
    });
}

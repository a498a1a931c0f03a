//! `WaitGroup` between goroutines and plain threads.

use crate::matrix;

use heist::go;
use heist::sync::WaitGroup;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
fn wait_sees_what_came_before_done() {
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
fn one_done_wakes_all_waiters() {
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

/// SY-14: more `done` than `add` panics in the goroutine that did it.
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

/// If `done` is called too often by several threads at once, each of them panics, and the count is
/// unchanged.
#[test]
fn a_count_that_many_would_make_negative_stays_zero() {
    let group = WaitGroup::new();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let misuse = || catch_unwind(AssertUnwindSafe(|| group.done())).is_err();
            scope.spawn(move || (0..2_000).for_each(|_| assert!(misuse())));
        }
    });
    group.wait();
    group.add(1);
    group.done();
    group.wait();
    assert_eq!(format!("{group:?}"), "WaitGroup { count: 0 }");
}

/// SY-13: no waiter passes the second of two groups before the last of sixteen is done, over eight
/// rounds with the same groups.
#[test]
fn no_waiter_passes_early() {
    matrix::run(|| {
        let (first, second) = (WaitGroup::new(), WaitGroup::new());
        for _ in 0..8 {
            let n = 16;
            first.add(n);
            second.add(n);
            let passed = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..n)
                .map(|_| {
                    let (first, second, passed) =
                        (first.clone(), second.clone(), Arc::clone(&passed));
                    go(move || {
                        first.done();
                        second.wait();
                        passed.fetch_add(1, Ordering::SeqCst);
                    })
                })
                .collect();
            first.wait();
            for _ in 0..n {
                assert_eq!(passed.load(Ordering::SeqCst), 0, "passed too early");
                second.done();
            }
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(passed.load(Ordering::SeqCst), n);
        }
    });
}

/// SY-16: the spawning form counts itself, runs once, and `wait` sees what it did; also if it
/// panics, ends itself or is refused.
#[test]
fn the_spawning_form_counts_itself() {
    matrix::run(|| {
        let group = WaitGroup::new();
        let runs = Arc::new(AtomicUsize::new(0));
        for i in 0..30 {
            let runs = Arc::clone(&runs);
            group.go(move || {
                runs.fetch_add(1, Ordering::Relaxed);
                match i % 3 {
                    0 => panic!("does not matter"),
                    1 => heist::exit_current(),
                    _ => {}
                }
            });
        }
        group.wait();
        assert_eq!(runs.load(Ordering::Relaxed), 30);
    });
    let group = WaitGroup::new();
    std::panic::catch_unwind(|| group.go(|| ())).unwrap_err();
    group.wait();
}

/// SY-17: a group that is used again while the last round's waiters leave, or that is added to
/// while a goroutine waits, loses no waiter: here that is no misuse, each waiter has its round.
#[test]
fn reuse_while_waiters_leave_loses_no_waiter() {
    matrix::run(|| {
        let group = WaitGroup::new();
        for _ in 0..50 {
            group.add(1);
            let waiters: Vec<_> = (0..4)
                .map(|_| {
                    let group = group.clone();
                    go(move || group.wait())
                })
                .collect();
            group.done();
            group.add(1);
            group.done();
            waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        }
    });
}

//! Dumps: every goroutine with its number, its state, its creator and its spawn site.

use crate::matrix;

use heist::goroutine::{Builder, census};
use heist::sync::{Mutex, WaitGroup};
use heist::{dump_goroutines, go, num_goroutines, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

fn headers(dump: &str) -> usize {
    dump.lines().filter(|line| line.starts_with("goroutine ")).count()
}

/// SP-05, SP-06: a dump has one header line for each goroutine that is counted, the caller's first.
#[test]
fn a_dump_has_a_header_for_every_goroutine() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (gate, parked) = (WaitGroup::new(), WaitGroup::new());
            gate.add(1);
            let handles: Vec<_> = (0..10)
                .map(|_| {
                    parked.add(1);
                    let (gate, parked) = (gate.clone(), parked.clone());
                    go(move || {
                        parked.done();
                        gate.wait();
                    })
                })
                .collect();
            parked.wait();
            let dump = dump_goroutines();
            let own = heist::current_id().unwrap();
            assert!(dump.starts_with(&format!("goroutine {own} [running]:")), "{dump}");
            assert_eq!(headers(&dump), num_goroutines(), "{dump}");
            assert_eq!(headers(&dump), 11, "{dump}");
            // All but the one that was just about to park are parked by now, or soon.
            while dump_goroutines().matches("[sync.WaitGroup.Wait]").count() < 10 {
                yield_now();
            }
            gate.done();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
        // The main goroutine has handed over its result and leaves its stack a moment later.
        while headers(&rt.dump_goroutines()) != 0 {
            std::thread::yield_now();
        }
    });
}

/// SP-24: a dump says which goroutine made another, and where.
#[test]
fn a_dump_names_the_creator() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let gate = WaitGroup::new();
            gate.add(1);
            let waiter = gate.clone();
            let child = Builder::new().name("child").spawn(move || waiter.wait()).unwrap();
            let own = heist::current_id().unwrap();
            let dump = dump_goroutines();
            let at = dump.find(&format!("goroutine {} [", child.id())).unwrap();
            assert!(dump[at..].contains(&format!("created by goroutine {own}\n")), "{dump}");
            assert!(dump[at..].contains("scheduling/dump.rs:"), "{dump}");
            gate.done();
            child.join().unwrap();
        });
    });
}

/// SP-05: a dump can be made while a panic unwinds.
#[test]
fn a_dump_works_inside_a_panic() {
    struct DumpOnDrop(WaitGroup, Arc<std::sync::Mutex<String>>);
    impl Drop for DumpOnDrop {
        fn drop(&mut self) {
            *self.1.lock().unwrap() = dump_goroutines();
            self.0.done();
        }
    }
    matrix::each(|_, rt| {
        let dump = Arc::new(std::sync::Mutex::new(String::new()));
        let inner = Arc::clone(&dump);
        rt.run(move || {
            let done = WaitGroup::new();
            done.add(1);
            let on_drop = DumpOnDrop(done.clone(), inner);
            let failed = go(move || {
                let _on_drop = on_drop;
                panic!("on purpose");
            });
            done.wait();
            assert!(failed.join().unwrap_err().is_panic());
        });
        assert!(dump.lock().unwrap().starts_with("goroutine "), "{}", dump.lock().unwrap());
    });
}

/// SP-30: goroutines are counted by where they were spawned and what they wait for, many first.
#[test]
fn a_census_counts_by_place_and_reason() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (tx, rx) = heist::chan::bounded::<()>(0);
            let gate = WaitGroup::new();
            gate.add(1);
            let mutex = Arc::new(Mutex::new(()));
            let held = mutex.lock();
            let mut handles = Vec::new();
            for _ in 0..50 {
                let rx = rx.clone();
                handles.push(go(move || assert!(rx.recv().is_err())));
            }
            for _ in 0..40 {
                let gate = gate.clone();
                handles.push(go(move || gate.wait()));
            }
            for _ in 0..10 {
                let mutex = Arc::clone(&mutex);
                handles.push(go(move || drop(mutex.lock())));
            }
            let counts = || census().iter().map(|g| (g.count, g.state)).collect::<Vec<_>>();
            let all_parked = [
                (50, "chan receive"),
                (40, "sync.WaitGroup.Wait"),
                (10, "sync.Mutex.Lock"),
                (1, "running"),
            ];
            while counts() != all_parked {
                yield_now();
            }
            let largest = census()[0];
            assert!(largest.spawned_at.file().ends_with("scheduling/dump.rs"), "{largest}");
            let site = largest.spawned_at;
            assert_eq!(
                largest.to_string(),
                format!("50 goroutines [chan receive], spawned at {site}")
            );
            drop((tx, held));
            gate.done();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
    });
}

/// SP-29, SP-31: lists and counts are made while goroutines enter and leave blocking calls, begin
/// and end, by several at once. A goroutine that lives all the time is in each of them, exactly
/// once.
#[test]
fn overlapping_dumps_tolerate_goroutines_that_come_and_go() {
    let n_dumps = if matrix::stress_time().is_some() { 10_000 } else { 100 };
    for procs in [1, 4, 100] {
        // With slices that end: two that spawn and join each other would keep all others from
        // running.
        matrix::start(heist::Runtime::builder().procs(procs)).run(|| {
            let over = AtomicBool::new(false);
            heist::scope(|scope| {
                for _ in 0..4 {
                    scope.go(|| {
                        while !over.load(Ordering::Relaxed) {
                            heist::blocking(std::thread::yield_now);
                            go(|| ()).join().unwrap();
                        }
                    });
                }
                let observers: Vec<_> = (0..2)
                    .map(|_| {
                        scope.go(move || {
                            let own = heist::current_id().unwrap();
                            for _ in 0..n_dumps {
                                let dump = dump_goroutines();
                                let first = format!("goroutine {own} [running]:");
                                assert!(dump.starts_with(&first), "{dump}");
                                let stay = (1..=5).map(|id| format!("goroutine {id} ["));
                                stay.chain([first]).for_each(|header| {
                                    assert_eq!(dump.matches(&header).count(), 1, "{dump}");
                                });
                                let counted: usize = census().iter().map(|g| g.count).sum();
                                assert!(counted >= 6, "{counted}\n{dump}");
                                yield_now();
                            }
                        })
                    })
                    .collect();
                let outcomes = observers.into_iter().map(|observer| observer.join());
                let outcomes: Vec<_> = outcomes.collect();
                over.store(true, Ordering::Relaxed);
                outcomes.into_iter().for_each(|outcome| outcome.unwrap());
            });
        });
    }
}

/// SP-05: the header of a goroutine that user code locked to its thread says so while it is locked:
/// while it waits, and not when it was only preempted or has unlocked.
#[test]
fn a_dump_says_which_goroutines_are_locked_to_a_thread() {
    let header = |dump: &str, id: &str| {
        let start = format!("goroutine {id} [");
        let line = dump.lines().find(|line| line.starts_with(&start));
        line.expect("it is there").to_owned()
    };
    matrix::each(|_, rt| {
        rt.run(|| {
            let own = heist::current_id().unwrap().to_string();
            let of_own = || header(&dump_goroutines(), &own);
            assert_eq!(of_own(), format!("goroutine {own} [running]:"));
            let (outer, inner) = (heist::lock_os_thread(), heist::lock_os_thread());
            assert_eq!(of_own(), format!("goroutine {own} [running, locked to thread]:"));
            drop(outer);
            assert_eq!(of_own(), format!("goroutine {own} [running, locked to thread]:"));
            drop(inner);
            assert_eq!(of_own(), format!("goroutine {own} [running]:"));

            let gate = WaitGroup::new();
            gate.add(1);
            let held = gate.clone();
            let waits = Builder::new().os_thread().spawn(move || held.wait()).unwrap();
            let id = waits.id().to_string();
            let parked = format!("goroutine {id} [sync.WaitGroup.Wait, locked to thread]:");
            while header(&dump_goroutines(), &id) != parked {
                yield_now();
            }
            gate.done();
            waits.join().unwrap();
        });
        rt.run_here(|| assert!(dump_goroutines().contains("[running, locked to thread]:")));
    });
}

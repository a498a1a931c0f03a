//! Dropping a runtime: which goroutines are unwound, awaited and reported.

use crate::child;
use crate::matrix;

use crate::unwinding::{Counted, open};
use heist::{Runtime, go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Parked goroutines are unwound and their destructors have run when the drop returns.
#[test]
fn parked_goroutines_are_unwound() {
    matrix::each_of(&matrix::cases(), |case, _| {
        let rt = case.runtime();
        let (drops, began) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for i in 0..100 {
            let (count, began) = (Counted(Arc::clone(&drops)), Arc::clone(&began));
            drop(rt.handle().spawn(move || {
                let _count = count;
                began.fetch_add(1, Ordering::SeqCst);
                if i % 2 == 0 {
                    open().wait();
                } else {
                    // A join of one that never ends by itself.
                    let _ = go(|| open().wait()).join();
                }
                unreachable!("it is never opened");
            }));
        }
        matrix::eventually("all begun", || began.load(Ordering::SeqCst) == 100);
        drop(rt);
        assert_eq!(drops.load(Ordering::SeqCst), 100);
    });
}

/// Goroutines that have not started are dropped with their closures; runnable ones end at their
/// next park.
#[test]
fn waiting_and_running_goroutines_end() {
    matrix::each_of(&matrix::cases(), |case, _| {
        let rt = case.runtime();
        let drops = Arc::new(AtomicUsize::new(0));
        for _ in 0..200 {
            let count = Counted(Arc::clone(&drops));
            drop(rt.handle().spawn(move || {
                let _count = count;
                loop {
                    yield_now();
                }
            }));
        }
        drop(rt);
        assert_eq!(drops.load(Ordering::SeqCst), 200);
    });
}

/// Destructors that run during the shutdown may park. Goroutines that they spawn never run: a
/// refusal could end the process, because they run while their goroutine unwinds.
#[test]
fn destructors_may_park_during_the_shutdown() {
    struct Parks(Arc<AtomicUsize>);
    impl Drop for Parks {
        fn drop(&mut self) {
            for _ in 0..3 {
                yield_now();
            }
            let spawned = heist::try_go(|| unreachable!("the runtime ends")).unwrap();
            assert!(spawned.join().unwrap_err().is_cancelled());
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::each_of(&matrix::cases(), |case, _| {
        let rt = case.runtime();
        let (drops, began) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..20 {
            let (parks, began) = (Parks(Arc::clone(&drops)), Arc::clone(&began));
            drop(rt.handle().spawn(move || {
                let _parks = parks;
                began.fetch_add(1, Ordering::SeqCst);
                open().wait();
            }));
        }
        matrix::eventually("all begun", || began.load(Ordering::SeqCst) == 20);
        drop(rt);
        assert_eq!(drops.load(Ordering::SeqCst), 20);
    });
}

/// The drop waits for a goroutine that runs and ends by itself.
#[test]
fn a_running_goroutine_may_finish() {
    for procs in [1, 2, 4] {
        let rt = matrix::plain(procs);
        let (began, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (tell, told) = (Arc::clone(&began), Arc::clone(&ended));
        let handle = rt.handle().spawn(move || {
            tell.store(true, Ordering::SeqCst);
            let until = Instant::now() + Duration::from_millis(50);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            told.store(true, Ordering::SeqCst);
            4
        });
        matrix::eventually("begun", || began.load(Ordering::SeqCst));
        drop(rt);
        assert!(ended.load(Ordering::SeqCst));
        assert_eq!(handle.join().unwrap(), 4);
    }
}

/// A goroutine that never parks delays the shutdown for a bounded time; the report names where it
/// was spawned, and the others are unwound nevertheless.
#[test]
fn a_goroutine_that_never_parks_is_left_behind() {
    let ended = child::run(|| {
        for procs in [1, 2] {
            let builder = Runtime::builder().procs(procs);
            let rt = matrix::start(builder.shutdown_timeout(Duration::from_millis(200)));
            let began = Arc::new(AtomicUsize::new(0));
            let drops = Arc::new(AtomicUsize::new(0));
            if procs > 1 {
                let (tell, count) = (Arc::clone(&began), Counted(Arc::clone(&drops)));
                drop(rt.handle().spawn(move || {
                    let _count = count;
                    tell.fetch_add(1, Ordering::SeqCst);
                    open().wait();
                }));
                matrix::eventually("begun", || began.load(Ordering::SeqCst) == 1);
            }
            let tell = Arc::clone(&began);
            eprintln!("expected: {}:{}:", file!(), line!() + 1);
            let handle = rt.handle().spawn(move || {
                tell.fetch_add(1, Ordering::SeqCst);
                loop {
                    std::hint::spin_loop();
                }
            });
            matrix::eventually("begun", || began.load(Ordering::SeqCst) == procs);
            let from = Instant::now();
            drop(rt);
            let took = from.elapsed();
            assert!(took >= Duration::from_millis(200), "{took:?}");
            assert!(took < Duration::from_secs(20), "{took:?}");
            assert_eq!(drops.load(Ordering::SeqCst), procs - 1);
            assert!(!heist::JoinHandle::<()>::is_finished(&handle));
        }
    });
    ended.succeeded();
    ended.said("did not end within 200ms of the shutdown");
    ended.said("[running]");
    let expected = |line: &str| line.strip_prefix("expected: ").map(str::to_owned);
    for site in ended.stderr.lines().filter_map(expected) {
        // Twice by this test, twice by the reports.
        let times = ended.stderr.matches(&site).count();
        assert_eq!(times, 4, "{site} in\n{}", ended.stderr);
    }
}

/// Joining threads and goroutines of other runtimes are released by the shutdown.
#[test]
fn joiners_elsewhere_are_released() {
    matrix::each_of(&matrix::cases_with(&[1, 2, 4]), |case, other| {
        let rt = case.runtime();
        let began = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let tell = Arc::clone(&began);
                rt.handle().spawn(move || {
                    tell.fetch_add(1, Ordering::SeqCst);
                    open().wait();
                })
            })
            .collect();
        matrix::eventually("begun", || began.load(Ordering::SeqCst) == 2);
        let [by_thread, by_goroutine] = handles.try_into().unwrap();
        std::thread::scope(|scope| {
            let joined = other.handle().spawn(move || by_goroutine.join());
            scope.spawn(move || assert!(by_thread.join().unwrap_err().is_cancelled()));
            drop(rt);
            assert!(joined.join().unwrap().unwrap_err().is_cancelled());
        });
    });
}

/// Loops without calls on the only processor and calls that block forever do not delay the
/// shutdown: parked goroutines are unwound meanwhile, the others are named and left behind.
#[test]
fn hogs_and_blocked_calls_on_one_processor_are_left_behind() {
    let timeout = Duration::from_secs(1);
    let ended = child::run(|| {
        let rt = matrix::start(Runtime::builder().procs(1).shutdown_timeout(timeout));
        let (began, drops) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        for _ in 0..10 {
            let (tell, count) = (Arc::clone(&began), Counted(Arc::clone(&drops)));
            drop(rt.handle().spawn(move || {
                let _count = count;
                tell.fetch_add(1, Ordering::SeqCst);
                open().wait();
            }));
        }
        let (mut reader, _writer) = std::io::pipe().unwrap();
        let tell = Arc::clone(&began);
        eprintln!("expected: {}:{}:", file!(), line!() + 1);
        drop(rt.handle().spawn(move || {
            tell.fetch_add(1, Ordering::SeqCst);
            std::io::Read::read(&mut reader, &mut [0]).unwrap();
        }));
        eprintln!("expected: {}:{}:", file!(), line!() + 3);
        for _ in 0..2 {
            let tell = Arc::clone(&began);
            drop(rt.handle().spawn(move || {
                tell.fetch_add(1, Ordering::SeqCst);
                loop {
                    std::hint::spin_loop();
                }
            }));
        }
        matrix::eventually("all begun", || began.load(Ordering::SeqCst) == 13);
        let from = Instant::now();
        drop(rt);
        let took = from.elapsed();
        assert!(took >= timeout, "{took:?}");
        assert!(took < timeout * 20, "{took:?}");
        assert_eq!(drops.load(Ordering::SeqCst), 10);
    });
    ended.succeeded();
    ended.said("heist: 3 goroutines did not end within 1s of the shutdown");
    let expected = |line: &str| line.strip_prefix("expected: ").map(str::to_owned);
    for site in ended.stderr.lines().filter_map(expected) {
        assert!(ended.stderr.matches(&site).count() > 1, "{site} in\n{}", ended.stderr);
    }
}

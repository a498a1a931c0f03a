//! `time::timeout` and `AfterFunc::reset`.

use crate::matrix;

use heist::goroutine::{self, Builder, Class};
use heist::net::UnixStream;
use heist::sync::{Mutex, WaitGroup};
use heist::time::{self, Elapsed, after_func, timeout, timeout_at};
use heist::{chan, go};
use std::io::Read;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const LONG: Duration = Duration::from_secs(3600);

/// Whatever a function waits for, its time limit ends the wait, and nothing of it is left.
#[test]
fn the_limit_ends_every_kind_of_wait() {
    matrix::run(|| {
        let (mutex, group) = (Mutex::new(0), WaitGroup::new());
        group.add(1);
        let (mut socket, _other) = UnixStream::pair().unwrap();
        let held = mutex.lock();
        let n_dropped = AtomicUsize::new(0);
        struct Counted<'a>(&'a AtomicUsize);
        impl Drop for Counted<'_> {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::Relaxed);
            }
        }
        let limited = |wait: &mut (dyn FnMut() + Send)| {
            let start = Instant::now();
            let ended = timeout(MS, || {
                let _counted = Counted(&n_dropped);
                wait();
            });
            assert_eq!(ended, Err(Elapsed));
            assert!(start.elapsed() >= MS);
        };
        limited(&mut || *mutex.lock() += 1);
        limited(&mut || group.wait());
        limited(&mut || time::sleep(LONG));
        limited(&mut || assert!(chan::never::<u8>().recv().is_ok()));
        limited(&mut || drop(socket.read(&mut [0])));
        limited(&mut || drop(go(|| chan::never::<u8>().recv()).join()));
        limited(&mut || assert!(timeout(LONG, || time::sleep(LONG)).is_ok()));
        limited(&mut || loop {
            heist::yield_now();
        });
        // A function that had not begun owned nothing.
        assert!(n_dropped.load(Ordering::Relaxed) <= 8);
        drop(held);
        assert_eq!(*mutex.lock(), 0);
        let io: std::io::Error = Elapsed.into();
        assert_eq!(io.kind(), std::io::ErrorKind::TimedOut);
    });
}

/// A function that ends in time returns its result, and may borrow.
#[test]
fn a_result_in_time_is_returned() {
    matrix::run(|| {
        let mut words = vec!["a"];
        let n = timeout(LONG, || {
            words.push("b");
            words.len()
        });
        assert_eq!((n, &words[..]), (Ok(2), &["a", "b"][..]));
        assert_eq!(timeout_at(Instant::now() + LONG, || time::sleep(MS)), Ok(()));
        let idle =
            Builder::new().class(Class::Idle).spawn(|| timeout(LONG, goroutine::current_class));
        assert_eq!(idle.unwrap().join().unwrap(), Ok(Class::Idle));
    });
}

/// A panic of the function is the caller's; a function that ends its goroutine ends the caller.
#[test]
fn the_function_ends_as_if_it_ran_here() {
    matrix::run(|| {
        let panics = || timeout(LONG, || panic!("no luck"));
        let payload = catch_unwind(AssertUnwindSafe(panics)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"no luck"));
        let exits = go(|| timeout(LONG, || heist::exit_current()));
        assert!(exits.join().unwrap_err().is_exited());
    });
}

/// A caller that is cancelled cancels the function, and continues to unwind when that has ended.
#[test]
fn cancelling_the_caller_cancels_the_function() {
    matrix::run(|| {
        let shared = Arc::new(Mutex::new(()));
        let caller = {
            let shared = Arc::clone(&shared);
            go(move || {
                timeout(LONG, || {
                    let _held = shared.lock();
                    time::sleep(LONG);
                })
            })
        };
        matrix::until_parked(1, "sleep");
        caller.cancel();
        assert!(caller.join().unwrap_err().is_cancelled());
        assert!(shared.try_lock().is_some());
    });
}

/// Many limits that end at about the time of their functions: one or the other, and no hang.
#[test]
fn limits_race_with_results() {
    matrix::run(|| {
        let group = WaitGroup::new();
        for i in 0..50 {
            group.go(move || {
                let nap = Duration::from_micros(i * 10);
                let ended = timeout(Duration::from_micros(250), || {
                    time::sleep(nap);
                    i
                });
                assert!(ended.is_err() || ended == Ok(i));
            });
        }
        group.wait();
    });
}

/// A function that is postponed runs once, at its last time; one that has begun is not set again.
#[test]
fn a_function_can_be_postponed() {
    matrix::run(|| {
        let ran = Arc::new(AtomicUsize::new(0));
        let (count, start) = (Arc::clone(&ran), Instant::now());
        // Large captures are in a box, small ones in the record.
        let large = [1_usize; 100];
        let mut later = after_func(LONG, move || {
            count.fetch_add(large.iter().sum(), Ordering::Relaxed);
        });
        assert!(later.reset(LONG) && later.reset(2 * MS));
        matrix::yield_until("it runs", || ran.load(Ordering::Relaxed) == 100);
        assert!(start.elapsed() >= 2 * MS);
        matrix::yield_until("it ends", || later.is_finished());
        assert!(!later.reset(MS) && !later.stop());

        let count = Arc::clone(&ran);
        let mut stopped = after_func(MS, move || {
            count.fetch_add(1, Ordering::Relaxed);
        });
        if stopped.reset(LONG) {
            assert!(stopped.stop() && !stopped.stop() && !stopped.reset(MS));
            assert_eq!(Arc::strong_count(&ran), 1, "the captures were dropped");
        }
        // One that has begun may still run.
        matrix::yield_until("no other is left", || heist::num_goroutines() == 1);
    });
}

/// Postponing needs the runtime's own goroutine.
#[test]
fn postponing_elsewhere_panics() {
    let rt = matrix::plain(2);
    let mut later = rt.run(|| after_func(LONG, || ()));
    assert!(catch_unwind(AssertUnwindSafe(|| later.reset(MS))).is_err());
    let other = matrix::plain(1);
    other.run(|| assert!(catch_unwind(AssertUnwindSafe(|| later.reset(MS))).is_err()));
    assert!(later.stop());
}

/// Functions that are postponed while their time comes run once, or were postponed.
#[test]
fn postponing_races_with_the_clock() {
    matrix::run(|| {
        let (n, ran) = (100, Arc::new(AtomicUsize::new(0)));
        let mut all: Vec<_> = (0..n)
            .map(|i| {
                let ran = Arc::clone(&ran);
                after_func(Duration::from_micros(i * 10), move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        let mut stopped = 0;
        for later in &mut all {
            while later.reset(Duration::from_micros(50)) && stopped % 2 == 0 {}
            stopped += usize::from(later.stop());
        }
        matrix::yield_until("the rest runs", || {
            ran.load(Ordering::Relaxed) + stopped == n as usize
        });
    });
}

//! `Once`, `OnceLock` and `LazyLock` between goroutines and plain threads.

mod matrix;

use heist::sync::{LazyLock, Once, OnceLock, WaitGroup};
use heist::{go, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// SY-23: the body runs once, and everybody sees it finished.
#[test]
fn the_body_runs_once_and_everybody_sees_it() {
    matrix::each(|_, rt| {
        let once = Arc::new(Once::new());
        let runs = Arc::new(AtomicUsize::new(0));
        let call = || {
            let (once, runs) = (Arc::clone(&once), Arc::clone(&runs));
            move || {
                once.call_once(|| {
                    yield_now();
                    runs.fetch_add(1, Ordering::Relaxed);
                });
                assert_eq!(runs.load(Ordering::Relaxed), 1);
            }
        };
        let goroutines: Vec<_> = (0..10).map(|_| rt.handle().spawn(call())).collect();
        std::thread::scope(|scope| {
            scope.spawn(call());
            scope.spawn(call());
        });
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert!(once.is_completed());
    });
}

/// SY-23: a body that panics counts as done, and so does one whose goroutine ends or is cancelled.
#[test]
fn a_body_that_does_not_return_counts_as_done() {
    let panicking = Once::new();
    catch_unwind(AssertUnwindSafe(|| panicking.call_once(|| panic!("in the body")))).unwrap_err();
    panicking.call_once(|| unreachable!("it is done"));
    matrix::run(|| {
        let once = Arc::new(Once::new());
        let exits = Arc::clone(&once);
        assert!(go(move || exits.call_once(|| heist::exit_current())).join().is_err());
        once.call_once(|| unreachable!("it is done"));

        let once = Arc::new(Once::new());
        let waits = Arc::clone(&once);
        let waiter = go(move || {
            waits.call_once(|| {
                let forever = WaitGroup::new();
                forever.add(1);
                forever.wait();
            });
        });
        let second = {
            let once = Arc::clone(&once);
            matrix::yield_until("the body waits", || {
                heist::dump_goroutines()
                    .contains(&format!("goroutine {} [sync.WaitGroup.Wait", waiter.id()))
            });
            go(move || once.call_once(|| unreachable!("it is done")))
        };
        waiter.cancel();
        assert!(waiter.join().is_err());
        second.join().unwrap();
    });
}

/// The value is made once; whoever asks meanwhile waits for it.
#[test]
fn a_value_is_made_once() {
    matrix::each(|_, rt| {
        let cell = Arc::new(OnceLock::new());
        let made = Arc::new(AtomicUsize::new(0));
        let get = |i: usize| {
            let (cell, made) = (Arc::clone(&cell), Arc::clone(&made));
            move || {
                let first = *cell.get_or_init(|| {
                    made.fetch_add(1, Ordering::Relaxed);
                    yield_now();
                    i
                });
                assert_eq!(cell.get(), Some(&first));
                first
            }
        };
        let goroutines: Vec<_> = (0..10).map(|i| rt.handle().spawn(get(i))).collect();
        let values: Vec<_> = goroutines.into_iter().map(|g| g.join().unwrap()).collect();
        assert!(values.iter().all(|value| value == cell.get().unwrap()), "{values:?}");
        assert_eq!(made.load(Ordering::Relaxed), 1);
    });
}

/// A value that could not be made is made by the next; values are dropped once.
#[test]
fn a_cell_that_is_empty_stays_usable() {
    let cell = OnceLock::new();
    catch_unwind(AssertUnwindSafe(|| cell.get_or_init(|| panic!("no value")))).unwrap_err();
    assert_eq!(cell.get(), None);
    let value = Arc::new(5);
    assert_eq!(cell.set(Arc::clone(&value)), Ok(()));
    assert_eq!(cell.set(Arc::new(6)), Err(Arc::new(6)));
    assert_eq!(format!("{cell:?} {:?}", OnceLock::<u8>::new()), "OnceLock(5) OnceLock(<empty>)");
    let mut cell = cell;
    assert_eq!(cell.get_mut(), Some(&mut Arc::clone(&value)));
    assert_eq!(cell.take(), Some(Arc::clone(&value)));
    assert_eq!(cell.get(), None);
    drop(OnceLock::from(Arc::clone(&value)));
    assert_eq!(OnceLock::from(Arc::clone(&value)).into_inner(), Some(Arc::clone(&value)));
    assert_eq!(Arc::strong_count(&value), 1);
}

/// SY-24: a lazy value is made at the first use and kept; a panic is repeated to everybody.
#[test]
fn a_lazy_value_is_made_at_first_use() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    static LAZY: LazyLock<usize> = LazyLock::new(|| MADE.fetch_add(1, Ordering::SeqCst) + 1);
    assert_eq!(MADE.load(Ordering::SeqCst), 0);
    matrix::run(|| {
        let users: Vec<_> = (0..10).map(|_| go(|| *LAZY)).collect();
        assert!(users.into_iter().all(|user| user.join().unwrap() == 1));
    });
    let broken = LazyLock::<u8, _>::new(|| panic!("cannot"));
    for _ in 0..3 {
        catch_unwind(AssertUnwindSafe(|| *broken)).unwrap_err();
    }
}

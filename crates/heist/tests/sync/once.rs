//! `Once`, `OnceLock` and `LazyLock` between goroutines and plain threads.

use crate::matrix;

use heist::sync::{LazyLock, Once, OnceLock, WaitGroup, once_fn, once_value};
use heist::{go, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// SY-23: the body runs once, and every caller sees it finished.
#[test]
fn the_body_runs_once_and_every_caller_sees_it() {
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

/// The value is made once; other callers wait for it meanwhile.
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

/// After a failed attempt the next caller makes the value; values are dropped once.
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

/// SY-24: a function runs once, however many call it, and its value is kept.
#[test]
fn once_functions_keep_their_value() {
    matrix::run(|| {
        let runs = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&runs);
        let value = Arc::new(once_value(move || {
            heist::yield_now();
            counted.fetch_add(1, Ordering::SeqCst);
            (String::from("made"), 7)
        }));
        let callers: Vec<_> = (0..10)
            .map(|_| {
                let value = Arc::clone(&value);
                go(move || value())
            })
            .collect();
        for caller in callers {
            assert_eq!(caller.join().unwrap(), (String::from("made"), 7));
        }
        assert_eq!(runs.load(Ordering::SeqCst), 1);
    });
}

/// SY-24: a panic is repeated at each call, with its message; the first call has the very payload.
#[test]
fn once_functions_repeat_their_panic() {
    let runs = AtomicUsize::new(0);
    let formatted = once_fn(|| panic!("number {}", runs.fetch_add(1, Ordering::SeqCst)));
    let literal = once_value(|| -> u8 { panic!("a literal") });
    let other = once_fn(|| std::panic::panic_any(7u8));
    for call in 0..3 {
        let payload = catch_unwind(AssertUnwindSafe(&formatted)).unwrap_err();
        assert_eq!(payload.downcast_ref::<String>().unwrap(), "number 0");
        let payload = catch_unwind(AssertUnwindSafe(&literal)).unwrap_err();
        assert_eq!(payload.downcast_ref::<&str>(), Some(&"a literal"));
        let payload = catch_unwind(AssertUnwindSafe(&other)).unwrap_err();
        match call {
            0 => assert_eq!(payload.downcast_ref::<u8>(), Some(&7)),
            _ => assert!(payload.downcast_ref::<&str>().unwrap().contains("did not return")),
        }
    }
}

/// SY-24: a function whose goroutine exits has run: it ends that goroutine, and later calls panic.
#[test]
fn once_functions_that_exit_have_run() {
    matrix::run(|| {
        let exits = Arc::new(once_fn(|| heist::exit_current()));
        let first = Arc::clone(&exits);
        assert!(go(move || first()).join().unwrap_err().is_exited());
        let second = Arc::clone(&exits);
        assert!(go(move || second()).join().unwrap_err().is_panic());
    });
}

/// SY-24: a lazy value is made at the first use and kept; a panic is repeated to every caller.
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

/// Cells can be cloned, compared, and be fields of types with a default.
#[test]
fn cells_can_be_cloned_and_compared() {
    let (empty, full) = (OnceLock::new(), OnceLock::from(5));
    assert!(empty.clone() == empty && full.clone() == full && empty != full);
    empty.set(5).unwrap();
    assert_eq!(empty, full);
    let lazy = LazyLock::<Vec<u8>>::default();
    assert!(lazy.is_empty());
}

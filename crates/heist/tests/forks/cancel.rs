//! Cancellation and shutdown of goroutines that fork.

use crate::matrix;
use crate::unwinding::{Counted, open};
use crate::{Sign, join_taken};
use heist::{go, join};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The first half waits and is cancelled. A second half that was taken is cancelled with it, and
/// its destructors run before those of the forker.
#[test]
fn cancellation_reaches_both_halves() {
    matrix::run(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let both = [0; 2].map(|_| Counted(Arc::clone(&drops)));
        let begun = Arc::new(Sign::default());
        let tell = Arc::clone(&begun);
        let handle = go(move || {
            let [first, second] = both;
            let tell = &tell;
            join_taken(
                move || {
                    let _first = first;
                    tell.give();
                    open().wait();
                },
                move || {
                    let _second = second;
                    open().wait();
                },
            );
            unreachable!("it was cancelled");
        });
        begun.wait();
        handle.cancel();
        assert!(handle.join().unwrap_err().is_cancelled());
        assert_eq!(drops.load(Ordering::SeqCst), 2);
    });
}

/// The forker waits for its half when it is cancelled.
#[test]
fn cancellation_reaches_the_half_that_is_awaited() {
    matrix::run(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let owned = Counted(Arc::clone(&drops));
        let handle = go(move || {
            join_taken(
                || (),
                move || {
                    let _owned = owned;
                    open().wait();
                },
            );
            unreachable!("it was cancelled");
        });
        matrix::until_parked(1, "fork join");
        handle.cancel();
        assert!(handle.join().unwrap_err().is_cancelled());
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

/// A half that does not park runs to its end, and its forker waits for it although it is cancelled.
#[test]
fn a_cancelled_forker_waits_for_a_running_half() {
    matrix::each_of(&matrix::cases_with(&[2, 4, 16]), |_, rt| {
        let (begun, go_on) = (Arc::new(Sign::default()), Arc::new(Sign::default()));
        let (tell, wait) = (Arc::clone(&begun), Arc::clone(&go_on));
        let handle = rt.handle().spawn(move || {
            let mut local = 0_u64;
            let place = &mut local;
            join_taken(
                || open().wait(),
                || {
                    tell.give();
                    while !wait.0.load(Ordering::SeqCst) {
                        *place += 1;
                        std::hint::spin_loop();
                    }
                },
            );
        });
        matrix::eventually("the half runs", || begun.0.load(Ordering::SeqCst));
        handle.cancel();
        (0..20).for_each(|_| std::thread::yield_now());
        assert!(!handle.is_finished(), "the half borrows from the forker");
        go_on.give();
        assert!(handle.join().unwrap_err().is_cancelled());
    });
}

/// A half that nobody has taken is dropped when the forker is cancelled.
#[test]
fn an_untaken_half_is_dropped() {
    matrix::whole_slices(1).run(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let owned = Counted(Arc::clone(&drops));
        let handle = go(move || {
            // Cancelled before it parks.
            let (ready, cancelled) = heist::chan::bounded::<()>(1);
            ready.send(()).unwrap();
            cancelled.recv().unwrap();
            while !heist::goroutine::is_cancelled() {
                heist::yield_now();
            }
            join(heist::yield_now, move || {
                let _owned = owned;
                unreachable!("the first half was cancelled");
            })
        });
        heist::yield_now();
        handle.cancel();
        assert!(handle.join().unwrap_err().is_cancelled());
        assert_eq!(drops.load(Ordering::SeqCst), 1);
    });
}

/// A runtime is dropped while goroutines fork, wait for halves, and halves wait.
#[test]
fn a_shutdown_ends_forkers_and_halves() {
    fn tree(depth: u32) {
        if depth == 0 {
            return open().wait();
        }
        join(|| tree(depth - 1), || tree(depth - 1));
    }
    fn grow() {
        loop {
            join(heist::yield_now, || join(heist::yield_now, heist::yield_now));
        }
    }
    for case in matrix::cases() {
        let rt = case.runtime();
        for _ in 0..4 {
            drop(rt.handle().spawn(|| tree(5)));
            drop(rt.handle().spawn(grow));
        }
        let forks = || rt.metrics().get("/heist/steal/forks:goroutines").unwrap();
        matrix::eventually("forks are taken", || forks() > 20);
        let watchdog = matrix::Watchdog::new(matrix::patience(), move || format!("{case}"));
        drop(rt);
        drop(watchdog);
    }
}

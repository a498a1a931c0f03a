//! Ends that must not spread: of goroutines that are cancelled, and of runtimes.

use crate::child;
use crate::matrix;

use heist::{Runtime, exit_current, go};
use std::panic::catch_unwind;
use std::time::Duration;

/// A goroutine may drop the payload that another goroutine caught when it was ended.
#[test]
fn a_caught_ending_ends_no_other_goroutine() {
    matrix::run(|| {
        let (results, caught) = std::sync::mpsc::channel();
        let exits = results.clone();
        let exits = go(move || exits.send(catch_unwind(|| exit_current())));
        let (tx, began) = heist::chan::bounded(0);
        let cancelled = go(move || {
            tx.send(()).expect("the other end waits");
            results.send(catch_unwind(|| heist::chan::never::<()>().recv().expect("never")))
        });
        began.recv().expect("it is there");
        cancelled.cancel();
        for _ in 0..2 {
            // Blocks the thread, so that no goroutine waits in the runtime.
            let result = heist::blocking(|| caught.recv().expect("two come"));
            assert!(result.is_err());
            drop(result);
        }
        // These two do not survive either: both kept the caught payload, and end at their next wait
        // or by themselves.
        drop((exits.join(), cancelled.join()));
    });
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A runtime that ends runs the destructors of its goroutines; those that spawn do so without
/// effect.
#[test]
fn destructors_may_spawn_at_the_end() {
    let ended = child::run(|| {
        for procs in [1, 2, 4] {
            let rt = matrix::start(Runtime::builder().procs(procs));
            rt.run(|| {
                let (tx, parked) = heist::chan::bounded(0);
                go(move || {
                    let _spawns = OnDrop(|| {
                        let spawned = go(|| unreachable!("the runtime ends"));
                        assert!(spawned.join().expect_err("it never ran").is_cancelled());
                        let later = heist::time::after_func(Duration::ZERO, || ());
                        assert!(!later.stop() || later.is_finished());
                    });
                    tx.send(()).expect("the other end waits");
                    heist::chan::never::<()>().recv().expect("never");
                });
                parked.recv().expect("it is there");
            });
            drop(rt);
        }
    });
    ended.succeeded();
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

/// A goroutine that does nothing but spawn ends with its runtime, silently.
#[test]
fn a_goroutine_that_spawns_at_the_end_ends_silently() {
    let ended = child::run(|| {
        for procs in [1, 2, 4] {
            let rt = matrix::start(Runtime::builder().procs(procs));
            rt.run(|| {
                let (tx, began) = heist::chan::bounded::<()>(0);
                go(move || {
                    drop(tx);
                    loop {
                        drop(go(|| ()));
                    }
                });
                go(|| {
                    loop {
                        heist::time::after_func(Duration::from_secs(3600), || ()).stop();
                    }
                });
                began.recv().expect_err("it has begun");
            });
            drop(rt);
        }
    });
    ended.succeeded();
    assert!(!ended.stderr.contains("panicked"), "{}", ended.stderr);
}

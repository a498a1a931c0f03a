//! Goroutines that are expected to block, and give their P away before they do.

use crate::matrix;

use heist::{Runtime, go};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const NAP: Duration = Duration::from_millis(20);

fn count(rt: &Runtime, what: &str) -> u64 {
    rt.metrics().get(&format!("/heist/blocking/{what}:events")).unwrap()
}

/// After sysmon has found two of a kind blocked, the others do not wait for it: all but a few give
/// their P away by themselves, and none is lost.
#[test]
fn blocking_is_predicted_after_two_of_a_kind() {
    for procs in [1, 2, 4] {
        let rt = matrix::plain(procs);
        let woke = Arc::new(AtomicU64::new(0));
        rt.run(|| {
            let nap = || {
                let woke = Arc::clone(&woke);
                go(move || {
                    thread::sleep(NAP);
                    woke.fetch_add(1, Ordering::Relaxed);
                })
            };
            let naps: Vec<_> = (0..200).map(|_| nap()).collect();
            naps.into_iter().for_each(|nap| nap.join().unwrap());
        });
        assert_eq!(woke.load(Ordering::Relaxed), 200);
        let (foreseen, found_out) = (count(&rt, "foreseen"), count(&rt, "unannounced"));
        // No goroutine waits for the P of the last ones, and with several Ps others may be free
        // from the start.
        let (at_least, at_most) = if procs == 1 { (150, 50) } else { (1, 199) };
        assert!(foreseen >= at_least, "{procs}: {foreseen} foreseen, {found_out} found out");
        assert!(found_out <= at_most, "{procs}: {foreseen} foreseen, {found_out} found out");
    }
}

/// A goroutine that was found blocked once is expected to block whenever it continues.
#[test]
fn a_goroutine_that_blocks_again_is_predicted() {
    let rt = matrix::plain(1);
    let stop = Arc::new(AtomicBool::new(false));
    rt.run(|| {
        let other = {
            let stop = Arc::clone(&stop);
            go(move || {
                while !stop.load(Ordering::Relaxed) {
                    heist::yield_now();
                }
            })
        };
        for _ in 0..20 {
            thread::sleep(Duration::from_millis(5));
            heist::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    let (foreseen, found_out) = (count(&rt, "foreseen"), count(&rt, "unannounced"));
    assert!(foreseen >= 10, "{foreseen} foreseen, {found_out} found out");
}

/// A kind that has stopped blocking is not suspected for long: the first goroutine back from a
/// wrong guess ends the guesses.
#[test]
fn wrong_predictions_end_soon() {
    let rt = matrix::plain(1);
    let blocks = Arc::new(AtomicBool::new(true));
    rt.run(|| {
        let one = |n: u64| {
            let blocks = Arc::clone(&blocks);
            go(move || {
                if blocks.load(Ordering::Relaxed) {
                    thread::sleep(NAP);
                }
                n
            })
        };
        let first: Vec<_> = (0..10).map(one).collect();
        let sum: u64 = first.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(sum, 45);
        blocks.store(false, Ordering::Relaxed);
        let before = (count_here("foreseen"), count_here("unannounced"));
        assert!(before.0 > 0, "nothing was learned");
        let second: Vec<_> = (0..1000).map(one).collect();
        let sum: u64 = second.into_iter().map(|one| one.join().unwrap()).sum();
        assert_eq!(sum, 999 * 500);
        let after = (count_here("foreseen"), count_here("unannounced"));
        // A few more may begin before the first of them is back.
        let wrong = after.0 - before.0;
        assert!(wrong <= 50, "{wrong} wrong guesses");
    });
}

fn count_here(what: &str) -> u64 {
    let here = heist::Handle::current().unwrap();
    here.metrics().get(&format!("/heist/blocking/{what}:events")).unwrap()
}

/// One that is expected to block and computes instead is stopped like any other that lost its P,
/// with one P that another loop needs as well.
#[test]
fn a_wrongly_predicted_goroutine_is_preempted() {
    let rt = matrix::start(Runtime::builder().procs(1));
    let blocks = Arc::new(AtomicBool::new(true));
    let stop = Arc::new(AtomicBool::new(false));
    let ends = Instant::now() + matrix::patience() / 2;
    rt.run(|| {
        let one = || {
            let (blocks, stop) = (Arc::clone(&blocks), Arc::clone(&stop));
            go(move || {
                if blocks.load(Ordering::Relaxed) {
                    return thread::sleep(NAP);
                }
                while !stop.load(Ordering::Relaxed) && Instant::now() < ends {
                    std::hint::spin_loop();
                }
            })
        };
        let first: Vec<_> = (0..10).map(|_| one()).collect();
        first.into_iter().for_each(|one| one.join().unwrap());
        blocks.store(false, Ordering::Relaxed);
        let loops: Vec<_> = (0..3).map(|_| one()).collect();
        for _ in 0..20 {
            heist::time::sleep(Duration::from_millis(1));
        }
        stop.store(true, Ordering::Relaxed);
        loops.into_iter().for_each(|one| one.join().unwrap());
    });
    assert!(Instant::now() < ends, "the loops kept all other goroutines out");
}

//! The count of spinning Ms by itself; its protocol is in `loom_submit_versus_park`.
#![cfg(not(loom))]

use heist_core::spinning::Spinning;
use std::sync::Barrier;
use std::thread;

/// IN-15: an M can become the first spinner only from zero.
#[test]
fn first_spinner_is_first_only_from_zero() {
    let spinning = Spinning::new();
    assert_eq!(spinning.n(), 0);
    assert!(spinning.try_be_first());
    assert_eq!(spinning.n(), 1);
    assert!(!spinning.try_be_first());
    assert_eq!(spinning.n(), 1, "a refusal changes nothing");
    assert_eq!(spinning.stop(), 0);
    assert!(spinning.try_be_first());
}

/// IN-15: of several submitters at the same moment, one wakes an M.
#[test]
fn one_of_many_submitters_is_first() {
    const THREADS: usize = 4;
    for _ in 0..200 {
        let (spinning, start) = (Spinning::new(), Barrier::new(THREADS));
        let n_first = thread::scope(|scope| {
            let submitters: Vec<_> = (0..THREADS)
                .map(|_| {
                    scope.spawn(|| {
                        start.wait();
                        spinning.try_be_first()
                    })
                })
                .collect();
            submitters
                .into_iter()
                .map(|submitter| u32::from(submitter.join().unwrap()))
                .sum::<u32>()
        });
        assert_eq!((n_first, spinning.n()), (1, 1));
    }
}

/// IN-16: an M that found work stops spinning; the last one learns that none is left.
#[test]
fn stop_tells_how_many_are_left() {
    let spinning = Spinning::new();
    for _ in 0..3 {
        spinning.start();
    }
    assert_eq!([spinning.stop(), spinning.stop(), spinning.stop()], [2, 1, 0]);
}

/// IN-19: the count is never negative.
#[test]
#[should_panic(expected = "throw: Spinning::stop: n_spinning would be negative")]
fn stop_below_zero_throws() {
    Spinning::new().stop();
}

/// IN-18: a request stays until an M begins to spin, which clears it.
#[test]
fn request_is_cleared_by_the_next_spinner() {
    let spinning = Spinning::new();
    assert!(!spinning.requested());
    spinning.request();
    spinning.request();
    assert!(spinning.requested());
    spinning.start();
    assert!(!spinning.requested());
    assert_eq!(spinning.n(), 1);
}

/// IN-15, IN-18: a submitter that finds no idle P lowers the count again and leaves the request.
#[test]
fn submitter_without_a_p_leaves_a_request() {
    let spinning = Spinning::new();
    assert!(spinning.try_be_first());
    spinning.withdraw();
    assert_eq!(spinning.n(), 0);
    assert!(spinning.requested());
}

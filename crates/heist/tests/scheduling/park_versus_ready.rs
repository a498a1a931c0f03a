//! The race between a goroutine that parks and its waker.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Takes a time that differs from call to call, so that both sides meet at every point.
fn dawdle(n: u64) {
    for i in 0..n % 97 {
        black_box(i);
    }
}

/// IN-36: a join that comes before, while and after the goroutine ends.
#[test]
fn a_join_meets_the_end_at_every_point() {
    matrix::each(|_, rt| {
        matrix::stress(3, |round| {
            rt.run(move || {
                for i in 0..300 {
                    let n = i + round * 300;
                    let handle = go(move || {
                        dawdle(n * 7);
                        n
                    });
                    dawdle(n * 13);
                    assert_eq!(handle.join().unwrap(), n);
                }
            });
        });
    });
}

/// IN-36: the last `done` of a wait group while several goroutines begin to wait.
#[test]
fn a_wait_meets_the_last_done_at_every_point() {
    matrix::each(|_, rt| {
        matrix::stress(1, |round| {
            rt.run(move || {
                for i in 0..100 {
                    let group = WaitGroup::new();
                    group.add(3);
                    let waiters: Vec<_> = (0..3)
                        .map(|w| {
                            let group = group.clone();
                            go(move || {
                                dawdle(i * 5 + w + round);
                                group.wait();
                            })
                        })
                        .collect();
                    for d in 0..3 {
                        let group = group.clone();
                        go(move || {
                            dawdle(i * 11 + d);
                            group.done();
                        });
                    }
                    group.wait();
                    for waiter in waiters {
                        waiter.join().unwrap();
                    }
                }
            });
        });
    });
}

/// IN-36: plain threads that join goroutines which are just ending.
#[test]
fn a_plain_thread_joins_at_every_point() {
    matrix::each(|_, rt| {
        matrix::stress(1, |_| {
            for i in 0..200 {
                let handle = rt.handle().spawn(move || {
                    dawdle(i * 3);
                    i
                });
                dawdle(i * 31);
                assert_eq!(handle.join().unwrap(), i);
            }
        });
    });
}

/// IN-36: goroutines of two runtimes that wait for each other.
#[test]
fn goroutines_of_two_runtimes_wake_each_other() {
    matrix::each(|_, rt| {
        let other = matrix::plain(2);
        let (here, there) = (rt.handle(), other.handle());
        let rounds = rt.run(|| {
            let mut n = 0;
            for i in 0..100_u64 {
                let here = here.clone();
                let handle = there.spawn(move || {
                    dawdle(i * 17);
                    here.spawn(move || i).join().unwrap()
                });
                dawdle(i * 29);
                n += u64::from(handle.join().unwrap() == i);
            }
            n
        });
        assert_eq!(rounds, 100);
    });
}

/// IN-36: cancellation against the wake-up that the goroutine waits for: exactly one of them ends
/// the wait, and the goroutine ends in any case.
#[test]
fn a_cancel_meets_a_wake_up_at_every_point() {
    matrix::each(|_, rt| {
        matrix::stress(1, |round| {
            rt.run(move || {
                let ended = Arc::new(AtomicU64::new(0));
                for i in 0..150 {
                    let gate = WaitGroup::new();
                    gate.add(1);
                    let waiter = {
                        let (gate, ended) = (gate.clone(), Arc::clone(&ended));
                        go(move || {
                            let _count = OnDrop(ended);
                            gate.wait();
                            // The flag may have come after the wake-up: then this park ends it.
                            yield_now();
                        })
                    };
                    dawdle(i * 7 + round);
                    let opener = go(move || {
                        dawdle(i * 5);
                        gate.done();
                    });
                    dawdle(i * 3);
                    waiter.cancel();
                    if let Err(error) = waiter.join() {
                        assert!(error.is_cancelled(), "{error}");
                    }
                    opener.join().unwrap();
                }
                // One that was cancelled before it started never made its guard.
                assert!(ended.load(Ordering::Relaxed) <= 150);
            });
        });
    });
}

struct OnDrop(Arc<AtomicU64>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

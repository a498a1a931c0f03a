//! `Semaphore` and `Barrier` between goroutines and plain threads.

use crate::matrix;

use heist::context::{self, ContextError};
use heist::sync::{Barrier, Semaphore, WaitGroup};
use heist::{go, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// Whether a goroutine is parked for this reason.
fn is_parked<T>(handle: &heist::JoinHandle<T>, reason: &str) -> bool {
    heist::dump_goroutines().contains(&format!("goroutine {} [{reason}", handle.id()))
}

/// SY-01: a semaphore of one under ten goroutines, a thousand rounds each; two plain threads take
/// part.
#[test]
fn a_semaphore_of_one_excludes_ten_goroutines() {
    matrix::each(|_, rt| {
        let semaphore = Arc::new(Semaphore::new(1));
        let inside = Arc::new(AtomicUsize::new(0));
        let work = |rounds: usize| {
            let (semaphore, inside) = (Arc::clone(&semaphore), Arc::clone(&inside));
            move || {
                for _ in 0..rounds {
                    let _permit = semaphore.acquire(1);
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two inside");
                    inside.fetch_sub(1, Ordering::Relaxed);
                }
            }
        };
        let goroutines: Vec<_> = (0..10).map(|_| rt.handle().spawn(work(1000))).collect();
        std::thread::scope(|scope| {
            scope.spawn(work(50));
            scope.spawn(work(50));
        });
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert_eq!(semaphore.available(), 1);
    });
}

/// For random requests, never more permits are in use than there are, and all are free in the end,
/// also if some requests give up or are cancelled.
#[test]
fn no_more_is_in_use_than_there_is() {
    matrix::each(|case, rt| {
        let semaphore = Arc::new(Semaphore::new(10));
        let in_use = Arc::new(AtomicUsize::new(0));
        let seed = case.chaos.unwrap_or(7);
        let handles: Vec<_> = (0..16)
            .map(|i| {
                let (semaphore, in_use) = (Arc::clone(&semaphore), Arc::clone(&in_use));
                rt.handle().spawn(move || {
                    let mut random = seed.wrapping_add(i).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
                    for _ in 0..60 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let n = 1 + random as usize % 10;
                        let timeout = Duration::from_micros(random >> 20 & 127);
                        let permit = match random >> 40 & 3 {
                            0 => semaphore.try_acquire(n),
                            1 => semaphore.acquire_timeout(n, timeout),
                            _ => Some(semaphore.acquire(n)),
                        };
                        if let Some(permit) = permit {
                            assert_eq!(permit.n(), n);
                            let now = in_use.fetch_add(n, Ordering::SeqCst) + n;
                            assert!(now <= 10, "{now} in use");
                            let _counted = Counted(&in_use, n);
                            yield_now();
                        }
                    }
                })
            })
            .collect();
        handles[2].cancel();
        handles[9].cancel();
        for handle in handles {
            if let Err(error) = handle.join() {
                assert!(error.is_cancelled(), "{error}");
            }
        }
        assert_eq!((semaphore.available(), semaphore.size()), (10, 10));
    });
}

struct Counted<'a>(&'a AtomicUsize, usize);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(self.1, Ordering::SeqCst);
    }
}

/// A request for many permits is not overtaken by later ones for few, even if those could be
/// served.
#[test]
fn large_requests_do_not_starve() {
    matrix::run(|| {
        let semaphore = Arc::new(Semaphore::new(10));
        let held = semaphore.acquire(5);
        let order = Arc::new(heist::sync::Mutex::new(Vec::new()));
        let ask = |n: usize| {
            let (semaphore, order) = (Arc::clone(&semaphore), Arc::clone(&order));
            let handle = go(move || {
                let _permit = semaphore.acquire(n);
                order.lock().push(n);
            });
            matrix::yield_until("it waits", || is_parked(&handle, "semacquire"));
            handle
        };
        let large = ask(8);
        let small = ask(1);
        // Five are free, but no request overtakes.
        assert!(semaphore.try_acquire(1).is_none());
        drop(held);
        large.join().unwrap();
        small.join().unwrap();
        let mut order = order.lock();
        order.sort_unstable();
        assert_eq!(*order, [1, 8]);
    });
}

/// When a large request gives up, the requests behind it get the free permits.
#[test]
fn giving_up_lets_others_go_on() {
    matrix::run(|| {
        for by_timeout in [true, false] {
            let semaphore = Arc::new(Semaphore::new(4));
            let held = semaphore.acquire(2);
            let large = {
                let semaphore = Arc::clone(&semaphore);
                go(move || {
                    let day = Duration::from_secs(86_400);
                    let patience = if by_timeout { Duration::from_millis(5) } else { day };
                    semaphore.acquire_timeout(4, patience).is_some()
                })
            };
            matrix::yield_until("it waits or is over", || {
                is_parked(&large, "semacquire") || large.is_finished()
            });
            let small = {
                let semaphore = Arc::clone(&semaphore);
                go(move || semaphore.acquire(2).n())
            };
            if by_timeout {
                assert!(!large.join().unwrap());
            } else {
                matrix::yield_until("it waits", || is_parked(&small, "semacquire"));
                large.cancel();
                assert!(large.join().unwrap_err().is_cancelled());
            }
            assert_eq!(small.join().unwrap(), 2);
            drop(held);
            assert_eq!(semaphore.available(), 4);
        }
    });
}

/// Misuse panics with a clear text, and leaves the semaphore as it was.
#[test]
fn misuse_panics() {
    let text = |body: &dyn Fn()| {
        let payload = catch_unwind(AssertUnwindSafe(body)).unwrap_err();
        match payload.downcast::<String>() {
            Ok(text) => *text,
            Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
        }
    };
    let semaphore = Semaphore::new(3);
    assert_eq!(text(&|| semaphore.release(1)), "semaphore: released more than held");
    assert_eq!(text(&|| semaphore.release(usize::MAX)), "semaphore: released more than held");
    assert!(semaphore.try_acquire(4).is_none());
    semaphore.acquire(2).forget();
    assert_eq!(text(&|| semaphore.release(3)), "semaphore: released more than held");
    semaphore.release(2);
    assert_eq!(semaphore.acquire(0).n(), 0);
    assert_eq!(format!("{semaphore:?}"), "Semaphore { size: 3, available: 3 }");
}

/// Permits may be owned by the goroutine that uses them; a timeout ends not before its time.
#[test]
fn owned_permits_and_timeouts() {
    matrix::run(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let group = WaitGroup::new();
        for _ in 0..20 {
            let permit = semaphore.acquire_owned(1);
            assert!(permit.n() == 1 && semaphore.available() <= 1);
            group.go(move || {
                yield_now();
                drop(permit);
            });
        }
        group.wait();
        let all = semaphore.try_acquire_owned(2).expect("all are free");
        let (start, timeout) = (Instant::now(), Duration::from_millis(2));
        assert!(semaphore.acquire_timeout(1, timeout).is_none());
        assert!(start.elapsed() >= timeout);
        drop(all);
        assert_eq!(semaphore.available(), 2);
    });
}

/// No goroutine passes a barrier before all have come, over many rounds; one of them is the leader.
#[test]
fn a_barrier_keeps_goroutines_together() {
    matrix::each(|_, rt| {
        let n = 8;
        let barrier = Arc::new(Barrier::new(n + 1));
        let (came, leaders) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let work = || {
            let (barrier, came) = (Arc::clone(&barrier), Arc::clone(&came));
            let leaders = Arc::clone(&leaders);
            move || {
                for round in 1..=20 {
                    came.fetch_add(1, Ordering::SeqCst);
                    leaders.fetch_add(barrier.wait().is_leader().into(), Ordering::SeqCst);
                    assert!(came.load(Ordering::SeqCst) >= round * (n + 1));
                    barrier.wait();
                    assert_eq!(leaders.load(Ordering::SeqCst), round);
                    barrier.wait();
                }
            }
        };
        let goroutines: Vec<_> = (0..n).map(|_| rt.handle().spawn(work())).collect();
        work()();
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
    });
    assert!(Barrier::new(0).wait().is_leader());
    assert!(Barrier::new(1).wait().is_leader());
}

/// A goroutine that is cancelled at a barrier has not come.
#[test]
fn a_cancelled_goroutine_does_not_count_at_a_barrier() {
    matrix::run(|| {
        let barrier = Arc::new(Barrier::new(2));
        let wait = || {
            let barrier = Arc::clone(&barrier);
            go(move || barrier.wait().is_leader())
        };
        let first = wait();
        matrix::yield_until("it waits", || is_parked(&first, "barrier wait"));
        first.cancel();
        assert!(first.join().unwrap_err().is_cancelled());
        let second = wait();
        matrix::yield_until("it waits", || is_parked(&second, "barrier wait"));
        assert!(barrier.wait().is_leader());
        assert!(!second.join().unwrap());
    });
}

/// Waiting until a moment, and owned permits that are forgotten.
#[test]
fn deadlines_hold_and_permits_can_be_forgotten() {
    matrix::run(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let held = semaphore.acquire_owned_timeout(2, Duration::ZERO).unwrap();
        let deadline = Instant::now() + Duration::from_millis(1);
        assert!(semaphore.acquire_deadline(1, deadline).is_none() && Instant::now() >= deadline);
        assert!(semaphore.acquire_owned_deadline(1, deadline).is_none());
        assert!(semaphore.acquire_owned_timeout(1, Duration::ZERO).is_none());
        held.forget();
        assert_eq!((semaphore.available(), Arc::strong_count(&semaphore)), (0, 1));
        semaphore.release(2);
        assert_eq!(semaphore.acquire_owned_deadline(2, deadline).unwrap().n(), 2);
    });
}

/// A request for more permits than there are waits until its time is over, or forever, and delays
/// no other request.
#[test]
fn oversized_requests_delay_no_other() {
    matrix::run(|| {
        let semaphore = Arc::new(Semaphore::new(2));
        let doomed = {
            let semaphore = Arc::clone(&semaphore);
            go(move || drop(semaphore.acquire(3)))
        };
        while !is_parked(&doomed, "semacquire") {
            yield_now();
        }
        let all = semaphore.try_acquire(2).expect("there are no waiters");
        drop(all);
        let start = Instant::now();
        assert!(semaphore.acquire_timeout(3, Duration::from_millis(2)).is_none());
        assert!(start.elapsed() >= Duration::from_millis(2));
        let on_a_thread = {
            let semaphore = Arc::clone(&semaphore);
            std::thread::spawn(move || {
                semaphore.acquire_timeout(usize::MAX, Duration::from_millis(1)).is_none()
            })
        };
        assert!(heist::blocking(|| on_a_thread.join()).unwrap());
        doomed.cancel();
        assert!(doomed.join().unwrap_err().is_cancelled());
        assert_eq!(semaphore.available(), 2);
    });
}

/// A context ends the wait, comes before permits that are free, and leaves nothing behind.
#[test]
fn a_context_ends_the_wait() {
    matrix::run(|| {
        let semaphore = Semaphore::new(2);
        let (ctx, canceller) = context::background().with_cancel();
        let held = semaphore.acquire_context(&ctx, 2).expect("all are free");
        heist::scope(|scope| {
            let waits = [1, 3].map(|n| {
                let (semaphore, ctx) = (&semaphore, ctx.clone());
                scope.go(move || semaphore.acquire_context(&ctx, n).map(drop))
            });
            // Behind the first one in the queue, and served when that gives up.
            yield_now();
            let patient = scope.go(|| drop(semaphore.acquire_context(&context::background(), 2)));
            canceller.cancel();
            for wait in waits {
                assert_eq!(wait.join().unwrap(), Err(ContextError::Canceled));
            }
            drop(held);
            patient.join().unwrap();
        });
        assert_eq!(semaphore.available(), 2);
        assert_eq!(semaphore.acquire_context(&ctx, 1).map(drop), Err(ContextError::Canceled));
    });
}

/// Permits, the ends of contexts and cancellers come at the same time, to goroutines and to plain
/// threads: no permit is lost, and no waiter is forgotten.
#[test]
fn contexts_race_with_permits() {
    matrix::run(|| {
        let semaphore = Arc::new(Semaphore::new(3));
        let waits: Vec<_> = (0..200_u64)
            .map(|i| {
                let semaphore = Arc::clone(&semaphore);
                let (ctx, canceller) =
                    context::background().with_timeout(Duration::from_micros(37 * (i % 40)));
                go(move || {
                    let permit = semaphore.acquire_context(&ctx, 1 + (i % 3) as usize);
                    yield_now();
                    if i % 7 == 0 {
                        canceller.cancel();
                    }
                    permit.is_ok()
                })
            })
            .collect();
        let on_a_thread = {
            let semaphore = Arc::clone(&semaphore);
            std::thread::spawn(move || {
                for i in 0..50 {
                    let time = Duration::from_micros(i);
                    let (ctx, _canceller) = context::background().with_timeout(time);
                    drop(semaphore.acquire_context(&ctx, 2));
                }
            })
        };
        for wait in waits.iter().step_by(5) {
            wait.cancel();
        }
        for wait in waits {
            let _ = wait.join();
        }
        heist::blocking(|| on_a_thread.join()).expect("it ends");
        assert_eq!(semaphore.available(), 3);
    });
}

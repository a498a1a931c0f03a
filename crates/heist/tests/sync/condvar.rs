//! `Condvar` between goroutines and plain threads.

use crate::matrix;

use heist::sync::{Condvar, Mutex, WaitGroup};
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// A mutex and a condition variable, shared.
struct Pair<T> {
    mutex: Mutex<T>,
    condvar: Condvar,
}

fn pair<T>(value: T) -> Arc<Pair<T>> {
    Arc::new(Pair { mutex: Mutex::new(value), condvar: Condvar::new() })
}

/// Whether a goroutine waits for a notification.
fn waits<T>(handle: &heist::JoinHandle<T>) -> bool {
    heist::dump_goroutines().contains(&format!("goroutine {} [sync.Cond.Wait", handle.id()))
}

/// SY-18: each notification wakes exactly one of two waiters.
#[test]
fn each_notification_wakes_one() {
    matrix::run(|| {
        let shared = pair(0);
        let handles: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                go(move || *shared.condvar.wait(shared.mutex.lock()) += 1)
            })
            .collect();
        for handle in &handles {
            matrix::yield_until("it waits", || waits(handle));
        }
        for n in 1..=2 {
            shared.condvar.notify_one();
            matrix::yield_until("one woke up", || *shared.mutex.lock() == n);
            let finished = || handles.iter().filter(|handle| handle.is_finished()).count();
            matrix::yield_until("it ended", || finished() == n);
            for _ in 0..20 {
                yield_now();
            }
            assert_eq!((*shared.mutex.lock(), finished()), (n, n));
        }
        // Without a waiter nothing happens, and nothing is remembered.
        shared.condvar.notify_one();
        shared.condvar.notify_all();
    });
}

/// SY-19, IN-39: a notification wakes the oldest waiter, never a newer one.
#[test]
fn the_oldest_waiter_is_served() {
    matrix::run(|| {
        let shared = pair(Vec::new());
        let handles: Vec<_> = (0..100)
            .map(|i| {
                let waiter = Arc::clone(&shared);
                let handle = go(move || {
                    let guard = waiter.mutex.lock();
                    waiter.condvar.wait(guard).push(i);
                });
                matrix::yield_until("it waits", || waits(&handle));
                handle
            })
            .collect();
        for (i, handle) in handles.into_iter().enumerate() {
            shared.condvar.notify_one();
            handle.join().unwrap();
            assert_eq!(shared.mutex.lock().last(), Some(&i));
        }
    });
}

/// IN-39: a notification between drawing the ticket and parking is not missed, and goes to the
/// oldest waiter: as many notifications as waiters wake them all, whenever they come.
#[test]
fn no_notification_is_missed() {
    matrix::run(|| {
        let shared = pair(0usize);
        let woken = Arc::new(AtomicUsize::new(0));
        let n = 200;
        let handles: Vec<_> = (0..n)
            .map(|_| {
                let (shared, woken) = (Arc::clone(&shared), Arc::clone(&woken));
                go(move || {
                    let mut guard = shared.mutex.lock();
                    *guard += 1;
                    drop(shared.condvar.wait(guard));
                    woken.fetch_add(1, Ordering::SeqCst);
                })
            })
            .collect();
        let mut served = 0;
        while served < n {
            // A waiter that was counted under the mutex has drawn a ticket when the mutex is free
            // again.
            let came = *shared.mutex.lock();
            while served < came {
                shared.condvar.notify_one();
                served += 1;
            }
            yield_now();
        }
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(woken.load(Ordering::SeqCst), n);
    });
}

/// SY-20: `notify_all` wakes each of 200 waiters once a round.
#[test]
fn notify_all_wakes_each_waiter_once() {
    matrix::each(|case, rt| {
        let rounds = if case.chaos.is_some() { 20 } else { 200 };
        rt.run(move || {
            let n = 200;
            // The round, and how many have seen it.
            let shared = pair((0, 0));
            let handles: Vec<_> = (0..n)
                .map(|_| {
                    let shared = Arc::clone(&shared);
                    go(move || {
                        let mut guard = shared.mutex.lock();
                        for round in 1..=rounds {
                            guard = shared.condvar.wait_while(guard, |(now, _)| *now < round);
                            assert_eq!(guard.0, round, "woken twice or too late");
                            guard.1 += 1;
                        }
                    })
                })
                .collect();
            for round in 1..=rounds {
                {
                    let mut guard = shared.mutex.lock();
                    *guard = (round, 0);
                    shared.condvar.notify_all();
                }
                matrix::yield_until("all have seen the round", || shared.mutex.lock().1 == n);
            }
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
    });
}

/// Whether it waits for anything.
fn is_parked<T>(handle: &heist::JoinHandle<T>) -> bool {
    let dump = heist::dump_goroutines();
    let header = format!("goroutine {} [", handle.id());
    let state = dump.split(&header).nth(1).and_then(|rest| rest.split(']').next());
    state.is_some_and(|state| !state.starts_with("run"))
}

/// SY-30: on one P, six waiters that are all woken run in Go's order: the last one readied first,
/// because it is in `run_next`, then the others in the order in which they began to wait.
#[test]
fn notify_all_wakes_in_the_order_of_go() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let shared = pair(false);
        let order = Arc::new(Mutex::new(Vec::new()));
        let group = WaitGroup::new();
        group.add(1);
        let spawn = |i: usize, by_group: bool| {
            let (shared, order, group) = (Arc::clone(&shared), Arc::clone(&order), group.clone());
            go(move || {
                if by_group {
                    group.wait();
                } else {
                    drop(shared.condvar.wait(shared.mutex.lock()));
                }
                order.lock().push(i);
            })
        };
        for by_group in [false, true] {
            let mut handles = Vec::new();
            for i in 0..6 {
                let handle = spawn(i, by_group);
                // One P: it runs until it parks, unless it is preempted.
                matrix::yield_until("it waits", || is_parked(&handle));
                handles.push(handle);
            }
            if by_group {
                group.done();
            } else {
                shared.condvar.notify_all();
            }
            handles.into_iter().for_each(|handle| handle.join().unwrap());
            assert_eq!(std::mem::take(&mut *order.lock()), [5, 0, 1, 2, 3, 4], "{by_group}");
        }
    });
}

/// A queue between goroutines and plain threads loses nothing.
#[test]
fn goroutines_and_threads_mix() {
    matrix::each(|_, rt| {
        let shared = pair(Vec::new());
        let take = |shared: &Pair<Vec<u64>>| {
            shared
                .condvar
                .wait_while(shared.mutex.lock(), |items| items.is_empty())
                .pop()
                .expect("not empty")
        };
        let goroutines: Vec<_> = (0..4)
            .map(|_| {
                let shared = Arc::clone(&shared);
                rt.handle().spawn(move || (0..100).map(|_| take(&shared)).sum::<u64>())
            })
            .collect();
        let sum = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..2)
                .map(|_| scope.spawn(|| (0..100).map(|_| take(&shared)).sum::<u64>()))
                .collect();
            for item in 1..=600 {
                shared.mutex.lock().push(item);
                shared.condvar.notify_one();
            }
            threads.into_iter().map(|thread| thread.join().unwrap()).sum::<u64>()
        });
        let sum = sum + goroutines.into_iter().map(|g| g.join().unwrap()).sum::<u64>();
        assert_eq!(sum, 600 * 601 / 2);
    });
}

/// A waiter that is cancelled is not notified: the notification goes to the next one.
#[test]
fn a_cancelled_waiter_takes_no_notification() {
    matrix::run(|| {
        let shared = pair(Vec::new());
        let handles: Vec<_> = (0..3)
            .map(|i| {
                let waiter = Arc::clone(&shared);
                let handle = go(move || {
                    let guard = waiter.mutex.lock();
                    waiter.condvar.wait(guard).push(i);
                });
                matrix::yield_until("it waits", || waits(&handle));
                handle
            })
            .collect();
        handles[0].cancel();
        shared.condvar.notify_one();
        shared.condvar.notify_one();
        let ended: Vec<_> = handles.into_iter().map(|handle| handle.join().is_ok()).collect();
        assert_eq!(ended, [false, true, true]);
        let mut served = shared.mutex.lock();
        served.sort_unstable();
        assert_eq!(*served, [1, 2]);
    });
}

/// A waiter that was notified, and is cancelled while it waits for the mutex again, notifies the
/// next.
#[test]
fn a_served_waiter_that_is_cancelled_serves_the_next() {
    matrix::run(|| {
        let shared = pair(Vec::new());
        let handles: Vec<_> = (0..2)
            .map(|i| {
                let waiter = Arc::clone(&shared);
                let handle = go(move || {
                    let guard = waiter.mutex.lock();
                    waiter.condvar.wait(guard).push(i);
                });
                matrix::yield_until("it waits", || waits(&handle));
                handle
            })
            .collect();
        let guard = shared.mutex.lock();
        shared.condvar.notify_one();
        matrix::yield_until("it waits for the mutex", || {
            let header = format!("goroutine {} [sync.Mutex.Lock", handles[0].id());
            heist::dump_goroutines().contains(&header)
        });
        handles[0].cancel();
        drop(guard);
        let mut handles = handles.into_iter();
        let first = handles.next().expect("two").join();
        if first.is_ok() {
            // The mutex came before the cancellation; then the second needs a notification.
            shared.condvar.notify_one();
        }
        handles.next().expect("two").join().unwrap();
        assert_eq!(shared.mutex.lock().len(), 1 + usize::from(first.is_ok()));
    });
}

/// Waits with a timeout end not before their time, with the mutex held; a notification ends them
/// earlier.
#[test]
fn waits_time_out() {
    let wait = || {
        let shared = pair(0);
        let timeout = Duration::from_millis(2);
        let start = Instant::now();
        let (guard, result) = shared.condvar.wait_timeout(shared.mutex.lock(), timeout);
        assert!(result.timed_out() && start.elapsed() >= timeout);
        assert!(shared.mutex.try_lock().is_none());
        let (guard, result) = shared.condvar.wait_timeout_while(guard, timeout, |_| true);
        assert!(result.timed_out());
        let (guard, result) = shared.condvar.wait_timeout_while(guard, timeout, |_| false);
        assert!(!result.timed_out());
        drop(guard);
        // The list of waiters is empty.
        assert_eq!(format!("{:?}", shared.condvar), "Condvar { waiting: 0 }");
    };
    wait();
    matrix::run(wait);
    matrix::run(|| {
        let shared = pair(false);
        let notifier = {
            let shared = Arc::clone(&shared);
            go(move || {
                *shared.mutex.lock() = true;
                shared.condvar.notify_one();
            })
        };
        let minute = Duration::from_secs(60);
        let (guard, result) =
            shared.condvar.wait_timeout_while(shared.mutex.lock(), minute, |set| !*set);
        assert!(*guard && !result.timed_out());
        drop(guard);
        notifier.join().unwrap();
    });
}

/// Timeouts race with notifications: every notification is taken by one waiter that did not time
/// out, or lost because no waiter was left.
#[test]
fn timeouts_race_with_notifications() {
    matrix::each(|_, rt| {
        let shared = pair(0usize);
        let notified = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..20)
            .map(|i| {
                let (shared, notified) = (Arc::clone(&shared), Arc::clone(&notified));
                rt.handle().spawn(move || {
                    for k in 0..20 {
                        let timeout = Duration::from_micros((i + k) % 6 * 50);
                        let guard = shared.mutex.lock();
                        let (guard, result) = shared.condvar.wait_timeout(guard, timeout);
                        if !result.timed_out() {
                            notified.fetch_add(1, Ordering::SeqCst);
                        }
                        drop(guard);
                    }
                })
            })
            .collect();
        let mut sent = 0;
        while !handles.iter().all(heist::JoinHandle::is_finished) {
            shared.condvar.notify_one();
            sent += 1;
            std::thread::yield_now();
        }
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert!(notified.load(Ordering::SeqCst) <= sent);
        assert_eq!(format!("{:?}", shared.condvar), "Condvar { waiting: 0 }");
    });
}

//! `Mutex` between goroutines and plain threads.

use crate::matrix;

use heist::sync::{Mutex, WaitGroup};
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

static STATIC: Mutex<u32> = Mutex::new(0);

/// SY-02: `try_lock` fails while the mutex is held and works when it is free; ten goroutines mix it
/// with `lock`.
#[test]
fn lock_and_try_lock_by_ten_goroutines() {
    matrix::run(|| {
        let mutex = Arc::new(Mutex::new(0));
        let guard = mutex.lock();
        assert!(mutex.try_lock().is_none());
        assert!(mutex.is_locked());
        drop(guard);
        drop(mutex.try_lock().expect("the mutex is free"));
        let group = WaitGroup::new();
        for _ in 0..10 {
            group.add(1);
            let (mutex, group) = (Arc::clone(&mutex), group.clone());
            go(move || {
                for i in 0..1000 {
                    if i % 3 == 0 {
                        if let Some(mut count) = mutex.try_lock() {
                            *count += 1;
                        }
                        continue;
                    }
                    *mutex.lock() += 1;
                }
                group.done();
            });
        }
        group.wait();
        let count = *mutex.lock();
        assert!((6660..=10_000).contains(&count), "{count}");
        assert!(!mutex.is_locked());
    });
}

/// SY-02: the critical section has one owner at a time, goroutines and plain threads mixed.
#[test]
fn goroutines_and_threads_exclude_each_other() {
    matrix::each(|_, rt| {
        let shared = Arc::new((Mutex::new(0u64), AtomicBool::new(false)));
        let work = |shared: Arc<(Mutex<u64>, AtomicBool)>, n: u64| {
            move || {
                for _ in 0..n {
                    let mut count = shared.0.lock();
                    assert!(!shared.1.swap(true, Ordering::Relaxed), "two inside");
                    *count += 1;
                    shared.1.store(false, Ordering::Relaxed);
                }
            }
        };
        let goroutines: Vec<_> =
            (0..8).map(|_| rt.handle().spawn(work(Arc::clone(&shared), 500))).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(work(Arc::clone(&shared), 500));
            }
        });
        for goroutine in goroutines {
            goroutine.join().unwrap();
        }
        assert_eq!(*shared.0.lock(), 11 * 500);
    });
}

/// A guard may be held while its goroutine waits and changes threads.
#[test]
fn a_guard_may_be_held_over_a_park() {
    matrix::run(|| {
        let mutex = Arc::new(Mutex::new(0));
        let group = WaitGroup::new();
        for _ in 0..20 {
            group.add(1);
            let (mutex, group) = (Arc::clone(&mutex), group.clone());
            go(move || {
                for _ in 0..20 {
                    let mut guard = mutex.lock();
                    let before = *guard;
                    yield_now();
                    *guard = before + 1;
                }
                group.done();
            });
        }
        group.wait();
        assert_eq!(*mutex.lock(), 400);
    });
}

/// A guard may be sent away and dropped elsewhere.
#[test]
fn a_guard_may_be_dropped_elsewhere() {
    let mut guard = STATIC.lock();
    std::thread::scope(|scope| {
        scope.spawn(move || *guard += 1);
    });
    assert!(*STATIC.lock() >= 1);
}

/// Parks `n` goroutines on a mutex that the caller holds, one after the other.
fn queue_up(
    mutex: &'static Mutex<Vec<usize>>,
    n: usize,
) -> (Vec<heist::JoinHandle<()>>, heist::sync::MutexGuard<'static, Vec<usize>>) {
    let guard = mutex.lock();
    let handles = (0..n)
        .map(|i| {
            let arrived = Arc::new(AtomicBool::new(false));
            let tell = Arc::clone(&arrived);
            let handle = go(move || {
                tell.store(true, Ordering::SeqCst);
                mutex.lock().push(i);
            });
            matrix::yield_until("queued", || {
                arrived.load(Ordering::SeqCst) && dump_says(&handle, "sync.Mutex.Lock")
            });
            handle
        })
        .collect();
    (handles, guard)
}

/// Whether a goroutine is parked for this reason.
fn dump_says(handle: &heist::JoinHandle<()>, reason: &str) -> bool {
    let header = format!("goroutine {} [{reason}", handle.id());
    heist::dump_goroutines().contains(&header)
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

/// SY-30, SY-05: waiters get the mutex in the order of their arrival.
#[test]
fn waiters_are_served_in_order() {
    matrix::each(|case, rt| {
        // With more than one P a woken waiter can be overtaken, which puts it in front again.
        if case.procs == 1 {
            rt.run(|| {
                let mutex = leak(Mutex::new(Vec::new()));
                let (handles, guard) = queue_up(mutex, 6);
                drop(guard);
                handles.into_iter().for_each(|handle| handle.join().unwrap());
                assert_eq!(*mutex.lock(), [0, 1, 2, 3, 4, 5]);
            });
        }
    });
}

/// SY-05, IN-37, IN-38: a goroutine that has waited for more than a millisecond and is overtaken is
/// handed the mutex, and so are those behind it, in order: each goes to `run_next` and its
/// predecessor yields. When no waiter is left, the mutex is as before.
#[test]
fn starving_waiters_are_handed_the_mutex() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let mutex = leak(Mutex::new(Vec::new()));
        let (handles, guard) = queue_up(mutex, 3);
        std::thread::sleep(Duration::from_millis(3));
        drop(guard);
        // Overtakes the waiter that was woken.
        let guard = mutex.try_lock().expect("not starving yet");
        // That waiter sees it and queues again, in front, and requests a hand-over.
        yield_now();
        assert!(guard.is_empty());
        let bystander = go(|| mutex.lock().push(9));
        drop(guard);
        // All of them have had their turn meanwhile, and none overtook another.
        assert_eq!(mutex.try_lock().expect("normal again")[..3], [0, 1, 2]);
        bystander.join().unwrap();
        assert_eq!(*mutex.lock(), [0, 1, 2, 9]);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

/// SY-05: while the mutex starves newcomers do not get it, and when the head of the queue has not
/// waited long it does not starve any more.
#[test]
fn a_starving_mutex_refuses_newcomers() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let mutex = leak(Mutex::new(Vec::new()));
        let (mut handles, guard) = queue_up(mutex, 1);
        std::thread::sleep(Duration::from_millis(3));
        drop(guard);
        let guard = mutex.lock();
        yield_now();
        // It starves now; two more come.
        for i in 1..3 {
            handles.push(go(move || {
                assert!(mutex.try_lock().is_none(), "it is locked");
                mutex.lock().push(i);
            }));
            yield_now();
        }
        drop(guard);
        // The first has it handed, and gives it on to the second, which has not waited long: from
        // there on it is an ordinary mutex.
        assert_eq!(mutex.lock()[..2], [0, 1]);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(*mutex.lock(), [0, 1, 2]);
    });
}

/// SY-05: a goroutine that keeps taking the mutex, and holds it most of the time, cannot keep
/// others from it.
#[test]
fn a_greedy_goroutine_starves_no_other() {
    for case in matrix::cases() {
        // With one P the greedy one has to be stopped for the others to run at all.
        let rt = matrix::start(case.builder().quantum(Duration::from_millis(10)));
        rt.run(|| {
            let mutex = Arc::new(Mutex::new(()));
            let stop = Arc::new(AtomicBool::new(false));
            let greedy = {
                let (mutex, stop) = (Arc::clone(&mutex), Arc::clone(&stop));
                go(move || {
                    while !stop.load(Ordering::SeqCst) {
                        let guard = mutex.lock();
                        std::thread::sleep(Duration::from_micros(100));
                        drop(guard);
                    }
                })
            };
            for _ in 0..10 {
                yield_now();
                drop(mutex.lock());
            }
            stop.store(true, Ordering::SeqCst);
            greedy.join().unwrap();
        });
    }
}

/// A panic releases the mutex and does not poison it.
#[test]
fn a_panic_releases_the_mutex() {
    matrix::run(|| {
        let mutex = Arc::new(Mutex::new(1));
        let held = Arc::clone(&mutex);
        let error = go(move || {
            let mut guard = held.lock();
            *guard = 2;
            panic!("with the guard");
        })
        .join()
        .unwrap_err();
        assert!(error.is_panic());
        assert_eq!(*mutex.lock(), 2);
    });
}

/// A goroutine that is cancelled while it holds the mutex releases it; one that is cancelled while
/// it waits leaves the queue, and the others get the mutex.
#[test]
fn cancelled_goroutines_leave_the_mutex_usable() {
    matrix::run(|| {
        let mutex = leak(Mutex::new(Vec::new()));
        let (handles, guard) = queue_up(mutex, 5);
        handles[0].cancel();
        handles[2].cancel();
        handles[4].cancel();
        drop(guard);
        for (i, handle) in handles.into_iter().enumerate() {
            let joined = handle.join();
            // Cancelled in time, or the mutex came first.
            let pushed = mutex.lock().contains(&i);
            assert_eq!(joined.is_ok(), pushed, "{i}");
            assert!(pushed || i % 2 == 0, "{i}");
        }
        let holder = go(|| {
            let _guard = mutex.lock();
            let forever = WaitGroup::new();
            forever.add(1);
            forever.wait();
        });
        matrix::yield_until("held", || dump_says(&holder, "sync.WaitGroup.Wait"));
        holder.cancel();
        assert!(holder.join().unwrap_err().is_cancelled());
        drop(mutex.lock());
    });
}

/// Waiters that are cancelled while others get the mutex lose nothing: a waiter that was handed the
/// mutex has it or passes it on.
#[test]
fn cancelling_while_serving_loses_nothing() {
    matrix::each(|_, rt| {
        rt.run(|| {
            matrix::stress(3, |_| {
                let mutex = Arc::new(Mutex::new(0));
                let handles: Vec<_> = (0..30)
                    .map(|_| {
                        let mutex = Arc::clone(&mutex);
                        go(move || {
                            for _ in 0..10 {
                                let mut guard = mutex.lock();
                                yield_now();
                                *guard += 1;
                            }
                        })
                    })
                    .collect();
                for handle in handles.iter().step_by(2) {
                    yield_now();
                    handle.cancel();
                }
                let finished = handles.into_iter().filter_map(|handle| handle.join().ok()).count();
                assert!(finished >= 15);
                assert!(*mutex.lock() >= finished * 10);
                assert!(!mutex.is_locked());
            });
        });
    });
}

/// A wait with a timeout ends not before its time, and without the mutex.
#[test]
fn waits_time_out() {
    let wait = || {
        let mutex = Mutex::new(());
        let guard = mutex.lock();
        for millis in [0, 2] {
            let timeout = Duration::from_millis(millis);
            let start = Instant::now();
            assert!(mutex.try_lock_for(timeout).is_none());
            assert!(start.elapsed() >= timeout);
            assert!(mutex.try_lock_until(start + timeout).is_none());
        }
        drop(guard);
        assert!(mutex.try_lock_for(Duration::ZERO).is_some());
        assert!(mutex.try_lock_until(Instant::now()).is_some());
    };
    wait();
    matrix::run(wait);
}

/// Timeouts race with releases: each attempt has the mutex or not, and the count is right.
#[test]
fn timeouts_race_with_releases() {
    matrix::each(|_, rt| {
        let mutex = Arc::new(Mutex::new(0usize));
        let taken = Arc::new(AtomicUsize::new(0));
        let work = || {
            let (mutex, taken) = (Arc::clone(&mutex), Arc::clone(&taken));
            move || {
                for i in 0..50 {
                    let timeout = Duration::from_micros(i % 7 * 30);
                    if let Some(mut count) = mutex.try_lock_for(timeout) {
                        *count += 1;
                        taken.fetch_add(1, Ordering::Relaxed);
                        if i % 5 == 0 {
                            heist::time::sleep(Duration::from_micros(100));
                        }
                    }
                }
            }
        };
        let goroutines: Vec<_> = (0..6).map(|_| rt.handle().spawn(work())).collect();
        std::thread::scope(|scope| {
            scope.spawn(work());
            scope.spawn(work());
        });
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert_eq!(*mutex.lock(), taken.load(Ordering::Relaxed));
    });
}

/// SY-08: thousands of waiters of one mutex come and go one by one, without quadratic work: twice
/// as many take about twice as long.
#[test]
fn thousands_of_waiters_take_linear_time() {
    let rt = matrix::plain(2);
    let time = |n: usize| {
        rt.run(|| {
            let mutex = Arc::new(Mutex::new(0));
            let guard = mutex.lock();
            let group = WaitGroup::new();
            for _ in 0..n {
                group.add(1);
                let (mutex, group) = (Arc::clone(&mutex), group.clone());
                go(move || {
                    *mutex.lock() += 1;
                    group.done();
                });
            }
            yield_now();
            let start = Instant::now();
            drop(guard);
            group.wait();
            assert_eq!(*mutex.lock(), n);
            start.elapsed()
        })
    };
    // The best of several, because the machine may be noisy. Quadratic work would make the many
    // take 64 times as long in the best of any number.
    let few = (0..5).map(|_| time(1000)).min().unwrap();
    let many: Vec<_> =
        (0..50).map(|_| time(8000)).take_while(|&many| many >= few * 8 * 4).collect();
    assert!(many.len() < 50, "1000 took {few:?}, 8000 took {many:?}");
}

/// SY-27: the time that a goroutine waited for a mutex is counted.
#[test]
fn waiting_time_is_counted() {
    let rt = matrix::plain(2);
    let waited = |rt: &heist::Runtime| {
        rt.metrics().get("/sync/mutex/wait/total:nanoseconds").expect("the metric exists")
    };
    let before = waited(&rt);
    rt.run(|| {
        let mutex = leak(Mutex::new(Vec::new()));
        let (handles, guard) = queue_up(mutex, 1);
        heist::time::sleep(Duration::from_millis(20));
        drop(guard);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    assert!(waited(&rt) - before >= 20_000_000);
}

/// The text of a mutex shows its value, or that it is locked.
#[test]
fn debug_does_not_wait() {
    let mutex = Mutex::from(5);
    assert_eq!(format!("{mutex:?}"), "Mutex { data: 5 }");
    let guard = mutex.lock();
    assert_eq!(format!("{mutex:?} {guard:?} {guard}"), "Mutex { data: <locked> } 5 5");
    drop(guard);
    assert_eq!(Mutex::<u8>::default().into_inner(), 0);
}

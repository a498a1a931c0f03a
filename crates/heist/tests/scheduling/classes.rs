//! Classes of goroutines: the latency class goes first, the idle class runs only where no other
//! goroutine is runnable.

use crate::matrix;

use heist::goroutine::{Builder, Class};
use heist::sync::WaitGroup;
use heist::time::sleep;
use heist::{JoinHandle, Runtime, go, yield_now};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

fn spawn<T: Send + 'static>(class: Class, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    Builder::new().class(class).spawn(f).expect("there is memory")
}

fn hog(stop: &Arc<AtomicBool>) -> JoinHandle<()> {
    let stop = Arc::clone(stop);
    go(move || while !stop.load(Ordering::Relaxed) {})
}

/// One P: a latency goroutine that comes last runs first, an idle one that comes first runs last.
#[test]
fn one_proc_runs_classes_in_order() {
    let rt = matrix::plain(1);
    let order = rt.run(|| {
        let order = Arc::new(Mutex::new(Vec::new()));
        let note = |what: &'static str| {
            let order = Arc::clone(&order);
            move || order.lock().unwrap().push(what)
        };
        let idle = spawn(Class::Idle, note("idle"));
        let normal: Vec<_> = (0..3).map(|_| go(note("normal"))).collect();
        let latency = spawn(Class::Latency, note("latency"));
        // It yields behind the normal ones, so by then all but the idle one have run.
        yield_now();
        assert!(!idle.is_finished(), "an idle goroutine ran while another wanted to");
        for handle in normal {
            handle.join().unwrap();
        }
        latency.join().unwrap();
        idle.join().unwrap();
        Arc::try_unwrap(order).unwrap().into_inner().unwrap()
    });
    assert_eq!(order, ["latency", "normal", "normal", "normal", "idle"]);
}

/// Yielding and parking keep the class.
#[test]
fn yielding_and_parking_keep_the_class() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let n_normal = Arc::new(AtomicU32::new(0));
        let seen = Arc::clone(&n_normal);
        let latency = spawn(Class::Latency, move || {
            for _ in 0..20 {
                let before = seen.load(Ordering::Relaxed);
                yield_now();
                // One of the others runs from time to time, so that they are not starved.
                assert!(seen.load(Ordering::Relaxed) <= before + 1);
            }
        });
        for _ in 0..50 {
            let n_normal = Arc::clone(&n_normal);
            go(move || n_normal.fetch_add(1, Ordering::Relaxed));
        }
        latency.join().unwrap();
    });
}

/// Latency goroutines that never stop wanting to run do not starve the others.
#[test]
fn latency_goroutines_do_not_starve_the_others() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let busy: Vec<_> = (0..20)
                .map(|_| {
                    let stop = Arc::clone(&stop);
                    spawn(Class::Latency, move || {
                        while !stop.load(Ordering::Relaxed) {
                            yield_now();
                        }
                    })
                })
                .collect();
            go(|| ()).join().unwrap();
            stop.store(true, Ordering::Relaxed);
            for handle in busy {
                handle.join().unwrap();
            }
        });
    });
}

/// Reserved processors run only latency goroutines, whatever those do there.
#[test]
fn reserved_procs_are_kept_free() {
    for (procs, reserved) in [(2, 1), (4, 2), (16, 15)] {
        let rt = matrix::start(Runtime::builder().procs(procs).latency_procs(reserved));
        let n_latency = rt.run(|| {
            let group = WaitGroup::new();
            for i in 0..200 {
                group.add(1);
                let done = group.clone();
                spawn(Class::Latency, move || {
                    // The goroutines that it spawns and wakes are not of the latency class.
                    let child = go(move || i);
                    assert_eq!(child.join().unwrap(), i);
                    yield_now();
                    done.done();
                });
                group.add(1);
                let done = group.clone();
                go(move || {
                    yield_now();
                    done.done();
                });
            }
            group.wait();
            // Each ran at least twice: from the start and from the yield.
            2 * 200
        });
        let stats = rt.per_proc();
        let on_reserved: u64 = stats[..reserved].iter().map(|p| p.executed).sum();
        let stolen: u64 = stats[..reserved].iter().map(|p| p.stolen).sum();
        assert_eq!(stolen, 0, "a reserved processor stole");
        assert!(on_reserved <= 3 * n_latency, "{on_reserved} runs on reserved processors");
    }
}

/// With a reserved processor, endless loops do not delay a latency goroutine; without one, they are
/// preempted.
#[test]
fn hogs_do_not_delay_latency_goroutines() {
    for reserved in [0, 1] {
        let rt = matrix::start(Runtime::builder().procs(2).latency_procs(reserved));
        let median = rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..4).map(|_| hog(&stop)).collect();
            let ticker = spawn(Class::Latency, || {
                let mut lates: Vec<_> = (0..50)
                    .map(|_| {
                        let due = Instant::now() + Duration::from_millis(2);
                        heist::time::sleep_until(due);
                        due.elapsed()
                    })
                    .collect();
                lates.sort();
                lates[25]
            });
            let median = ticker.join().unwrap();
            stop.store(true, Ordering::Relaxed);
            for hog in hogs {
                hog.join().unwrap();
            }
            median
        });
        assert!(median < Duration::from_millis(40), "{reserved} reserved: {median:?} late");
    }
}

/// A goroutine of the idle class that computes without end is preempted as soon as another
/// goroutine is runnable.
#[test]
fn an_idle_hog_gives_way() {
    let rt = matrix::start(Runtime::builder().procs(1).quantum(Duration::from_secs(3600)));
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicBool::new(false));
        let (flag, began) = (Arc::clone(&stop), Arc::clone(&running));
        let idle = spawn(Class::Idle, move || {
            began.store(true, Ordering::Relaxed);
            while !flag.load(Ordering::Relaxed) {}
        });
        // It runs while this one sleeps, and has no slice that would end by itself.
        while !running.load(Ordering::Relaxed) {
            sleep(Duration::from_millis(1));
        }
        let start = Instant::now();
        for _ in 0..10 {
            sleep(Duration::from_millis(1));
            go(|| ()).join().unwrap();
        }
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed);
        idle.join().unwrap();
        assert!(took < Duration::from_secs(5), "ten rounds next to an idle goroutine: {took:?}");
    });
}

/// Goroutines of all classes at once, in every configuration: all end.
#[test]
fn goroutines_of_all_classes_end() {
    matrix::each(|case, _| {
        for reserved in [0, case.procs / 2] {
            if reserved >= case.procs {
                continue;
            }
            let rt = matrix::start(case.builder().latency_procs(reserved));
            rt.run(|| {
                let n = Arc::new(AtomicU32::new(0));
                let handles: Vec<_> = (0..300)
                    .map(|i| {
                        let class = [Class::Latency, Class::Normal, Class::Idle][i % 3];
                        let n = Arc::clone(&n);
                        spawn(class, move || {
                            yield_now();
                            if i % 7 == 0 {
                                sleep(Duration::from_micros(100));
                            }
                            if i % 11 == 0 {
                                heist::blocking(|| {
                                    std::thread::sleep(Duration::from_micros(200));
                                });
                            }
                            go(move || n.fetch_add(1, Ordering::Relaxed)).join().unwrap();
                        })
                    })
                    .collect();
                for handle in handles {
                    handle.join().unwrap();
                }
                assert_eq!(n.load(Ordering::Relaxed), 300);
            });
        }
    });
}

/// A goroutine of the idle class that was stopped with a lock of std in its hands goes on when all
/// others wait for the lock: their threads sleep, so their processors are of no use to them.
#[test]
fn an_idle_goroutine_that_holds_a_lock_goes_on_when_all_others_wait_for_it() {
    matrix::each_of(&matrix::cases_with(&[1, 2]), |case, rt| {
        let procs = case.procs as u32;
        let lock = Arc::new(Mutex::new(0));
        let (holds, n_want) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU32::new(0)));
        let gate = WaitGroup::new();
        gate.add(1);
        let holder = {
            let (lock, holds, n_want) = (lock.clone(), holds.clone(), n_want.clone());
            let holder = move || {
                let mut n = lock.lock().unwrap();
                holds.store(true, Ordering::Relaxed);
                while n_want.load(Ordering::Relaxed) != procs {}
                *n += 1;
            };
            Builder::new().class(Class::Idle).spawn_on(&rt.handle(), holder).unwrap()
        };
        let others: Vec<_> = (0..procs)
            .map(|_| {
                let (lock, n_want, gate) = (lock.clone(), n_want.clone(), gate.clone());
                rt.spawn(move || {
                    gate.wait();
                    n_want.fetch_add(1, Ordering::Relaxed);
                    *lock.lock().unwrap() += 1;
                })
            })
            .collect();
        matrix::eventually("the idle one runs", || holds.load(Ordering::Relaxed));
        gate.done();
        holder.join().unwrap();
        others.into_iter().for_each(|other| other.join().unwrap());
        assert_eq!(*lock.lock().unwrap(), procs + 1);
    });
}

/// Reserving all processors is refused.
#[test]
fn reserving_all_procs_is_refused() {
    for (procs, reserved) in [(1, 1), (2, 2), (2, 100)] {
        let builder = Runtime::builder().procs(procs).latency_procs(reserved);
        // SAFETY: no goroutine runs.
        let error = unsafe { builder.build() }.expect_err("refused").to_string();
        assert!(error.contains("latency_procs"), "{error}");
        assert!(error.contains("leave none for the others"), "{error}");
    }
}

/// Procs change while all classes are at work; fewer than are reserved is refused.
#[test]
fn classes_work_while_procs_change() {
    let rt = matrix::start(Runtime::builder().procs(4).latency_procs(1));
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let n = Arc::new(AtomicU32::new(0));
        let workers: Vec<_> = (0..30)
            .map(|i| {
                let class = [Class::Latency, Class::Normal, Class::Idle][i % 3];
                let (stop, n) = (Arc::clone(&stop), Arc::clone(&n));
                spawn(class, move || {
                    while !stop.load(Ordering::Relaxed) {
                        if i % 2 == 0 {
                            yield_now();
                        } else {
                            sleep(Duration::from_micros(50));
                        }
                    }
                    n.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        for round in 0..100 {
            heist::set_procs(2 + round % 7);
            sleep(Duration::from_micros(200));
        }
        let refused = std::panic::catch_unwind(|| heist::set_procs(1));
        let text = refused.expect_err("one processor, and that one reserved");
        let text = text.downcast_ref::<String>().expect("a text");
        assert!(text.contains("reserved for latency goroutines"), "{text}");
        stop.store(true, Ordering::Relaxed);
        for worker in workers {
            worker.join().unwrap();
        }
        assert_eq!(n.load(Ordering::Relaxed), 30);
    });
}

//! The number of processors, changed while goroutines run; stopping the world.

use crate::matrix;

use heist::goroutine::{Builder, Class};
use heist::sync::WaitGroup;
use heist::{Handle, Runtime, go, testing, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

/// Spins without a call until told to stop.
fn spin_until(stop: &AtomicBool, count: &AtomicU64) {
    while !stop.load(Ordering::Relaxed) {
        count.fetch_add(1, Ordering::Relaxed);
    }
}

/// GM-09: reading the number is a call of its own; setting the same number does not stop the world.
#[test]
fn setting_the_same_number_does_not_stop_the_world() {
    matrix::each(|case, rt| {
        let handle = rt.handle();
        assert_eq!((rt.procs(), handle.procs()), (case.procs, case.procs));
        let before = testing::n_stops(&handle);
        assert_eq!(rt.set_procs(case.procs), case.procs);
        assert_eq!(rt.run(|| heist::set_procs(case.procs)), case.procs);
        assert_eq!(testing::n_stops(&handle), before);
        assert_eq!(rt.set_procs(case.procs + 1), case.procs);
        assert_eq!(testing::n_stops(&handle), before + 1);
        assert_eq!((rt.procs(), rt.run(heist::procs)), (case.procs + 1, case.procs + 1));
    });
}

/// GM-09: an invalid number is refused, in the caller's goroutine, and changes nothing.
#[test]
fn invalid_numbers_are_refused() {
    let rt = matrix::plain(2);
    rt.run(|| {
        for n in [0, 4097, usize::MAX] {
            let refused = go(move || heist::set_procs(n)).join().unwrap_err();
            let message = refused.panic_message().expect("a message").to_owned();
            assert!(message.starts_with("heist::set_procs: "), "{message}");
        }
        assert_eq!(heist::procs(), 2);
    });
    let outside = catch_unwind(|| heist::set_procs(1)).unwrap_err();
    let message = outside.downcast::<String>().expect("a message");
    assert!(message.contains("plain thread"), "{message}");
    assert_eq!(heist::procs(), 0);
}

/// GM-01: a thousand processors start and work.
#[test]
fn a_thousand_processors_work() {
    let rt = matrix::plain(1024);
    let sum: u64 = rt.run(|| {
        let handles: Vec<_> = (0..200).map(|i| go(move || i)).collect();
        handles.into_iter().map(|handle| handle.join().unwrap()).sum()
    });
    assert_eq!(sum, 19900);
    assert_eq!(rt.set_procs(4096), 1024);
    assert_eq!(rt.set_procs(1), 4096);
    rt.run(|| go(|| ()).join().unwrap());
}

/// Two goroutines on two processors: `on_last` runs on the one with the higher number while the
/// other spins, until the flag is set.
fn with_a_hog_on_p0(rt: &Runtime, on_last: impl FnOnce(&AtomicBool) + Send) {
    let arrived = AtomicUsize::new(0);
    let stop = AtomicBool::new(false);
    let on_last = Mutex::new(Some(on_last));
    let meet = |is_main: bool| {
        arrived.fetch_add(1, Ordering::SeqCst);
        while arrived.load(Ordering::SeqCst) < 2 {
            std::hint::spin_loop();
        }
        let (_, p) = testing::m_and_p().unwrap();
        if p == 1 {
            let work = on_last.lock().unwrap().take().expect("one of the two");
            let result = catch_unwind(AssertUnwindSafe(|| work(&stop)));
            stop.store(true, Ordering::SeqCst);
            if let Err(payload) = result {
                std::panic::resume_unwind(payload);
            }
        } else {
            spin_until(&stop, &AtomicU64::new(0));
        }
        is_main
    };
    std::thread::scope(|scope| {
        scope.spawn(|| rt.run(|| meet(false)));
        rt.run(|| meet(true));
    });
}

/// GM-10, IN-33: goroutines of a removed processor keep their order: `run_next`, the ring, those
/// that yielded, ahead of those in the global queue; the caller, whose processor it was, continues
/// with the first one.
#[test]
fn shrinking_keeps_the_order() {
    let rt = matrix::whole_slices(2);
    let order = Arc::new(Mutex::new(Vec::new()));
    let say = |what: &'static str| {
        let order = Arc::clone(&order);
        move || order.lock().unwrap().push(what)
    };
    // Made before, and joined after: a goroutine that waits for a thread, even briefly, may lose
    // its P.
    let (wanted, spawned) = (Arc::new(AtomicBool::new(false)), Arc::new(OnceLock::new()));
    let outside = std::thread::spawn({
        let (wanted, spawned) = (Arc::clone(&wanted), Arc::clone(&spawned));
        let (handle, global) = (rt.handle(), say("global"));
        move || {
            while !wanted.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            assert!(spawned.set(handle.spawn(global)).is_ok());
        }
    });
    with_a_hog_on_p0(&rt, |stop| {
        let yielding = |what: &'static str, group: &WaitGroup| {
            let (group, say) = (group.clone(), say(what));
            go(move || {
                group.done();
                yield_now();
                say();
            })
        };
        let group = WaitGroup::new();
        group.add(2);
        let mut handles =
            vec![yielding("second to yield", &group), yielding("first to yield", &group)];
        group.wait();
        // From outside, to the global queue.
        wanted.store(true, Ordering::SeqCst);
        while spawned.get().is_none() {
            std::hint::spin_loop();
        }
        for what in ["ring 0", "ring 1", "ring 2", "run_next"] {
            handles.push(go(say(what)));
        }
        assert_eq!(heist::set_procs(1), 2);
        assert_eq!(testing::m_and_p().unwrap().1, 0);
        assert!(order.lock().unwrap().is_empty());
        stop.store(true, Ordering::SeqCst);
        for handle in handles {
            handle.join().unwrap();
        }
    });
    outside.join().unwrap();
    Arc::into_inner(spawned).unwrap().into_inner().unwrap().join().unwrap();
    let expected = ["run_next", "ring 0", "ring 1", "ring 2", "first to yield", "second to yield"];
    let order = order.lock().unwrap();
    assert_eq!(order[..6], expected, "{order:?}");
    assert_eq!(order[6..], ["global"], "{order:?}");
}

/// GM-11, IN-32: while the world is stopped nothing moves: not loops without calls, not goroutines
/// that yield or spawn, whether a thread or a goroutine stops it, and however many processors there
/// are.
#[test]
fn nothing_moves_while_the_world_is_stopped() {
    matrix::each_of(&matrix::cases_with(&[1, 2, 4, 16]), |_, rt| {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicU64; 6]> = Arc::default();
        for i in 0..6 {
            let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
            rt.handle().spawn(move || match i % 3 {
                0 => spin_until(&stop, &counts[i]),
                1 => {
                    while !stop.load(Ordering::Relaxed) {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                        yield_now();
                    }
                }
                _ => {
                    while !stop.load(Ordering::Relaxed) {
                        go(|| ()).join().unwrap();
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    }
                }
            });
        }
        let look = || counts.each_ref().map(|count| count.load(Ordering::Relaxed));
        let stopped = || {
            let before = look();
            let until = Instant::now() + Duration::from_micros(200);
            while Instant::now() < until {
                std::hint::spin_loop();
            }
            (before, look())
        };
        let mut seen = look();
        for _ in 0..20 {
            let (before, after) = testing::stop_the_world(&rt.handle(), stopped).unwrap();
            assert_eq!(before, after);
            // The world runs again afterwards: at least one of them makes progress.
            matrix::eventually("a goroutine makes progress", || look() != before);
            seen = before;
        }
        assert!(seen.iter().any(|&count| count > 0));
        stop.store(true, Ordering::Relaxed);
        rt.run(|| {
            let (before, after) =
                testing::stop_the_world(&Handle::current().unwrap(), stopped).unwrap();
            assert_eq!(before, after);
        });
        matrix::eventually("the end", || rt.run(heist::num_goroutines) == 1);
    });
}

/// PR-04: one processor, and loops without a call in it and waiting for it: the world stops, for a
/// plain thread and for a goroutine, and runs again.
#[test]
fn loops_without_calls_do_not_keep_the_world_from_stopping() {
    let rt = Runtime::builder().procs(1);
    let rt = matrix::start(rt);
    let stop = Arc::new(AtomicBool::new(false));
    let hogs: Vec<_> = (0..3)
        .map(|_| {
            let stop = Arc::clone(&stop);
            rt.handle().spawn(move || spin_until(&stop, &AtomicU64::new(0)))
        })
        .collect();
    for _ in 0..20 {
        assert_eq!(testing::stop_the_world(&rt.handle(), || 1), Some(1));
    }
    rt.run(|| assert_eq!(testing::stop_the_world(&Handle::current().unwrap(), || 2), Some(2)));
    assert_eq!(rt.set_procs(2), 1);
    assert_eq!(rt.run(|| heist::set_procs(1)), 2);
    stop.store(true, Ordering::Relaxed);
    hogs.into_iter().for_each(|hog| hog.join().unwrap());
}

/// PR-03: six processors, five goroutines that call, ten rounds of a yield and a stop: it ends.
#[test]
fn goroutines_that_call_are_preempted() {
    let rt = matrix::plain(6);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let callers: Vec<_> = (0..5)
            .map(|_| {
                let stop = Arc::clone(&stop);
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::black_box(heist::current_id());
                        std::hint::black_box(heist::procs());
                    }
                })
            })
            .collect();
        for _ in 0..10 {
            yield_now();
            testing::stop_the_world(&Handle::current().unwrap(), || ()).unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        callers.into_iter().for_each(|caller| caller.join().unwrap());
    });
}

/// GM-02: goroutines that run when the world stops continue with the same thread and processor.
#[test]
fn running_goroutines_keep_their_thread_and_processor() {
    let rt = matrix::whole_slices(4);
    let stop = Arc::new(AtomicBool::new(false));
    let moved = Arc::new(AtomicU64::new(0));
    let looked: Arc<[AtomicU64; 2]> = Arc::default();
    let spinners: Vec<_> = (0..2)
        .map(|i| {
            let (stop, moved, looked) =
                (Arc::clone(&stop), Arc::clone(&moved), Arc::clone(&looked));
            rt.handle().spawn(move || {
                let mut here = testing::m_and_p();
                while !stop.load(Ordering::Relaxed) {
                    let now = testing::m_and_p();
                    moved.fetch_add(u64::from(now != here), Ordering::Relaxed);
                    here = now;
                    looked[i].fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let looks = || looked.each_ref().map(|count| count.load(Ordering::Relaxed));
    for _ in 0..50 {
        let before = looks();
        matrix::eventually("both run", || {
            looks().iter().zip(before).all(|(now, before)| *now > before)
        });
        testing::stop_the_world(&rt.handle(), || ()).unwrap();
    }
    stop.store(true, Ordering::Relaxed);
    spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
    assert_eq!(moved.load(Ordering::Relaxed), 0);
}

/// IN-32: threads that block, announced or not, do not delay a stop, and continue undisturbed.
#[test]
fn blocked_threads_do_not_hold_a_stop_up() {
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        use std::io::{Read, Write};
        let readers: Vec<_> = (0..4)
            .map(|i| {
                let (mut reader, writer) = std::io::pipe().unwrap();
                let mut read = move || {
                    let mut byte = [0];
                    // `read`, which would say if it had been interrupted.
                    reader.read(&mut byte).map(|n| (n, byte[0]))
                };
                let handle = rt
                    .handle()
                    .spawn(move || if i % 2 == 0 { heist::blocking(read) } else { read() });
                (writer, handle)
            })
            .collect();
        for round in 0..10 {
            testing::stop_the_world(&rt.handle(), || ()).unwrap();
            rt.set_procs(1 + round % 5);
        }
        for (i, (mut writer, handle)) in readers.into_iter().enumerate() {
            writer.write_all(&[i as u8]).unwrap();
            assert_eq!(handle.join().unwrap().unwrap(), (1, i as u8));
        }
    });
}

/// `with_procs` restores the previous number, nested and after a panic.
#[test]
fn with_procs_restores_the_number() {
    matrix::each(|case, rt| {
        rt.run(|| {
            let seen = heist::with_procs(3, || {
                let outer = heist::procs();
                let inner = heist::with_procs(1, heist::procs);
                (outer, inner, heist::procs())
            });
            assert_eq!(seen, (3, 1, 3));
            assert_eq!(heist::procs(), case.procs);
            let failed = catch_unwind(AssertUnwindSafe(|| {
                heist::with_procs(2, || std::panic::resume_unwind(Box::new(heist::procs())))
            }));
            assert_eq!(*failed.unwrap_err().downcast::<usize>().unwrap(), 2);
            assert_eq!(heist::procs(), case.procs);
        });
    });
}

/// GM-10: goroutines that sleep wake up on time although the processor that watched their timers is
/// gone.
#[test]
fn timers_survive_their_processor() {
    matrix::each_of(&matrix::cases_with(&[4, 16]), |case, rt| {
        let sleepers: Vec<_> = (0..40)
            .map(|i| {
                rt.handle().spawn(move || {
                    let (time, start) = (Duration::from_millis(5 + i % 3), Instant::now());
                    heist::time::sleep(time);
                    start.elapsed() >= time
                })
            })
            .collect();
        matrix::eventually("all of them sleep", || {
            rt.metrics().get("/sched/goroutines/waiting:goroutines") == Some(40)
                || sleepers.iter().any(|sleeper| sleeper.is_finished())
        });
        for procs in [1, case.procs, 2, 1] {
            rt.set_procs(procs);
        }
        for sleeper in sleepers {
            assert!(sleeper.join().unwrap());
        }
    });
}

/// Counts and times of removed processors are kept.
#[test]
fn counters_survive_their_processors() {
    let rt = matrix::plain(8);
    let created = || rt.metrics().get("/sched/goroutines-created:goroutines").unwrap();
    let work = || {
        rt.run(|| {
            let handles: Vec<_> = (0..100).map(|_| go(yield_now)).collect();
            handles.into_iter().for_each(|handle| handle.join().unwrap());
        });
    };
    work();
    assert_eq!(created(), 101);
    rt.set_procs(1);
    assert_eq!(created(), 101);
    work();
    rt.set_procs(16);
    work();
    assert_eq!(created(), 303);
    matrix::eventually("the end", || rt.metrics().get("/sched/goroutines:goroutines") == Some(0));
}

/// A runtime that has shut down stays as it is.
#[test]
fn a_runtime_that_has_ended_is_left_alone() {
    let rt = matrix::plain(2);
    let handle = rt.handle();
    drop(rt);
    assert_eq!(handle.set_procs(4), 2);
    assert_eq!(handle.procs(), 2);
    assert_eq!(testing::stop_the_world(&handle, || ()), None);
}

/// Work of every kind; every piece of it is counted by `done`.
fn load(done: &Arc<AtomicU64>, until: &Arc<AtomicBool>) -> u64 {
    let mut begun = 0;
    while !until.load(Ordering::Relaxed) {
        let handles: Vec<_> = (0..24u64)
            .map(|i| {
                let done = Arc::clone(done);
                go(move || {
                    match i % 7 {
                        0 => yield_now(),
                        6 => heist::time::sleep(Duration::from_micros(50)),
                        1 => drop((0..50).map(|n| vec![n; 40]).collect::<Vec<_>>()),
                        2 => go(yield_now).join().unwrap(),
                        3 => heist::blocking(|| std::thread::sleep(Duration::from_micros(50))),
                        4 => std::thread::sleep(Duration::from_micros(50)),
                        _ => {
                            let until = Instant::now() + Duration::from_micros(100);
                            while Instant::now() < until {}
                        }
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        begun += handles.len() as u64;
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    }
    begun
}

/// GM-10, GM-14, IN-33: the number of processors goes up and down all the time under load, set by a
/// plain thread and by goroutines, and nothing is lost. A second; longer with `HEIST_STRESS_SECS`.
#[test]
fn nothing_is_lost_when_the_number_changes_all_the_time() {
    let time = matrix::stress_time().unwrap_or(Duration::from_secs(1));
    for quantum in [Duration::from_micros(500), Duration::from_millis(10)] {
        let rt = Arc::new(matrix::start(Runtime::builder().procs(1).quantum(quantum)));
        let watched = Arc::clone(&rt);
        let dog = matrix::Watchdog::new(time + Duration::from_secs(60), move || {
            format!("{:#?}", testing::sample(&watched))
        });
        let (done, over) = (Arc::<AtomicU64>::default(), Arc::new(AtomicBool::new(false)));
        let loads: Vec<_> = (0..4)
            .map(|_| {
                let (done, over) = (Arc::clone(&done), Arc::clone(&over));
                rt.handle().spawn(move || load(&done, &over))
            })
            .collect();
        let inside = {
            let over = Arc::clone(&over);
            rt.handle().spawn(move || {
                let mut n = 0;
                while !over.load(Ordering::Relaxed) {
                    n += 1;
                    heist::set_procs(1 + n % 7);
                    yield_now();
                }
            })
        };
        let until = Instant::now() + time;
        let ladder = (1..=16).chain((1..16).rev()).cycle();
        for n in ladder.take_while(|_| Instant::now() < until) {
            rt.set_procs(n);
            std::thread::sleep(Duration::from_millis(1));
        }
        over.store(true, Ordering::Relaxed);
        let begun: u64 = loads.into_iter().map(|load| load.join().unwrap()).sum();
        inside.join().unwrap();
        assert_eq!(done.load(Ordering::Relaxed), begun);
        assert!(begun > 0);
        drop(dog);
        matrix::eventually("the end", || {
            rt.metrics().get("/sched/goroutines:goroutines") == Some(0)
        });
    }
}

/// GM-14: a wait group is hammered at 1, 4 and 10 processors, in one runtime.
#[test]
fn a_wait_group_is_hammered_at_changing_numbers() {
    let rt = matrix::plain(1);
    for procs in [1, 4, 10, 1] {
        rt.set_procs(procs);
        rt.run(|| {
            for _ in 0..20 {
                let (group, sum) = (WaitGroup::new(), Arc::<AtomicU64>::default());
                for i in 0..100 {
                    group.add(1);
                    let (group, sum) = (group.clone(), Arc::clone(&sum));
                    go(move || {
                        sum.fetch_add(i, Ordering::Relaxed);
                        group.done();
                    });
                }
                group.wait();
                assert_eq!(sum.load(Ordering::Relaxed), 4950);
            }
        });
    }
}

/// A goroutine of the idle class that waits for the world lock, and then for a P, does not keep
/// others from changing the number of Ps.
#[test]
fn an_idle_goroutine_without_a_p_does_not_hold_the_world_lock() {
    let rt = matrix::plain(2);
    let stop = Arc::new(AtomicBool::new(false));
    let changes = Arc::new(AtomicU64::new(0));
    let handle = rt.handle();
    let idle: Vec<_> = (0..3)
        .map(|k| {
            let (stop, own) = (Arc::clone(&stop), handle.clone());
            let change = move || {
                for i in 0.. {
                    own.set_procs(1 + (i + k) % 3);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            };
            let builder = Builder::new().class(Class::Idle);
            builder.spawn_on(&handle, change).expect("there is memory")
        })
        .collect();
    let threads: Vec<_> = (0..2)
        .map(|k| {
            let (stop, changes, own) = (Arc::clone(&stop), Arc::clone(&changes), handle.clone());
            std::thread::spawn(move || {
                for i in 0.. {
                    own.set_procs(1 + (i + k) % 3);
                    changes.fetch_add(1, Ordering::Relaxed);
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                }
            })
        })
        .collect();
    matrix::eventually("changes", || changes.load(Ordering::Relaxed) > 1000);
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let stop = Arc::clone(&stop);
            handle.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    yield_now();
                }
            })
        })
        .collect();
    for _ in 0..20 {
        let (before, from) = (changes.load(Ordering::Relaxed), Instant::now());
        matrix::eventually("a change beside goroutines that are busy", || {
            // Then the idle ones get a P, and this fails instead of hanging.
            stop.fetch_or(from.elapsed() > Duration::from_secs(5), Ordering::Relaxed);
            changes.load(Ordering::Relaxed) > before
        });
        assert!(!stop.load(Ordering::Relaxed), "the number of Ps could not be changed");
        std::thread::sleep(Duration::from_millis(50));
    }
    stop.store(true, Ordering::Relaxed);
    busy.into_iter().for_each(|handle| handle.join().unwrap());
    idle.into_iter().for_each(|handle| handle.join().unwrap());
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

//! Several runtimes in one process: the effect of one on the goroutines, timers and memory of
//! another. Freed memory is unmapped here, so that a use of it ends the process.

use crate::turns;

use crate::unmapping::{eventually, within};
use heist::chan::{self, Receiver};
use heist::sync::WaitGroup;
use heist::{JoinHandle, Runtime, go, select, time, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(300);
const AN_HOUR: Duration = Duration::from_secs(3600);

fn start(name: &str, procs: usize) -> Runtime {
    start_with(Runtime::builder().name(name).procs(procs))
}

fn start_with(builder: heist::Builder) -> Runtime {
    // SAFETY: the goroutines of these tests keep nothing across a park that is bound to a thread.
    unsafe { builder.build() }.expect("the runtime starts")
}

/// A runtime that does not wait for its goroutines when it is dropped.
fn impatient(procs: usize) -> Runtime {
    start_with(Runtime::builder().procs(procs).shutdown_timeout(Duration::ZERO))
}

/// Waits until the threads of the runtime with that name have ended.
fn all_threads_end(name: &str) {
    eventually("its threads end", || !thread_names().iter().any(|thread| thread.starts_with(name)));
}

fn thread_names() -> Vec<String> {
    let tasks = std::fs::read_dir("/proc/self/task").expect("proc is mounted");
    let names = tasks.flatten().map(|task| std::fs::read_to_string(task.path().join("comm")));
    names.flatten().collect()
}

/// A goroutine that did not end in time is left behind. A later waker finds its scheduler, the
/// goroutine continues, and the threads of its runtime end with it.
#[test]
fn a_goroutine_that_was_left_behind_can_be_woken() {
    let _turn = turns::with_others();
    within(PATIENCE, "left behind", || {
        for procs in [1, 2, 4] {
            let other = Arc::new(start("other", 1));
            let builder = Runtime::builder().procs(procs).name("left");
            let rt = start_with(builder.shutdown_timeout(Duration::ZERO));
            let (gate, inside) = (WaitGroup::new(), WaitGroup::new());
            gate.add(1);
            inside.add(1);
            let (held, gone_in) = (gate.clone(), inside.clone());
            let there = Arc::clone(&other);
            // It cannot be unwound before the other runtime has run the closure that borrows from
            // it.
            let left = rt.handle().spawn(move || {
                there.run(|| {
                    gone_in.done();
                    held.wait();
                });
            });
            inside.wait();
            drop(rt);
            left.cancel();
            assert!(!left.is_finished());
            // This wakes it.
            gate.done();
            left.join().unwrap();
            all_threads_end("left");
        }
    });
}

/// A goroutine that is left behind while it computes, or was preempted meanwhile, continues, and is
/// unwound at its next park.
#[test]
fn goroutines_that_were_left_behind_continue() {
    let _turn = turns::with_others();
    within(PATIENCE, "continue", || {
        let builder = Runtime::builder().procs(1).name("hogs").quantum(Duration::from_millis(1));
        let rt = start_with(builder.shutdown_timeout(Duration::ZERO));
        let (over, running) = (Arc::new(AtomicBool::new(false)), WaitGroup::new());
        let hogs: Vec<_> = (0..4)
            .map(|_| {
                running.add(1);
                let (over, running) = (Arc::clone(&over), running.clone());
                rt.handle().spawn(move || {
                    running.done();
                    while !over.load(Ordering::Relaxed) {}
                    yield_now();
                })
            })
            .collect();
        running.wait();
        drop(rt);
        over.store(true, Ordering::Relaxed);
        for hog in hogs {
            assert!(hog.join().unwrap_err().is_cancelled());
        }
        all_threads_end("hogs");
    });
}

/// A timer whose wait is over leaves the goroutines of another runtime alone, though one of them
/// has the same record and waits until the same moment.
#[test]
fn a_stale_timer_meets_no_goroutine_of_another_runtime() {
    let _turn = turns::with_others();
    within(PATIENCE, "stale timer", || {
        let first = start("first", 1);
        // It does not check its own timers while its processor is busy.
        let builder = Runtime::builder().name("second").procs(1);
        let second = start_with(builder.exact_quantum(AN_HOUR).wake_up_bound(AN_HOUR));
        let period = Duration::from_millis(1500);
        let (ticks, moment) = (chan::tick(period), Instant::now() + period);
        // A goroutine of the first runtime sleeps all the time, so that the runtime checks its
        // timers.
        let ended = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&ended);
        let heart = first.handle().spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                time::sleep(Duration::from_millis(5));
            }
        });
        let wait_for_tick = |rt: &Runtime, ticks: &Receiver<_>, other: &Receiver<()>| {
            let (ticks, other) = (ticks.clone(), other.clone());
            rt.handle().spawn(move || {
                let before = heist::testing::thread_name();
                let ticked = select! { recv(ticks) -> _ => true, recv(other) -> _ => false };
                let after = heist::testing::thread_name();
                (ticked, [before, after])
            })
        };
        // The records go to the pool with their timers still in the heap.
        let (all, other) = chan::bounded::<()>(0);
        let early: Vec<_> = (0..3000).map(|_| wait_for_tick(&first, &ticks, &other)).collect();
        all_wait(&first, &early);
        drop(all);
        early.into_iter().for_each(|early| drop(early.join().unwrap()));
        // The other runtime reuses the records.
        let (all, other) = chan::bounded::<()>(0);
        let late: Vec<_> = (0..3000).map(|_| wait_for_tick(&second, &ticks, &other)).collect();
        all_wait(&second, &late);
        let busy = second.handle().spawn(move || while Instant::now() < moment + period / 4 {});
        busy.join().unwrap();
        drop(all);
        for late in late {
            let (_, names) = late.join().unwrap();
            assert!(names.iter().all(|name| name.starts_with("second")), "{names:?}");
        }
        ended.store(true, Ordering::Relaxed);
        heart.join().unwrap();
    });
}

/// Waits until all wait at a select, but for those that a tick has ended.
fn all_wait<T>(rt: &Runtime, goroutines: &[JoinHandle<T>]) {
    eventually("all of them wait", || {
        let waiting = rt.census().into_iter().filter(|group| group.state == "select");
        let waiting: usize = waiting.map(|group| group.count).sum();
        let ended = goroutines.iter().filter(|goroutine| goroutine.is_finished()).count();
        waiting + ended >= goroutines.len()
    });
}

/// A goroutine may drop another runtime, and waits until that has ended, while others run.
#[test]
fn a_goroutine_drops_another_runtime() {
    let _turn = turns::with_others();
    within(PATIENCE, "drop on a goroutine", || {
        for procs in [1, 2, 4] {
            let rt = start("keeps", procs);
            rt.run(|| {
                for _ in 0..20 {
                    let dropped = start("goes", 2);
                    let (unwound, noticed) = (WaitGroup::new(), Arc::new(AtomicBool::new(false)));
                    unwound.add(1);
                    let (guard, seen) = (unwound.clone(), Arc::clone(&noticed));
                    let on_drop = OnDrop(move || {
                        seen.store(true, Ordering::SeqCst);
                        guard.done();
                    });
                    drop(dropped.handle().spawn(move || {
                        let _on_drop = on_drop;
                        time::sleep(AN_HOUR);
                    }));
                    let beside = go(|| (0..100).for_each(|_| yield_now()));
                    drop(dropped);
                    beside.join().unwrap();
                    unwound.wait();
                    assert!(noticed.load(Ordering::SeqCst));
                }
            });
        }
    });
}

struct OnDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for OnDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A goroutine stops a function that is to run later in another runtime, before or after that
/// runtime has ended.
#[test]
fn a_goroutine_stops_a_function_of_another_runtime() {
    let _turn = turns::with_others();
    within(PATIENCE, "stop elsewhere", || {
        for procs in [1, 2, 4] {
            let (rt, other) = (start("stops", procs), start("waits", 2));
            let kept = Arc::new(());
            let later = |n| {
                let kept = Arc::clone(&kept);
                other.run(move || {
                    let funcs = (0..n).map(|_| {
                        let kept = Arc::clone(&kept);
                        time::after_func(AN_HOUR, move || drop(kept))
                    });
                    funcs.collect::<Vec<_>>()
                })
            };
            let funcs = later(100);
            rt.run(|| assert!(funcs.iter().all(time::AfterFunc::stop)));
            eventually("what they captured is dropped", || Arc::strong_count(&kept) == 1);
            let funcs = later(100);
            drop(other);
            assert_eq!(Arc::strong_count(&kept), 1);
            rt.run(|| assert!(!funcs.iter().any(time::AfterFunc::stop)));
        }
    });
}

/// The last handle of a runtime that has ended may be dropped by a goroutine of another: the memory
/// of the scheduler goes with it.
#[test]
fn a_goroutine_drops_the_last_handle_of_another_runtime() {
    let _turn = turns::with_others();
    within(PATIENCE, "last handle", || {
        let rt = start("drops", 2);
        for _ in 0..20 {
            let gone = start("gone", 2);
            let handle = gone.handle();
            gone.run(|| (0..100).for_each(|_| go(yield_now).join().unwrap()));
            drop(gone);
            all_threads_end("gone");
            rt.run(move || {
                assert!(handle.try_spawn(|| ()).is_err());
                drop(handle);
            });
        }
    });
}

/// Handles of goroutines outlive their runtime, however it ended.
#[test]
fn join_handles_outlive_their_runtime() {
    let _turn = turns::with_others();
    within(PATIENCE, "join handles", || {
        let rt = start("joins", 2);
        for patient in [true, false] {
            let gone = if patient { start("gone", 2) } else { impatient(2) };
            let gate = WaitGroup::new();
            gate.add(1);
            let handles: Vec<_> = (0..100)
                .map(|i| {
                    let gate = gate.clone();
                    gone.handle().spawn(move || {
                        if i % 2 == 0 {
                            gate.wait()
                        }
                    })
                })
                .collect();
            drop(gone);
            gate.done();
            rt.run(move || {
                for handle in handles {
                    handle.cancel();
                    if handle.is_finished() {
                        let _ = handle.join();
                    }
                }
            });
        }
    });
}

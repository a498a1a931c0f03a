//! Where a goroutine is queued, depending on what made it runnable.
//!
//! One processor, no chaos and no slices that end by themselves: what is in which queue can be
//! counted, and the order in which goroutines run is exact.

use crate::matrix;

use heist::sync::{Mutex, WaitGroup};
use heist::{Runtime, chan, go, testing, time, yield_now};
use std::hint::spin_loop;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(3600);

/// The actions of the goroutines, in order.
#[derive(Clone, Default)]
struct Log(Arc<std::sync::Mutex<Vec<&'static str>>>);

impl Log {
    fn add(&self, what: &'static str) {
        self.0.lock().unwrap().push(what);
    }

    /// A goroutine that logs `what`.
    fn spawn(&self, what: &'static str) {
        let log = self.clone();
        go(move || log.add(what));
    }

    fn take(&self) -> Vec<&'static str> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn one_processor(quantum: Duration, forced: bool) -> Arc<Runtime> {
    let builder = Runtime::builder().procs(1).exact_quantum(quantum).forced_preemption(forced);
    Arc::new(matrix::start(builder.wake_up_bound(LONG)))
}

/// Goroutines in the processor's queue, and in the global one.
fn queued(rt: &Runtime) -> (u32, u32) {
    let sample = testing::sample(rt);
    (sample.queued.iter().sum(), sample.global)
}

#[track_caller]
fn spin_until(what: &str, condition: impl Fn() -> bool) {
    let until = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < until, "never happened: {what}");
        spin_loop();
    }
}

/// Lets every runnable goroutine run.
fn drain(rt: &Runtime) {
    while queued(rt) != (0, 0) {
        yield_now();
    }
}

/// IN-12: the receiver of a message takes the place in front; the goroutine that was there goes to
/// the tail of the ring.
#[test]
fn a_receiver_goes_in_front() {
    let rt = one_processor(LONG, false);
    rt.run(|| {
        testing::set_tick(1);
        for capacity in [0, 1] {
            let log = Log::default();
            let (tx, rx) = chan::bounded(capacity);
            let receiver = log.clone();
            go(move || {
                rx.recv().unwrap();
                receiver.add("receiver");
            });
            yield_now();
            log.spawn("first");
            log.spawn("second");
            tx.send(()).unwrap();
            assert_eq!(queued(&rt), (3, 0));
            drain(&rt);
            assert_eq!(log.take(), ["receiver", "first", "second"]);
        }
    });
}

/// IN-12: a goroutine that a timer wakes takes the place in front at the processor that ran the
/// timer.
#[test]
fn a_sleeper_goes_in_front() {
    let rt = one_processor(LONG, false);
    rt.run(|| {
        testing::set_tick(1);
        let log = Log::default();
        let sleeper = log.clone();
        let began = Instant::now();
        go(move || {
            // Longer than a slow machine needs for the yield below.
            time::sleep(Duration::from_millis(100));
            sleeper.add("sleeper");
        });
        yield_now();
        // Only the scheduler of this processor checks the clock, and this loop keeps it busy.
        spin_until("it is due", || began.elapsed() > Duration::from_millis(110));
        log.spawn("first");
        log.spawn("second");
        assert_eq!(queued(&rt), (2, 0));
        drain(&rt);
        assert_eq!(log.take(), ["sleeper", "first", "second"]);
    });
}

/// The observations of a goroutine that runs because a hog was preempted.
fn seen_after_preemption(forced: bool) -> (u32, u32) {
    let rt = one_processor(Duration::from_millis(10), forced);
    let looker = Arc::clone(&rt);
    rt.run(move || {
        testing::set_tick(1);
        let hog = go(move || {
            let seen = go(move || queued(&looker));
            while !seen.is_finished() {
                if !forced {
                    // Any call into the runtime.
                    let _ = testing::tick();
                }
                spin_loop();
            }
            seen.join().unwrap()
        });
        hog.join().unwrap()
    })
}

/// IN-12: a goroutine whose slice is over goes to the global queue, whether it yielded by itself or
/// was preempted by a signal.
#[test]
fn a_preempted_goroutine_waits_in_the_global_queue() {
    assert_eq!(seen_after_preemption(false), (0, 1), "asked");
    assert_eq!(seen_after_preemption(true), (0, 1), "forced");
}

/// IN-12: a stop of the world does not cost a goroutine its turn: it continues before those that
/// wait at its processor, whether it stopped by itself or by a signal.
#[test]
fn a_frozen_goroutine_continues_first() {
    for calls in [true, false] {
        let rt = one_processor(LONG, true);
        let handle = rt.handle();
        let running = AtomicBool::new(false);
        std::thread::scope(|threads| {
            let stopper = threads.spawn(|| {
                spin_until("it runs", || running.load(Ordering::Acquire));
                testing::stop_the_world(&handle, || ()).unwrap();
            });
            rt.run(|| {
                let log = Log::default();
                log.spawn("other");
                running.store(true, Ordering::Release);
                spin_until("the world was stopped", || {
                    if calls {
                        let _ = testing::tick();
                    }
                    stopper.is_finished()
                });
                assert_eq!(queued(&rt), (1, 0));
                log.add("stopped");
                drain(&rt);
                assert_eq!(log.take(), ["stopped", "other"]);
            });
        });
    }
}

/// IN-12, IN-38: a mutex is handed over to a starved waiter: the waiter runs next, and the
/// goroutine that released the mutex goes to the tail of its processor's queue, not to the global
/// one. Otherwise nothing is handed over.
#[test]
fn handing_a_mutex_over_requeues_at_the_local_tail() {
    for starved in [true, false] {
        let rt = one_processor(LONG, false);
        rt.run(|| {
            testing::set_tick(1);
            let log = Log::default();
            let mutex = Arc::new(Mutex::new(()));
            let guard = mutex.lock();
            let waiter = {
                let (mutex, log, rt) = (Arc::clone(&mutex), log.clone(), Arc::clone(&rt));
                go(move || {
                    let guard = mutex.lock();
                    log.add("waiter");
                    let seen = queued(&rt);
                    drop(guard);
                    seen
                })
            };
            yield_now();
            // Starvation begins with a waiter that was woken, did not get the mutex, and had waited
            // for more than a millisecond.
            let since = Instant::now();
            spin_until("it starves", || !starved || since.elapsed() > Duration::from_millis(5));
            drop(guard);
            let guard = mutex.lock();
            if starved {
                yield_now();
            }
            log.spawn("other");
            drop(guard);
            log.add("releaser");
            let seen = waiter.join().unwrap();
            drain(&rt);
            if starved {
                assert_eq!(log.take(), ["waiter", "other", "releaser"]);
                assert_eq!(seen, (2, 0), "the other one, and the one that released it");
            } else {
                assert_eq!(log.take()[0], "releaser");
            }
        });
    }
}

/// IN-12: a goroutine that returns from a blocking call and finds no processor waits in the global
/// queue.
#[test]
fn a_return_from_a_call_without_a_processor_waits_in_the_global_queue() {
    let rt = one_processor(LONG, false);
    rt.run(|| {
        let (blocked, back) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let caller = {
            let (blocked, back) = (Arc::clone(&blocked), Arc::clone(&back));
            go(move || {
                heist::blocking(|| {
                    blocked.store(true, Ordering::Release);
                    spin_until("it may return", || back.load(Ordering::Acquire));
                });
            })
        };
        // This goroutine waits for the processor, so that it is taken from the caller.
        yield_now();
        assert!(blocked.load(Ordering::Acquire));
        assert_eq!(queued(&rt), (0, 0));
        back.store(true, Ordering::Release);
        spin_until("it waits for its turn", || queued(&rt) != (0, 0));
        assert_eq!(queued(&rt), (0, 1));
        caller.join().unwrap();
    });
}

/// IN-12: a goroutine that waits for a group goes in front when the last member is done, like any
/// other.
#[test]
fn a_wait_group_wakes_to_the_front() {
    let rt = one_processor(LONG, false);
    rt.run(|| {
        testing::set_tick(1);
        let log = Log::default();
        let group = WaitGroup::new();
        group.add(1);
        let (waits, waiter) = (group.clone(), log.clone());
        go(move || {
            waits.wait();
            waiter.add("waiter");
        });
        yield_now();
        log.spawn("other");
        group.done();
        assert_eq!(queued(&rt), (2, 0));
        drain(&rt);
        assert_eq!(log.take(), ["waiter", "other"]);
    });
}

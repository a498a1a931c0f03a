//! Sleeping, functions that run later, and the threads that wake up for them.

use crate::child;
use crate::matrix;

use heist::go;
use heist::sync::WaitGroup;
use heist::time::{after_func, sleep, sleep_until};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// TM-01: a sleep is never too short, however it begins.
#[test]
fn a_sleep_is_never_too_short() {
    matrix::run(|| {
        for us in [1, 50, 999, 1000, 1001, 3500] {
            let time = Duration::from_micros(us);
            let start = Instant::now();
            sleep(time);
            assert!(start.elapsed() >= time, "{time:?} lasted {:?}", start.elapsed());
            let deadline = Instant::now() + time;
            sleep_until(deadline);
            assert!(Instant::now() >= deadline);
        }
    });
}

/// Short sleeps in a row end soon, although the waits of dense timers are made longer.
#[test]
fn short_sleeps_in_a_row_end_soon() {
    const N: u32 = 50;
    matrix::run(|| {
        for us in [1, 2, 10, 50, 150] {
            let time = Duration::from_micros(us);
            ends_within(N * (time + MS / 2), || (0..N).for_each(|_| sleep(time)));
        }
    });
}

/// A short sleep among many long ones, whose timers are dense, ends soon too.
#[test]
fn a_short_sleep_among_long_ones_ends_soon() {
    const N: u32 = 20;
    matrix::run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let others = WaitGroup::new();
        for i in 0..100 {
            let stop = Arc::clone(&stop);
            others.go(move || {
                while !stop.load(Ordering::Relaxed) {
                    sleep(4 * MS + i * MS / 50);
                }
            });
        }
        ends_within(N * MS, || (0..N).for_each(|_| sleep(MS / 10)));
        stop.store(true, Ordering::Relaxed);
        others.wait();
    });
}

/// At least one of many rounds takes less than this: the machine may be busy.
fn ends_within(time: Duration, round: impl Fn()) {
    let mut took = Vec::new();
    for _ in 0..40 {
        let start = Instant::now();
        round();
        took.push(start.elapsed());
        if start.elapsed() < time {
            return;
        }
    }
    panic!("not within {time:?}: {took:?}");
}

/// TM-10: a sleep of zero does not wait.
#[test]
fn a_sleep_of_nothing_returns_at_once() {
    matrix::run(|| {
        let start = Instant::now();
        for _ in 0..1000 {
            sleep(Duration::ZERO);
            sleep_until(start);
        }
        assert!(start.elapsed() < Duration::from_secs(1));
    });
}

/// On a plain thread a sleep blocks the thread.
#[test]
fn a_plain_thread_can_sleep() {
    let start = Instant::now();
    sleep(2 * MS);
    sleep_until(start + 4 * MS);
    assert!(start.elapsed() >= 4 * MS);
}

/// TM-12: the far future is not the past.
#[test]
fn the_longest_sleep_does_not_end() {
    matrix::run(|| {
        let woken = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&woken);
        let sleeper = go(move || {
            sleep(Duration::MAX);
            flag.store(true, Ordering::Relaxed);
        });
        let never = after_func(Duration::MAX, || unreachable!("the end of time"));
        sleep(5 * MS);
        assert!(!woken.load(Ordering::Relaxed));
        assert!(never.stop());
        sleeper.cancel();
        assert!(sleeper.join().is_err());
    });
}

/// Many sleepers of many durations all wake, none early.
#[test]
fn many_sleepers_wake() {
    matrix::run(|| {
        let early = Arc::new(AtomicUsize::new(0));
        let sleepers: Vec<_> = (0..2000u64)
            .map(|i| {
                let early = Arc::clone(&early);
                go(move || {
                    let time = Duration::from_micros(i * 7919 % 20_000);
                    let start = Instant::now();
                    sleep(time);
                    if start.elapsed() < time {
                        early.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert_eq!(early.load(Ordering::Relaxed), 0);
    });
}

/// TM-08: timers fire in the order of their times, far enough apart.
#[test]
fn timers_fire_in_order() {
    let rt = matrix::plain(2);
    rt.run(|| {
        let slots = [5u32, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0];
        let mut delta = 20 * MS;
        for _ in 0..5 {
            let fired = Arc::new(Mutex::new(Vec::new()));
            let group = WaitGroup::new();
            let start = Instant::now();
            for slot in slots {
                group.add(1);
                let (fired, group) = (Arc::clone(&fired), group.clone());
                after_func(slot * delta, move || {
                    fired.lock().unwrap().push((slot, start.elapsed()));
                    group.done();
                });
            }
            group.wait();
            let fired = fired.lock().unwrap();
            assert_eq!(fired.len(), slots.len());
            assert!(fired.iter().all(|&(slot, at)| at >= slot * delta), "early: {fired:?}");
            let in_order = fired.is_sorted_by_key(|&(slot, _)| slot);
            if in_order && fired.iter().all(|&(slot, at)| at <= (slot + 10) * delta) {
                return;
            }
            // A busy machine: further apart.
            delta += 10 * MS;
        }
        panic!("timers out of order even {delta:?} apart");
    });
}

/// TM-03: functions that were due at the same time run next to each other, each as a goroutine.
#[test]
fn functions_run_concurrently() {
    matrix::run(|| {
        fn next(left: u32, group: WaitGroup) {
            after_func(Duration::ZERO, move || {
                if left > 1 {
                    next(left - 1, group.clone());
                }
                sleep(100 * MS);
                group.done();
            });
        }
        let group = WaitGroup::new();
        group.add(10);
        let start = Instant::now();
        next(10, group.clone());
        group.wait();
        assert!(start.elapsed() < 900 * MS, "one after the other: {:?}", start.elapsed());
    });
}

/// TM-07: a function that is stopped in time does not run; stopping twice, or too late, returns
/// false.
#[test]
fn what_is_stopped_does_not_run() {
    matrix::run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&ran);
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let timer = after_func(50 * MS, move || {
            drop(held);
            flag.store(true, Ordering::Relaxed);
        });
        assert!(timer.stop());
        assert!(!timer.stop());
        sleep(60 * MS);
        assert!(!ran.load(Ordering::Relaxed));
        assert!(timer.is_finished());
        assert_eq!(Arc::strong_count(&dropped), 1, "what it captured is dropped");

        let group = WaitGroup::new();
        group.add(1);
        let done = group.clone();
        let timer = after_func(MS, move || done.done());
        group.wait();
        assert!(!timer.stop());
    });
}

/// TM-09: stops from many goroutines at once.
#[test]
fn concurrent_stops_all_succeed() {
    matrix::run(|| {
        let ran = Arc::new(AtomicU32::new(0));
        let stoppers: Vec<_> = (0..100)
            .map(|_| {
                let ran = Arc::clone(&ran);
                let timer = after_func(Duration::from_secs(20), move || {
                    ran.fetch_add(1, Ordering::Relaxed);
                });
                go(move || timer.stop())
            })
            .collect();
        for stopper in stoppers {
            assert!(stopper.join().unwrap());
        }
        assert_eq!(ran.load(Ordering::Relaxed), 0);
    });
}

/// A function that races with its stop either runs or is stopped.
#[test]
fn a_racing_function_runs_or_is_stopped() {
    matrix::run(|| {
        for us in (0..200).step_by(5) {
            let ran = Arc::new(AtomicBool::new(false));
            let flag = Arc::clone(&ran);
            let timer = after_func(Duration::from_micros(us), move || {
                flag.store(true, Ordering::SeqCst);
            });
            sleep(Duration::from_micros(100));
            let stopped = timer.stop();
            while !timer.is_finished() {
                heist::yield_now();
            }
            assert_ne!(stopped, ran.load(Ordering::SeqCst));
        }
    });
}

/// SP-15: a pending function is not a goroutine yet.
#[test]
fn a_pending_function_is_not_counted() {
    let rt = matrix::plain(2);
    rt.run(|| {
        let timer = after_func(Duration::from_secs(3600), || ());
        assert_eq!(heist::num_goroutines(), 1);
        assert_eq!(heist::dump_goroutines().matches("goroutine ").count(), 1);
        assert!(timer.stop());
    });
}

/// TM-22: deadlines of waits that are over do not pile up.
#[test]
fn stopped_timers_are_forgotten() {
    let rt = matrix::plain(1);
    rt.run(|| {
        for _ in 0..10_000 {
            assert!(after_func(Duration::from_secs(3600), || ()).stop());
            heist::yield_now();
        }
    });
    let kept = rt.metrics().get("/heist/timers:timers").expect("the metric exists");
    assert!(kept < 200, "{kept} deadlines kept");
}

/// A goroutine that sleeps can be cancelled.
#[test]
fn a_sleeper_can_be_cancelled() {
    matrix::run(|| {
        let sleepers: Vec<_> = (0..100).map(|_| go(|| sleep(Duration::from_secs(3600)))).collect();
        for _ in 0..3 {
            heist::yield_now();
        }
        for sleeper in &sleepers {
            sleeper.cancel();
        }
        for sleeper in sleepers {
            assert!(sleeper.join().unwrap_err().is_cancelled());
        }
    });
}

/// A runtime that ends does not wait for timers, and drops their captures.
#[test]
fn shutdown_does_not_wait_for_timers() {
    matrix::each(|case, _| {
        let rt = case.runtime();
        let held = Arc::new(());
        let (a, b) = (Arc::clone(&held), Arc::clone(&held));
        rt.run(move || {
            after_func(Duration::from_secs(3600), move || drop(a));
            go(move || {
                sleep(Duration::from_secs(3600));
                drop(b);
            });
            heist::yield_now();
        });
        let start = Instant::now();
        drop(rt);
        assert!(start.elapsed() < Duration::from_secs(4));
        assert_eq!(Arc::strong_count(&held), 1);
    });
}

/// TM-32, IN-22: a timer is on time while every thread sleeps, also if it is earlier than the one
/// they wait for.
#[test]
fn an_earlier_timer_wakes_the_sleepers() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let _late = after_func(Duration::from_secs(3600), || ());
            sleep(2 * MS);
            for _ in 0..20 {
                let start = Instant::now();
                go(|| sleep(MS)).join().unwrap();
                assert!(start.elapsed() < Duration::from_secs(2), "{:?}", start.elapsed());
            }
        });
    });
}

/// TM-33: next to a goroutine that never yields, a sleep of 1 ms ends within 25 ms, on one P.
#[test]
fn a_sleep_next_to_a_hog_ends_in_time() {
    let rt = matrix::start(heist::Runtime::builder().procs(1));
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&stop);
        let hog = go(move || while !flag.load(Ordering::Relaxed) {});
        let mut lates: Vec<_> = (0..30)
            .map(|_| {
                let start = Instant::now();
                sleep(MS);
                start.elapsed()
            })
            .collect();
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
        lates.sort();
        assert!(lates[0] >= MS);
        assert!(lates[15] <= 25 * MS, "{lates:?}");
    });
    let gave_way = rt.metrics().get("/heist/preempt/gave-way:events").unwrap();
    assert!(gave_way > 0, "the hog was never preempted");
}

/// A process whose goroutines sleep uses almost no CPU time.
#[test]
fn sleeping_goroutines_use_no_cpu() {
    let ended = child::run(|| {
        let rt = matrix::plain(2);
        rt.run(|| {
            for _ in 0..100 {
                go(|| sleep(Duration::from_secs(3600)));
            }
            sleep(200 * MS);
            let before = cpu_time();
            sleep(Duration::from_secs(1));
            let used = cpu_time() - before;
            assert!(used < 10 * MS, "one second of sleep took {used:?} of CPU");
        });
    });
    ended.succeeded();
}

fn cpu_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/schedstat").expect("this is Linux");
    let main: u64 = stat.split(' ').next().unwrap().parse().unwrap();
    let mut all = main;
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let path = task.unwrap().path().join("schedstat");
        if let Ok(text) = std::fs::read_to_string(path) {
            all += text.split(' ').next().unwrap().parse::<u64>().unwrap();
        }
    }
    Duration::from_nanos(all - main)
}

/// TM-01, TM-02: signals do not end a sleep, nor keep it from ending.
#[test]
fn signals_do_not_end_a_sleep() {
    let ended = child::run(|| {
        let rt = matrix::plain(2);
        let until = Instant::now() + 300 * MS;
        let pid = std::process::id().to_string();
        let kicker = std::thread::spawn(move || {
            while Instant::now() < until {
                let kill = std::process::Command::new("kill").args(["-URG", &pid]).status();
                assert!(kill.unwrap().success());
                std::thread::sleep(20 * MS);
            }
        });
        rt.run(|| {
            let start = Instant::now();
            sleep(300 * MS);
            assert!(start.elapsed() >= 300 * MS);
        });
        kicker.join().unwrap();
    });
    ended.succeeded();
}

/// TM-10: stops of the world against sleeps of nothing and channels: no deadlock.
#[test]
fn sleeps_of_nothing_survive_stops_of_the_world() {
    for procs in [1, 2, 4, 16] {
        let rt = matrix::plain(procs);
        let handle = rt.handle();
        rt.run(move || {
            let stopper = go(move || {
                for _ in 0..100 {
                    heist::testing::stop_the_world(&handle, || ()).expect("the runtime runs");
                }
            });
            let (sender, receiver) = heist::chan::bounded(0);
            let echo = go(move || receiver.iter().sum::<u64>());
            for i in 0..100 {
                sleep(Duration::ZERO);
                sender.send(i).unwrap();
                sleep(Duration::from_nanos(1));
            }
            drop(sender);
            assert_eq!(echo.join().unwrap(), 99 * 100 / 2);
            stopper.join().unwrap();
        });
    }
}

/// TM-04: tickers of a nanosecond tick while the world is stopped again and again.
#[test]
fn fast_tickers_tick_across_stops_of_the_world() {
    for procs in [1, 2, 4, 16] {
        let rt = matrix::plain(procs);
        let handle = rt.handle();
        rt.run(move || {
            let done = Arc::new(AtomicBool::new(false));
            let n_stops = Arc::new(AtomicUsize::new(0));
            let (flag, count) = (Arc::clone(&done), Arc::clone(&n_stops));
            let stopper = go(move || {
                while !flag.load(Ordering::Relaxed) {
                    heist::testing::stop_the_world(&handle, || ()).expect("the runtime runs");
                    count.fetch_add(1, Ordering::Relaxed);
                    heist::yield_now();
                }
            });
            let tickers: Vec<_> = (0..10)
                .map(|_| {
                    let n_stops = Arc::clone(&n_stops);
                    go(move || {
                        let ticker = heist::time::Ticker::new(Duration::from_nanos(1));
                        let tick = || ticker.receiver().recv().expect("a ticker does not end");
                        for _ in 0..100 {
                            tick();
                        }
                        // The system may start the stopper's thread late. A tick is always there,
                        // so nothing else would make room for the stopper.
                        while n_stops.load(Ordering::Relaxed) < 10 {
                            tick();
                            heist::yield_now();
                        }
                    })
                })
                .collect();
            for ticker in tickers {
                ticker.join().unwrap();
            }
            done.store(true, Ordering::Relaxed);
            stopper.join().unwrap();
        });
    }
}

/// TM-28: goroutines that only make short system calls and check timers do not starve the timer
/// that ends them.
#[test]
fn short_system_calls_do_not_starve_timers() {
    for procs in [1, 2] {
        let rt = matrix::start(heist::Runtime::builder().procs(procs));
        rt.run(|| {
            let until = Instant::now() + Duration::from_millis(100);
            let loops: Vec<_> = (0..4)
                .map(|_| {
                    go(move || {
                        let end =
                            heist::chan::after(until.saturating_duration_since(Instant::now()));
                        let file = std::fs::File::open("/dev/null").unwrap();
                        while end.try_recv().is_err() {
                            let nothing = std::io::Read::read(&mut &file, &mut [0; 0]).unwrap();
                            assert_eq!(nothing, 0);
                        }
                    })
                })
                .collect();
            let watch = go(move || {
                heist::chan::after(Duration::from_millis(100)).recv().unwrap();
                Instant::now()
            });
            let fired = watch.join().unwrap();
            assert!(fired < until + Duration::from_secs(5), "{:?} late", fired - until);
            for handle in loops {
                // A goroutine whose turn came only after the end made no call.
                handle.join().unwrap();
            }
        });
    }
}

//! Where the CPU time went.

use crate::matrix;

use heist::metrics::Metrics;
use heist::{Runtime, go};
use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// CPU time in nanoseconds: total, idle, scavenge, user.
fn classes(metrics: &Metrics) -> [u64; 4] {
    ["total", "idle", "scavenge/total", "user"].map(|class| {
        let name = format!("/cpu/classes/{class}:cpu-nanoseconds");
        metrics.get(&name).unwrap_or_else(|| panic!("no {name}"))
    })
}

fn add_up([total, idle, scavenge, user]: [u64; 4]) {
    assert_eq!(idle + scavenge + user, total);
}

/// MT-02, MT-11: the classes add up to the total, to the nanosecond, in every reading, whatever the
/// program does meanwhile; none of them falls, and neither does any count of a histogram.
#[test]
fn classes_add_up_and_never_fall() {
    for case in matrix::cases_with(&[1, 4]) {
        let rt = case.runtime();
        assert_eq!(rt.metrics().get("/sched/gomaxprocs:threads"), Some(case.procs as u64));
        let mut before = [0; 4];
        let mut counts = HashMap::new();
        for round in 0..20_usize {
            rt.run(|| {
                let spawned: Vec<_> = (0..round).map(|n| go(move || n)).collect();
                heist::time::sleep(Duration::from_micros(100));
                spawned.into_iter().for_each(|one| assert!(one.join().is_ok()));
            });
            if round % 5 == 0 {
                rt.set_procs(1 + round % 3);
            }
            let metrics = rt.run(|| rt.metrics());
            assert!(metrics.get("/sched/goroutines:goroutines").unwrap() >= 1);
            let now = classes(&metrics);
            add_up(now);
            assert!(now.iter().zip(before).all(|(now, before)| *now >= before), "{now:?}");
            before = now;
            for histogram in metrics.histograms() {
                let name = histogram.description.name;
                let count = histogram.count();
                assert!(counts.insert(name, count).is_none_or(|old| old <= count), "{name}");
            }
        }
    }
}

/// MT-10: during a sleep of 100 ms the idle time grows by as much for each processor, less half of
/// one, in one of ten tries.
#[test]
fn idle_time_grows_during_a_sleep() {
    const SLEEP: Duration = Duration::from_millis(100);
    for procs in [1_u32, 2, 8] {
        let rt = matrix::plain(procs as usize);
        let wanted = SLEEP.mul_f64(f64::from(procs) - 0.5);
        let grown = rt.run(|| {
            let idle = || Duration::from_nanos(classes(&rt.metrics())[1]);
            (0..10).any(|_| {
                let before = idle();
                heist::time::sleep(SLEEP);
                idle() - before >= wanted
            })
        });
        assert!(grown, "{procs} procs");
    }
}

/// MT-11: ten processors of which one is used for a millisecond: some time is idle, some is not,
/// and the total is ten times the elapsed time.
#[test]
fn most_of_ten_processors_are_idle() {
    let from = Instant::now();
    let rt = matrix::plain(10);
    rt.run(|| {
        let from = Instant::now();
        while from.elapsed() < Duration::from_millis(1) {
            std::hint::spin_loop();
        }
    });
    let now = classes(&rt.metrics());
    let most = 10 * from.elapsed().as_nanos() as u64;
    add_up(now);
    let [total, idle, _, user] = now;
    assert!(idle > 0 && user >= 1_000_000, "{now:?}");
    assert!((10_000_000..=most).contains(&total), "{now:?} of {most}");
}

/// A processor that computes is not idle, and changing their number changes the total from then on.
#[test]
fn busy_processors_are_not_idle() {
    let rt = matrix::start(Runtime::builder().procs(1));
    let stop = Arc::new(AtomicBool::new(false));
    let hog = {
        let stop = Arc::clone(&stop);
        rt.handle().spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                std::hint::spin_loop();
            }
        })
    };
    let passed = |during: &dyn Fn()| {
        let (from, before) = (Instant::now(), classes(&rt.metrics()));
        during();
        let (after, took) = (classes(&rt.metrics()), from.elapsed().as_nanos() as u64);
        (after[0] - before[0], after[1] - before[1], took)
    };
    matrix::eventually("it runs", || {
        rt.metrics().get("/sched/goroutines/running:goroutines") == Some(1)
    });
    let nap = || std::thread::sleep(Duration::from_millis(50));
    let (total, idle, took) = passed(&nap);
    assert!(idle == 0 && (50_000_000..=took).contains(&total), "{total} {idle} of {took}");
    rt.set_procs(3);
    let (total, idle, took) = passed(&nap);
    assert!((150_000_000..=3 * took).contains(&total), "{total} of {took}");
    // The others look for work before they become idle.
    assert!(idle > 50_000_000 && idle <= 2 * took, "{idle} of {took}");
    stop.store(true, Ordering::Relaxed);
    hog.join().unwrap();
}

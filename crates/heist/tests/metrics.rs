//! Metrics: named, documented, consistent, never falling.

mod matrix;

use heist::metrics::{Kind, Metrics};
use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};

/// MT-01: every metric has a unique name of the form `/path:unit`, in order, and says what it is.
#[test]
fn names_are_unique_sorted_and_documented() {
    let rt = matrix::plain(2);
    let metrics = rt.metrics();
    let names: Vec<_> = metrics.iter().map(|m| m.description.name).collect();
    assert!(names.len() >= 20, "{names:?}");
    assert!(names.is_sorted_by(|a, b| a < b), "{names:?}");
    for metric in metrics.iter() {
        let name = metric.description.name;
        let (path, unit) = name.rsplit_once(':').expect("a unit");
        let known = ["/sched/", "/sync/", "/heist/"];
        assert!(known.iter().any(|start| path.starts_with(start)), "{name}");
        assert!(!unit.is_empty() && metric.description.unit() == unit, "{name}");
        let plain = |c: char| c.is_ascii_lowercase() || "/-:".contains(c);
        assert!(name.chars().all(plain), "{name}");
        let help = metric.description.help;
        assert!(help.len() > 8 && help.ends_with('.'), "{name}: {help}");
        assert_eq!(metrics.get(name), Some(metric.value));
    }
    assert_eq!(metrics.get("/sched/nothing:units"), None);
    for issue in ["goroutines", "gomaxprocs", "threads"] {
        assert!(names.iter().any(|name| name.contains(issue)), "{issue}");
    }
}

fn value(metrics: &Metrics, name: &str) -> u64 {
    metrics.get(name).unwrap_or_else(|| panic!("no {name}"))
}

/// MT-02: the number of processors is the setting, and the states of the living add up.
#[test]
fn values_agree_with_each_other() {
    matrix::each(|case, rt| {
        let gate = WaitGroup::new();
        gate.add(1);
        let parked: Vec<_> = (0..10)
            .map(|_| {
                let gate = gate.clone();
                rt.handle().spawn(move || gate.wait())
            })
            .collect();
        matrix::eventually("all of them parked", || {
            value(&rt.metrics(), "/sched/goroutines/waiting:goroutines") == 10
        });
        // The parts of a reading are of slightly different moments.
        matrix::eventually("a reading with the reader in it", || {
            let metrics = rt.run(|| rt.metrics());
            let of = |name: &str| value(&metrics, name);
            assert_eq!(of("/sched/gomaxprocs:threads"), case.procs as u64);
            let live = of("/sched/goroutines:goroutines");
            let states = ["running", "runnable", "waiting"]
                .map(|state| of(&format!("/sched/goroutines/{state}:goroutines")));
            assert_eq!(states.iter().sum::<u64>(), live, "{states:?}");
            states == [1, 0, 10]
        });
        let threads = value(&rt.metrics(), "/sched/threads/total:threads");
        assert!((1..=case.procs as u64).contains(&threads), "{threads}");
        gate.done();
        for handle in parked {
            handle.join().unwrap();
        }
    });
}

/// MT-04: on one processor, with a goroutine that looks, exactly one runs and few wait.
#[test]
fn one_processor_at_rest_runs_one() {
    let rt = matrix::plain(1);
    let metrics = rt.run(|| rt.metrics());
    let state = |name: &str| value(&metrics, &format!("/sched/goroutines/{name}:goroutines"));
    assert_eq!((state("running"), state("runnable"), state("waiting")), (1, 0, 0));
}

/// MT-07: on one processor, goroutines that are ready and do not get it are counted as runnable.
#[test]
fn runnable_goroutines_are_counted() {
    let rt = matrix::plain(1);
    let (before, metrics) = rt.run(|| {
        let before = rt.metrics();
        let handles: Vec<_> = (0..10).map(|_| go(|| ())).collect();
        let metrics = rt.metrics();
        for handle in handles {
            handle.join().unwrap();
        }
        (before, metrics)
    });
    let name = "/sched/goroutines/runnable:goroutines";
    assert_eq!(value(&metrics, name) - value(&before, name), 10);
    assert_eq!(value(&metrics, "/sched/goroutines/running:goroutines"), 1);
}

/// MT-05: ten spawns raise the counter by exactly ten, from wherever they come.
#[test]
fn spawns_are_counted_exactly() {
    matrix::each(|_, rt| {
        let created = || value(&rt.metrics(), "/sched/goroutines-created:goroutines");
        let before = created();
        rt.run(|| {
            for handle in (0..10).map(|_| go(yield_now)).collect::<Vec<_>>() {
                handle.join().unwrap();
            }
        });
        // The ten, and the one that spawned them.
        assert_eq!(created() - before, 11);
        for handle in (0..10).map(|_| rt.handle().spawn(|| ())).collect::<Vec<_>>() {
            handle.join().unwrap();
        }
        assert_eq!(created() - before, 21);
        matrix::eventually("all counted as ended", || {
            value(&rt.metrics(), "/heist/goroutines/finished:goroutines") == created()
        });
    });
}

/// What happens is counted where it belongs.
#[test]
fn events_are_counted() {
    let rt = matrix::plain(1);
    let difference = |body: fn()| {
        let before = rt.metrics();
        rt.run(body);
        let after = rt.metrics();
        move |name: &str| value(&after, name) - value(&before, name)
    };
    let of = difference(|| (0..5).for_each(|_| yield_now()));
    assert_eq!(of("/heist/sched/yields:events"), 5);
    assert!(of("/heist/queue/global-put:goroutines") >= 5);
    let of = difference(|| go(|| ()).join().unwrap());
    assert_eq!(of("/heist/sched/parks:events"), 1);
    let of = difference(|| {
        let quiet = || std::panic::resume_unwind(Box::new(()));
        drop(heist::JoinHandle::<()>::join(go(quiet)));
    });
    assert_eq!(of("/heist/goroutines/panicked:goroutines"), 1);
    let of = difference(|| {
        let handles: Vec<_> = (0..1000).map(|_| go(|| ())).collect();
        for handle in handles {
            handle.join().unwrap();
        }
    });
    assert!(of("/heist/queue/overflows:events") >= 5);
    assert_eq!(of("/heist/steal/successes:events"), 0, "one processor");
}

/// MT-03: whatever only grows never falls, under noise, seen from several threads.
#[test]
fn counters_never_fall() {
    matrix::each_of(&matrix::cases_with(&[2, 4, 16]), |_, rt| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last: HashMap<&str, u64> = HashMap::new();
                    while !done.load(Ordering::Relaxed) {
                        for metric in rt.metrics().iter() {
                            let name = metric.description.name;
                            if metric.description.kind == Kind::Counter {
                                let before = last.insert(name, metric.value).unwrap_or(0);
                                let now = metric.value;
                                assert!(before <= now, "{name}: {before} then {now}");
                            }
                        }
                        let prometheus = rt.metrics().to_prometheus();
                        assert!(!prometheus.is_empty());
                    }
                });
            }
            matrix::stress(3, |_| {
                rt.run(|| {
                    let handles: Vec<_> = (0..300).map(|_| go(|| go(yield_now).join())).collect();
                    for handle in handles {
                        handle.join().unwrap().unwrap();
                    }
                });
            });
            done.store(true, Ordering::Relaxed);
        });
    });
}

/// MT-01: the Prometheus text has a help, a type and a value for each metric, with legal names.
#[test]
fn the_prometheus_text_can_be_parsed() {
    let rt = matrix::plain(2);
    rt.run(|| go(|| ()).join().unwrap());
    let metrics = rt.metrics();
    let text = metrics.to_prometheus();
    let lines: Vec<_> = text.lines().collect();
    assert!(text.ends_with('\n') && lines.len() == 3 * metrics.iter().count());
    let mut seen = HashSet::new();
    for (lines, metric) in lines.chunks(3).zip(metrics.iter()) {
        let [help, kind, sample] = lines else {
            unreachable!("chunks of three");
        };
        let (name, value) = sample.split_once(' ').unwrap();
        assert!(name.starts_with("heist_"), "{name}");
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name}");
        assert!(seen.insert(name), "{name} twice");
        assert_eq!(value.parse::<u64>().unwrap(), metric.value);
        assert_eq!(*help, format!("# HELP {name} {}", metric.description.help));
        let expected = match metric.description.kind {
            Kind::Counter => "counter",
            _ => "gauge",
        };
        assert_eq!(*kind, format!("# TYPE {name} {expected}"));
        assert_eq!(expected == "counter", name.ends_with("_total"), "{name}");
    }
}

/// What each processor did adds up to the whole.
#[test]
fn processors_add_up() {
    matrix::each(|case, rt| {
        rt.run(|| {
            let handles: Vec<_> = (0..200).map(|_| go(yield_now)).collect();
            for handle in handles {
                handle.join().unwrap();
            }
        });
        matrix::eventually("rest", || rt.per_proc().iter().all(|pp| pp.idle));
        let per_proc = rt.per_proc();
        assert_eq!(per_proc.len(), case.procs);
        assert!(per_proc.iter().enumerate().all(|(i, pp)| pp.id as usize == i));
        assert!(per_proc.iter().all(|pp| pp.queued == 0));
        let executed: u64 = per_proc.iter().map(|pp| pp.executed).sum();
        assert_eq!(executed, value(&rt.metrics(), "/heist/sched/executed:events"));
        // Each of the 201 ran, and each of the 200 once more after its yield.
        assert!(executed >= 401, "{executed}");
    });
}

//! Metrics: named, documented, consistent, never falling.

use crate::matrix;

use heist::metrics::{Histogram, Kind, Metrics};
use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// MT-01: every metric has a unique name of the form `/path:unit`, in order, and a description.
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
        let known = ["/cpu/", "/sched/", "/sync/", "/heist/"];
        assert!(known.iter().any(|start| path.starts_with(start)), "{name}");
        assert!(!unit.is_empty() && metric.description.unit() == unit, "{name}");
        let plain = |c: char| c.is_ascii_lowercase() || "/-:".contains(c);
        assert!(name.chars().all(plain), "{name}");
        let help = metric.description.help;
        assert!(help.len() > 8 && help.ends_with('.'), "{name}: {help}");
        assert_eq!(metrics.get(name), Some(metric.value));
    }
    assert_eq!(metrics.get("/sched/nothing:units"), None);
    let histograms: Vec<_> = metrics.histograms().map(|h| h.description).collect();
    assert!(histograms.is_sorted_by(|a, b| a.name < b.name), "{histograms:?}");
    for described in histograms {
        let name = described.name;
        assert!(name.starts_with("/sched/") && name.ends_with(":seconds"), "{name}");
        assert!(described.kind == Kind::Histogram && described.help.ends_with('.'), "{name}");
        assert_eq!(metrics.histogram(name).unwrap().description, described);
    }
    assert!(metrics.histogram("/sched/nothing:seconds").is_none());
    for issue in ["goroutines", "gomaxprocs", "threads"] {
        assert!(names.iter().any(|name| name.contains(issue)), "{issue}");
    }
}

fn value(metrics: &Metrics, name: &str) -> u64 {
    metrics.get(name).unwrap_or_else(|| panic!("no {name}"))
}

/// MT-02: the number of processors is the setting, and the states of live goroutines add up.
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
            let states = ["running", "runnable", "waiting", "not-in-go"]
                .map(|state| of(&format!("/sched/goroutines/{state}:goroutines")));
            assert_eq!(states.iter().sum::<u64>(), live, "{states:?}");
            states == [1, 0, 10, 0]
        });
        let threads = value(&rt.metrics(), "/sched/threads/total:threads");
        assert!((1..=case.procs as u64).contains(&threads), "{threads}");
        gate.done();
        for handle in parked {
            handle.join().unwrap();
        }
    });
}

/// Every metric is explained to operators.
#[test]
fn every_metric_is_in_the_manual() {
    let manual = include_str!("../../docs/OPERATING.md");
    let metrics = matrix::plain(1).metrics();
    let histograms = metrics.histograms().map(|histogram| histogram.description);
    for described in metrics.iter().map(|metric| metric.description).chain(histograms) {
        let name = described.name;
        let known = name.starts_with("/heist/parks/") || manual.contains(&format!("| `{name}` |"));
        assert!(known, "{name} is not in docs/OPERATING.md");
    }
}

/// MT-04: on one processor, with a goroutine that looks, exactly one runs and few wait.
#[test]
fn one_processor_runs_one_goroutine() {
    let rt = matrix::plain(1);
    let metrics = rt.run(|| rt.metrics());
    let state = |name: &str| value(&metrics, &format!("/sched/goroutines/{name}:goroutines"));
    assert_eq!((state("running"), state("runnable"), state("waiting")), (1, 0, 0));
    assert_eq!(state("not-in-go"), 0);
}

/// MT-07: on one processor, goroutines that are ready and do not get the processor are counted as
/// runnable.
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

/// Each event is counted in its metric.
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

/// MT-03: a counter never falls, under load, seen from several threads.
#[test]
fn counters_never_fall() {
    matrix::each_of(&matrix::cases_with(&[2, 4, 16]), |_, rt| {
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    let mut last: HashMap<&str, u64> = HashMap::new();
                    let mut counted: HashMap<&str, Vec<u64>> = HashMap::new();
                    while !done.load(Ordering::Relaxed) {
                        for metric in rt.metrics().iter() {
                            let name = metric.description.name;
                            if metric.description.kind == Kind::Counter {
                                let before = last.insert(name, metric.value).unwrap_or(0);
                                let now = metric.value;
                                assert!(before <= now, "{name}: {before} then {now}");
                            }
                        }
                        for histogram in rt.metrics().histograms() {
                            let (name, now) = (histogram.description.name, histogram.counts());
                            if let Some(before) = counted.insert(name, now.to_vec()) {
                                assert!(before.iter().zip(now).all(|(a, b)| a <= b), "{name}");
                            }
                        }
                        let prometheus = rt.metrics().to_prometheus();
                        assert!(!prometheus.is_empty());
                    }
                });
            }
            matrix::stress(3, |round| {
                rt.set_procs(1 + round as usize % 5);
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
fn the_prometheus_text_is_valid() {
    let rt = matrix::plain(2);
    rt.run(|| go(|| ()).join().unwrap());
    let metrics = rt.metrics();
    let text = metrics.to_prometheus();
    let lines: Vec<_> = text.lines().collect();
    let n_lines = 3 * metrics.iter().count();
    let (lines, histograms) = lines.split_at(n_lines);
    assert!(text.ends_with('\n') && histograms.len() == 45 * metrics.histograms().count());
    for (lines, histogram) in histograms.chunks(45).zip(metrics.histograms()) {
        let (_, name) = lines[1].split_once("# TYPE ").unwrap();
        let name = name.strip_suffix(" histogram").unwrap();
        assert_eq!(lines[0], format!("# HELP {name} {}", histogram.description.help));
        let mut last = (0.0, 0);
        for line in &lines[2..43] {
            let (edge, n) = line.split_once("\"} ").unwrap();
            let edge = edge.strip_prefix(&format!("{name}_bucket{{le=\"")).unwrap();
            let now: (f64, u64) = (edge.parse().unwrap(), n.parse().unwrap());
            assert!(last.0 < now.0 && last.1 <= now.1, "{line}");
            last = now;
        }
        assert_eq!(last, (f64::INFINITY, histogram.count()));
        assert_eq!(lines[43], format!("{name}_sum {}", histogram.sum()));
        assert_eq!(lines[44], format!("{name}_count {}", histogram.count()));
    }
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

/// The counters of the processors add up to the totals.
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

/// MT-14: 163 edges with both infinities, of which some are known; one count between each two.
#[test]
fn histograms_have_gos_edges() {
    let edges = Histogram::edges();
    assert_eq!(edges.len(), 163);
    assert_eq!((edges[0], edges[162]), (f64::NEG_INFINITY, f64::INFINITY));
    let ns: Vec<_> = edges[1..=162].iter().map(|edge| (edge * 1e9).round() as u64).collect();
    let first = [0, 64, 128, 192, 256, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536];
    assert_eq!(ns[..15], first);
    assert_eq!((ns[80], ns[81], ns[107]), (134_217_728, 167_772_160, 15_032_385_536));
    assert_eq!(ns[160], 1 << 47);
    let metrics = matrix::plain(1).metrics();
    assert!(metrics.histograms().all(|histogram| histogram.counts().len() == 162));
}

/// MT-15, IN-43: one in eight times that a goroutine becomes runnable its latency is counted, and
/// counts only grow.
#[test]
fn latencies_are_sampled() {
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        let latencies = || rt.metrics().histogram("/sched/latencies:seconds").unwrap().clone();
        let before = latencies();
        let executed = || value(&rt.metrics(), "/heist/sched/executed:events");
        let ran = executed();
        rt.run(|| {
            for _ in 0..100 {
                let handles: Vec<_> = (0..8).map(|_| go(yield_now)).collect();
                handles.into_iter().for_each(|handle| handle.join().unwrap());
            }
        });
        let (after, ran) = (latencies(), executed() - ran);
        let n = after.count() - before.count();
        assert!(n >= ran / 16 && n <= ran / 8 + 16, "{n} of {ran}");
        assert!(before.counts().iter().zip(after.counts()).all(|(a, b)| a <= b));
        assert!(after.sum() > 0.0);
        let (median, most) = (after.quantile(0.5).unwrap(), after.quantile(1.0).unwrap());
        assert!(0.0 < median && median <= most && most < 100.0, "{median} {most}");
    });
}

/// A goroutine that waits for a processor for a known time has that latency.
#[test]
fn a_latency_is_the_time_in_the_queue() {
    const HELD: Duration = Duration::from_millis(20);
    let rt = matrix::start(heist::Runtime::builder().procs(1).exact_quantum(10 * HELD));
    rt.run(|| {
        // More than eight, so that at least one of them is measured.
        let handles: Vec<_> = (0..16).map(|_| go(|| ())).collect();
        let start = Instant::now();
        while start.elapsed() < HELD {
            std::hint::spin_loop();
        }
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
    let metrics = rt.metrics();
    let latencies = metrics.histogram("/sched/latencies:seconds").unwrap();
    assert!(latencies.quantile(1.0).unwrap() >= HELD.as_secs_f64(), "{latencies:?}");
}

/// GM-12: changing the number of processors adds a sample to both histograms of other pauses;
/// reading metrics and dumping goroutines stop nothing, and there is no collector.
#[test]
fn pauses_are_counted() {
    let rt = matrix::plain(2);
    let count = |what: &str| {
        let name = format!("/sched/pauses/{what}:seconds");
        rt.metrics().histogram(&name).unwrap().count()
    };
    assert_eq!((count("stopping/other"), count("total/other")), (0, 0));
    for n in 1..=5 {
        rt.set_procs(2 + n as usize);
        rt.set_procs(2 + n as usize);
        assert_eq!((count("stopping/other"), count("total/other")), (n, n));
    }
    drop(rt.dump_goroutines());
    assert_eq!((count("stopping/other"), count("total/other")), (5, 5));
    assert_eq!((count("stopping/gc"), count("total/gc")), (0, 0));
    let metrics = rt.metrics();
    let of = |what: &str| metrics.histogram(what).unwrap().sum();
    assert!(of("/sched/pauses/stopping/other:seconds") <= of("/sched/pauses/total/other:seconds"));
}

/// MT-08: goroutines in blocking calls count as not in Go, whether the call was announced or
/// detected.
#[test]
fn goroutines_in_blocking_calls_are_counted() {
    use std::io::{Read, Write};
    for announced in [true, false] {
        let rt = matrix::start(heist::Runtime::builder().procs(1));
        let calls: Vec<_> = (0..10)
            .map(|_| {
                let (mut reader, writer) = std::io::pipe().unwrap();
                let mut read = move || reader.read_exact(&mut [0]).unwrap();
                let handle = rt
                    .handle()
                    .spawn(move || if announced { heist::blocking(read) } else { read() });
                (writer, handle)
            })
            .collect();
        let name = "/sched/goroutines/not-in-go:goroutines";
        matrix::eventually("all of them in their calls", || {
            let metrics = rt.run(|| rt.metrics());
            let n = value(&metrics, name);
            assert!(n <= 14, "{n}");
            n >= 10 && value(&metrics, "/sched/goroutines/running:goroutines") == 1
        });
        for (mut writer, handle) in calls {
            writer.write_all(&[1]).unwrap();
            handle.join().unwrap();
        }
        matrix::eventually("none", || value(&rt.metrics(), name) == 0);
    }
}

/// Parks are counted by what was waited for, and add up.
#[test]
fn parks_are_counted_by_reason() {
    matrix::each(|_, rt| {
        let group = WaitGroup::new();
        group.add(1);
        let parked: Vec<_> = (0..5)
            .map(|_| {
                let group = group.clone();
                rt.handle().spawn(move || group.wait())
            })
            .collect();
        let of = |name: &str| value(&rt.metrics(), name);
        matrix::eventually("all parked", || of("/heist/parks/sync-waitgroup-wait:events") == 5);
        group.done();
        parked.into_iter().for_each(|handle| handle.join().unwrap());
        let metrics = rt.metrics();
        let reasons = metrics.iter().filter(|m| m.description.name.starts_with("/heist/parks/"));
        assert_eq!(
            reasons.map(|m| m.value).sum::<u64>(),
            value(&metrics, "/heist/sched/parks:events")
        );
    });
}

/// MT-03: a spawn that is refused is not counted, not even for a moment.
#[test]
fn refused_spawns_are_not_counted() {
    let rt = matrix::plain(1);
    let handle = rt.handle();
    rt.run(|| ());
    drop(rt);
    let created = || value(&handle.metrics(), "/sched/goroutines-created:goroutines");
    assert_eq!(created(), 1);
    std::thread::scope(|scope| {
        scope.spawn(|| (0..1000).for_each(|_| assert!(handle.try_spawn(|| ()).is_err())));
        (0..1000).for_each(|_| assert_eq!(created(), 1));
    });
}

/// Time spent looking for work is counted.
#[test]
fn spinning_time_is_counted() {
    let rt = matrix::plain(4);
    matrix::eventually("a thread looked for work", || {
        rt.run(|| go(|| ()).join().unwrap());
        value(&rt.metrics(), "/heist/spin/time:nanoseconds") > 0
    });
}

/// Goroutines that ask for metrics are preempted as others are, but not while they hold a lock of
/// the runtime.
#[test]
fn metrics_are_read_by_goroutines_that_are_preempted() {
    for procs in [1, 2, 4] {
        let short = std::time::Duration::from_micros(200);
        let rt = matrix::start(heist::Runtime::builder().procs(procs).exact_quantum(short));
        rt.run(|| {
            heist::scope(|scope| {
                for _ in 0..4 {
                    scope.go(|| {
                        let handle = heist::Handle::current().unwrap();
                        for _ in 0..500 {
                            assert!(handle.metrics().iter().count() > 50);
                        }
                    });
                }
            });
        });
    }
}

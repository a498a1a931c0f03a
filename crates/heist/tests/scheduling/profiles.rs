//! Profiles: what they count, whom they charge, and that tools can read them.
//!
//! The profiles are those of the process, so each test has one of its own.

use crate::pprof::{self, Sample};
use crate::{child, matrix};

use heist::chan::bounded;
use heist::profile::{self, Profile};
use heist::sync::{Condvar, Mutex, WaitGroup};
use heist::{Runtime, dump_goroutines, go};
use std::sync::Arc;
use std::time::{Duration, Instant};

fn samples(profile: &Profile) -> Vec<Sample> {
    let mut file = vec![];
    profile.write_to(&mut file).unwrap();
    pprof::read(&file)
}

/// The sums of the values of the samples that have the function.
fn sums(samples: &[Sample], function: &str) -> (u64, u64) {
    let calls = samples.iter().filter(|sample| sample.calls(function));
    calls.fold((0, 0), |sum, sample| {
        (sum.0 + sample.values[0], sum.1 + *sample.values.last().unwrap())
    })
}

#[inline(never)]
fn receives(gate: &heist::chan::Receiver<()>) {
    let _ = gate.recv();
}

#[inline(never)]
fn waits(gate: &WaitGroup) {
    gate.wait();
}

/// SP-30: goroutines that wait in the same function are counted together, the most first, also by
/// Go's tool.
#[test]
fn goroutines_are_counted_by_stack() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(2)).run(|| {
            let (tx, rx) = bounded::<()>(0);
            let gate = WaitGroup::new();
            gate.add(1);
            for _ in 0..50 {
                let rx = rx.clone();
                go(move || receives(&rx));
            }
            for _ in 0..40 {
                let gate = gate.clone();
                go(move || waits(&gate));
            }
            matrix::yield_until("all wait", || {
                let dump = dump_goroutines();
                let count = |reason| dump.matches(reason).count();
                count("[chan receive]") == 50 && count("[sync.WaitGroup.Wait]") == 40
            });
            let profile = profile::goroutines();
            assert_eq!(profile.total(), 91);
            let text = profile.to_string();
            assert!(text.starts_with("goroutine profile: total 91\n50 @ 0x"), "{text}");
            let samples = samples(&profile);
            assert_eq!(sums(&samples, "profiles::receives").0, 50);
            assert_eq!(sums(&samples, "profiles::waits").0, 40);
            assert!(samples[0].functions[0].ends_with("profiles::receives"), "{:?}", samples[0]);
            assert_eq!(samples[0].labels["state"], "chan receive");
            assert!(samples[0].labels["spawned_at"].contains("profiles.rs"));
            let mut file = vec![];
            profile.write_to(&mut file).unwrap();
            if let Some(top) = pprof::top(&file) {
                assert!(top.contains("Type: goroutine"), "{top}");
                assert!(top.contains("scheduling::profiles::receives"), "{top}");
            }
            drop(tx);
            gate.done();
        });
    })
    .succeeded();
}

#[inline(never)]
fn contends(n: usize, held_for: Duration) -> Duration {
    let mutex = Arc::new(Mutex::new(()));
    let held = mutex.lock();
    let others = WaitGroup::new();
    let begin = Instant::now();
    for _ in 0..n {
        let mutex = Arc::clone(&mutex);
        others.go(move || drop(mutex.lock()));
    }
    matrix::yield_until("all wait", || dump_goroutines().matches("[sync.Mutex.Lock]").count() == n);
    let all_wait = begin.elapsed();
    heist::time::sleep(held_for.saturating_sub(all_wait));
    let waited = begin.elapsed() - all_wait / 2;
    drop(held);
    others.wait();
    waited
}

/// SY-28: contention for a lock is charged to the goroutine that releases it: 100 waiters, and the
/// total is between 9/10 and 11/10 of what they waited. A fraction rescales.
#[test]
fn contention_is_charged_to_the_unlocker() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(1)).run(|| {
            const N: usize = 100;
            profile::set_mutex_fraction(1).unwrap();
            let mut all_ns = 0;
            for _ in 0..3 {
                all_ns += contends(N, Duration::from_secs(2)).as_nanos() as u64 * N as u64;
            }
            assert_eq!(profile::set_mutex_fraction(0).unwrap(), 1);
            let samples = samples(&profile::mutex());
            let (count, charged_ns) = sums(&samples, "profiles::contends");
            assert!(count >= 300, "{count}\n{}", profile::mutex());
            let near = all_ns / 10 * 9..all_ns / 10 * 11;
            assert!(near.contains(&charged_ns), "{charged_ns} of {all_ns}\n{}", profile::mutex());
            let mut file = vec![];
            profile::mutex().write_to(&mut file).unwrap();
            if let Some(top) = pprof::top(&file) {
                assert!(top.contains("scheduling::profiles::contends"), "{top}");
            }
        });
    })
    .succeeded();
}

const BRIEF: Duration = Duration::from_millis(5);

#[inline(never)]
fn blocks_to_receive() {
    let (tx, rx) = bounded(0);
    go(move || {
        heist::time::sleep(BRIEF);
        tx.send(())
    });
    rx.recv().unwrap();
}

#[inline(never)]
fn blocks_to_send() {
    let (tx, rx) = bounded(0);
    go(move || {
        heist::time::sleep(BRIEF);
        rx.recv()
    });
    tx.send(()).unwrap();
}

#[inline(never)]
fn blocks_until_close() {
    let (tx, rx) = bounded::<()>(0);
    go(move || {
        heist::time::sleep(BRIEF);
        drop(tx);
    });
    assert!(rx.recv().is_err());
}

#[inline(never)]
fn blocks_in_select() {
    let (tx, rx) = bounded(0);
    go(move || {
        heist::time::sleep(BRIEF);
        tx.send(())
    });
    heist::select! { recv(rx) -> _ => {} }
}

#[inline(never)]
fn blocks_for_mutex() {
    let mutex = Arc::new(Mutex::new(()));
    let held = Arc::clone(&mutex);
    let has = WaitGroup::new();
    has.add(1);
    let have = has.clone();
    go(move || {
        let _held = held.lock();
        have.done();
        heist::time::sleep(BRIEF);
    });
    has.wait();
    drop(mutex.lock());
}

#[inline(never)]
fn blocks_for_condition() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let other = Arc::clone(&pair);
    go(move || {
        heist::time::sleep(BRIEF);
        *other.0.lock() = true;
        other.1.notify_one();
    });
    let mut is_set = pair.0.lock();
    while !*is_set {
        is_set = pair.1.wait(is_set);
    }
}

/// SY-29: blocking in recv, send, close, select, mutex and cond each appears once, with its call.
#[test]
fn every_way_to_block_appears_with_its_call() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(1)).run(|| {
            let ways: [(&str, fn()); 6] = [
                ("profiles::blocks_to_receive", blocks_to_receive),
                ("profiles::blocks_to_send", blocks_to_send),
                ("profiles::blocks_until_close", blocks_until_close),
                ("profiles::blocks_in_select", blocks_in_select),
                ("profiles::blocks_for_mutex", blocks_for_mutex),
                ("profiles::blocks_for_condition", blocks_for_condition),
            ];
            profile::set_block_rate(Some(Duration::from_nanos(1))).unwrap();
            ways.iter().for_each(|(_, block)| block());
            profile::set_block_rate(None).unwrap();
            let profile = profile::block();
            let samples = samples(&profile);
            for (function, _) in ways {
                let long = samples.iter().filter(|sample| {
                    sample.functions[0].ends_with(function)
                        && sample.values[1] >= BRIEF.as_nanos() as u64 * 9 / 10
                });
                assert_eq!(
                    long.map(|sample| sample.values[0]).sum::<u64>(),
                    1,
                    "{function}\n{profile}"
                );
            }
        });
    })
    .succeeded();
}

#[inline(never)]
fn waits_briefly(turns: u32) -> u64 {
    let (tx, rx) = bounded(0);
    let pings = go(move || (0..turns).for_each(|_| tx.send(()).unwrap()));
    let mut waited_ns = 0;
    for _ in 0..turns {
        let begin = Instant::now();
        rx.recv().unwrap();
        waited_ns += begin.elapsed().as_nanos() as u64;
    }
    pings.join().unwrap();
    waited_ns
}

/// SY-29: waits that are shorter than the rate are sampled in proportion to their time: with any
/// rate the profile has the same total.
#[test]
fn sampling_by_duration_is_unbiased() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(1)).run(|| {
            const TURNS: u32 = 200_000;
            let measure = |rate: Duration| {
                let before = sums(&samples(&profile::block()), "profiles::waits_briefly");
                profile::set_block_rate(Some(rate)).unwrap();
                waits_briefly(TURNS);
                profile::set_block_rate(None).unwrap();
                let after = sums(&samples(&profile::block()), "profiles::waits_briefly");
                (after.0 - before.0, after.1 - before.1)
            };
            // The machine may be busy in one of the two measurements and not in the other:
            // counts do not depend on that, times do.
            let all = measure(Duration::from_nanos(1));
            let sampled = measure(Duration::from_micros(100));
            let ratio = sampled.0 as f64 / all.0 as f64;
            assert!((0.8..1.2).contains(&ratio), "{all:?} {sampled:?}");
        });
    })
    .succeeded();
}

#[inline(never)]
fn burns(for_cpu: Duration) -> u64 {
    let begin = cpu_time();
    let mut n = 0_u64;
    while cpu_time() - begin < for_cpu {
        n = (0..100_000).fold(n, |n, i| std::hint::black_box(n ^ i));
    }
    n
}

/// The CPU time of the calling thread.
fn cpu_time() -> Duration {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    Duration::from_nanos(text.split(' ').next().unwrap().parse().unwrap())
}

/// What a walk of a stack needs is larger than the smallest stack of a goroutine, which can ask for
/// it all the same.
#[test]
fn a_small_stack_is_enough_to_ask() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(2)).run(|| {
            let small = heist::goroutine::Builder::new().stack_size(32 << 10);
            let asks = small.spawn(|| {
                assert!(dump_goroutines().contains("a_small_stack_is_enough_to_ask"));
                assert!(profile::goroutines().total() >= 2);
                profile::set_block_rate(Some(BRIEF)).unwrap();
                profile::set_mutex_fraction(1).unwrap();
                drop(profile::CpuProfile::start());
            });
            asks.unwrap().join().unwrap();
        });
    })
    .succeeded();
}

fn computes_deep(depth: u32) -> u64 {
    if depth == 0 {
        return (0..30_000_000).fold(0, |n, i| std::hint::black_box(n ^ i));
    }
    1 + std::hint::black_box(computes_deep(depth - 1))
}

/// A sample takes no longer on a deep stack: the goroutine gets on between two of them.
#[test]
fn a_deep_stack_does_not_stop_a_profiled_goroutine() {
    child::run(|| {
        matrix::start(Runtime::builder().procs(1)).run(|| {
            let measure = || {
                let begin = Instant::now();
                heist::with_stack(512 << 20, || computes_deep(50_000));
                begin.elapsed()
            };
            let alone = measure();
            let running = profile::CpuProfile::start_at(1000);
            let profiled = measure();
            drop(running);
            assert!(profiled < 10 * alone, "{profiled:?} instead of {alone:?}");
        });
    })
    .succeeded();
}

/// The CPU profile has as much time as the goroutines used, with their names and spawn sites.
#[test]
fn the_cpu_profile_has_the_time_that_was_used() {
    if matrix::emulator::cannot_show("it has no timers of CPU time") {
        return;
    }
    child::run(|| {
        matrix::start(Runtime::builder().procs(2)).run(|| {
            let running = profile::CpuProfile::start().unwrap();
            assert!(profile::CpuProfile::start().is_err(), "one at a time");
            let used = Duration::from_millis(1000);
            let worker = heist::goroutine::Builder::new().name("worker");
            worker.spawn(move || burns(used)).unwrap().join().unwrap();
            let profile = running.stop();
            let samples = samples(&profile);
            let (_, ns) = sums(&samples, "profiles::burns");
            let used = used.as_nanos() as u64;
            assert!((used / 2..used * 2).contains(&ns), "{ns}\n{profile}");
            let named = samples.iter().filter(|sample| {
                sample.labels.get("goroutine").is_some_and(|name| name == "worker")
            });
            let named_ns: u64 = named.map(|sample| sample.values[1]).sum();
            assert!(named_ns >= ns / 2, "{named_ns} of {ns}\n{profile}");
            let mut file = vec![];
            profile.write_to(&mut file).unwrap();
            if let Some(top) = pprof::top(&file) {
                assert!(top.contains("Type: cpu"), "{top}");
                assert!(top.contains("scheduling::profiles::burns"), "{top}");
            }
            // Another one can be made, and dropped.
            drop(profile::CpuProfile::start().unwrap());
            drop(profile::CpuProfile::start_at(1000).unwrap());
        });
    })
    .succeeded();
}

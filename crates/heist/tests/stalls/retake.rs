//! Retaking a P: which goroutine loses it, when, and which one gets it, by sysmon's rules, as
//! observed from outside.

use crate::child;
use crate::matrix;

use heist::goroutine::{Builder, Class};
use heist::net::UnixStream;
use heist::sync::WaitGroup;
use heist::{Runtime, go, lock_os_thread, testing};
use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

fn runtime(procs: usize) -> Runtime {
    matrix::start(Runtime::builder().procs(procs))
}

/// How often each thread of this process but the calling one has gone to sleep.
fn sleeps() -> BTreeMap<String, u64> {
    let mut sleeps = BTreeMap::new();
    for task in std::fs::read_dir("/proc/self/task").unwrap() {
        let status = std::fs::read_to_string(task.unwrap().path().join("status")).unwrap();
        let field = |name: &str| {
            let line = status.lines().find_map(|line| line.strip_prefix(name));
            line.unwrap().trim().to_owned()
        };
        if Some(field("Name:")) != thread::current().name().map(|name| name[..15].to_owned()) {
            let n = field("voluntary_ctxt_switches:").parse().unwrap();
            sleeps.insert(format!("{} {}", field("Name:"), field("Pid:")), n);
        }
    }
    sleeps
}

/// IN-26: when every P is idle sysmon sleeps without a timeout: no thread of an idle process wakes
/// up at all. Work, here a spawn from outside, ends that sleep, and sysmon's naps begin at 20 us
/// again.
#[test]
fn an_idle_process_makes_no_wake_ups() {
    if matrix::emulator::cannot_show("it has a thread of its own that wakes up") {
        return;
    }
    let ended = child::run(|| {
        let rt = runtime(2);
        rt.run(|| (0..10).for_each(|_| go(|| ()).join().unwrap()));
        for _ in 0..3 {
            // It takes a while until every thread sleeps without a timeout.
            let mut before = sleeps();
            matrix::eventually("all processors are idle", || {
                thread::sleep(Duration::from_millis(500));
                let now = sleeps();
                std::mem::replace(&mut before, now.clone()) == now
            });
            assert!(before.len() >= 3, "{before:?}");
            let retaken = rt.run(|| blocked_until_the_p_is_taken(true));
            assert!(retaken < Duration::from_secs(1), "{retaken:?}");
        }
    });
    ended.succeeded();
}

/// Blocks until another goroutine has run that needs the only P. Returns how long that took.
fn blocked_until_the_p_is_taken(announced: bool) -> Duration {
    let (mut reader, mut writer) = std::io::pipe().unwrap();
    let from = Instant::now();
    let write = go(move || writer.write_all(&[1]).unwrap());
    let mut read = || reader.read_exact(&mut [0]).unwrap();
    if announced {
        heist::blocking(read)
    } else {
        read()
    }
    let took = from.elapsed();
    write.join().unwrap();
    took
}

/// A goroutine waits in the queue of a P whose goroutine never gives way, and the thread that holds
/// the other P sleeps, in a call that was not announced: it loses that P.
#[test]
fn a_sleeper_loses_its_p_to_what_waits_at_another() {
    let rt = matrix::start(Runtime::builder().procs(2).forced_preemption(false));
    let watchdog = matrix::Watchdog::new(matrix::patience(), || "nobody took the P".to_owned());
    rt.run(|| {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let (reads, has_run) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let sleeper = {
            let reads = Arc::clone(&reads);
            go(move || {
                reads.store(true, Ordering::Relaxed);
                reader.read_exact(&mut [0]).unwrap();
            })
        };
        // Without a call into the runtime: the goroutines wait at this P until it is robbed.
        while !reads.load(Ordering::Relaxed) {}
        let waits = {
            let has_run = Arc::clone(&has_run);
            go(move || has_run.store(true, Ordering::Relaxed))
        };
        while !has_run.load(Ordering::Relaxed) {}
        writer.write_all(&[1]).unwrap();
        waits.join().unwrap();
        sleeper.join().unwrap();
    });
    drop(watchdog);
}

/// PR-18: one processor, a goroutine in a blocking read whose writer needs the processor, first to
/// set a timer of 3 ms and then to write: thirty of thirty come through, and the processor is taken
/// in well under a millisecond, whether the program was just idle or not. The quickest of them
/// shows it; the others also show how busy the machine is.
#[test]
fn the_p_of_a_blocked_read_is_retaken_at_once() {
    const TIMER: Duration = Duration::from_millis(3);
    let rt = runtime(1);
    let round = || {
        let (mut reader, mut writer) = std::io::pipe().unwrap();
        let from = Instant::now();
        let write = go(move || {
            heist::time::sleep(TIMER);
            writer.write_all(&[1]).unwrap();
        });
        heist::blocking(|| reader.read_exact(&mut [0]).unwrap());
        let took = from.elapsed();
        write.join().unwrap();
        assert!(took >= TIMER, "{took:?}");
        took
    };
    let busy: Vec<_> = (0..30).map(|_| rt.run(round)).collect();
    let rested: Vec<_> = (0..30)
        .map(|_| {
            rt.run(|| heist::time::sleep(Duration::from_millis(10)));
            rt.run(round)
        })
        .collect();
    for times in [busy, rested] {
        let quickest = times.iter().min().unwrap();
        assert!(*quickest < TIMER + Duration::from_millis(1), "{times:?}");
    }
    assert!(rt.metrics().get("/heist/blocking/handoffs:events").unwrap() >= 60);
}

/// IN-27: a blocking call whose P is not needed keeps it for 10 ms, and no longer.
#[test]
fn a_long_call_loses_its_p_without_a_waiter() {
    let rt = runtime(2);
    let handoffs = || rt.metrics().get("/heist/blocking/handoffs:events").unwrap();
    let before = handoffs();
    rt.run(|| {
        // Observed by another thread: a goroutine that reads metrics is in the runtime, and no
        // longer blocked.
        let watch = || matrix::eventually("it is taken", || handoffs() != before);
        heist::blocking(|| std::thread::scope(|scope| scope.spawn(watch).join().unwrap()));
    });
    let idle = || rt.per_proc().iter().filter(|p| p.idle).count();
    matrix::eventually("both processors are idle", || idle() == 2);
}

/// IN-25: a P that is handed off although it is not needed, by a goroutine that is locked to its
/// thread and waits for the network, leaves a thread in the poller: there is no other P in use, and
/// the threads that slept before did not know of the wait.
#[test]
fn handing_off_the_last_p_keeps_a_thread_in_the_poller() {
    for procs in [1, 2, 4] {
        let rt = runtime(procs);
        // Both have slept already, with nothing to wait for.
        rt.run(|| go(|| ()).join().unwrap());
        for _ in 0..3 {
            let (stream, mut other) = std::os::unix::net::UnixStream::pair().unwrap();
            let parked = Arc::new(AtomicBool::new(false));
            let reads = {
                let parked = Arc::clone(&parked);
                rt.handle().spawn(move || {
                    let mut stream = UnixStream::from_std(stream).unwrap();
                    let _guard = lock_os_thread();
                    parked.store(true, Ordering::Relaxed);
                    let mut byte = [0];
                    stream.read_exact(&mut byte).unwrap();
                    byte[0]
                })
            };
            matrix::eventually("it waits", || {
                parked.load(Ordering::Relaxed) && testing::poll_waiters(&rt) == 1
            });
            // Every thread sleeps, sysmon too.
            thread::sleep(Duration::from_millis(200));
            other.write_all(&[9]).unwrap();
            assert_eq!(reads.join().unwrap(), 9);
        }
    }
}

/// IN-25: a P that is handed off runs the goroutines that a search with it would find: its own
/// queue, its timers, the global queue, and goroutines of the idle class.
#[test]
fn a_handed_off_p_runs_the_work_it_finds() {
    for procs in [1, 2] {
        let rt = runtime(procs);
        rt.run(|| {
            // Both processors are kept, one by each side.
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let n = Arc::new(AtomicU64::new(0));
            let count = |n: &Arc<AtomicU64>| {
                let n = Arc::clone(n);
                move || {
                    n.fetch_add(1, Ordering::Relaxed);
                }
            };
            let local = go(count(&n));
            let idle = Builder::new().class(Class::Idle).spawn(count(&n)).unwrap();
            let timer = heist::time::after_func(Duration::from_millis(5), count(&n));
            let watches = {
                let n = Arc::clone(&n);
                thread::spawn(move || {
                    matrix::eventually("all have run", || n.load(Ordering::Relaxed) == 3);
                    writer.write_all(&[1]).unwrap();
                })
            };
            heist::blocking(|| reader.read_exact(&mut [0]).unwrap());
            watches.join().unwrap();
            local.join().unwrap();
            idle.join().unwrap();
            drop(timer);
        });
    }
}

/// PR-19: one processor; the main goroutine wakes up from a sleep of two slices and runs for a
/// fraction of one while others wait: the time asleep does not count against its slice.
#[test]
fn time_asleep_does_not_count_against_the_slice() {
    const SLICE: Duration = Duration::from_millis(50);
    let rt = matrix::start(Runtime::builder().procs(1).exact_quantum(SLICE));
    let asked = || rt.metrics().get("/heist/preempt/asked:events").unwrap();
    let forced = || rt.metrics().get("/heist/preempt/forced:events").unwrap();
    let mut valid = 0;
    rt.run(|| {
        while valid < 10 {
            heist::time::sleep(2 * SLICE);
            let from = Instant::now();
            let before = (asked(), forced());
            let others = WaitGroup::new();
            for _ in 0..10 {
                others.add(1);
                let others = others.clone();
                go(move || others.done());
            }
            while from.elapsed() < SLICE / 10 {
                std::hint::black_box(heist::num_goroutines());
            }
            let after = (asked(), forced());
            // On a busy machine it may have run for longer than it measured.
            if from.elapsed() < SLICE / 2 {
                assert_eq!(before, after, "preempted after {:?}", from.elapsed());
                valid += 1;
            }
            others.wait();
        }
    });
}

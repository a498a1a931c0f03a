//! CPU loops without calls and blocking calls, announced or not, do not stall other goroutines.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{Runtime, go};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

fn runtime(procs: usize) -> Runtime {
    // SAFETY: the tests here keep nothing bound to a thread across a park.
    unsafe { Runtime::builder().procs(procs).build() }.unwrap()
}

/// Runs until told to stop, without a call.
fn spin_until(stop: &AtomicBool) -> u64 {
    let mut n = 0u64;
    while !stop.load(Ordering::Relaxed) {
        n = n.wrapping_add(1);
    }
    n
}

/// PR-04: on one processor, loops without calls do not keep a waiting goroutine from running.
#[test]
fn loops_without_calls_are_preempted() {
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let started = Arc::new(AtomicU64::new(0));
        let hogs: Vec<_> = (0..3)
            .map(|_| {
                let (stop, started) = (Arc::clone(&stop), Arc::clone(&started));
                go(move || {
                    started.fetch_add(1, Ordering::Relaxed);
                    spin_until(&stop)
                })
            })
            .collect();
        while started.load(Ordering::Relaxed) < 3 {
            heist::yield_now();
        }
        for round in 0..5 {
            assert_eq!(go(move || round).join().unwrap(), round);
        }
        stop.store(true, Ordering::Relaxed);
        for hog in hogs {
            assert!(hog.join().unwrap() > 0);
        }
    });
    assert!(rt.metrics().get("/heist/preempt/forced:events").unwrap() > 0);
}

/// PR-10: three loops on one processor all get their share.
#[test]
fn hogs_share_one_processor() {
    let rt = runtime(1);
    rt.run(|| {
        let counts: Arc<[AtomicU64; 3]> = Arc::default();
        let stop = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..3)
            .map(|i| {
                let (counts, stop) = (Arc::clone(&counts), Arc::clone(&stop));
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        counts[i].fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .collect();
        // The main goroutine gets its turns too, and ends the test when all have made progress.
        while counts.iter().any(|count| count.load(Ordering::Relaxed) == 0) {
            heist::yield_now();
        }
        stop.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
    });
}

/// A loop that calls into the runtime yields without a signal.
#[test]
fn a_loop_with_calls_gives_way_when_asked() {
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let hog = {
            let stop = Arc::clone(&stop);
            go(move || {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::black_box(heist::num_goroutines());
                }
            })
        };
        for _ in 0..3 {
            go(|| ()).join().unwrap();
        }
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    });
}

/// Many sleeps on one processor overlap, whether they are announced or not.
#[test]
fn blocking_calls_overlap_on_one_processor() {
    const N: usize = 100;
    const EACH: Duration = Duration::from_millis(50);
    for announced in [true, false] {
        let rt = runtime(1);
        let start = Instant::now();
        rt.run(|| {
            let group = WaitGroup::new();
            for _ in 0..N {
                group.add(1);
                let group = group.clone();
                go(move || {
                    if announced {
                        heist::blocking(|| std::thread::sleep(EACH));
                    } else {
                        std::thread::sleep(EACH);
                    }
                    group.done();
                });
            }
            group.wait();
        });
        let took = start.elapsed();
        assert!(took >= EACH);
        // One after the other they would take five seconds.
        assert!(took < EACH * N as u32 / 2, "announced={announced}: {took:?}");
        assert!(rt.metrics().get("/heist/blocking/handoffs:events").unwrap() > 0);
    }
}

/// PR-18: a goroutine blocks in a read whose writer needs the only processor.
#[test]
fn a_blocked_read_lets_its_writer_run() {
    use std::io::{Read, Write};
    for announced in [true, false] {
        let rt = runtime(1);
        rt.run(|| {
            let (mut reader, mut writer) = std::io::pipe().unwrap();
            let mut read = move || {
                let mut byte = [0];
                reader.read_exact(&mut byte).unwrap();
                byte[0]
            };
            let handle = go(move || if announced { heist::blocking(read) } else { read() });
            let write = go(move || writer.write_all(&[42]).unwrap());
            assert_eq!(handle.join().unwrap(), 42);
            write.join().unwrap();
        });
    }
}

/// A panic out of an announced blocking call is an ordinary panic.
#[test]
fn a_panic_leaves_a_blocking_call() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let failed = go(|| heist::blocking(|| panic!("in the call"))).join().unwrap_err();
            assert_eq!(failed.panic_message(), Some("in the call"));
        });
    });
}

/// On a plain thread an announced blocking call just runs.
#[test]
fn blocking_works_outside_a_runtime() {
    assert_eq!(heist::blocking(|| 7), 7);
}

/// Goroutines that allocate, lock, panic, sleep and compute, with a slice of half a millisecond:
/// every one is accounted for. Longer with `HEIST_STRESS_SECS`.
#[test]
fn a_mixture_under_short_slices_is_accounted_for() {
    let secs = std::env::var("HEIST_STRESS_SECS").map_or(1, |secs| secs.parse().unwrap());
    for procs in [1, 2, 4] {
        let builder = Runtime::builder().procs(procs).quantum(Duration::from_micros(500));
        // SAFETY: no std guard is held across a park.
        let rt = unsafe { builder.build() }.unwrap();
        let until = Instant::now() + Duration::from_secs(secs);
        let lock = Arc::new(std::sync::Mutex::new(0u64));
        while Instant::now() < until {
            let lock = Arc::clone(&lock);
            rt.run(move || {
                let handles: Vec<_> = (0..40u64)
                    .map(|i| {
                        let lock = Arc::clone(&lock);
                        go(move || match i % 5 {
                            0 => (0..200).map(|n| vec![n; 50].len() as u64).sum(),
                            1 => {
                                let mut total = lock.lock().unwrap();
                                *total += 1;
                                i
                            }
                            2 => {
                                std::thread::sleep(Duration::from_micros(300));
                                i
                            }
                            3 => {
                                let start = Instant::now();
                                let mut n = 0;
                                while start.elapsed() < Duration::from_micros(700) {
                                    n += 1;
                                }
                                n
                            }
                            _ => {
                                let caught = std::panic::catch_unwind(|| {
                                    std::panic::resume_unwind(Box::new(i));
                                });
                                *caught.unwrap_err().downcast::<u64>().unwrap()
                            }
                        })
                    })
                    .collect();
                for handle in handles {
                    handle.join().unwrap();
                }
            });
        }
        assert_eq!(*lock.lock().unwrap() % 8, 0);
    }
}

/// A goroutine whose P was taken while it slept, and which then computes without a call, is stopped
/// until it is its turn: no more goroutines run than there are processors.
#[test]
fn a_hog_without_a_processor_is_frozen() {
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let awake = Arc::new(AtomicBool::new(false));
        let hog = {
            let (stop, awake) = (Arc::clone(&stop), Arc::clone(&awake));
            go(move || {
                // Not announced: it loses the processor to the goroutine that waits.
                std::thread::sleep(Duration::from_millis(20));
                awake.store(true, Ordering::Relaxed);
                spin_until(&stop)
            })
        };
        let line = format!("goroutine {} [runnable]:", hog.id());
        heist::yield_now();
        // From here on the processor is not taken away.
        let _guard = heist::no_preempt();
        while !awake.load(Ordering::Relaxed) {
            std::hint::spin_loop();
        }
        matrix::eventually("a hog that waits", || heist::dump_goroutines().contains(&line));
        stop.store(true, Ordering::Relaxed);
        assert!(hog.join().unwrap() > 0);
    });
}

/// Threads that are no longer needed end after a few seconds.
#[test]
fn idle_threads_end() {
    let rt = runtime(2);
    let threads = || rt.metrics().get("/sched/threads/total:threads").unwrap();
    rt.run(|| {
        let many: Vec<_> = (0..30)
            .map(|_| go(|| heist::blocking(|| std::thread::sleep(Duration::from_millis(100)))))
            .collect();
        many.into_iter().for_each(|one| one.join().unwrap());
    });
    assert!(threads() > 20, "{}", threads());
    matrix::eventually("the ends of the surplus", || threads() <= 4);
    // They are made again when they are needed.
    rt.run(|| {
        let many: Vec<_> = (0..10)
            .map(|_| go(|| heist::blocking(|| std::thread::sleep(Duration::from_millis(50)))))
            .collect();
        many.into_iter().for_each(|one| one.join().unwrap());
    });
}

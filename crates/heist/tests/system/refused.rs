//! The system refuses threads or memory: nothing is lost and nothing crashes.

use crate::child;
use crate::matrix;

use heist::goroutine::SpawnError;
use heist::sync::WaitGroup;
use heist::{Runtime, go, try_go, yield_now};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Sets the soft limit of a resource and returns the previous one.
fn set_limit(resource: libc::__rlimit_resource_t, soft: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is a valid place for the answer, and then a valid limit.
    unsafe {
        assert_eq!(libc::getrlimit(resource, &raw mut limit), 0);
        let before = limit.rlim_cur;
        limit.rlim_cur = soft.min(limit.rlim_max);
        assert_eq!(libc::setrlimit(resource, &raw const limit), 0);
        before
    }
}

/// From here on the system creates no thread for this process. Root is exempt from the limit, so
/// the process changes to the user nobody first. Returns the previous limit.
fn refuse_threads() -> u64 {
    let before = set_limit(libc::RLIMIT_NPROC, 1);
    // SAFETY: changes the user of this process and nothing else.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setuid(65534), 0);
        }
    }
    assert!(std::thread::Builder::new().spawn(|| ()).is_err(), "the limit has no effect");
    before
}

/// One goroutine per processor, all of which wait without parking until all of them run.
fn meet(procs: usize) {
    let here = Arc::new(AtomicUsize::new(0));
    let handles: Vec<_> = (0..procs)
        .map(|_| {
            let here = Arc::clone(&here);
            go(move || {
                here.fetch_add(1, Ordering::SeqCst);
                while here.load(Ordering::SeqCst) < procs {
                    std::thread::yield_now();
                }
            })
        })
        .collect();
    for handle in handles {
        handle.join().unwrap();
    }
}

/// A thousand goroutines that park and wake each other.
fn load() {
    let handles: Vec<_> = (0..1000_u64)
        .map(|i| {
            go(move || {
                let inner = go(move || i);
                yield_now();
                inner.join().unwrap()
            })
        })
        .collect();
    let sum: u64 = handles.into_iter().map(|h| h.join().unwrap()).sum();
    assert_eq!(sum, 499_500);
}

/// When threads cannot be made, the existing ones do all the work. The missing ones are made when
/// the system allows it again.
#[test]
fn work_continues_without_more_threads() {
    let ended = child::run(|| {
        let rt = matrix::plain(16);
        rt.run(|| ());
        let before = refuse_threads();
        for _ in 0..20 {
            rt.run(load);
        }
        let outside: Vec<_> = (0..100).map(|i| rt.handle().spawn(move || i)).collect();
        for (i, handle) in outside.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap(), i);
        }
        let threads = rt.metrics().get("/sched/threads/total:threads").unwrap();
        assert!(threads < 16, "{threads} threads, so nothing was refused");
        assert!(rt.metrics().get("/heist/degraded/threads:events") > Some(0));
        set_limit(libc::RLIMIT_NPROC, before);
        rt.run(|| meet(16));
        let threads = rt.metrics().get("/sched/threads/total:threads").unwrap();
        assert!(threads >= 16, "{threads}");
    });
    ended.succeeded();
    ended.said("heist: the system refuses another thread");
}

/// A runtime whose first thread is refused reports it, or starts as soon as it can.
#[test]
fn a_runtime_without_any_thread_is_refused() {
    let ended = child::run(|| {
        let before = refuse_threads();
        // SAFETY: nothing is run.
        let error = unsafe { Runtime::builder().procs(2).build() }.unwrap_err();
        let text = error.to_string();
        assert!(text.starts_with("the system refuses to start a runtime: "), "{text}");
        assert!(std::error::Error::source(&error).is_some());
        set_limit(libc::RLIMIT_NPROC, before);
        let rt = matrix::plain(2);
        set_limit(libc::RLIMIT_NPROC, 1);
        // No M exists yet and none can be made now, until the limit is raised again.
        let handle = rt.handle().spawn(|| 8);
        matrix::eventually("a refusal", || {
            rt.metrics().get("/sched/threads/total:threads") == Some(0)
        });
        set_limit(libc::RLIMIT_NPROC, before);
        assert_eq!(handle.join().unwrap(), 8);
    });
    ended.succeeded();
}

/// Goroutines that wait at a gate, spawned until there is no memory for more.
fn fill(gate: &WaitGroup, handles: &mut Vec<heist::JoinHandle<u64>>) -> SpawnError {
    loop {
        let waiter = gate.clone();
        let n = handles.len() as u64;
        match try_go(move || {
            waiter.wait();
            n
        }) {
            Ok(handle) => handles.push(handle),
            Err(error) => return error,
        }
        assert!(handles.len() < handles.capacity(), "memory without end");
        // They need their stacks now.
        yield_now();
    }
}

/// Without memory for stacks `try_go` is an error and `go` a panic with a clear text; goroutines
/// spawned before still run, and when they have ended there is room again.
#[test]
fn spawning_without_memory_is_an_error() {
    if matrix::emulator::cannot_show("it does not limit address space") {
        return;
    }
    let ended = child::run(|| {
        for procs in [1, 2, 4] {
            let rt = matrix::plain(procs);
            // All threads and the buffers of this test exist before the limit does.
            rt.run(|| meet(procs));
            let mut handles = Vec::with_capacity(20_000);
            // Room for a slab of stacks and for small things, not for two slabs.
            let limit = child::own_status("VmSize") * 1024 + (100 << 20);
            let before = set_limit(libc::RLIMIT_AS, limit);
            for round in 0..3 {
                let gate = WaitGroup::new();
                gate.add(1);
                let inner = gate.clone();
                let list = &mut handles;
                rt.run(move || {
                    let text = loop {
                        assert_eq!(fill(&inner, list), SpawnError::NoMemory);
                        // The goroutine that waited for a stack may have got one meanwhile. Then
                        // there is memory for another one.
                        if let Err(text) = catch_unwind(|| drop(go(|| ()))) {
                            break text;
                        }
                    };
                    assert!(list.len() > 100, "only {}", list.len());
                    let text = text.downcast_ref::<String>().unwrap();
                    assert!(text.starts_with("heist::go: the system has no memory"), "{text}");
                });
                gate.done();
                for (i, handle) in handles.drain(..).enumerate() {
                    assert_eq!(handle.join().unwrap(), i as u64, "round {round}");
                }
                rt.run(|| {
                    // Those that the loop above spawned may still wait for stacks.
                    matrix::yield_until("all ended", || heist::num_goroutines() == 1);
                    load_small();
                });
            }
            set_limit(libc::RLIMIT_AS, before);
        }
    });
    ended.succeeded();
}

fn load_small() {
    let sum: u64 = (0..100).map(|i| go(move || i).join().unwrap()).sum();
    assert_eq!(sum, 4950);
}

/// Goroutines that ended on one processor leave their stacks to those that wait on another.
#[test]
fn goroutines_without_a_stack_get_one_in_the_end() {
    let ended = child::run(|| {
        for procs in [2, 4, 16] {
            let rt = matrix::plain(procs);
            rt.run(|| meet(procs));
            let limit = child::own_status("VmSize") * 1024 + (100 << 20);
            let before = set_limit(libc::RLIMIT_AS, limit);
            for _ in 0..10 {
                // Far more at once than there are stacks; each needs others to have ended.
                let n = Arc::new(AtomicUsize::new(0));
                let mut spawned = 0;
                rt.run(|| {
                    while spawned < 3000 {
                        let n = Arc::clone(&n);
                        let work = move || {
                            yield_now();
                            n.fetch_add(1, Ordering::SeqCst);
                        };
                        match try_go(work) {
                            Ok(_) => spawned += 1,
                            Err(error) => {
                                assert_eq!(error, SpawnError::NoMemory);
                                yield_now();
                            }
                        }
                    }
                    matrix::yield_until("all ran", || n.load(Ordering::SeqCst) == spawned);
                });
            }
            set_limit(libc::RLIMIT_AS, before);
        }
    });
    ended.succeeded();
}

/// Threads that are tied up count: a program that needs more than the limit ends with a clear
/// message, as in Go. DL-15: the exit code of fatal errors is 2.
#[test]
fn too_many_threads_end_the_process() {
    struct Waits(WaitGroup);
    impl Drop for Waits {
        fn drop(&mut self) {
            self.0.wait();
        }
    }
    let ended = child::run(|| {
        let rt = matrix::start(Runtime::builder().procs(2).max_threads(8));
        rt.run(|| {
            let gate = WaitGroup::new();
            gate.add(1);
            // A goroutine that parks while it panics keeps its thread.
            let handles: Vec<_> = (0..20)
                .map(|_| {
                    let waits = Waits(gate.clone());
                    go(move || {
                        let _waits = waits;
                        std::panic::resume_unwind(Box::new(()));
                    })
                })
                .collect();
            for handle in handles {
                drop(heist::JoinHandle::<()>::join(handle));
            }
        });
    });
    ended.exited(2);
    ended.said("heist: program exceeds 8-thread limit\nfatal error: thread exhaustion\n");
}

/// Timers run again after a thread was refused at a moment when all the others blocked.
#[test]
fn timers_go_on_after_a_refused_thread() {
    let ended = child::run(|| {
        let rt = matrix::plain(1);
        let ticks = Arc::new(AtomicUsize::new(0));
        let ticking = Arc::clone(&ticks);
        let handle = rt.handle();
        handle.spawn(move || {
            loop {
                heist::time::sleep(Duration::from_millis(20));
                ticking.fetch_add(1, Ordering::Relaxed);
            }
        });
        matrix::eventually("a tick", || ticks.load(Ordering::Relaxed) != 0);
        let before = refuse_threads();
        let refused = || rt.metrics().get("/heist/degraded/threads:events") > Some(0);
        matrix::eventually("a refusal", || {
            handle.spawn(|| heist::blocking(|| std::thread::sleep(Duration::from_secs(60))));
            std::thread::sleep(Duration::from_millis(50));
            refused()
        });
        std::thread::sleep(Duration::from_millis(200));
        set_limit(libc::RLIMIT_NPROC, before);
        let (seen, from) = (ticks.load(Ordering::Relaxed), std::time::Instant::now());
        matrix::eventually("ten ticks", || {
            assert!(from.elapsed() < Duration::from_secs(10), "the timers have stopped");
            ticks.load(Ordering::Relaxed) >= seen + 10
        });
        std::process::exit(0);
    });
    ended.succeeded();
}

/// At the limit of threads, goroutines that compute keep all of them, and wait for others that
/// cannot start. This is reported.
#[test]
fn goroutines_that_cannot_start_at_the_thread_limit_are_reported() {
    const N: usize = 20;
    let ended = child::run(|| {
        let rt = matrix::start(Runtime::builder().procs(1).max_threads(10));
        let begun = Arc::new(AtomicUsize::new(0));
        rt.handle().spawn(move || {
            for _ in 0..N {
                let begun = Arc::clone(&begun);
                go(move || {
                    begun.fetch_add(1, Ordering::Relaxed);
                    while begun.load(Ordering::Relaxed) < N {
                        std::hint::spin_loop();
                    }
                });
            }
        });
        matrix::eventually("a report", || {
            rt.metrics().get("/heist/degraded/threads:events") > Some(0)
        });
        std::process::exit(0);
    });
    ended.succeeded();
    ended.said("heist: all 10 threads belong to goroutines that compute or block");
}

//! Runtimes: several in one process, one inside the other, started and dropped many times.

use crate::child;
use crate::matrix;

use heist::goroutine::SpawnError;
use heist::sync::WaitGroup;
use heist::{Handle, Runtime, go, yield_now};
use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Several runtimes work at the same time and keep their goroutines apart.
#[test]
fn several_runtimes_live_side_by_side() {
    let runtimes: Vec<_> = (1..=4)
        .map(|i| matrix::start(Runtime::builder().procs(i).name(format!("rt{i}"))))
        .collect();
    std::thread::scope(|scope| {
        for (i, rt) in runtimes.iter().enumerate() {
            scope.spawn(move || {
                let sum: usize = rt.run(|| {
                    let name = heist::testing::thread_name();
                    assert!(name.starts_with(&format!("rt{}-m", i + 1)), "{name}");
                    let handles: Vec<_> = (0..500).map(|j| go(move || i * j)).collect();
                    handles.into_iter().map(|h| h.join().unwrap()).sum()
                });
                assert_eq!(sum, i * 499 * 500 / 2);
            });
        }
    });
    for (i, rt) in runtimes.iter().enumerate() {
        assert_eq!(rt.procs(), i + 1);
        let created = rt.metrics().get("/sched/goroutines-created:goroutines");
        assert_eq!(created, Some(501));
    }
}

/// `run` may borrow from its caller, read and write.
#[test]
fn run_may_borrow() {
    matrix::each(|_, rt| {
        let words = ["a".to_owned(), "bc".to_owned()];
        let mut all = String::new();
        let n = rt.run(|| {
            all.push_str(&words.concat());
            yield_now();
            words.len()
        });
        assert_eq!((n, &*all), (2, "abc"));
    });
}

/// A goroutine may run something on another runtime, or on its own, and wait for it.
#[test]
fn run_may_be_nested() {
    matrix::each(|_, rt| {
        let other = matrix::plain(2);
        let text = "borrowed".to_owned();
        let out = rt.run(|| {
            let same = rt.run(|| rt.run(|| text.len()));
            let there = other.run(|| {
                let back = rt.run(|| text.len());
                yield_now();
                back + other.run(|| text.len())
            });
            same + there
        });
        assert_eq!(out, 24);
    });
}

/// A goroutine that is cancelled while it runs something elsewhere is held until that has ended:
/// it may have borrowed. Then the cancellation takes effect.
#[test]
fn a_cancelled_caller_of_run_is_held_until_the_end() {
    matrix::each(|_, rt| {
        let other = Arc::new(matrix::plain(2));
        let gate = WaitGroup::new();
        gate.add(1);
        let (inside, after) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
        let caller = {
            let (gate, other) = (gate.clone(), Arc::clone(&other));
            let (inside, after) = (Arc::clone(&inside), Arc::clone(&after));
            rt.handle().spawn(move || {
                let borrowed = [1, 2, 3].map(|n| n.to_string());
                let n = other.run(|| {
                    inside.store(true, Ordering::SeqCst);
                    gate.wait();
                    borrowed.len()
                });
                after.store(n, Ordering::SeqCst);
                // The other runtime cannot be ended from its own goroutine.
                drop(other);
                yield_now();
                after.store(100, Ordering::SeqCst);
            })
        };
        matrix::eventually("inside", || inside.load(Ordering::SeqCst));
        caller.cancel();
        for _ in 0..100 {
            assert!(!caller.is_finished());
            std::thread::yield_now();
        }
        gate.done();
        assert!(caller.join().unwrap_err().is_cancelled());
        assert_eq!(after.load(Ordering::SeqCst), 3);
    });
}

/// Any thread may spawn with a handle, and a goroutine can ask for its own.
#[test]
fn many_threads_spawn_with_handles() {
    assert!(Handle::current().is_none());
    matrix::each(|_, rt| {
        let n = Arc::new(AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for _ in 0..4 {
                let (handle, n) = (rt.handle(), Arc::clone(&n));
                scope.spawn(move || {
                    let handles: Vec<_> = (0..100)
                        .map(|_| {
                            let n = Arc::clone(&n);
                            handle.spawn(move || {
                                let here = Handle::current().unwrap();
                                let n2 = Arc::clone(&n);
                                n.fetch_add(1, Ordering::SeqCst);
                                here.spawn(move || n2.fetch_add(1, Ordering::SeqCst))
                            })
                        })
                        .collect();
                    for handle in handles {
                        handle.join().unwrap().join().unwrap();
                    }
                });
            }
        });
        assert_eq!(n.load(Ordering::SeqCst), 800);
    });
}

/// After the end of a runtime its handles refuse, with a text that says why.
#[test]
fn a_handle_refuses_after_the_shutdown() {
    matrix::each_of(&matrix::cases_with(&[2]), |case, _| {
        let rt = case.runtime();
        let handle = rt.handle();
        assert_eq!(handle.spawn(|| 1).join().unwrap(), 1);
        drop(rt);
        let dropped = Arc::new(());
        let held = Arc::clone(&dropped);
        let refused = handle.try_spawn(move || drop(held));
        assert_eq!(refused.unwrap_err(), SpawnError::ShutDown);
        assert_eq!(Arc::strong_count(&dropped), 1, "the closure was dropped");
        let text = catch_unwind(AssertUnwindSafe(|| drop(handle.spawn(|| ())))).unwrap_err();
        let text = text.downcast_ref::<String>().unwrap();
        assert!(text.contains("heist::Handle::spawn: the runtime is shutting down"), "{text}");
        assert!(handle.metrics().get("/sched/goroutines:goroutines") == Some(0));
    });
}

/// Threads that spawn while the runtime is being dropped get a goroutine that ends, or an error; no
/// thread waits forever.
#[test]
fn spawning_races_with_the_shutdown() {
    matrix::each_of(&matrix::cases_with(&[1, 2, 4]), |case, _| {
        matrix::stress(40, |_| {
            let rt = case.runtime();
            let began = AtomicUsize::new(0);
            let watchdog = matrix::Watchdog::new(std::time::Duration::from_secs(60), || {
                "a goroutine spawned during the shutdown never ended".into()
            });
            std::thread::scope(|scope| {
                for _ in 0..2 {
                    let (handle, began) = (rt.handle(), &began);
                    scope.spawn(move || {
                        loop {
                            let spawned = handle.try_spawn(|| {
                                drop(heist::try_go(yield_now));
                                yield_now();
                            });
                            began.fetch_add(1, Ordering::SeqCst);
                            match spawned {
                                Ok(goroutine) => drop(goroutine.join()),
                                Err(error) => break assert_eq!(error, SpawnError::ShutDown),
                            }
                        }
                    });
                }
                matrix::eventually("some spawns", || began.load(Ordering::SeqCst) > 20);
                drop(rt);
            });
            drop(watchdog);
        });
    });
}

/// A runtime that one of its own goroutines drops is left running, with a message.
#[test]
fn a_runtime_cannot_be_dropped_by_its_own_goroutine() {
    let ended = child::run(|| {
        let rt = Arc::new(matrix::plain(2));
        let (last, gate) = (Arc::clone(&rt), WaitGroup::new());
        gate.add(1);
        let waits = gate.clone();
        let handle = rt.handle().spawn(move || {
            waits.wait();
            drop(last);
            go(|| 5).join().unwrap()
        });
        drop(rt);
        gate.done();
        assert_eq!(handle.join().unwrap(), 5);
    });
    ended.succeeded();
    ended.said("a Runtime was dropped by one of its own goroutines");
}

/// Two hundred runtimes, one after the other, leave no threads and no memory behind.
#[test]
fn runtimes_leave_nothing_behind() {
    let ended = child::run(|| {
        let live = |case: &matrix::Case| {
            let rt = case.runtime();
            let sum: u64 = rt.run(|| {
                let handles: Vec<_> = (0..100)
                    .map(|i| {
                        go(move || {
                            yield_now();
                            i
                        })
                    })
                    .collect();
                handles.into_iter().map(|h| h.join().unwrap()).sum()
            });
            assert_eq!(sum, 4950);
            // One is still parked, and is unwound by the drop.
            drop(rt.handle().spawn(|| {
                let gate = WaitGroup::new();
                gate.add(1);
                gate.wait();
            }));
        };
        let cases = matrix::cases_with(&[1, 2, 4]);
        let mapped = || {
            let rt = matrix::plain(1);
            rt.metrics().get("/heist/stacks/mapped:bytes").unwrap()
        };
        // The first rounds fill caches that the process keeps.
        for case in cases.iter().cycle().take(100) {
            live(case);
        }
        // A thread that was joined may be listed for a moment longer.
        let looks = (0..1000).map(|_| {
            std::thread::yield_now();
            child::own_threads()
        });
        let before = (looks.min().unwrap(), child::own_status("VmRSS"), mapped());
        for case in cases.iter().cycle().take(200) {
            live(case);
        }
        matrix::eventually("their threads have ended", || child::own_threads() <= before.0);
        let grown = child::own_status("VmRSS").saturating_sub(before.1);
        let kept = "it keeps memory for each thread that ever was";
        assert!(
            grown < 2 << 10 || matrix::emulator::cannot_show(kept),
            "{grown} KiB resident more"
        );
        assert_eq!(mapped(), before.2, "stacks are lost");
    });
    ended.succeeded();
}

/// A function of a context that is there for longer than the runtime keeps nothing of it.
#[test]
fn a_context_keeps_no_runtime() {
    let ended = child::run(|| {
        let (ctx, canceller) = heist::context::background().with_cancel();
        let descriptors = || std::fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
        let live = || matrix::plain(1).run(|| drop(ctx.after_func(|| unreachable!())));
        live();
        let before = descriptors();
        (0..50).for_each(|_| live());
        assert_eq!(descriptors(), before);
        canceller.cancel();
    });
    ended.succeeded();
}

/// The last owner of a runtime may be a thread-local of a thread that was one of its own: its
/// destructor ends the runtime.
#[test]
fn a_runtime_is_dropped_by_a_thread_local_of_its_own() {
    struct Last {
        rt: Arc<Runtime>,
        _ended: std::sync::mpsc::Sender<()>,
    }
    impl Drop for Last {
        fn drop(&mut self) {
            // The other owners give theirs up.
            while Arc::strong_count(&self.rt) != 1 {
                std::thread::yield_now();
            }
        }
    }
    thread_local!(static LAST: RefCell<Option<Last>> = const { RefCell::new(None) });
    for case in matrix::cases() {
        let rt = Arc::new(case.runtime());
        let (_ended, ended) = std::sync::mpsc::channel();
        let last = Last { rt: Arc::clone(&rt), _ended };
        let own = heist::goroutine::Builder::new().os_thread();
        let handle = own.spawn_on(&rt.handle(), move || LAST.set(Some(last))).unwrap();
        drop(handle.join());
        drop(rt);
        // The sender is dropped after the runtime.
        let waited = ended.recv_timeout(std::time::Duration::from_secs(60));
        assert_eq!(waited, Err(std::sync::mpsc::RecvTimeoutError::Disconnected));
    }
}

/// A runtime that never ran anything can be dropped.
#[test]
fn an_unused_runtime_can_be_dropped() {
    for case in matrix::cases() {
        drop(case.runtime());
    }
}

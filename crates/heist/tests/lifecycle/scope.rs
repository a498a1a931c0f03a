//! `scope`: goroutines that borrow.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{go, scope, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Goroutines borrow from the stack, also mutably, and their results are returned.
#[test]
fn goroutines_borrow() {
    matrix::run(|| {
        let numbers: Vec<u64> = (1..=100).collect();
        let mut squares = vec![0; 100];
        let sum = scope(|s| {
            for (square, number) in squares.iter_mut().zip(&numbers) {
                s.go(move || *square = number * number);
            }
            let halves: Vec<_> =
                numbers.chunks(50).map(|half| s.go(|| half.iter().sum::<u64>())).collect();
            halves.into_iter().map(|half| half.join().unwrap()).sum::<u64>()
        });
        assert_eq!(sum, 5050);
        assert_eq!(squares.iter().sum::<u64>(), 338_350);
    });
}

/// Goroutines of a scope spawn more, and the scope waits for all of them.
#[test]
fn goroutines_spawn_more() {
    fn tree<'scope>(s: &'scope heist::Scope<'scope, '_>, count: &'scope AtomicUsize, depth: u32) {
        count.fetch_add(1, Ordering::Relaxed);
        if depth > 0 {
            s.go(move || tree(s, count, depth - 1));
            s.go(move || tree(s, count, depth - 1));
        }
    }
    matrix::run(|| {
        let count = AtomicUsize::new(0);
        scope(|s| tree(s, &count, 7));
        assert_eq!(count.into_inner(), 255);
    });
}

/// Sets a flag when it is dropped, after letting others run.
struct Flag<'a>(&'a AtomicBool);

impl Drop for Flag<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// The captures of a goroutine, and its result if it was not taken, are dropped when the scope
/// returns.
#[test]
fn a_scope_leaves_no_borrow() {
    matrix::run(|| {
        let (captured, result) = (AtomicBool::new(false), AtomicBool::new(false));
        scope(|s| {
            let flag = Flag(&captured);
            s.go(|| {
                yield_now();
                drop(flag);
                Flag(&result)
            });
        });
        assert!(captured.load(Ordering::SeqCst) && result.load(Ordering::SeqCst));
        // A leaked handle does not delay the scope.
        let ran = AtomicBool::new(false);
        scope(|s| std::mem::forget(s.go(|| Flag(&ran))));
    });
}

/// A panic of the body continues after all goroutines have ended.
#[test]
fn a_panic_of_the_body_waits() {
    matrix::run(|| {
        let ended = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                for _ in 0..10 {
                    s.go(|| {
                        (0..5).for_each(|_| yield_now());
                        ended.fetch_add(1, Ordering::SeqCst);
                    });
                }
                panic!("in the body");
            })
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "in the body");
        assert_eq!(ended.load(Ordering::SeqCst), 10);
    });
}

/// A panic of a goroutine comes out of the scope after all have ended, unless it was joined.
#[test]
fn panics_of_goroutines_come_out() {
    matrix::run(|| {
        let ended = AtomicUsize::new(0);
        let caught = catch_unwind(AssertUnwindSafe(|| {
            scope(|s| {
                s.go(|| panic!("in a goroutine"));
                s.go(|| {
                    (0..5).for_each(|_| yield_now());
                    ended.fetch_add(1, Ordering::SeqCst);
                });
            });
        }));
        assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "a scoped goroutine panicked");
        assert_eq!(ended.load(Ordering::SeqCst), 1);
        scope(|s| {
            let error = s.go(|| panic!("joined")).join().unwrap_err();
            assert_eq!(error.panic_message(), Some("joined"));
        });
    });
}

/// A goroutine that is cancelled or ends itself does not count as a panic.
#[test]
fn ending_on_purpose_is_no_panic() {
    matrix::run(|| {
        scope(|s| {
            s.go(|| heist::exit_current());
            let handle = s.go(|| {
                let forever = WaitGroup::new();
                forever.add(1);
                forever.wait();
            });
            handle.cancel();
            assert!(handle.join().unwrap_err().is_cancelled());
        });
    });
}

/// A goroutine that is cancelled while its scope waits is unwound only after its goroutines have
/// ended, and so is one whose body is cancelled.
#[test]
fn a_cancelled_scope_waits() {
    matrix::run(|| {
        for in_body in [false, true] {
            let gate = WaitGroup::new();
            gate.add(1);
            let (ended, after) =
                (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
            let outer = {
                let (gate, ended, after) = (gate.clone(), Arc::clone(&ended), Arc::clone(&after));
                go(move || {
                    scope(|s| {
                        s.go(|| {
                            gate.wait();
                            ended.store(true, Ordering::SeqCst);
                        });
                        if in_body {
                            let forever = WaitGroup::new();
                            forever.add(1);
                            forever.wait();
                        }
                    });
                    yield_now();
                    after.store(true, Ordering::SeqCst);
                })
            };
            let reason = if in_body { "sync.WaitGroup.Wait" } else { "scope wait" };
            matrix::yield_until("it waits", || {
                heist::dump_goroutines().contains(&format!("goroutine {} [{reason}", outer.id()))
            });
            outer.cancel();
            (0..20).for_each(|_| yield_now());
            assert!(!outer.is_finished(), "its goroutine has not ended");
            gate.done();
            assert!(outer.join().unwrap_err().is_cancelled());
            assert!(ended.load(Ordering::SeqCst) && !after.load(Ordering::SeqCst));
        }
    });
}

/// A handle reports the state of its goroutine.
#[test]
fn handles_report_their_goroutine() {
    matrix::run(|| {
        scope(|s| {
            let handle = s.go(|| 5);
            matrix::yield_until("the end", || handle.is_finished());
            assert!(handle.id().as_u64() > 1);
            assert!(format!("{handle:?} {s:?}").starts_with("ScopedJoinHandle { id: "));
            assert_eq!(handle.join().unwrap(), 5);
        });
    });
}

/// On a plain thread a scope works as long as nothing is spawned.
#[test]
fn an_empty_scope_works_outside_a_runtime() {
    assert_eq!(scope(|_| 5), 5);
    let error = scope(|s| s.try_go(|| ()).map(|_| ()).unwrap_err());
    assert_eq!(error, heist::goroutine::SpawnError::NoRuntime);
}

/// When the runtime shuts down its scopes end, with their goroutines.
#[test]
fn shutdown_ends_scopes() {
    for case in matrix::cases() {
        let rt = case.runtime();
        let ended = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&ended);
        let handle = rt.handle().spawn(move || {
            let data = [1, 2, 3];
            scope(|s| {
                for number in &data {
                    let count = &count;
                    s.go(move || {
                        struct OnDrop<'a>(&'a AtomicUsize, &'a i32);
                        impl Drop for OnDrop<'_> {
                            fn drop(&mut self) {
                                self.0.fetch_add(*self.1 as usize, Ordering::SeqCst);
                            }
                        }
                        let _on_drop = OnDrop(count, number);
                        loop {
                            yield_now();
                        }
                    });
                }
            });
        });
        drop(rt);
        // It was cancelled before it began, or in its scope, or returned behind it.
        drop(handle.join());
        // Those that had begun have run their destructors.
        assert!(ended.load(Ordering::SeqCst) <= 6);
    }
}

/// Names, stacks and threads of their own for goroutines of a scope and for those spawned from
/// outside.
#[test]
fn builders_spawn_anywhere() {
    use heist::goroutine::{Builder, SpawnError};
    let rt = matrix::plain(2);
    let deep = |levels: u32| {
        // Frames of a kilobyte each.
        fn descend(levels: u32) -> u32 {
            let frame = std::hint::black_box([levels; 256]);
            if levels == 0 { 0 } else { descend(levels - 1) + frame[255].min(1) }
        }
        descend(levels)
    };
    let builder = || Builder::new().name("deep").stack_size(16 << 20);
    let handle = builder().spawn_on(&rt.handle(), move || deep(1000)).unwrap();
    assert_eq!((handle.name(), handle.id().as_u64()), (Some("deep"), 1));
    assert_eq!(handle.join().unwrap(), 1000);
    let too_large = Builder::new().stack_size(usize::MAX).spawn_on(&rt.handle(), || ());
    assert!(matches!(too_large.unwrap_err(), SpawnError::StackTooLarge { .. }));
    rt.run(|| {
        let levels = [1000];
        heist::scope(|scope| {
            let handle = builder().spawn_scoped(scope, || deep(levels[0])).unwrap();
            assert_eq!(handle.name(), Some("deep"));
            assert_eq!(handle.join().unwrap(), 1000);
            let own = Builder::new().os_thread().spawn_scoped(scope, || {
                let before = std::thread::current().id();
                heist::yield_now();
                assert_eq!(std::thread::current().id(), before);
            });
            own.unwrap().join().unwrap();
        });
    });
    let handle = rt.handle();
    drop(rt);
    assert_eq!(builder().spawn_on(&handle, || ()).unwrap_err(), SpawnError::ShutDown);
}

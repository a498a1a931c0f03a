//! `with_stack`: a larger stack for one call, in the same goroutine.

use crate::child;
use crate::coroutine::Suspended;
use crate::matrix;

use heist::goroutine::Builder;
use heist::{OverflowPolicy, Runtime, chan, go, time, with_stack, yield_now};
use std::hint::black_box;
use std::os::unix::process::CommandExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

/// Far more than the default stack holds.
const LARGE: usize = 64 << 20;
const DEEP: u64 = 50_000;

/// Recurses and checks on return that no frame was changed meanwhile.
#[inline(never)]
fn intact(n: u64, park_at: u64) -> u64 {
    let frame = black_box([n + 1; 8]);
    if n == 0 {
        return 0;
    }
    if n.is_multiple_of(park_at) {
        yield_now();
    }
    let below = intact(n - 1, park_at);
    assert_eq!(frame, [n + 1; 8], "a frame was overwritten");
    below + 1
}

#[inline(never)]
fn forever(n: u64) -> u64 {
    let frame = black_box([n; 16]);
    if n == u64::MAX {
        return 0;
    }
    forever(n + 1).wrapping_add(black_box(frame[5]))
}

/// The same goroutine on the same thread, deeper than its own stack would allow, also with parks in
/// between.
#[test]
fn deep_recursion_has_room_and_may_park() {
    matrix::run(|| {
        let handles: Vec<_> = (0..4)
            .map(|i| {
                go(move || {
                    let id = heist::current_id();
                    let deep = with_stack(LARGE, || {
                        let thread = std::thread::current().id();
                        assert_eq!(heist::current_id(), id);
                        let deep = intact(DEEP, 9000 + i);
                        assert_eq!(std::thread::current().id(), thread, "it stays on its thread");
                        deep
                    });
                    // Afterwards it is as free as before, and may do it again.
                    yield_now();
                    deep + with_stack(LARGE, || intact(10, 3))
                })
            })
            .collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), DEEP + 10);
        }
    });
}

/// Where there is room `f` runs in place, and a recursion that asks at every level moves when it
/// must.
#[test]
fn the_stack_is_switched_only_when_needed() {
    fn address() -> usize {
        let local = 0_u8;
        black_box(&raw const local).addr()
    }
    fn nested(n: u32) -> u32 {
        let frame = black_box([n; 32]);
        if n == 0 { 0 } else { with_stack(64 << 10, || nested(n - 1)) + frame[7] - n + 1 }
    }
    matrix::run(|| {
        go(|| {
            let here = address();
            let there = with_stack(16 << 10, address);
            assert!(here.abs_diff(there) < 16 << 10);
            let elsewhere = with_stack(LARGE, || (address(), with_stack(LARGE / 2, address)));
            assert!(elsewhere.0.abs_diff(here) > 16 << 10);
            assert!(elsewhere.0.abs_diff(elsewhere.1) < 16 << 10);
            assert_eq!(nested(20_000), 20_000);
        })
        .join()
        .unwrap();
    });
}

/// What `f` has on the stack needs no room on the smaller one, though an optimised build could put
/// the frames of `f` and of its caller together.
#[test]
fn the_frame_of_the_call_is_not_in_that_of_its_caller() {
    matrix::run(|| {
        let large = || {
            let frame = [1_u8; 4 << 20];
            black_box(&frame)[7]
        };
        assert_eq!(go(move || with_stack(LARGE, large)).join().unwrap(), 1);
    });
}

/// A panic, an exit and a cancellation go through it and run the destructors on both stacks.
#[test]
fn unwinding_passes_through_both_stacks() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    matrix::run(|| {
        let drops = Arc::new(AtomicUsize::new(0));
        let inside = |f: fn()| {
            let drops = Arc::clone(&drops);
            go(move || {
                let _outer = Counted(Arc::clone(&drops));
                with_stack(LARGE, || {
                    let _inner = Counted(Arc::clone(&drops));
                    f();
                });
            })
        };
        let panicked = inside(|| std::panic::resume_unwind(Box::new(7))).join().unwrap_err();
        assert_eq!(*panicked.into_panic().unwrap().downcast::<i32>().unwrap(), 7);
        assert!(inside(|| heist::exit_current()).join().unwrap_err().is_exited());
        let waits = inside(|| chan::never::<()>().recv().unwrap());
        yield_now();
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        // One that was cancelled before it began has no stacks to unwind.
        assert!((4..=6).contains(&drops.load(Ordering::SeqCst)));
        let caught = catch_unwind(|| with_stack(LARGE, || std::panic::resume_unwind(Box::new(1))));
        assert!(caught.is_err() && !std::thread::panicking());
    });
}

/// Goroutines that compute without a call, each on a larger stack, are stopped by force for each
/// other.
#[test]
fn a_hog_inside_is_preempted() {
    for procs in [1, 2] {
        let quantum = Duration::from_millis(1);
        let rt = matrix::start(Runtime::builder().procs(procs).quantum(quantum));
        rt.run(|| {
            let turn = Arc::new(AtomicUsize::new(0));
            let hogs: Vec<_> = (0..4)
                .map(|i| {
                    let turn = Arc::clone(&turn);
                    go(move || {
                        with_stack(LARGE, || {
                            // No goroutine continues unless all make progress.
                            for round in 0..3 {
                                while turn.load(Ordering::SeqCst) != round * 4 + i {}
                                turn.fetch_add(1, Ordering::SeqCst);
                            }
                            intact(1000, 300)
                        })
                    })
                })
                .collect();
            hogs.into_iter().for_each(|hog| assert_eq!(hog.join().unwrap(), 1000));
        });
    }
}

/// Goroutines that are locked to a thread, or lock themselves inside and stay locked.
#[test]
fn locked_threads_may_use_a_larger_stack() {
    matrix::run(|| {
        let own = Builder::new().os_thread();
        let deep = own.spawn(|| with_stack(LARGE, || intact(1000, 100))).unwrap();
        assert_eq!(deep.join().unwrap(), 1000);
        let guard = with_stack(LARGE, heist::lock_os_thread);
        let thread = std::thread::current().id();
        go(yield_now).join().unwrap();
        assert_eq!(std::thread::current().id(), thread);
        drop(guard);
    });
}

/// Channels, timers, joins and another runtime inside.
#[test]
fn all_waits_work_on_a_larger_stack() {
    let other = matrix::plain(1);
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<u64>(0);
        let sum = go(move || with_stack(LARGE, || rx.iter().sum::<u64>()));
        with_stack(LARGE, || {
            for i in 0..100 {
                tx.send(i).unwrap();
            }
            time::sleep(Duration::from_micros(50));
            drop(tx);
            assert_eq!(sum.join().unwrap(), 4950);
            assert_eq!(other.run(|| with_stack(LARGE, || intact(1000, 10))), 1000);
        });
    });
}

/// It works on plain threads, also on one that becomes a goroutine's inside.
#[test]
fn plain_threads_may_use_a_larger_stack() {
    assert_eq!(with_stack(LARGE, || intact(DEEP, u64::MAX)), DEEP);
    let caught = catch_unwind(|| with_stack(LARGE, || std::panic::resume_unwind(Box::new(1))));
    assert!(caught.is_err());
    let small = std::thread::Builder::new().stack_size(64 << 10);
    let small =
        small.spawn(|| with_stack(LARGE, || with_stack(2 * LARGE, || intact(DEEP, u64::MAX))));
    assert_eq!(small.unwrap().join().unwrap(), DEEP);
    let rt = matrix::plain(2);
    let deep = with_stack(LARGE, || rt.run_here(|| with_stack(LARGE, || intact(DEEP, 10_000))));
    assert_eq!(deep, DEEP);
}

/// A size out of range is reported.
#[test]
fn a_size_that_cannot_be_had_panics() {
    matrix::plain(1).run(|| {
        for bytes in [(1 << 30) + 1, usize::MAX] {
            let refused = catch_unwind(AssertUnwindSafe(|| with_stack(bytes, || ())));
            let payload = refused.unwrap_err();
            let text = payload.downcast_ref::<String>().unwrap();
            assert!(text.contains("1073741824"), "{text}");
        }
    });
}

/// Running out of the larger stack is reported with its size, on a goroutine and on a plain thread.
#[test]
fn overflow_inside_is_reported() {
    let ended = child::run(|| {
        matrix::plain(1).run(|| with_stack(1 << 20, || forever(0)));
    });
    ended.exited(2);
    for text in [
        "goroutine 1 overflowed its stack of 2097152 bytes",
        "with_stack::forever",
        "heist::sched::life::body::goroutine_main",
    ] {
        ended.said(text);
    }
}

/// As above, without any runtime.
#[test]
fn overflow_inside_is_reported_for_a_thread() {
    let ended = child::run(|| {
        with_stack(1 << 20, || forever(0));
    });
    ended.exited(2);
    ended.said("a thread overflowed its stack of 2097152 bytes");
    ended.said("with_stack::forever");
}

/// A goroutine that overflows its own stack around a larger one, or the larger one, is abandoned.
#[test]
fn overflow_inside_abandons_the_goroutine() {
    let ended = child::run(|| {
        for procs in [1, 2] {
            let builder = Runtime::builder().procs(procs);
            let rt = matrix::start(builder.overflow_policy(OverflowPolicy::Abandon));
            rt.run(|| {
                let seen = Arc::new(AtomicBool::new(false));
                let flag = Arc::clone(&seen);
                let inside = go(move || {
                    with_stack(1 << 20, || flag.store(intact(1000, 100) == 1000, Ordering::SeqCst));
                    with_stack(1 << 20, || forever(0))
                });
                assert!(inside.join().unwrap_err().is_stack_overflow());
                assert!(seen.load(Ordering::SeqCst));
                let after = go(|| with_stack(1 << 20, || intact(1000, 100)) + forever(0));
                assert!(after.join().unwrap_err().is_stack_overflow());
                assert_eq!(with_stack(1 << 20, || intact(1000, 100)), 1000);
            });
        }
    });
    ended.succeeded();
}

/// glibc starts a program with all signals blocked: a stack that ended there would end the process
/// without a report. So a goroutine with a small stack starts it on a larger one.
#[test]
fn programs_are_started_where_there_is_room() {
    const ENOUGH: usize = 32 << 10;
    let started_in_place = |stack: usize| {
        let start = || {
            let mut command = heist::process::Command::new("true");
            let here = address_of_a_local();
            let look = move || match address_of_a_local().abs_diff(here) < ENOUGH {
                true => Ok(()),
                false => Err(std::io::Error::from_raw_os_error(libc::E2BIG)),
            };
            // SAFETY: the closure compares numbers and makes no call.
            unsafe { command.as_std_mut().pre_exec(look) };
            match command.status() {
                Ok(status) => status.success(),
                Err(error) if error.raw_os_error() == Some(libc::E2BIG) => false,
                Err(error) => panic!("{error}"),
            }
        };
        let sized = heist::goroutine::Builder::new().stack_size(stack);
        matrix::plain(1).run(move || sized.spawn(start).unwrap().join().unwrap())
    };
    assert!(!started_in_place(0), "the smallest stack has no room for it");
    assert!(started_in_place(256 << 10));
}

/// On a plain thread: also the stacks of signal handlers, of which each call has one there.
#[test]
fn calls_in_coroutines_end_in_any_order() {
    let ended = child::run(|| {
        for first_first in [true, false] {
            let begin = || {
                Suspended::begin(|yielder| {
                    with_stack(1 << 20, || {
                        yielder.suspend(());
                        assert_eq!(with_stack(LARGE, || intact(DEEP, DEEP + 1)), DEEP);
                    });
                })
            };
            let (first, second) = (begin(), begin());
            let (next, last) = if first_first { (first, second) } else { (second, first) };
            next.end();
            last.end();
            assert_eq!(with_stack(LARGE, || intact(DEEP, DEEP + 1)), DEEP);
        }
        with_stack(1 << 20, || black_box(forever(0)));
    });
    ended.exited(2);
    ended.said("stack overflow");
}

#[inline(never)]
fn address_of_a_local() -> usize {
    let local = std::hint::black_box(0_u8);
    (&raw const local).addr()
}

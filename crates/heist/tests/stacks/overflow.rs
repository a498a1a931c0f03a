//! Running out of stack: the process ends with a report. `abandon.rs` is about the other policy.

use crate::child;
use crate::matrix;

use heist::goroutine::Builder;
use heist::{PanicPolicy, Runtime, go, time};
use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Recurses forever. The compiler knows that it does not unwind, so there are no landing pads
/// around a call of it.
#[inline(never)]
fn forever(n: u64) -> u64 {
    let frame = black_box([n; 16]);
    if n == u64::MAX {
        return 0;
    }
    forever(n + 1).wrapping_add(black_box(frame[5]))
}

/// Ended by the report of an overflow, and by nothing else.
#[track_caller]
fn ended_with_the_report(ended: &child::Ended) {
    ended.exited(2);
    ended.said("overflowed its stack of ");
    ended.said("fatal error: stack overflow");
    ended.said("frames, the innermost first:");
}

/// DL-08: the report names the goroutine, its name, where it was spawned and how large its stack
/// is, the frames of both ends, and what to do.
#[test]
fn the_report_names_the_goroutine_the_place_and_a_remedy() {
    let ended = child::run(|| {
        matrix::plain(1).run(|| {
            let builder = Builder::new().name("digger").stack_size(128 << 10);
            let line = line!() + 2;
            eprintln!("expected: {}:{line}:", file!());
            let handle = builder.spawn(|| forever(0)).unwrap();
            drop(handle.join());
        });
    });
    ended_with_the_report(&ended);
    ended.said("goroutine 2 (digger) overflowed its stack of 131072 bytes");
    ended.said("by goroutine 1");
    let expected = ended.stderr.lines().find_map(|line| line.strip_prefix("expected: ")).unwrap();
    assert_eq!(ended.stderr.matches(expected).count(), 2, "{}", ended.stderr);
    for text in ["stack_size", "HEIST_STACK_SIZE", "with_stack", " more ...", "overflow::forever"] {
        ended.said(text);
    }
    ended.said("heist::sched::life::body::goroutine_main");
    // The line of the report, and one line for each of a few dozen frames.
    assert!(ended.stderr.lines().count() < 60, "{}", ended.stderr);
}

/// An overflow is not a panic, under any policy for panics.
#[test]
fn panic_policies_do_not_affect_an_overflow() {
    for policy in [PanicPolicy::Isolate, PanicPolicy::Abort] {
        let ended = child::run(|| {
            let rt = matrix::start(Runtime::builder().procs(2).panic_policy(policy));
            rt.run(|| drop(std::panic::catch_unwind(|| forever(0))));
        });
        ended_with_the_report(&ended);
    }
}

/// Several goroutines overflow at the same time: one report, or one after the other.
#[test]
fn reports_do_not_mix() {
    let ended = child::run(|| {
        matrix::plain(4).run(|| {
            let handles: Vec<_> = (0..8).map(|_| go(|| forever(0))).collect();
            handles.into_iter().for_each(|handle| drop(handle.join()));
        });
    });
    ended_with_the_report(&ended);
    assert_eq!(ended.stderr.matches("overflowed its stack").count(), 1, "{}", ended.stderr);
}

/// A sort moves what it sorts in and out of its slice; unwinding from a comparison that the
/// compiler knows not to unwind would leave values there twice.
#[test]
fn overflowing_in_a_comparison_drops_nothing_twice() {
    #[derive(PartialEq, Eq, PartialOrd, Ord)]
    struct Nest {
        next: Option<Box<Nest>>,
        leaf: u32,
    }
    impl Drop for Nest {
        fn drop(&mut self) {
            let mut next = self.next.take();
            while let Some(mut nest) = next {
                next = nest.next.take();
            }
        }
    }
    struct Item {
        key: Nest,
        _owned: Box<u64>,
    }
    fn item(depth: usize, leaf: u32) -> Item {
        let leaf = Nest { next: None, leaf };
        let wrap = |inner, _| Nest { next: Some(Box::new(inner)), leaf: 0 };
        Item { key: (0..depth).fold(leaf, wrap), _owned: Box::new(1) }
    }
    #[inline(never)]
    fn sort(items: &mut [Item]) {
        items.sort_by(|a, b| b.key.cmp(&a.key));
    }
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let sorts = go(|| {
                let mut items = vec![item(200_000, 0)];
                items.extend((0..8).map(|leaf| item(0, 100 - leaf)));
                items.push(item(200_000, 1));
                black_box::<fn(&mut [Item])>(sort)(&mut items);
            });
            drop(sorts.join());
        });
    });
    ended_with_the_report(&ended);
}

/// Threads that borrow from a goroutine's frames do not outlive these.
#[test]
fn overflowing_in_a_scope_of_threads_leaves_no_borrower() {
    struct Lent(AtomicBool);
    impl Drop for Lent {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    #[inline(never)]
    fn lend(lent: &Lent) {
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while black_box(lent).0.load(Ordering::SeqCst) {
                    std::hint::spin_loop();
                }
            });
            black_box(forever(0));
        });
    }
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let lends = go(|| black_box::<fn(&Lent)>(lend)(&Lent(AtomicBool::new(true))));
            drop(lends.join());
            eprintln!("dangling");
        });
    });
    ended_with_the_report(&ended);
    assert!(!ended.stderr.contains("dangling"), "{}", ended.stderr);
}

/// Waiters for a goroutine that overflows do not wait forever.
#[test]
fn an_overflow_leaves_no_waiter_hanging() {
    static LOCK: heist::sync::Mutex<u64> = heist::sync::Mutex::new(0);
    let waits: [fn(); 5] = [
        || {
            let group = heist::sync::WaitGroup::new();
            group.go(|| {
                black_box(forever(0));
            });
            group.wait();
        },
        || {
            let group = heist::sync::ErrGroup::<String>::new();
            group.go(|| {
                black_box(forever(0));
                Ok(())
            });
            drop(group.wait());
        },
        || {
            drop(go(|| *LOCK.lock() = forever(0)).join());
            *LOCK.lock() += 1;
        },
        || heist::scope(|scope| drop(scope.go(|| forever(0)).join())),
        || {
            black_box(forever(0));
        },
    ];
    for i in 0..waits.len() {
        let ended = child::run_with(
            |child| {
                child.env("WAIT", i.to_string());
            },
            || {
                let chosen = std::env::var("WAIT").unwrap().parse::<usize>().unwrap();
                matrix::plain(2).run(waits[chosen]);
            },
        );
        ended_with_the_report(&ended);
    }
}

/// A frame of the same size on every level.
#[inline(never)]
fn at_depth(depth: usize, f: &mut dyn FnMut()) {
    let frame = black_box([depth; 4]);
    if depth == 0 {
        f();
    } else {
        at_depth(depth - 1, f);
    }
    black_box(frame);
}

/// The action of a goroutine, or a thread, at the end of its stack.
const ENDINGS: [(&str, fn()); 6] = [
    ("format", || drop(black_box(format!("{:>300} {:?}", 7, [1.5_f64; 4])))),
    ("print", || eprintln!("printed")),
    ("lock", || {
        static LOCK: std::sync::Mutex<Vec<u8>> = std::sync::Mutex::new(Vec::new());
        LOCK.lock().unwrap().push(1);
    }),
    ("catch", || drop(std::panic::catch_unwind(|| panic!("caught")))),
    ("go", || drop(go(|| 1).join())),
    ("sleep", || time::sleep(Duration::from_micros(10))),
];

/// At any depth near the end of its stack, a call that takes locks works, or the process ends with
/// the report. Nothing is left half done.
#[test]
fn near_the_end_everything_works_or_is_reported() {
    for (i, (name, _)) in ENDINGS.into_iter().enumerate() {
        let at = |depth: usize| {
            let ended = child::run_with(
                |child| {
                    child.env("ENDING", format!("{i} {depth}")).env("RUST_BACKTRACE", "0");
                },
                || {
                    let ending = std::env::var("ENDING").unwrap();
                    let (i, depth) = ending.split_once(' ').unwrap();
                    let f = ENDINGS[i.parse::<usize>().unwrap()].1;
                    let depth = depth.parse().unwrap();
                    let rt = matrix::plain(2);
                    let small = || Builder::new().stack_size(0);
                    let deep = move || at_depth(depth, &mut || f());
                    rt.run(move || small().spawn(deep).unwrap().join().unwrap());
                    rt.run(move || go(f).join().unwrap());
                },
            );
            if ended.status.success() {
                return false;
            }
            ended_with_the_report(&ended);
            true
        };
        const STEP: usize = 64;
        let first = (0..).map(|n| n * STEP).find(|&depth| at(depth)).unwrap();
        let around = (first - STEP..first).step_by(5);
        eprintln!(
            "{name}: from depth {first}; {} of {}",
            around.clone().filter(|&d| at(d)).count(),
            around.count()
        );
    }
}

/// A panic, with and without a backtrace, works at every depth at which it works on a thread with a
/// stack of the same size, also on the smallest; so does a cancellation.
#[test]
fn a_panic_works_as_deep_as_on_a_thread() {
    const SIZES: [usize; 2] = [32 << 10, 256 << 10];
    let play = || {
        let scene = std::env::var("SCENE").unwrap();
        let (how, rest) = scene.split_once(' ').unwrap();
        let (size, depth) = rest.split_once(' ').unwrap();
        let (size, depth) = (size.parse().unwrap(), depth.parse().unwrap());
        let panics = move || at_depth(depth, &mut || panic!("at the bottom"));
        let waits = move || at_depth(depth, &mut || time::sleep(Duration::from_secs(3600)));
        if how == "thread" {
            let thread = std::thread::Builder::new().stack_size(size).spawn(panics).unwrap();
            return assert!(thread.join().is_err());
        }
        matrix::plain(1).run(|| {
            let sized = Builder::new().stack_size(size);
            if how == "panic" {
                let error = sized.spawn(panics).unwrap().join().unwrap_err();
                assert_eq!(error.panic_message(), Some("at the bottom"));
            } else {
                let handle = sized.spawn(waits).unwrap();
                heist::yield_now();
                handle.cancel();
                assert!(handle.join().unwrap_err().is_cancelled());
            }
        });
    };
    let deepest = |how: &str, size: usize, backtrace: &str| {
        let works = |&depth: &usize| {
            let prepare = |child: &mut std::process::Command| {
                child
                    .env("SCENE", format!("{how} {size} {depth}"))
                    .env("RUST_BACKTRACE", backtrace);
            };
            child::run_with(prepare, play).status.success()
        };
        // Steps of a quarter KiB at least.
        let depths: Vec<usize> = (0..size / 64).step_by(4).collect();
        depths.partition_point(works)
    };
    for size in SIZES {
        for backtrace in ["0", "1"] {
            let (on_thread, here) =
                (deepest("thread", size, backtrace), deepest("panic", size, backtrace));
            assert!(0 < on_thread && on_thread <= here, "{size}: {here} of {on_thread}");
        }
        let (panics, cancels) = (deepest("thread", size, "0"), deepest("cancel", size, "0"));
        assert!(panics <= cancels, "{size}: {cancels} of {panics}");
    }
}

/// A recursion that allocates at every level sometimes overflows inside the allocator.
#[test]
fn overflowing_inside_the_allocator_is_reported() {
    fn allocates(n: u64) -> usize {
        let text = format!("{n:>width$}", width = (n % 3000) as usize);
        let large = vec![1_u8; 40_000 + (n % 7) as usize];
        if n == u64::MAX {
            return 0;
        }
        allocates(n + 1) + black_box(text).len() + black_box(large).len()
    }
    for _ in 0..10 {
        let ended = child::run(|| {
            matrix::plain(2).run(|| drop(go(|| allocates(0)).join()));
        });
        ended_with_the_report(&ended);
    }
}

/// A goroutine that recurses forever in a destructor while it panics.
#[test]
fn overflowing_while_panicking_ends_the_process() {
    struct Digs;
    impl Drop for Digs {
        fn drop(&mut self) {
            black_box(forever(0));
        }
    }
    let ended = child::run(|| {
        matrix::plain(1).run(|| {
            let handle = go(|| {
                let _digs = Digs;
                std::panic::resume_unwind(Box::new(1));
            });
            drop(heist::JoinHandle::<()>::join(handle));
        });
    });
    ended_with_the_report(&ended);
}

/// SP-23: a fault that is no goroutine's overflow still ends the process by its signal, on a
/// goroutine and on a plain thread, also when the address is near a goroutine's stack.
#[test]
fn other_faults_still_kill() {
    let ended = child::run(|| {
        matrix::plain(1).run(|| {
            // SAFETY: not at all, on purpose: the process has to end here.
            unsafe { black_box(std::ptr::without_provenance_mut::<u8>(8)).write_volatile(1) };
        });
    });
    ended.was_killed_by(libc::SIGSEGV);
}

/// SP-23: as above, on a plain thread of a process with a runtime.
#[test]
fn a_fault_of_a_plain_thread_still_kills() {
    let ended = child::run(|| {
        let rt = matrix::plain(1);
        rt.run(|| go(|| ()).join().unwrap());
        // SAFETY: not at all, on purpose: the process has to end here.
        unsafe { black_box(std::ptr::without_provenance_mut::<u8>(8)).write_volatile(1) };
    });
    ended.was_killed_by(libc::SIGSEGV);
}

/// SP-23: a plain thread that recurses forever gets std's own report and ends the process.
#[test]
fn overflow_of_a_plain_thread_is_reported_by_std() {
    let ended = child::run(|| {
        let rt = matrix::plain(1);
        rt.run(|| ());
        let name = std::thread::Builder::new().name("plain".into());
        let thread = name.spawn(|| black_box(forever(0))).unwrap();
        drop(thread.join());
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("has overflowed its stack");
}

/// SP-23: the scheduler's own stack has a guard too: running over it is reported, once, with the
/// thread's name, and ends the process.
#[test]
fn overflow_of_a_scheduler_stack_is_reported() {
    let ended = child::run(|| {
        matrix::plain(2).run(heist::testing::overflow_the_scheduler);
    });
    ended.exited(2);
    let reports = ended.stderr.matches("has overflowed its stack").count();
    assert_eq!(reports, 1, "{}", ended.stderr);
    ended.said("thread 'heist-m");
    ended.said("frames, the innermost first:");
}

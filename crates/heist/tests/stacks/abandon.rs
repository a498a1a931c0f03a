//! A goroutine that runs out of stack under `OverflowPolicy::Abandon`: it stays where it is, the
//! others continue.

use crate::child;
use crate::matrix;

use heist::goroutine::Builder;
use heist::{OverflowPolicy, Runtime, go, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[inline(never)]
fn forever(n: u64) -> u64 {
    let frame = black_box([n; 16]);
    if n == u64::MAX {
        return 0;
    }
    forever(n + 1).wrapping_add(black_box(frame[5]))
}

fn builder(procs: usize) -> heist::Builder {
    Runtime::builder().procs(procs).overflow_policy(OverflowPolicy::Abandon)
}

const ABANDONED: &str = "[abandoned: stack overflow]";

/// A goroutine that recurses forever is abandoned, again and again, while others work: its handle
/// reports it, and the runtime ends normally. `deadlock.rs` is about goroutines from which it
/// borrowed.
#[test]
fn other_goroutines_continue() {
    const N: u64 = 10;
    let ended = child::run(|| {
        for case in matrix::cases_with(&[1, 2, 4]) {
            let rt = matrix::start(case.builder().overflow_policy(OverflowPolicy::Abandon));
            rt.run(|| {
                let stop = Arc::new(AtomicBool::new(false));
                let busy: Vec<_> = (0..4_u64)
                    .map(|i| {
                        let stop = Arc::clone(&stop);
                        go(move || {
                            while !stop.load(Ordering::Relaxed) {
                                assert_eq!(go(move || i).join().unwrap(), i);
                                yield_now();
                            }
                        })
                    })
                    .collect();
                for _ in 0..N {
                    let handle = go(|| forever(0));
                    let id = handle.id();
                    let error = handle.join().unwrap_err();
                    assert!(error.is_stack_overflow() && !error.is_panic(), "{case}: {error}");
                    assert_eq!(error.to_string(), format!("goroutine {id} overflowed its stack"));
                    let dump = heist::dump_goroutines();
                    assert!(dump.contains(&format!("goroutine {id} {ABANDONED}:")), "{dump}");
                }
                stop.store(true, Ordering::Relaxed);
                busy.into_iter().for_each(|handle| handle.join().unwrap());
                // A handle reports the end of a goroutine slightly before the goroutine is no
                // longer counted.
                matrix::yield_until("the others are gone", || heist::num_goroutines() == 1);
                // The world can be stopped, and the record of an abandoned one is not reused.
                let procs = heist::procs();
                heist::set_procs(procs + 1);
                heist::set_procs(procs);
                assert_eq!(
                    (0..1000_u64).map(|i| go(move || i).join().unwrap()).sum::<u64>(),
                    499_500
                );
                assert_eq!(heist::dump_goroutines().matches(ABANDONED).count() as u64, N, "{case}");
            });
            let overflowed = rt.metrics().get("/heist/goroutines/overflowed:goroutines");
            assert_eq!(overflowed, Some(N), "{case}");
            drop(rt);
        }
    });
    ended.succeeded();
    assert!(!ended.stderr.contains("did not end within"), "{}", ended.stderr);
    ended.said("is abandoned: it keeps its locks, its stack and M");
}

/// Every size of stack ends in its guard, also for the largest frames.
#[test]
fn every_stack_has_its_guard() {
    #[inline(never)]
    fn large_frames(n: u64) -> u64 {
        let frame = black_box([n; 4096]);
        if n == u64::MAX {
            return 0;
        }
        large_frames(n + 1) + black_box(frame[4000])
    }
    for way in ["guard=install", "guard=protect"] {
        let ended = child::run_with(
            |child| {
                child.env("HEIST_DEBUG", way);
            },
            || {
                matrix::start(builder(2)).run(|| {
                    for shift in 15..24 {
                        let sized = || Builder::new().stack_size(1 << shift);
                        let small = sized().spawn(|| forever(0)).unwrap();
                        let large = sized().spawn(|| large_frames(0)).unwrap();
                        assert!(small.join().unwrap_err().is_stack_overflow());
                        assert!(large.join().unwrap_err().is_stack_overflow());
                    }
                });
            },
        );
        ended.succeeded();
    }
}

/// Nothing is unwound: no destructor runs, a lock stays taken. It does not matter where the handle
/// is, or whether it still exists.
#[test]
fn an_abandoned_goroutine_is_not_unwound() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    static LOCK: heist::sync::Mutex<u64> = heist::sync::Mutex::new(0);
    let ended = child::run(|| {
        for procs in [1, 2, 4] {
            let rt = matrix::start(builder(procs));
            let drops = Arc::new(AtomicUsize::new(0));
            let counted = || Counted(Arc::clone(&drops));
            let dig = |counted: Counted| {
                move || {
                    let _held = &counted;
                    drop(std::panic::catch_unwind(|| black_box(forever(0))));
                }
            };
            // Joined by a plain thread, by a goroutine, not joined, and of a goroutine with its own
            // thread.
            assert!(rt.handle().spawn(dig(counted())).join().unwrap_err().is_stack_overflow());
            let own = Builder::new().os_thread();
            let own = own.spawn_on(&rt.handle(), dig(counted())).unwrap();
            assert!(own.join().unwrap_err().is_stack_overflow());
            let digs = dig(counted());
            rt.run(|| {
                drop(go(digs));
                matrix::yield_until("it is abandoned", || heist::num_goroutines() == 1);
            });
            let locks = rt.handle().spawn(|| {
                let guard = LOCK.try_lock();
                let _locked = heist::lock_os_thread();
                black_box(forever(0));
                drop(guard);
            });
            assert!(locks.join().unwrap_err().is_stack_overflow());
            assert!(LOCK.try_lock().is_none());
            assert_eq!(drops.load(Ordering::SeqCst), 0);
        }
    });
    ended.succeeded();
}

/// A foreign function on the stack may hold a lock that all threads need, and so may a panic: the
/// process ends.
#[test]
fn an_overflow_that_may_hold_a_global_lock_ends_the_process() {
    extern "C" fn compare(_: *const libc::c_void, _: *const libc::c_void) -> libc::c_int {
        black_box(forever(0)) as libc::c_int
    }
    struct Digs;
    impl Drop for Digs {
        fn drop(&mut self) {
            black_box(forever(0));
        }
    }
    let overflows: [(&str, fn()); 2] = [
        ("inside a foreign library", || {
            let mut numbers = [2_i32, 1];
            // SAFETY: two numbers of four bytes, which are not read.
            unsafe { libc::qsort(numbers.as_mut_ptr().cast(), 2, 4, Some(compare)) };
        }),
        ("while it panics", || {
            let _digs = Digs;
            std::panic::resume_unwind(Box::new(1));
        }),
    ];
    for (i, (why, _)) in overflows.into_iter().enumerate() {
        let ended = child::run_with(
            |child| {
                child.env("OVERFLOW", i.to_string());
            },
            || {
                let chosen = std::env::var("OVERFLOW").unwrap().parse::<usize>().unwrap();
                matrix::start(builder(2)).run(|| drop(go(overflows[chosen].1).join()));
            },
        );
        ended.exited(2);
        ended.said(why);
    }
}

/// A recursion that calls into the runtime, or allocates, at every level: it is abandoned, or the
/// process ends and says why it could not be.
#[test]
fn an_overflow_anywhere_abandons_or_ends_the_process() {
    fn yields(n: u64) -> u64 {
        let frame = black_box([n; 3]);
        yield_now();
        let other = go(move || n);
        if n == u64::MAX {
            return 0;
        }
        let deeper = yields(n + 1);
        other.join().unwrap() + deeper + black_box(frame[1])
    }
    fn allocates(n: u64) -> usize {
        let text = format!("{n:>width$}", width = (n % 3000) as usize);
        if n == u64::MAX {
            return 0;
        }
        allocates(n + 1) + black_box(text).len()
    }
    for pad in 0..12_usize {
        let ended = child::run_with(
            |child| {
                child.env("PAD", pad.to_string());
            },
            || {
                let pad = std::env::var("PAD").unwrap().parse::<u64>().unwrap();
                matrix::start(builder(2)).run(|| {
                    let sized = || Builder::new().stack_size((128 << 10) << (pad % 2));
                    assert!(sized().spawn(move || yields(pad)).unwrap().join().is_err());
                    assert!(sized().spawn(move || allocates(pad)).unwrap().join().is_err());
                    assert_eq!(go(|| vec![1_u8; 100_000].len()).join().unwrap(), 100_000);
                });
            },
        );
        if !ended.status.success() {
            ended.exited(2);
            ended.said("it cannot be abandoned inside");
        }
    }
}

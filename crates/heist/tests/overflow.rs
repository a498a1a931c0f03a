//! Running out of stack: the goroutine dies alone, with a report.

mod child;
mod matrix;

use heist::goroutine::Builder;
use heist::{Runtime, go, yield_now};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Recurses for ever. It might panic, so the compiler keeps the destructors of those who call it;
/// around a call that it knows not to unwind there are none to run.
fn forever(n: u64) -> u64 {
    let frame = black_box([n; 16]);
    assert!(frame[3] != u64::MAX, "too deep");
    forever(n + 1) + black_box(frame[5])
}

/// How many in a row. The whole promise in a long run.
fn times() -> usize {
    if matrix::stress_time().is_some() { 20_000 } else { 1000 }
}

/// A goroutine that recurses for ever dies alone, a thousand times in a row, while two processors
/// are busy with other work.
#[test]
fn overflowing_goroutines_die_alone() {
    let ended = child::run("overflowing_goroutines_die_alone", || {
        let rt = matrix::plain(2);
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let busy: Vec<_> = (0..4)
                .map(|i| {
                    let stop = Arc::clone(&stop);
                    go(move || {
                        let mut n = 0_u64;
                        while !stop.load(Ordering::Relaxed) {
                            n += go(move || i).join().unwrap();
                            yield_now();
                        }
                        n
                    })
                })
                .collect();
            for n in 0..times() {
                let error = go(|| forever(0)).join().unwrap_err();
                assert!(error.is_stack_overflow() && !error.is_panic(), "{n}: {error}");
                let text = format!("goroutine {} overflowed its stack", error.id());
                assert_eq!(error.to_string(), text);
            }
            stop.store(true, Ordering::Relaxed);
            for handle in busy {
                handle.join().unwrap();
            }
        });
        let metrics = rt.metrics();
        let overflowed = metrics.get("/heist/goroutines/overflowed:goroutines");
        assert_eq!(overflowed, Some(times() as u64));
    });
    ended.succeeded();
}

/// DL-08: the report names the goroutine, its name, where it was spawned and how large its stack is.
#[test]
fn the_report_says_who_and_where() {
    let ended = child::run("the_report_says_who_and_where", || {
        matrix::plain(1).run(|| {
            let builder = Builder::new().name("digger").stack_size(64 << 10);
            let line = line!() + 1;
            let handle = builder.spawn(|| forever(0)).unwrap();
            let id = handle.id();
            assert!(handle.join().unwrap_err().is_stack_overflow());
            eprintln!("expected: goroutine {id} (digger) overflowed its stack of 65536 bytes");
            eprintln!("expected: {}:{line}:", file!());
        });
    });
    ended.succeeded();
    let expected = |line: &str| line.strip_prefix("expected: ").map(str::to_owned);
    let expected: Vec<_> = ended.stderr.lines().filter_map(expected).collect();
    assert_eq!(expected.len(), 2);
    for text in expected {
        let times = ended.stderr.matches(&text).count();
        assert_eq!(times, 2, "{text} in\n{}", ended.stderr);
    }
    ended.said("by goroutine 1");
}

/// Every size of stack ends in its guard, also the largest frames jump no further than that.
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
    let ended = child::run("every_stack_has_its_guard", || {
        for case in matrix::cases_with(&[1, 2]) {
            matrix::each_of(&[case], |_, rt| {
                rt.run(|| {
                    for shift in 15..24 {
                        let sized = || Builder::new().stack_size(1 << shift);
                        let small = sized().spawn(|| forever(0)).unwrap();
                        let large = sized().spawn(|| large_frames(0)).unwrap();
                        assert!(small.join().unwrap_err().is_stack_overflow());
                        assert!(large.join().unwrap_err().is_stack_overflow());
                    }
                });
            });
        }
    });
    ended.succeeded();
}

/// The handle may be gone, the closure may own things, others may wait: nothing but the goroutine
/// is lost.
#[test]
fn what_the_goroutine_held_harms_nobody() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let ended = child::run("what_the_goroutine_held_harms_nobody", || {
        for case in matrix::cases_with(&[1, 2, 4]) {
            matrix::each_of(&[case], |_, rt| {
                rt.run(|| {
                    let drops = Arc::new(AtomicUsize::new(0));
                    for large in [false, true] {
                        let counted = Counted(Arc::clone(&drops));
                        let filler = [1_u64; 32];
                        let handle = if large {
                            go(move || {
                                let _held = (&counted, filler);
                                forever(0)
                            })
                        } else {
                            go(move || {
                                let _held = &counted;
                                forever(0)
                            })
                        };
                        // Somebody else waits for it and gets the news.
                        let waiter = go(move || handle.join().unwrap_err().is_stack_overflow());
                        assert!(waiter.join().unwrap());
                        drop(go(|| forever(0)));
                    }
                    matrix::yield_until("all ended", || heist::num_goroutines() == 1);
                    assert_eq!(drops.load(Ordering::SeqCst), 2);
                    // Records are reused without a trace of it.
                    let sum: u64 = (0..100).map(|i| go(move || i).join().unwrap()).sum();
                    assert_eq!(sum, 4950);
                });
            });
        }
    });
    ended.succeeded();
}

/// A recursion that calls into the runtime at every level overflows there now and then; it still
/// dies alone.
#[test]
fn overflowing_inside_a_runtime_call_dies_alone() {
    fn yields(n: u64) -> u64 {
        let frame = black_box([n; 3]);
        yield_now();
        if n == u64::MAX {
            return 0;
        }
        yields(n + 1) + black_box(frame[1])
    }
    fn spawns(n: u64) -> u64 {
        let frame = black_box([n; 3]);
        let other = go(move || n);
        if n == u64::MAX {
            return 0;
        }
        let deeper = spawns(n + 1);
        other.join().unwrap() + deeper + black_box(frame[1])
    }
    let ended = child::run("overflowing_inside_a_runtime_call_dies_alone", || {
        matrix::plain(2).run(|| {
            for i in 0..40_usize {
                let sized = || Builder::new().stack_size(32 << 10);
                // Different depths of the first frame make the last one end at different places.
                let start = black_box(vec![0_u8; i]);
                let handle = sized().spawn(move || yields(start.len() as u64)).unwrap();
                assert!(handle.join().unwrap_err().is_stack_overflow());
                let handle = sized().spawn(|| spawns(0)).unwrap();
                assert!(handle.join().unwrap_err().is_stack_overflow());
            }
        });
    });
    ended.succeeded();
}

/// A recursion that allocates, formats and takes locks of the standard library at every level
/// overflows inside these now and then; what they had locked is free again.
#[test]
fn overflowing_inside_foreign_code_dies_alone() {
    fn allocates(n: u64) -> usize {
        let text = format!("{n:>width$}", width = (n % 3000) as usize);
        let large = vec![1_u8; 40_000 + (n % 7) as usize];
        if n == u64::MAX {
            return 0;
        }
        allocates(n + 1) + black_box(text).len() + black_box(large).len()
    }
    fn copies(n: u64) -> u64 {
        let (from, mut to) = (black_box([n; 64]), [0; 64]);
        to.copy_from_slice(&from);
        if n == u64::MAX {
            return 0;
        }
        copies(n + 1) + black_box(to)[7]
    }
    let ended = child::run("overflowing_inside_foreign_code_dies_alone", || {
        matrix::plain(2).run(|| {
            for i in 0..100 {
                let sized = || Builder::new().stack_size((32 + i % 5 * 16) << 10);
                let first = sized().spawn(move || allocates(i as u64)).unwrap();
                let second = sized().spawn(move || copies(i as u64)).unwrap();
                assert!(first.join().unwrap_err().is_stack_overflow());
                assert!(second.join().unwrap_err().is_stack_overflow());
            }
        });
        // A plain thread uses the same allocator.
        let thread = std::thread::spawn(|| vec![1_u8; 100_000].len());
        assert_eq!(thread.join().unwrap(), 100_000);
    });
    ended.succeeded();
}

/// Destructors run while an overflow unwinds, and a catch sees it like a panic.
#[test]
fn destructors_run_when_a_stack_overflows() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let ended = child::run("destructors_run_when_a_stack_overflows", || {
        for case in matrix::cases_with(&[1, 2]) {
            matrix::each_of(&[case], |_, rt| {
                rt.run(|| {
                    let drops = Arc::new(AtomicUsize::new(0));
                    let counted = Counted(Arc::clone(&drops));
                    let handle = go(move || {
                        let _counted = counted;
                        forever(0)
                    });
                    assert!(handle.join().unwrap_err().is_stack_overflow());
                    assert_eq!(drops.load(Ordering::SeqCst), 1);
                    // After a catch the goroutine has its stack back, and may do it again.
                    let caught = go(|| {
                        let times = (0..3).map(|_| std::panic::catch_unwind(|| forever(0)));
                        times.filter(Result::is_err).count()
                    });
                    assert_eq!(caught.join().unwrap(), 3);
                });
            });
        }
    });
    ended.succeeded();
}

/// A goroutine that recurses for ever in a destructor while it panics cannot unwind a second time:
/// the process ends, as for any panic in such a destructor, with the report.
#[test]
fn overflowing_while_panicking_ends_the_process() {
    struct Digs;
    impl Drop for Digs {
        fn drop(&mut self) {
            black_box(forever(0));
        }
    }
    let ended = child::run("overflowing_while_panicking_ends_the_process", || {
        matrix::plain(1).run(|| {
            let handle = go(|| {
                let _digs = Digs;
                std::panic::resume_unwind(Box::new(1));
            });
            drop(heist::JoinHandle::<()>::join(handle));
        });
    });
    ended.exited(2);
    ended.said("goroutine 2 overflowed its stack of 262144 bytes");
    ended.said("fatal error: stack overflow");
}

/// A destructor that needs little stack can run while an overflow unwinds, and a panic near the
/// end of a stack comes through with its text, although the hook prints a backtrace.
#[test]
fn a_panic_near_the_end_of_the_stack_comes_through() {
    fn down(n: u32) -> u32 {
        let frame = black_box([n; 32]);
        assert!(n > 0, "at the bottom");
        down(n - 1) + black_box(frame[3])
    }
    for backtrace in ["0", "1"] {
        let ended = child::run_with(
            "a_panic_near_the_end_of_the_stack_comes_through",
            |child| {
                child.env("RUST_BACKTRACE", backtrace);
            },
            || {
                matrix::plain(1).run(|| {
                    let mut texts = std::collections::BTreeSet::new();
                    for depth in (0..1500).step_by(3) {
                        let sized = Builder::new().stack_size(256 << 10);
                        let error = sized.spawn(move || down(depth)).unwrap().join().unwrap_err();
                        assert!(error.is_panic() || error.is_stack_overflow());
                        texts.extend(error.panic_message().map(str::to_owned));
                    }
                    assert!(texts.iter().eq(["at the bottom"]), "{texts:?}");
                });
            },
        );
        ended.succeeded();
    }
}

/// SP-23: a fault that is no goroutine's overflow still ends the process by its signal, on a
/// goroutine and on a plain thread, also when the address is near a goroutine's stack.
#[test]
fn other_faults_still_kill() {
    let ended = child::run("other_faults_still_kill", || {
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
    let ended = child::run("a_fault_of_a_plain_thread_still_kills", || {
        let rt = matrix::plain(1);
        rt.run(|| go(|| ()).join().unwrap());
        // SAFETY: not at all, on purpose: the process has to end here.
        unsafe { black_box(std::ptr::without_provenance_mut::<u8>(8)).write_volatile(1) };
    });
    ended.was_killed_by(libc::SIGSEGV);
}

/// SP-23: a plain thread that recurses for ever gets std's own report and ends the process.
#[test]
fn overflow_of_a_plain_thread_is_reported_by_std() {
    let ended = child::run("overflow_of_a_plain_thread_is_reported_by_std", || {
        let rt = matrix::plain(1);
        rt.run(|| ());
        let name = std::thread::Builder::new().name("plain".into());
        let thread = name.spawn(|| black_box(forever(0))).unwrap();
        drop(thread.join());
    });
    ended.was_killed_by(libc::SIGABRT);
    ended.said("has overflowed its stack");
}

/// The main goroutine may overflow too: `run` says so and the runtime works on.
#[test]
fn main_may_overflow() {
    let ended = child::run("main_may_overflow", || {
        let rt: Runtime = matrix::plain(2);
        let out = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| rt.run(|| forever(0))));
        let text = out.unwrap_err();
        let text = text.downcast_ref::<String>().unwrap();
        assert!(text.contains("overflowed its stack"), "{text}");
        assert_eq!(rt.run(|| 1), 1);
    });
    ended.succeeded();
}

/// SP-23: the scheduler's own stack has a guard too: running over it is reported, once, with the thread's
/// name, and ends the process.
#[test]
fn overflow_of_a_scheduler_stack_is_reported() {
    let ended = child::run("overflow_of_a_scheduler_stack_is_reported", || {
        matrix::plain(2).run(heist::testing::overflow_the_scheduler);
    });
    ended.was_killed_by(libc::SIGABRT);
    let reports = ended.stderr.matches("has overflowed its stack").count();
    assert_eq!(reports, 1, "{}", ended.stderr);
    ended.said("heist-m");
}

/// A frame of the same size on every level.
#[inline(never)]
fn at_depth(depth: usize, f: &mut dyn FnMut()) {
    let frame = black_box([depth; 4]);
    if depth == 0 {
        f()
    } else {
        at_depth(depth - 1, f)
    }
    black_box(frame);
}

/// Calls `at`, which answers whether the stack ran out, for the depths around the first at which it does: so it
/// runs out everywhere in what is called there, inside the runtime too.
fn around_the_end(mut at: impl FnMut(usize) -> bool) {
    const STEP: usize = 32;
    let first = (0..).map(|n| n * STEP).find(|&depth| at(depth)).unwrap();
    let n_overflowed = (first - STEP..first + 2 * STEP).filter(|&depth| at(depth)).count();
    assert!(n_overflowed > STEP, "{n_overflowed}");
}

/// A goroutine whose stack runs out while it waits in a scope, or in `run` of another runtime, is not unwound
/// before the one that borrows from it has ended.
#[test]
fn nobody_is_unwound_before_its_borrowers_have_ended() {
    /// Lives in the frame that could be lent.
    struct Lender(Arc<AtomicBool>);
    impl Drop for Lender {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    /// Lives as long as the one that could borrow, however that ends.
    struct Borrower(Arc<AtomicBool>, Arc<AtomicUsize>);
    impl Drop for Borrower {
        fn drop(&mut self) {
            let lends = self.0.load(Ordering::SeqCst);
            self.1.fetch_add(usize::from(!lends), Ordering::SeqCst);
        }
    }
    let ended = child::run("nobody_is_unwound_before_its_borrowers_have_ended", || {
        let (rt, other) = (matrix::plain(2), matrix::plain(1));
        let n_orphans = Arc::new(AtomicUsize::new(0));
        let lend = |wait: &(dyn Fn(Borrower) + Sync)| {
            around_the_end(|depth| {
                let lives = Arc::new(AtomicBool::new(true));
                heist::scope(|scope| {
                    let lends = Builder::new().stack_size(32 << 10).spawn_scoped(scope, || {
                        at_depth(depth, &mut || {
                            let _lender = Lender(Arc::clone(&lives));
                            wait(Borrower(Arc::clone(&lives), Arc::clone(&n_orphans)));
                        });
                    });
                    lends.unwrap().join().is_err_and(|error| error.is_stack_overflow())
                })
            });
        };
        let borrow = |borrower: Borrower| {
            // Longer than it takes to unwind its lender.
            heist::time::sleep(std::time::Duration::from_millis(5));
            drop(borrower);
        };
        rt.run(|| {
            lend(&|borrower| other.run(|| borrow(borrower)));
            lend(&|borrower| heist::scope(|scope| drop(scope.go(|| borrow(borrower)))));
        });
        // Whoever nobody waited for ends here.
        drop((rt, other));
        assert_eq!(n_orphans.load(Ordering::SeqCst), 0);
    });
    ended.succeeded();
}

/// A message that a select has sent is not dropped again if its stack runs out on the way back.
#[test]
fn a_message_of_a_select_is_dropped_once() {
    let ended = child::run("a_message_of_a_select_is_dropped_once", || {
        struct Message(Arc<AtomicUsize>);
        impl Drop for Message {
            fn drop(&mut self) {
                self.0.fetch_add(1, Ordering::SeqCst);
            }
        }
        matrix::plain(2).run(|| {
            around_the_end(|depth| {
                let drops = Arc::new(AtomicUsize::new(0));
                let (tx, rx) = heist::chan::bounded::<Message>(0);
                let (_open, never) = heist::chan::bounded::<u8>(0);
                let message = Arc::clone(&drops);
                let receives = go(move || {
                    // It waits first, mostly.
                    for _ in 0..3 {
                        yield_now();
                    }
                    drop(rx.recv());
                });
                let sends = Builder::new().stack_size(32 << 10).spawn(move || {
                    at_depth(depth, &mut || {
                        heist::select! {
                            send(tx, Message(Arc::clone(&message))) -> sent => drop(sent),
                            recv(never) -> _ => unreachable!(),
                        }
                    });
                });
                let ended = sends.unwrap().join();
                receives.join().unwrap();
                assert!(drops.load(Ordering::SeqCst) <= 1, "depth {depth}");
                ended.is_err_and(|error| error.is_stack_overflow())
            });
        });
    });
    ended.succeeded();
}

//! Code that preemption by a signal must not break, and the guard against it.

use crate::child;
use crate::matrix;

use heist::{Runtime, go, no_preempt};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// A runtime whose slices are so short that everything below is interrupted.
fn runtime(procs: usize) -> Runtime {
    matrix::start(Runtime::builder().procs(procs).quantum(Duration::from_micros(500)))
}

fn forced(rt: &Runtime) -> u64 {
    rt.metrics().get("/heist/preempt/forced:events").unwrap()
}

/// Computes without a call for `time`.
fn compute(time: Duration) {
    let from = Instant::now();
    while from.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// While the guard lives no other goroutine runs on the only processor, although one waits; once it
/// is dropped, the goroutine is preempted again. Guards nest, in any order.
#[test]
fn a_guard_keeps_the_signal_away() {
    let rt = runtime(1);
    rt.run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU64::new(0));
        let other = {
            let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
            go(move || {
                while !stop.load(Ordering::Relaxed) {
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let seen = || turns.load(Ordering::Relaxed);
        // It runs from time to time.
        while seen() == 0 {
            std::hint::spin_loop();
        }
        let (first, second) = (no_preempt(), no_preempt());
        let before = seen();
        compute(Duration::from_millis(30));
        drop(first);
        compute(Duration::from_millis(30));
        let after = seen();
        // A thread that sleeps loses its processor, with a guard or without.
        let sleeps = "a thread that waits for its locks looks asleep";
        if after == before || !matrix::emulator::cannot_show(sleeps) {
            assert_eq!(after, before, "stopped while a guard was held");
        }
        drop(second);
        while seen() == after {
            std::hint::spin_loop();
        }
        stop.store(true, Ordering::Relaxed);
        other.join().unwrap();
    });
    assert!(forced(&rt) > 0);
}

/// The guard belongs to its goroutine, which may park with it; others are preempted as before. On a
/// plain thread it does nothing.
#[test]
fn a_guard_belongs_to_its_goroutine() {
    drop(no_preempt());
    let rt = runtime(1);
    rt.run(|| {
        let _guard = no_preempt();
        let stop = Arc::new(AtomicBool::new(false));
        let hog = {
            let stop = Arc::clone(&stop);
            go(move || while !stop.load(Ordering::Relaxed) {})
        };
        // Returns only if the hog is preempted: by a signal, unless it was asked to yield before it
        // began.
        matrix::yield_until("it was stopped", || forced(&rt) > 0);
        stop.store(true, Ordering::Relaxed);
        hog.join().unwrap();
    });
}

/// Without forced preemption no signal is sent.
#[test]
fn a_runtime_can_do_without_signals() {
    let builder = Runtime::builder().procs(1).quantum(Duration::from_micros(500));
    let rt = matrix::start(builder.forced_preemption(false));
    rt.run(|| {
        let waits = go(|| ());
        compute(Duration::from_millis(20));
        assert!(!waits.is_finished());
        waits.join().unwrap();
    });
    assert_eq!(rt.metrics().get("/heist/preempt/signals:events"), Some(0));
    assert_eq!(forced(&rt), 0);
}

static HANDLED: AtomicU64 = AtomicU64::new(0);

extern "C" fn count_signal(_: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::SeqCst);
}

/// A program's own handler for the signal gets those that are not the scheduler's, also on threads
/// that run goroutines and also while the scheduler uses the signal itself.
#[test]
fn a_users_handler_is_chained() {
    let ended = child::run(|| {
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGURG, count_signal as *const () as usize) };
        let rt = runtime(1);
        let handled = || HANDLED.load(Ordering::SeqCst);
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hog = {
                let stop = Arc::clone(&stop);
                go(move || while !stop.load(Ordering::Relaxed) {})
            };
            for _ in 0..5 {
                heist::yield_now();
            }
            // From outside, to the process: whichever thread gets it.
            for _ in 0..20 {
                let before = handled();
                // SAFETY: sends a signal that has a handler.
                assert_eq!(unsafe { libc::kill(libc::getpid(), libc::SIGURG) }, 0);
                matrix::eventually("the handler's call", || handled() > before);
            }
            stop.store(true, Ordering::Relaxed);
            hog.join().unwrap();
        });
        // To a thread that is not the runtime's.
        let before = handled();
        // SAFETY: sends the calling thread a signal that has a handler.
        assert_eq!(unsafe { libc::raise(libc::SIGURG) }, 0);
        assert_eq!(handled(), before + 1);
        assert!(forced(&rt) > 0, "the scheduler did not use it");
    });
    ended.succeeded();
}

/// Child processes started from goroutines that are interrupted all the time run, are waited for
/// and give their output.
#[test]
fn child_processes_work() {
    // Seen: the child slept in qemu's own code, for a lock that another thread held at the fork.
    if matrix::emulator::cannot_show("it may hang in a child of a program with busy threads") {
        return;
    }
    for procs in [1, 2] {
        let rt = runtime(procs);
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..2)
                .map(|_| {
                    let stop = Arc::clone(&stop);
                    go(move || while !stop.load(Ordering::Relaxed) {})
                })
                .collect();
            let runs: Vec<_> = (0..10)
                .map(|i| {
                    go(move || {
                        let mut command = Command::new("sh");
                        command.args(["-c", "read line; echo got $line; exit 3"]);
                        let mut child =
                            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
                        compute(Duration::from_millis(1));
                        let mut input = child.stdin.take().unwrap();
                        std::io::Write::write_all(&mut input, format!("{i}\n").as_bytes()).unwrap();
                        drop(input);
                        let output = child.wait_with_output().unwrap();
                        assert_eq!(output.status.code(), Some(3));
                        assert_eq!(output.stdout, format!("got {i}\n").as_bytes());
                    })
                })
                .collect();
            runs.into_iter().for_each(|run| run.join().unwrap());
            stop.store(true, Ordering::Relaxed);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
        });
    }
}

/// A fork without exec: the child has one thread, that of its goroutine, and ends normally.
#[test]
fn a_fork_inside_a_goroutine_works() {
    let rt = runtime(2);
    rt.run(|| {
        for code in 0..5 {
            // SAFETY: the child calls nothing but _exit.
            let child = unsafe { libc::fork() };
            if child == 0 {
                // SAFETY: as above.
                unsafe { libc::_exit(code) };
            }
            let mut status = 0;
            // SAFETY: `status` is valid for the answer. A signal may interrupt the wait.
            while unsafe { libc::waitpid(child, &raw mut status, 0) } != child {}
            assert!(libc::WIFEXITED(status));
            assert_eq!(libc::WEXITSTATUS(status), code);
        }
    });
}

/// Changing the user of a process needs a response from every thread of it, including preempted
/// ones.
#[test]
fn setuid_reaches_frozen_threads() {
    let ended = child::run(|| {
        let rt = runtime(1);
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let hogs: Vec<_> = (0..5)
                .map(|_| {
                    let stop = Arc::clone(&stop);
                    go(move || while !stop.load(Ordering::Relaxed) {})
                })
                .collect();
            for _ in 0..5 {
                heist::yield_now();
                // SAFETY: changes nothing: it is this user already.
                unsafe { assert_eq!(libc::setuid(libc::getuid()), 0) };
            }
            stop.store(true, Ordering::Relaxed);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
        });
        assert!(forced(&rt) > 0);
    });
    ended.succeeded();
}

/// A guard that was left in a thread-local means nothing to a goroutine of another runtime, though
/// that may have the same record and the same number.
#[test]
fn a_guard_of_another_runtime_counts_nothing() {
    thread_local! {
        static LEFT: std::cell::Cell<Option<heist::goroutine::NoPreempt>> = const { std::cell::Cell::new(None) };
    }
    for _ in 0..20 {
        runtime(1).run_here(|| {
            drop(LEFT.take());
            LEFT.set(Some(no_preempt()));
        });
    }
    LEFT.take();
}

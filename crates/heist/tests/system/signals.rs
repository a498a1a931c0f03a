//! Signals as messages. Each test runs in a process of its own, because signals belong to the
//! process.

use crate::child;
use crate::matrix;

use heist::signal::{self, Signal};
use std::io::ErrorKind;
use std::process::Command;

fn send(signal: &str) {
    let own = std::process::id().to_string();
    assert!(Command::new("kill").args([signal, &own]).status().expect("kill runs").success());
}

#[test]
fn signals_reach_every_subscriber() {
    let ended = child::run(|| {
        let both = signal::notify(&[signal::USER1, signal::USER2]).expect("asks");
        let rt = matrix::plain(2);
        rt.run(|| {
            let one = signal::notify(&[signal::USER1]).expect("asks");
            let waiting = heist::go(move || one.recv());
            send("-USR1");
            assert_eq!(waiting.join().expect("ends well"), Ok(signal::USER1));
            send("-USR2");
            assert_eq!(both.recv(), Ok(signal::USER1));
            assert_eq!(both.recv(), Ok(signal::USER2));
        });
    });
    ended.succeeded();
}

#[test]
fn ctrl_c_is_waited_for() {
    let ended = child::run(|| {
        let rt = matrix::plain(1);
        rt.run(|| {
            // This one keeps the signal from ending the process before the other asks for it.
            let first = signal::notify(&[signal::INTERRUPT]).expect("asks");
            let waiting = heist::go(signal::ctrl_c);
            matrix::yield_until("it was seen", || {
                send("-INT");
                waiting.is_finished()
            });
            waiting.join().expect("ends well").expect("it came");
            assert_eq!(first.recv(), Ok(signal::INTERRUPT));
            // A surplus signal may still be pending.
            std::mem::forget(first);
        });
    });
    ended.succeeded();
}

/// When the last subscription is dropped, the signal does what it did before.
#[test]
fn dropping_restores_the_previous_action() {
    let ended = child::run(|| {
        let signals = signal::notify(&[signal::TERMINATE]).expect("asks");
        send("-TERM");
        assert_eq!(signals.recv(), Ok(signal::TERMINATE));
        drop(signals);
        send("-TERM");
        loop {
            std::thread::park();
        }
    });
    ended.was_killed_by(signal::TERMINATE.as_raw());
}

#[test]
fn some_signals_are_refused() {
    for number in [9, 11, 19, 23, 0, -1, 65] {
        let error = signal::notify(&[Signal::from_raw(number)]).expect_err("refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput, "{number}");
    }
}

/// SP-22: a program that a signal ends reports that signal, also while goroutines are preempted by
/// another one.
#[test]
fn a_program_is_ended_by_the_signal_it_got() {
    for number in [libc::SIGTERM, libc::SIGUSR1, libc::SIGTRAP, libc::SIGABRT] {
        let prepare = |command: &mut Command| {
            command.env("HEIST_TEST_SIGNAL", number.to_string());
        };
        let ended = child::run_with(prepare, || {
            let number = std::env::var("HEIST_TEST_SIGNAL").expect("a number");
            let number: i32 = number.parse().expect("a number");
            let rt = matrix::start(heist::Runtime::builder().procs(1));
            rt.run(|| {
                for _ in 0..3 {
                    heist::go(|| {
                        loop {
                            std::hint::spin_loop();
                        }
                    });
                }
                matrix::yield_until("one was preempted", || {
                    rt.metrics().get("/heist/preempt/forced:events").is_some_and(|n| n > 3)
                });
                // SAFETY: it ends the process.
                unsafe { libc::kill(libc::getpid(), number) };
                loop {
                    std::thread::park();
                }
            });
        });
        ended.was_killed_by(number);
    }
}

/// SP-22: a signal that the program ignores stays ignored.
#[test]
fn an_ignored_signal_stays_ignored() {
    let ended = child::run(|| {
        // SAFETY: a setting of the process.
        unsafe { libc::signal(libc::SIGTRAP, libc::SIG_IGN) };
        let rt = matrix::plain(2);
        rt.run(|| {
            for _ in 0..10 {
                // SAFETY: it is ignored.
                unsafe { libc::kill(libc::getpid(), libc::SIGTRAP) };
                heist::yield_now();
            }
        });
        // SAFETY: only reads the action of the signal.
        assert_eq!(unsafe { libc::signal(libc::SIGTRAP, libc::SIG_DFL) }, libc::SIG_IGN);
    });
    ended.succeeded();
}

/// SP-22: a signal that is sent to one thread arrives on that thread, next to preemptions of the
/// same thread by the runtime's own signal.
#[test]
fn a_signal_to_a_thread_arrives_there() {
    use std::sync::atomic::{AtomicI32, AtomicU32, Ordering};
    static SEEN: AtomicI32 = AtomicI32::new(0);
    static COUNT: AtomicU32 = AtomicU32::new(0);
    extern "C" fn note(_: libc::c_int) {
        // SAFETY: only reads the current action.
        SEEN.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    let ended = child::run(|| {
        // SAFETY: the handler writes two words.
        unsafe { libc::signal(libc::SIGUSR2, note as extern "C" fn(libc::c_int) as usize) };
        let builder = heist::Runtime::builder().procs(1);
        let rt = matrix::start(builder.quantum(std::time::Duration::from_micros(500)));
        rt.run(|| {
            let others: Vec<_> = (0..2)
                .map(|_| {
                    heist::go(|| {
                        while COUNT.load(Ordering::Relaxed) < 100 {
                            std::hint::spin_loop();
                        }
                    })
                })
                .collect();
            let _guard = heist::lock_os_thread();
            for n in 0..100 {
                // SAFETY: reads the current action, and sends a signal that is handled.
                let own = unsafe {
                    let own = libc::gettid();
                    libc::syscall(libc::SYS_tgkill, libc::getpid(), own, libc::SIGUSR2);
                    own
                };
                matrix::yield_until("it came", || COUNT.load(Ordering::Relaxed) == n + 1);
                assert_eq!(SEEN.load(Ordering::Relaxed), own);
            }
            others.into_iter().for_each(|other| other.join().expect("ends well"));
        });
    });
    ended.succeeded();
}

/// A handler of somebody else that interrupts system calls, and hits the thread that passes signals
/// on, does not end that thread: signals still come.
#[test]
fn an_interrupted_reader_goes_on() {
    use std::sync::atomic::{AtomicU32, Ordering};
    static COUNT: AtomicU32 = AtomicU32::new(0);
    extern "C" fn note(_: libc::c_int) {
        COUNT.fetch_add(1, Ordering::Relaxed);
    }
    let ended = child::run(|| {
        let signals = signal::notify(&[signal::USER1]).expect("asks");
        let mut reader = None;
        matrix::yield_until("the reader has its name", || {
            reader = thread_called("heist-signals");
            reader.is_some()
        });
        // SAFETY: zeroes are an action; the handler changes a number. Without SA_RESTART, a read
        // fails.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = note as extern "C" fn(libc::c_int) as usize;
            assert_eq!(libc::sigaction(libc::SIGUSR2, &raw const action, std::ptr::null_mut()), 0);
        }
        for n in 0..20 {
            // SAFETY: sends a signal that is handled.
            unsafe {
                libc::syscall(libc::SYS_tgkill, libc::getpid(), reader.unwrap(), libc::SIGUSR2)
            };
            matrix::yield_until("it was interrupted", || COUNT.load(Ordering::Relaxed) == n + 1);
            send("-USR1");
            let patience = std::time::Duration::from_secs(60);
            assert_eq!(signals.recv_timeout(patience), Ok(signal::USER1));
        }
    });
    ended.succeeded();
}

/// The number of the thread of this process that has this name.
fn thread_called(name: &str) -> Option<i32> {
    let threads = std::fs::read_dir("/proc/self/task").expect("proc is mounted");
    threads.flatten().find_map(|thread| {
        let comm = std::fs::read_to_string(thread.path().join("comm")).ok()?;
        (comm.trim_end() == name).then(|| thread.file_name().to_str()?.parse().ok()).flatten()
    })
}

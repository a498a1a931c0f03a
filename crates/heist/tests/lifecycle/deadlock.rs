//! Deadlocks: nothing can ever happen again, and the process reports that and ends.
//!
//! The detector is silent while the process has a thread that is not the runtime's, and a test
//! harness is one. So each scene runs in its own process, before `main` and thus before the
//! harness.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{Runtime, go};
use std::process::Output;
use std::time::{Duration, Instant};

const SCENE: &str = "HEIST_TEST_SCENE";

const SCENES: &[(&str, fn())] = &[
    ("wait_group", || run(1, || stuck().wait())),
    ("two_procs", || run(2, || stuck().wait())),
    ("join", || {
        run(2, || {
            let group = stuck();
            go(move || group.wait()).join().unwrap();
        });
    }),
    ("reasons", || {
        run(2, || {
            use heist::chan;
            let (sender, receiver) = chan::bounded::<u8>(0);
            go(move || receiver.recv());
            std::mem::forget(sender);
            let (sender, receiver) = chan::bounded::<u8>(0);
            go(move || sender.send(1));
            std::mem::forget(receiver);
            go(|| chan::never::<u8>().recv());
            let (sender, receiver) = chan::bounded::<u8>(1);
            go(move || {
                heist::select! {
                    recv(receiver) -> _ => {}
                    recv(chan::never::<u8>()) -> _ => {}
                }
            });
            std::mem::forget(sender);
            let mutex = std::sync::Arc::new(heist::sync::Mutex::new(()));
            let held = mutex.clone();
            std::mem::forget(held.lock());
            go(move || drop(mutex.lock()));
            stuck().wait();
        });
    }),
    ("crowd", || {
        run(4, || {
            for _ in 0..5 {
                let group = stuck();
                go(move || group.wait());
            }
            stuck().wait();
        });
    }),
    ("comes_back_during_the_look", || {
        run(1, || {
            let (ask, asked) = heist::chan::bounded::<u64>(0);
            let (answer, answered) = heist::chan::bounded::<()>(0);
            // The first record is checked last.
            go(move || {
                for i in &asked {
                    // Another goroutine wants the P, so that it is taken and idle when the call
                    // lasts long.
                    go(|| ());
                    let pause = Duration::from_micros(50_000 + i * 7919 % 20_000);
                    heist::blocking(|| std::thread::sleep(pause));
                    answer.send(()).unwrap();
                }
            });
            let group = WaitGroup::new();
            (0..150_000).for_each(|_| group.go(heist::yield_now));
            group.wait();
            // A record among the last, which are checked first.
            let before: Vec<_> = (0..100_000).map(|_| go(|| ())).collect();
            let asks = go(move || {
                for i in 0..50 {
                    ask.send(i).unwrap();
                    answered.recv().unwrap();
                    heist::blocking(|| std::thread::sleep(Duration::from_millis(20)));
                }
            });
            drop(before);
            asks.join().unwrap();
        });
        std::process::exit(7);
    }),
    ("locked", || {
        run(2, || {
            let group = stuck();
            let waits = group.clone();
            let own = heist::goroutine::Builder::new().os_thread();
            drop(own.spawn(move || waits.wait()).unwrap());
            let _guard = heist::lock_os_thread();
            group.wait();
        });
    }),
    ("sleeper", || {
        run(2, || {
            let group = stuck();
            let done = group.clone();
            go(move || {
                heist::time::sleep(Duration::from_millis(400));
                done.done();
            });
            group.wait();
        });
        std::process::exit(7);
    }),
    ("sleeper_that_does_not_help", || {
        run(2, || {
            go(|| heist::time::sleep(Duration::from_millis(300)));
            stuck().wait();
        });
    }),
    ("pending_function", || {
        run(1, || {
            let group = stuck();
            let done = group.clone();
            heist::time::after_func(Duration::from_millis(300), move || done.done());
            group.wait();
        });
        std::process::exit(7);
    }),
    ("blocked_in_the_kernel", || {
        run(1, || {
            let group = stuck();
            let done = group.clone();
            go(move || {
                std::thread::sleep(Duration::from_millis(400));
                done.done();
            });
            group.wait();
        });
        std::process::exit(7);
    }),
    ("announced", || {
        run(2, || {
            let group = stuck();
            let done = group.clone();
            go(move || {
                heist::blocking(|| std::thread::sleep(Duration::from_millis(400)));
                done.done();
            });
            group.wait();
        });
        std::process::exit(7);
    }),
    ("foreign_thread", || {
        run(2, || {
            let group = stuck();
            let done = group.clone();
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(400));
                done.done();
            });
            group.wait();
        });
        std::process::exit(7);
    }),
    ("first_thread", || {
        let is_first = || {
            // SAFETY: both calls only return a value.
            unsafe { libc::gettid() == libc::getpid() }
        };
        assert!(is_first());
        let rt = matrix::start(Runtime::builder().procs(2));
        for round in 0..3 {
            let hogs = [(); 3].map(|()| rt.handle().spawn(|| hog_for(REST)));
            let n = rt.run_here(|| {
                for _ in 0..20 {
                    assert!(is_first());
                    heist::yield_now();
                    assert!(!go(is_first).join().unwrap());
                    heist::time::sleep(Duration::from_micros(100));
                    heist::blocking(|| assert!(is_first()));
                }
                hog_for(REST);
                assert!(is_first());
                round
            });
            assert_eq!(n, round);
            hogs.into_iter().for_each(|hog| hog.join().unwrap());
        }
        // It is a plain thread again.
        assert!(!rt.run(is_first));
        std::process::exit(7);
    }),
    ("first_thread_waits_for_ever", || {
        matrix::start(Runtime::builder().procs(2)).run_here(|| stuck().wait());
    }),
    ("late_runner", || {
        extern "C" fn slow(_: libc::c_int) {
            std::thread::sleep(5 * REST);
        }
        let rt = matrix::start(Runtime::builder().procs(2));
        let (tx, rx) = heist::chan::unbounded::<u8>();
        let receives = rt.handle().spawn(move || rx.iter().count());
        // SAFETY: the handler sleeps and does nothing else; the thread outlives the signals that
        // are sent to it.
        let main = unsafe {
            libc::signal(libc::SIGUSR2, slow as extern "C" fn(libc::c_int) as libc::sighandler_t);
            libc::pthread_self()
        };
        // SAFETY: as above.
        rt.run(move || assert_eq!(unsafe { libc::pthread_kill(main, libc::SIGUSR2) }, 0));
        tx.send(1).unwrap();
        drop(tx);
        assert_eq!(receives.join().unwrap(), 1);
        std::process::exit(7);
    }),
    ("the_longest_sleep", || {
        extern "C" fn leave(_: libc::c_int) {
            // SAFETY: it may be called in a handler.
            unsafe { libc::_exit(7) };
        }
        // SAFETY: the handler ends the process and does nothing else.
        unsafe {
            libc::signal(libc::SIGALRM, leave as extern "C" fn(libc::c_int) as libc::sighandler_t);
            libc::alarm(1);
        }
        run(2, || {
            go(|| heist::time::sleep(Duration::MAX));
            let (_tx, rx) = heist::chan::bounded::<u8>(0);
            rx.recv_timeout(Duration::MAX).unwrap();
        });
    }),
    ("the_farthest_timer", || {
        extern "C" fn leave(_: libc::c_int) {
            // SAFETY: it may be called in a handler.
            unsafe { libc::_exit(7) };
        }
        // SAFETY: the handler ends the process and does nothing else.
        unsafe {
            libc::signal(libc::SIGALRM, leave as extern "C" fn(libc::c_int) as libc::sighandler_t);
            libc::alarm(1);
        }
        run(2, || {
            heist::time::Timer::new(Duration::MAX).receiver().recv().unwrap();
        });
    }),
    ("caught", || {
        run(1, || {
            let caught = std::panic::catch_unwind(|| stuck().wait());
            std::process::exit(if caught.is_err() { 7 } else { 8 });
        });
    }),
    ("signals_came_and_went", || {
        run(2, || {
            let user = heist::signal::notify(&[heist::signal::USER1]).unwrap();
            let terminate = heist::signal::notify(&[heist::signal::TERMINATE]).unwrap();
            drop((user, terminate));
            stuck().wait();
        });
    }),
    ("a_signal_may_come", || {
        let signals = heist::signal::notify(&[heist::signal::USER1]).unwrap();
        run(2, || {
            let sends = go(|| {
                heist::time::sleep(Duration::from_millis(300));
                // SAFETY: the signal is caught.
                unsafe { libc::raise(libc::SIGUSR1) };
                stuck().wait();
            });
            assert_eq!(signals.recv(), Ok(heist::signal::USER1));
            drop(sends);
        });
        std::process::exit(7);
    }),
    ("threads_come_and_go", || {
        run(2, || {
            for round in 1..6 {
                let calls: Vec<_> = (0..3 * round)
                    .map(|_| go(|| heist::blocking(|| std::thread::sleep(REST))))
                    .collect();
                calls.into_iter().for_each(|call| call.join().unwrap());
            }
        });
        std::process::exit(7);
    }),
    ("locked_and_woken", || {
        run(2, || {
            use std::io::{Read, Write};
            let _guard = heist::lock_os_thread();
            for _ in 0..3 {
                heist::time::sleep(REST);
                let (mut reader, mut writer) = heist::net::pipe().unwrap();
                go(move || {
                    heist::blocking(|| std::thread::sleep(REST));
                    writer.write_all(&[1]).unwrap();
                });
                reader.read_exact(&mut [0]).unwrap();
            }
        });
        std::process::exit(7);
    }),
    ("second_runtime", || {
        let other = matrix::start(Runtime::builder().procs(1));
        let handle = other.handle();
        run(1, move || {
            let group = stuck();
            let done = group.clone();
            handle.spawn(move || {
                heist::time::sleep(Duration::from_millis(300));
                done.done();
            });
            group.wait();
        });
        drop(other);
        std::process::exit(7);
    }),
    ("beside_a_debug_server", || {
        matrix::start(Runtime::builder().procs(2)).run(|| {
            let server = heist::debug::serve("127.0.0.1:0").expect("it serves");
            let addr = server.local_addr().expect("a TCP address");
            // A client that says nothing is connected.
            let client = std::net::TcpStream::connect(addr).expect("it listens");
            stuck().wait();
            drop(client);
        });
    }),
    ("main_has_left", || {
        matrix::start(Runtime::builder().procs(2)).run_main(|| {
            go(|| stuck().wait());
            heist::exit_current();
        });
    }),
    ("switched_off", || {
        let rt = matrix::start(Runtime::builder().procs(1).deadlock_detection(false));
        std::panic::set_hook(Box::new(|_| ()));
        let alarm = std::time::Instant::now();
        rt.run(|| {
            go(|| stuck().wait());
            heist::time::sleep(Duration::from_millis(300));
        });
        assert!(alarm.elapsed() >= Duration::from_millis(300));
        std::process::exit(7);
    }),
    ("abandoned_in_a_scope", || {
        abandoning().run(|| heist::scope(|scope| drop(scope.go(|| forever(0)).join())));
    }),
    ("abandoned_main", || {
        abandoning().run(|| forever(0));
    }),
    ("abandoned_on_the_first_thread", || {
        abandoning().run_here(|| forever(0));
    }),
    ("abandoned_and_joined", || {
        let rt = abandoning();
        rt.run(|| {
            assert!(go(|| forever(0)).join().unwrap_err().is_stack_overflow());
            // Long enough for the detector to run.
            heist::time::sleep(2 * REST);
        });
        drop(rt);
        std::process::exit(7);
    }),
    ("nobody_waits_for_it", || {
        let rt = matrix::start(Runtime::builder().procs(1));
        rt.run(|| {
            go(|| stuck().wait());
            heist::yield_now();
        });
        std::thread::sleep(Duration::from_millis(300));
        std::process::exit(7);
    }),
];

fn abandoning() -> Runtime {
    matrix::start(Runtime::builder().procs(2).overflow_policy(heist::OverflowPolicy::Abandon))
}

#[inline(never)]
fn forever(n: u64) -> u64 {
    let frame = std::hint::black_box([n; 16]);
    if n == u64::MAX { 0 } else { forever(n + 1).wrapping_add(std::hint::black_box(frame)[5]) }
}

fn hog_for(time: Duration) {
    let from = Instant::now();
    while from.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Longer than all Ps must be idle until the detector runs.
const REST: Duration = Duration::from_millis(80);

fn run(procs: usize, main: impl FnOnce() + Send) {
    matrix::start(Runtime::builder().procs(procs)).run(main);
}

/// Something that is never done.
fn stuck() -> WaitGroup {
    let group = WaitGroup::new();
    group.add(1);
    group
}

extern "C" fn play() {
    let Ok(wanted) = std::env::var(SCENE) else { return };
    for (name, scene) in SCENES {
        if *name == wanted {
            scene();
            std::process::exit(0);
        }
    }
    std::process::exit(99);
}

// SAFETY: the C library calls the functions of this section before `main`, with nothing else
// running.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = play;

fn watch(scene: &str) -> (Output, String, Duration) {
    let start = Instant::now();
    let output =
        matrix::emulator::own_program().env(SCENE, scene).output().expect("it starts again");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text, start.elapsed())
}

#[track_caller]
fn none_is_found() -> bool {
    matrix::emulator::cannot_show(
        "it does not tell how many threads there are, so no deadlock is found",
    )
}

#[track_caller]
fn dies(scene: &str) -> String {
    let (output, text, took) = watch(scene);
    assert_eq!(output.status.code(), Some(2), "{scene}: {text}");
    let first = text.lines().next();
    assert_eq!(first, Some(DEADLOCK), "{scene}: {text}");
    assert!(took < Duration::from_secs(20), "{scene} took {took:?}");
    text
}

/// DL-09: a deadlock is found although a trace runs, and the trace is complete.
#[test]
fn a_deadlock_completes_the_trace() {
    if none_is_found() {
        return;
    }
    let path = std::env::temp_dir().join(format!("heist-deadlock-{}", std::process::id()));
    let mut program = matrix::emulator::own_program();
    let output = program.env(SCENE, "crowd").env("HEIST_TRACE", &path).output();
    let output = output.expect("it starts again");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!((output.status.code(), text.lines().next()), (Some(2), Some(DEADLOCK)), "{text}");
    let bytes = std::fs::read(&path).expect("it was written");
    std::fs::remove_file(&path).expect("it was written");
    let trace = heist_trace::file::Trace::read(&bytes[..], |_| ()).expect("it can be read");
    assert!(trace.is_complete());
    let mut records = trace.blocks.iter().flat_map(|block| &block.records);
    assert!(records.any(|record| record.kind() == Some(heist_trace::record::Kind::GoBlock)));
}

const DEADLOCK: &str = "fatal error: all goroutines are asleep - deadlock!";

/// Values that an abandoned goroutine borrowed stay borrowed: their owner waits forever, and that
/// is reported. While other goroutines run, it is not a deadlock.
#[test]
fn waiting_for_an_abandoned_goroutine_is_a_deadlock() {
    for (scene, lender) in [
        ("abandoned_in_a_scope", "[scope wait]"),
        ("abandoned_main", "[abandoned: stack overflow]"),
        ("abandoned_on_the_first_thread", "[abandoned: stack overflow, locked to thread]"),
    ] {
        let (output, text, _) = watch(scene);
        assert_eq!(output.status.code(), Some(2), "{scene}: {text}");
        for part in [DEADLOCK, lender, "[abandoned: stack overflow"] {
            assert!(text.contains(part), "{scene}: no {part} in {text}");
        }
    }
    let (output, text, _) = watch("abandoned_and_joined");
    assert_eq!(output.status.code(), Some(7), "{text}");
}

#[track_caller]
fn lives(scene: &str) {
    let (output, text, _) = watch(scene);
    assert_eq!(output.status.code(), Some(7), "{scene}: {text}");
    assert_eq!(text, "", "{scene}");
}

/// LT-10: threads that wait with their locked goroutines count as idle.
#[test]
fn blocked_locked_goroutines_are_a_deadlock() {
    if none_is_found() {
        return;
    }
    dies("locked");
}

/// DL-01: the only goroutine blocks forever, on one P and on several.
#[test]
fn a_blocked_only_goroutine_is_a_deadlock() {
    if none_is_found() {
        return;
    }
    for scene in ["wait_group", "two_procs"] {
        let text = dies(scene);
        assert!(text.contains("goroutine 1 [sync.WaitGroup.Wait]:"), "{text}");
        assert!(text.contains("lifecycle/deadlock.rs:"), "the spawn site: {text}");
    }
}

/// DL-05: every goroutine is named with what it waits for.
#[test]
fn the_report_names_every_goroutine_with_a_reason() {
    if none_is_found() {
        return;
    }
    let text = dies("join");
    assert!(text.contains("goroutine 1 [goroutine join]:"), "{text}");
    assert!(text.contains("[sync.WaitGroup.Wait]:\nlifecycle::deadlock::SCENES"), "{text}");
    assert!(text.contains("\ncreated by goroutine 1\n"), "{text}");
    let text = dies("reasons");
    for reason in [
        "chan receive",
        "chan send",
        "chan receive (nil chan)",
        "select",
        "sync.Mutex.Lock",
        "sync.WaitGroup.Wait",
    ] {
        assert!(text.contains(&format!("[{reason}]:")), "{reason} is not in {text}");
    }
    let text = dies("crowd");
    assert_eq!(text.matches("[sync.WaitGroup.Wait]:").count(), 6, "{text}");
}

/// The main goroutine has ended itself, and the goroutines it left behind wait forever.
#[test]
fn goroutines_that_main_left_behind_deadlock() {
    if none_is_found() {
        return;
    }
    let text = dies("main_has_left");
    assert_eq!(text.matches("[sync.WaitGroup.Wait]:").count(), 1, "{text}");
}

/// The thread of a debug server cannot wake a goroutine, so it hides no deadlock.
#[test]
fn a_debug_server_hides_no_deadlock() {
    if none_is_found() {
        return;
    }
    dies("beside_a_debug_server");
}

/// DL-04: a pending timer keeps the detector silent, until it has fired.
#[test]
fn a_pending_timer_is_no_deadlock() {
    lives("sleeper");
    lives("pending_function");
    lives("the_longest_sleep");
    lives("the_farthest_timer");
    if none_is_found() {
        return;
    }
    dies("sleeper_that_does_not_help");
}

/// DL-12: a goroutine in a blocking call, announced or not, is not asleep.
#[test]
fn a_blocking_call_is_not_a_deadlock() {
    lives("blocked_in_the_kernel");
    lives("announced");
}

/// DL-14: whatever the runtime's own threads do when the detector runs (being made, ending,
/// returning from a call or from the network with a locked goroutine), there is no false alarm.
#[test]
fn busy_runtime_threads_are_no_deadlock() {
    lives("threads_come_and_go");
    lives("locked_and_woken");
}

/// DL-14: it is not a deadlock if a goroutine returns from a blocking call while the detector
/// checks the others, wakes one that was checked already and then waits itself.
#[test]
fn a_goroutine_that_returns_during_the_check_is_no_deadlock() {
    lives("comes_back_during_the_look");
}

/// LT-08: a main goroutine that is run on the first thread of the process stays there, whatever it
/// does and however often it is preempted; when it has ended, the thread is as before. Waiting
/// there forever is a deadlock, as elsewhere.
#[test]
fn main_stays_on_the_first_thread() {
    lives("first_thread");
    if none_is_found() {
        return;
    }
    dies("first_thread_waits_for_ever");
}

/// DL-15: a fatal error is not a panic: it cannot be caught, and the exit code is 2.
#[test]
fn a_fatal_error_cannot_be_caught() {
    if none_is_found() {
        return;
    }
    dies("caught");
}

/// PR-20: catching signals does not hide a deadlock once no goroutine waits for a signal; while one
/// does, there is no deadlock.
#[test]
fn catching_signals_does_not_hide_a_deadlock() {
    lives("a_signal_may_come");
    if none_is_found() {
        return;
    }
    dies("signals_came_and_went");
}

/// DL-14: anything else that could wake a goroutine keeps the detector silent.
#[test]
fn external_wakers_keep_the_detector_silent() {
    lives("foreign_thread");
    lives("second_runtime");
    lives("late_runner");
}

/// The detector can be switched off, and needs a goroutine that waits.
#[test]
fn the_detector_can_be_off_and_needs_a_waiter() {
    lives("switched_off");
    lives("nobody_waits_for_it");
}

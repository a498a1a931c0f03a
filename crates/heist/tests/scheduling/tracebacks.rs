//! Stacks of goroutines in dumps: each shows the user's function and line, whatever it does.

use crate::{child, matrix};

use heist::chan::{Receiver, Sender, bounded};
use heist::sync::{Barrier, Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use heist::{dump_goroutines, go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

/// The entry of one goroutine in a dump, without its header.
fn entry(dump: &str, id: impl std::fmt::Display) -> Option<String> {
    let header = format!("goroutine {id} [");
    let start = dump.lines().position(|line| line.starts_with(&header))?;
    let lines: Vec<_> = dump.lines().skip(start + 1).take_while(|line| !line.is_empty()).collect();
    Some(lines.join("\n"))
}

/// The line of the last wait that was about to begin.
static LINE: AtomicU32 = AtomicU32::new(0);

/// Waits in the statement after its call.
macro_rules! next_line {
    () => {
        LINE.store(line!() + 1, Ordering::Relaxed)
    };
}

struct Things {
    rx: Receiver<u8>,
    tx: Sender<u8>,
    gate: WaitGroup,
    mutex: Mutex<()>,
    cond: Condvar,
    rw: RwLock<()>,
    semaphore: Semaphore,
    barrier: Barrier,
}

#[inline(never)]
fn waits_to_receive(things: &Things) {
    next_line!();
    let _ = things.rx.recv();
}

#[inline(never)]
fn waits_to_send(things: &Things) {
    next_line!();
    let _ = things.tx.send(1);
}

#[inline(never)]
fn waits_in_select(things: &Things) {
    next_line!();
    heist::select! { recv(things.rx) -> _ => {} }
}

#[inline(never)]
fn waits_for_mutex(things: &Things) {
    next_line!();
    drop(things.mutex.lock());
}

#[inline(never)]
fn waits_for_cond(things: &Things) {
    let mutex = Mutex::new(());
    let guard = mutex.lock();
    next_line!();
    drop(things.cond.wait(guard));
}

#[inline(never)]
fn waits_to_read(things: &Things) {
    next_line!();
    drop(things.rw.read());
}

#[inline(never)]
fn waits_to_write(things: &Things) {
    next_line!();
    drop(things.rw.write());
}

#[inline(never)]
fn waits_for_semaphore(things: &Things) {
    next_line!();
    drop(things.semaphore.acquire(1));
}

#[inline(never)]
fn waits_for_group(things: &Things) {
    next_line!();
    things.gate.wait();
}

#[inline(never)]
fn waits_at_barrier(things: &Things) {
    next_line!();
    things.barrier.wait();
}

#[inline(never)]
fn sleeps(_: &Things) {
    next_line!();
    heist::time::sleep(Duration::from_secs(3600));
}

#[inline(never)]
fn joins(_: &Things) {
    let handle = go(|| heist::time::sleep(Duration::from_secs(3600)));
    next_line!();
    let _ = handle.join();
}

#[inline(never)]
fn accepts(_: &Things) {
    let listener = heist::net::TcpListener::bind("127.0.0.1:0").unwrap();
    next_line!();
    let _ = listener.accept();
}

/// MT-20: a goroutine that waits shows the function and the line of the call that it waits in, for
/// each kind of wait, at the top of its stack.
#[test]
fn every_kind_of_wait_shows_the_call() {
    type Waits = fn(&Things);
    let waits: [(&str, &str, Waits); 13] = [
        ("chan receive", "waits_to_receive", waits_to_receive),
        ("chan send", "waits_to_send", waits_to_send),
        ("select", "waits_in_select", waits_in_select),
        ("sync.Mutex.Lock", "waits_for_mutex", waits_for_mutex),
        ("sync.Cond.Wait", "waits_for_cond", waits_for_cond),
        ("sync.RWMutex.RLock", "waits_to_read", waits_to_read),
        ("sync.RWMutex.Lock", "waits_to_write", waits_to_write),
        ("semacquire", "waits_for_semaphore", waits_for_semaphore),
        ("sync.WaitGroup.Wait", "waits_for_group", waits_for_group),
        ("barrier wait", "waits_at_barrier", waits_at_barrier),
        ("sleep", "sleeps", sleeps),
        ("goroutine join", "joins", joins),
        ("IO wait", "accepts", accepts),
    ];
    matrix::start(heist::Runtime::builder().procs(2)).run(|| {
        let ((_full, rx), (tx, _rest)) = (bounded(0), bounded(0));
        let gate = WaitGroup::new();
        gate.add(1);
        let (mutex, cond, rw) = (Mutex::new(()), Condvar::new(), RwLock::new(()));
        let (semaphore, barrier) = (Semaphore::new(1), Barrier::new(2));
        let things = Arc::new(Things { rx, tx, gate, mutex, cond, rw, semaphore, barrier });
        let (_held, _written) = (things.mutex.lock(), things.rw.write());
        let _permit = things.semaphore.acquire(1);
        for (reason, function, waits) in waits {
            let mine = Arc::clone(&things);
            let handle = go(move || waits(&mine));
            let header = format!("goroutine {} [{reason}]:", handle.id());
            matrix::yield_until(reason, || dump_goroutines().contains(&header));
            let dump = dump_goroutines();
            let stack = entry(&dump, handle.id()).unwrap();
            let mut lines = stack.lines();
            let name = lines.next().unwrap();
            assert!(name.ends_with(&format!("tracebacks::{function}")), "{reason}:\n{stack}");
            let line = format!("tracebacks.rs:{}", LINE.load(Ordering::Relaxed));
            assert!(lines.next().unwrap().ends_with(&line), "{reason}: {line}\n{stack}");
            assert!(!stack.contains("heist::sched"), "{stack}");
            handle.cancel();
            let _ = handle.join();
        }
    });
}

#[inline(never)]
fn computes(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::hint::spin_loop();
    }
}

#[inline(never)]
fn blocks(over: &AtomicBool) {
    while !over.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Dumps until the entry of the goroutine has `function` in it.
#[track_caller]
fn shows(id: heist::goroutine::GoroutineId, function: &str) {
    let mut last = String::new();
    for _ in 0..1000 {
        last = entry(&dump_goroutines(), id).unwrap();
        if last.contains(function) {
            return;
        }
        yield_now();
    }
    panic!("{function} is not in\n{last}");
}

/// SP-21: goroutines that compute, that are preempted by a signal, that block with or without
/// saying so, and those on another stack or locked to their thread, show their functions too.
#[test]
fn goroutines_with_a_thread_show_their_stack() {
    for procs in [1, 2, 4, 16] {
        let builder = heist::Runtime::builder().procs(procs).quantum(Duration::from_millis(1));
        matrix::start(builder).run(|| {
            let over = AtomicBool::new(false);
            heist::scope(|scope| {
                let over = &over;
                let busy: Vec<_> = (0..4).map(|_| scope.go(|| computes(over))).collect();
                let blocked = scope.go(|| blocks(over));
                let announced = scope.go(|| heist::blocking(|| blocks(over)));
                let larger = scope.go(|| heist::with_stack(1 << 20, || computes(over)));
                let locked = scope.go(|| {
                    let _locked = heist::lock_os_thread();
                    computes(over);
                });
                for goroutine in busy.iter().chain([&larger, &locked]) {
                    shows(goroutine.id(), "tracebacks::computes");
                }
                shows(larger.id(), "with_stack");
                shows(blocked.id(), "tracebacks::blocks");
                shows(announced.id(), "tracebacks::blocks");
                over.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// A blocking call under `no_preempt` does not end early because of a dump.
#[test]
fn a_dump_interrupts_nothing_under_no_preempt() {
    matrix::start(heist::Runtime::builder().procs(2)).run(|| {
        let (began, over) = (AtomicBool::new(false), AtomicBool::new(false));
        heist::scope(|scope| {
            let guarded = scope.go(|| {
                let _guard = heist::no_preempt();
                began.store(true, Ordering::Relaxed);
                // SAFETY: no descriptors are passed.
                let waited = unsafe { libc::poll(std::ptr::null_mut(), 0, 200) };
                over.store(true, Ordering::Relaxed);
                waited
            });
            while !began.load(Ordering::Relaxed) {
                yield_now();
            }
            while !over.load(Ordering::Relaxed) {
                let _ = dump_goroutines();
            }
            assert_eq!(guarded.join().unwrap(), 0, "interrupted");
        });
    });
}

/// The stacks in the report of goroutines that are left behind are read on a stack with room for
/// that, also if the runtime is dropped on a small one.
#[test]
fn goroutines_left_behind_are_reported_from_a_small_stack() {
    let ended = child::run(|| {
        let apart = heist::Runtime::builder().shutdown_timeout(Duration::from_millis(1));
        let apart = matrix::start(apart);
        let (tx, rx) = bounded(0);
        drop(apart.handle().spawn(move || {
            tx.send(()).unwrap();
            std::thread::sleep(Duration::from_secs(600));
        }));
        matrix::start(heist::Runtime::builder()).run(move || {
            rx.recv().unwrap();
            let small = heist::goroutine::Builder::new().stack_size(16 << 10);
            small.spawn(move || drop(apart)).unwrap().join().unwrap();
        });
        std::process::exit(0);
    });
    ended.succeeded();
    ended.said("are left behind");
    ended.said("goroutines_left_behind_are_reported_from_a_small_stack");
}

fn deep(n: u32, rx: &Receiver<u8>) -> u32 {
    if n == 0 {
        let _ = rx.recv();
        return 0;
    }
    1 + std::hint::black_box(deep(n - 1, rx))
}

/// A deep stack shows both ends, and how many frames there are in between.
#[test]
fn a_deep_stack_shows_both_ends() {
    matrix::start(heist::Runtime::builder().procs(1)).run(|| {
        let (_tx, rx) = bounded(0);
        let other = rx.clone();
        let on_own = go(move || deep(500, &other));
        let on_larger = go(move || heist::with_stack(64 << 20, || deep(50_000, &rx)));
        for handle in [on_own, on_larger] {
            let waits = format!("goroutine {} [chan receive", handle.id());
            matrix::yield_until("it waits", || dump_goroutines().contains(&waits));
            let stack = entry(&dump_goroutines(), handle.id()).unwrap();
            assert!(stack.contains(" frames elided..."), "{stack}");
            assert!(stack.starts_with("scheduling::tracebacks::deep\n"), "{stack}");
            assert!(stack.contains("a_deep_stack_shows_both_ends::{{closure}}"), "{stack}");
        }
    });
}

/// A goroutine that has not run yet says so.
#[test]
fn a_goroutine_that_has_not_started_has_no_stack() {
    matrix::start(heist::Runtime::builder().procs(1)).run(|| {
        let new = go(|| ());
        let stack = entry(&dump_goroutines(), new.id()).unwrap();
        assert!(stack.starts_with("\t(not started yet)\ncreated by goroutine 1"), "{stack}");
        new.join().unwrap();
    });
}

/// SP-29, SP-31: stacks are read while goroutines park, wake, yield, block, begin and end.
#[test]
fn stacks_are_read_while_everything_moves() {
    let n_dumps = if matrix::stress_time().is_some() { 5_000 } else { 30 };
    for (procs, chaos) in [(1, None), (2, Some(7)), (4, None), (16, Some(11))] {
        let builder = heist::Runtime::builder().procs(procs).quantum(Duration::from_millis(1));
        let builder = chaos.map_or(builder.clone(), |seed| builder.chaos(seed));
        matrix::start(builder).run(|| {
            let over = AtomicBool::new(false);
            heist::scope(|scope| {
                let over = &over;
                let (tx, rx) = bounded::<u8>(0);
                scope.go(move || while rx.recv().is_ok() {});
                scope.go(move || {
                    while !over.load(Ordering::Relaxed) {
                        tx.send(1).unwrap()
                    }
                });
                scope.go(|| {
                    while !over.load(Ordering::Relaxed) {
                        yield_now()
                    }
                });
                scope.go(|| {
                    while !over.load(Ordering::Relaxed) {
                        go(|| ()).join().unwrap()
                    }
                });
                scope.go(|| computes(over));
                scope.go(|| {
                    while !over.load(Ordering::Relaxed) {
                        heist::with_stack(1 << 20, yield_now);
                        heist::blocking(std::thread::yield_now);
                    }
                });
                for _ in 0..n_dumps {
                    let dump = dump_goroutines();
                    assert!(dump.contains("stacks_are_read_while_everything_moves"), "{dump}");
                    yield_now();
                }
                over.store(true, Ordering::Relaxed);
            });
        });
    }
}

/// SP-21: SIGQUIT shows every goroutine, those that compute too, then ends the process as usual.
#[test]
fn sigquit_shows_all_goroutines() {
    const QUIT: i32 = 3;
    // A shell without job control starts its background jobs with the signal ignored.
    let as_usual = |command: &mut std::process::Command| {
        let default = || {
            // SAFETY: changes the action of one signal.
            unsafe { libc::signal(QUIT, libc::SIG_DFL) };
            Ok(())
        };
        // SAFETY: the function is async-signal-safe.
        unsafe { std::os::unix::process::CommandExt::pre_exec(command, default) };
    };
    let ended = child::run_with(as_usual, || {
        let rt = matrix::start(heist::Runtime::builder().procs(2));
        rt.run(|| {
            let over: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
            let busy = go(|| computes(over));
            let (_tx, rx) = bounded(0);
            let waits = go(move || deep(3, &rx));
            shows(busy.id(), "tracebacks::computes");
            shows(waits.id(), "tracebacks::deep");
            go(|| {
                while !dump_goroutines().contains("[sleep]:") {
                    yield_now();
                }
                let own = std::process::id().to_string();
                std::process::Command::new("kill").args(["-QUIT", &own]).status().unwrap();
            });
            heist::time::sleep(Duration::from_secs(60));
        });
    });
    ended.was_killed_by(QUIT);
    for text in ["SIGQUIT", "[running]:", "tracebacks::computes", "tracebacks::deep", "[sleep]:"] {
        ended.said(text);
    }
}

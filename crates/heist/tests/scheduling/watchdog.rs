//! What `HEIST_DEBUG` lets a runtime report by itself: stuck goroutines, partial deadlocks, and the
//! events before something went wrong.

use crate::child::{self, Ended};
use heist::{Handle, Runtime};
use heist_trace::file::Trace;
use std::hint::spin_loop;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Runs `body` as the main goroutine of a child with this `HEIST_DEBUG`, in a folder of its own.
/// Returns how it ended, and the traces that it left there.
fn run(name: &str, debug: &str, body: impl FnOnce(&Handle) + Send) -> (Ended, Vec<PathBuf>) {
    let folder = format!("heist-watchdog-{}-{name}", std::process::id());
    let folder = std::env::temp_dir().join(folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    let ended = child::run_with(
        |command| {
            command.current_dir(&folder).env("HEIST_DEBUG", debug);
        },
        || {
            // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
            let rt = unsafe { Runtime::builder().procs(2).build() }.expect("it starts");
            let handle = rt.handle();
            rt.run(|| body(&handle));
        },
    );
    let files = std::fs::read_dir(&folder).expect("a folder").flatten().map(|file| file.path());
    (ended, files.collect())
}

/// Checks that there is a trace, and removes the folder.
#[track_caller]
fn has_trace(files: &[PathBuf]) {
    let file = files.first().expect("a trace");
    let bytes = std::fs::read(file).expect("it can be read");
    let trace = Trace::read(&bytes[..], |_| ()).expect("it is a trace");
    assert!(!trace.blocks.is_empty());
    std::fs::remove_dir_all(file.parent().expect("a folder")).expect("it is removed");
}

fn compute_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        spin_loop();
    }
}

#[inline(never)]
fn blocks_its_thread(ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[inline(never)]
fn computes(ends: &AtomicBool) {
    while !ends.load(Ordering::Relaxed) {
        spin_loop();
    }
}

/// SP-21: goroutines that block or compute for long without a call into the runtime are named with
/// their stacks, while they do so.
#[test]
fn stuck_goroutines_are_named_with_their_stacks() {
    let (ended, _) = run("stuck", "stuck=200ms", |handle| {
        static ENDS: AtomicBool = AtomicBool::new(false);
        let blocks = heist::go(|| blocks_its_thread(&ENDS));
        let computes = heist::go(|| computes(&ENDS));
        // One that announces its call, and one that waits, are not stuck.
        let announces = heist::go(|| heist::blocking(|| blocks_its_thread(&ENDS)));
        let start = Instant::now();
        // Reports come after twice the time each: a thread may get no CPU to answer the first one.
        while handle.metrics().get("/heist/stuck:events").is_some_and(|n| n < 6) {
            assert!(start.elapsed() < Duration::from_secs(60), "there are no reports");
            heist::time::sleep(Duration::from_millis(10));
        }
        ENDS.store(true, Ordering::Relaxed);
        for all in [blocks, computes, announces] {
            all.join().expect("it ends");
        }
    });
    ended.succeeded();
    ended.said("goroutine 2 has blocked its thread without announcing that for ");
    ended.said("watchdog::blocks_its_thread");
    ended.said("goroutine 3 has computed without a call into the runtime for ");
    ended.said("watchdog::computes");
    assert!(!ended.stderr.contains("goroutine 4 has"), "{}", ended.stderr);
    assert!(!ended.stderr.contains("goroutine 1 has"), "{}", ended.stderr);
}

/// Goroutines that can never run again are reported while the rest of the program runs.
#[test]
fn partial_deadlocks_are_reported() {
    let (ended, _) = run("leaks", "leaks=100ms", |handle| {
        drop(heist::go(|| heist::chan::never::<u8>().recv()));
        let start = Instant::now();
        while handle.metrics().get("/heist/leaks/found:goroutines") == Some(0) {
            assert!(start.elapsed() < Duration::from_secs(30), "it is not found");
            heist::time::sleep(Duration::from_millis(10));
        }
        heist::time::sleep(Duration::from_millis(50));
    });
    ended.succeeded();
    ended.said("heist: partial deadlock: 1 goroutines can never run again");
    ended.said("goroutine 2 [chan receive (nil chan) (leaked)]:");
}

/// If goroutines wait too long for a processor, the flight recorder is written.
#[test]
fn a_slow_start_writes_the_flight_recorder() {
    let (ended, files) = run("slow", "flightrecorder=10,slowstart=20ms", |_| {
        let start = Instant::now();
        while start.elapsed() < Duration::from_secs(20) {
            let hogs: Vec<_> = (0..2)
                .map(|_| {
                    heist::go(|| {
                        let _guard = heist::no_preempt();
                        compute_for(Duration::from_millis(200));
                    })
                })
                .collect();
            let late: Vec<_> = (0..200).map(|_| heist::go(|| ())).collect();
            hogs.into_iter().for_each(|hog| hog.join().expect("it ends"));
            late.into_iter().for_each(|late| late.join().expect("it ends"));
            if std::fs::read_dir(".").expect("a folder").count() != 0 {
                // The file is complete when the runtime has ended.
                return;
            }
        }
    });
    ended.succeeded();
    ended.said("heist: a goroutine waited for a processor for more than 20ms");
    assert!(files[0].to_str().is_some_and(|name| name.ends_with("-slow-1.trace")), "{files:?}");
    has_trace(&files);
}

/// DL-09: if a signal ends the process, the flight recorder is written.
#[test]
fn a_fatal_signal_writes_the_flight_recorder() {
    let (ended, files) = run("abort", "flightrecorder=10", |_| {
        heist::go(|| ()).join().expect("it ends");
        std::process::abort();
    });
    ended.was_killed_by(6);
    has_trace(&files);
}

/// DL-09: the same if it is a memory fault.
#[test]
fn a_memory_fault_writes_the_flight_recorder() {
    let (ended, files) = run("fault", "flightrecorder=10", |_| {
        heist::go(|| ()).join().expect("it ends");
        let nowhere = std::hint::black_box(8 as *mut u8);
        // SAFETY: none. It ends the process, as a bug in unsafe code would.
        unsafe { nowhere.write_volatile(1) };
    });
    ended.was_killed_by(11);
    has_trace(&files);
}

/// An error inside the runtime is reported with the stack of its thread.
#[test]
fn a_throw_shows_a_stack() {
    let (ended, _) = run("throw", "", |_| heist::testing::throw());
    ended.was_killed_by(6);
    ended.said("fatal error: heist: testing: this was asked for");
    ended.said("frames, the innermost first:");
    ended.said("a_throw_shows_a_stack");
}

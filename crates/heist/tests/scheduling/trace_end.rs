//! Execution traces of programs that end in every way: the file is complete.

use crate::child;

use heist::sync::WaitGroup;
use heist::trace::Recording;
use heist::{PanicPolicy, Runtime, go, testing};
use heist_trace::file::Trace;
use heist_trace::record::Kind;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// A file that is removed.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str) -> Self {
        Self(std::env::temp_dir().join(format!("heist-test-{}-{name}", std::process::id())))
    }

    /// The trace in it, which must be complete.
    #[track_caller]
    fn trace(&self) -> Trace {
        read(&self.0)
    }
}

#[track_caller]
fn read(path: &Path) -> Trace {
    let bytes = std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let trace = Trace::read(&bytes[..], |_| ()).expect("it can be read");
    assert!(trace.is_complete());
    trace
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

fn count(trace: &Trace, kind: Kind) -> usize {
    let records = trace.blocks.iter().flat_map(|block| &block.records);
    records.filter(|record| record.kind() == Some(kind)).count()
}

/// Runs `body` in a child with `HEIST_TRACE`.
fn traced(name: &str, suffix: &str, body: impl FnOnce()) -> (child::Ended, TempFile) {
    let file = TempFile::new(name);
    let value = format!("{}{suffix}", file.0.display());
    let ended = child::run_with(|command| _ = command.env("HEIST_TRACE", value), body);
    (ended, file)
}

fn runtime() -> Runtime {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    unsafe { Runtime::builder().procs(2).build() }.expect("it starts")
}

fn work() {
    let all = WaitGroup::new();
    for _ in 0..20 {
        all.go(|| go(|| ()).join().expect("it returns"));
    }
    all.wait();
}

/// `HEIST_TRACE` records a program from its start to the end of its runtime.
#[test]
fn a_program_is_recorded_to_its_end() {
    let (ended, file) = traced("end", "", || runtime().run(work));
    ended.succeeded();
    let trace = file.trace();
    assert_eq!(count(&trace, Kind::GoCreate), 41);
    assert_eq!(count(&trace, Kind::GoEnd), 41);
}

/// A program inherits `HEIST_TRACE` from the one that starts it, and leaves its trace alone.
#[test]
fn a_program_does_not_overwrite_the_trace_of_its_parent() {
    let parents = TempFile::new("parent");
    std::fs::write(&parents.0, "of the parent").unwrap();
    let open = std::fs::File::open(&parents.0).unwrap();
    open.lock().unwrap();
    let (ended, file) = traced("parent", "", || {
        let path = std::env::var("HEIST_TRACE").expect("it is set");
        runtime().run(work);
        runtime().run(work);
        let own = TempFile(format!("{path}.{}", std::process::id()).into());
        assert_eq!(count(&own.trace(), Kind::GoCreate), 41);
        let second = TempFile(format!("{}.1", own.0.display()).into());
        assert_eq!(count(&second.trace(), Kind::GoCreate), 41);
    });
    ended.succeeded();
    assert_eq!(std::fs::read(&file.0).unwrap(), b"of the parent");
}

/// A goroutine ends the process.
#[test]
fn a_process_that_exits_completes_its_trace() {
    let (ended, file) = traced("exit", "", || {
        runtime().run(|| {
            work();
            std::process::exit(7);
        });
    });
    ended.exited(7);
    assert_eq!(count(&file.trace(), Kind::GoCreate), 41);
}

/// DL-09: an error inside the runtime completes the trace.
#[test]
fn a_throw_completes_the_trace() {
    let (ended, file) = traced("throw", "", || {
        runtime().run(|| {
            work();
            testing::throw();
        });
    });
    ended.was_killed_by(6);
    ended.said("fatal error: heist: ");
    assert_eq!(count(&file.trace(), Kind::GoCreate), 41);
}

/// A panic that ends the process completes the trace.
#[test]
fn an_abort_after_a_panic_completes_the_trace() {
    let (ended, file) = traced("panic", "", || {
        let builder = Runtime::builder().procs(2).panic_policy(PanicPolicy::Abort);
        // SAFETY: as above.
        let rt = unsafe { builder.build() }.expect("it starts");
        rt.run(|| {
            work();
            drop(go(|| panic!("no luck")).join());
        });
    });
    ended.exited(2);
    assert_eq!(count(&file.trace(), Kind::GoCreate), 42);
}

/// A trace with a time ends by itself, and the program goes on.
#[test]
fn a_recording_ends_after_its_time() {
    let (ended, file) = traced("seconds", ",0.05", || {
        runtime().run(|| {
            work();
            let path = std::env::var("HEIST_TRACE").expect("it is set");
            let path = path.rsplit_once(',').expect("a time").0.to_owned();
            let is_complete = || {
                let bytes = std::fs::read(&path).expect("it is there");
                Trace::read(&bytes[..], |_| ()).is_ok_and(|trace| trace.is_complete())
            };
            while !is_complete() {
                heist::time::sleep(Duration::from_millis(1));
            }
            work();
        });
    });
    ended.succeeded();
    assert_eq!(count(&file.trace(), Kind::GoCreate), 41);
}

/// A flight recorder of the environment is written when the runtime finds an error in itself.
#[test]
fn a_flight_recorder_is_written_at_a_throw() {
    let folder = TempFile::new("folder");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let ended = child::run_with(
        |command| {
            command.current_dir(&folder.0).env("HEIST_DEBUG", "flightrecorder=60");
        },
        || {
            runtime().run(|| {
                work();
                testing::throw();
            });
        },
    );
    ended.was_killed_by(6);
    let mut files = std::fs::read_dir(&folder.0).expect("a folder");
    let file = files.next().expect("a file").expect("a file").path();
    assert!(count(&read(&file), Kind::GoCreate) >= 40);
    std::fs::remove_dir_all(&folder.0).expect("it is removed");
}

/// A recording that was leaked is complete when the process ends.
#[test]
fn a_leaked_recording_is_completed_at_exit() {
    let file = TempFile::new("leaked");
    let path = file.0.clone();
    let ended = child::run_with(
        |command| _ = command.env("LEAKED", &path),
        || {
            let out = std::fs::File::create(std::env::var("LEAKED").expect("it is set"));
            let rt = runtime();
            rt.run(|| {
                std::mem::forget(Recording::start(out.expect("a file")).expect("it starts"));
                work();
            });
        },
    );
    ended.succeeded();
    assert_eq!(count(&file.trace(), Kind::GoEnd), 41);
}

/// A child that the process forks has no collector, and does not wait for one when it exits.
#[test]
fn a_forked_child_exits_at_once() {
    let (ended, file) = traced("fork", "", || {
        runtime().run(|| {
            work();
            let mut command = std::process::Command::new("true");
            // SAFETY: the child does nothing but exit.
            unsafe { command.pre_exec(|| std::process::exit(0)) };
            let from = Instant::now();
            drop(command.status());
            assert!(from.elapsed() < Duration::from_secs(4), "it waited");
        });
    });
    ended.succeeded();
    assert_eq!(count(&file.trace(), Kind::GoCreate), 41);
}

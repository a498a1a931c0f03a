//! Execution traces: what is recorded, when it begins and when it ends.

use crate::matrix;

use heist::chan;
use heist::net::{TcpListener, TcpStream};
use heist::sync::{Mutex, WaitGroup};
use heist::time::sleep;
use heist::trace::{FlightRecorder, Recording, Task, log, region};
use heist::{Runtime, go, yield_now};
use heist_trace::check::{Limits, check};
use heist_trace::file::Trace;
use heist_trace::record::{Kind, Stop, Wake};
use std::io::{self, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// A file in memory.
#[derive(Clone, Default)]
pub struct Bytes(Arc<std::sync::Mutex<Vec<u8>>>);

impl Bytes {
    pub fn get(&self) -> Vec<u8> {
        self.0.lock().expect("no panic").clone()
    }

    pub fn len(&self) -> usize {
        self.0.lock().expect("no panic").len()
    }
}

impl Write for Bytes {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().expect("no panic").extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The machine may be busy with other tests, so a thread that was woken may run late.
pub fn limits() -> Limits {
    const LATE_NS: u64 = 60_000_000_000;
    Limits { wait_ns: LATE_NS, goroutine_back_ns: LATE_NS, ..Limits::default() }
}

/// Reads a trace, which must be complete and without contradictions.
#[track_caller]
pub fn examined(bytes: &[u8]) -> Trace {
    let trace = Trace::read(bytes, |_| ()).expect("it can be read");
    assert!(trace.is_complete());
    let report = check(&trace, &limits());
    let findings: String = report.findings.iter().map(|finding| format!("{finding}\n")).collect();
    if report.n_findings != 0
        && let Some(folder) = std::env::var_os("HEIST_TRACE_KEEP")
    {
        std::fs::write(std::path::Path::new(&folder).join("bad.trace"), bytes).expect("a file");
    }
    assert_eq!(report.n_findings, 0, "of {} events:\n{findings}", report.n_events);
    assert_eq!((report.n_gaps, report.uncertain_from), (0, None));
    trace
}

pub fn count(trace: &Trace, kind: Kind) -> usize {
    let records = trace.blocks.iter().flat_map(|block| &block.records);
    records.filter(|record| record.kind() == Some(kind)).count()
}

pub fn has(trace: &Trace, kind: Kind, detail: u8) -> bool {
    let mut records = trace.blocks.iter().flat_map(|block| &block.records);
    records.any(|record| record.kind() == Some(kind) && record.detail() == detail)
}

fn runtime(procs: usize) -> Runtime {
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    unsafe { Runtime::builder().procs(procs).build() }.expect("it starts")
}

/// Goroutines that wait for each other, for the clock and for the network, block and compute.
pub fn mixture() {
    let all = WaitGroup::new();
    let (tx, rx) = chan::bounded::<u32>(1);
    let mutex = Arc::new(Mutex::new(0));
    for i in 0..8 {
        let (tx, mutex) = (tx.clone(), Arc::clone(&mutex));
        all.go(move || {
            for _ in 0..20 {
                *mutex.lock() += 1;
                tx.send(i).expect("it is received");
                yield_now();
            }
        });
    }
    drop(tx);
    all.go(move || assert_eq!(rx.iter().count(), 160));
    for i in 0..4 {
        all.go(move || {
            for _ in 0..5 {
                sleep(Duration::from_micros(100 * i));
            }
        });
        all.go(|| {
            let _locked = heist::lock_os_thread();
            (0..5).for_each(|_| yield_now());
            sleep(Duration::from_micros(50));
        });
        all.go(|| {
            for _ in 0..3 {
                heist::blocking(|| std::thread::sleep(Duration::from_micros(300)));
            }
        });
        // Not announced.
        all.go(|| std::thread::sleep(Duration::from_millis(2)));
        // Computes for several slices, if these are short.
        all.go(|| {
            let from = Instant::now();
            while from.elapsed() < Duration::from_millis(3) {
                std::hint::black_box(0);
            }
        });
    }
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    all.go(move || {
        for _ in 0..4 {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).expect("four bytes");
            stream.write_all(&bytes).expect("four bytes");
        }
    });
    for _ in 0..4 {
        all.go(move || {
            let mut stream = TcpStream::connect(address).expect("a connection");
            stream.write_all(b"ping").expect("four bytes");
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).expect("four bytes");
        });
    }
    all.wait();
}

/// MT-16: a trace is not empty, ends with its last byte when it is stopped, and can be started
/// again. It contains each step of a goroutine.
#[test]
fn a_recording_contains_what_happened() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    rt.run(|| {
        for _ in 0..2 {
            let bytes = Bytes::default();
            let recording = Recording::start(bytes.clone()).expect("it starts");
            mixture();
            let summary = recording.stop().expect("it is written");
            let len = bytes.len();
            assert!(len > 1000 && summary.records > 100, "{summary:?}");
            go(mixture).join().expect("it returns");
            assert_eq!(bytes.len(), len, "nothing follows the end");
            let trace = examined(&bytes.get());
            assert_eq!(trace.n_records() as u64, summary.records);
            for kind in [
                Kind::GoCreate,
                Kind::Site,
                Kind::GoStart,
                Kind::GoStop,
                Kind::GoBlock,
                Kind::GoUnblock,
                Kind::GoEnd,
                Kind::ProcStart,
                Kind::ProcStop,
                Kind::MPark,
                Kind::MUnpark,
                Kind::SpinStart,
                Kind::SpinStop,
                Kind::CallStart,
                Kind::CallStop,
                Kind::Poll,
                Kind::Timers,
                Kind::WorldStop,
                Kind::WorldStart,
                Kind::Procs,
            ] {
                assert_ne!(count(&trace, kind), 0, "{kind:?}");
            }
            for wake in [Wake::Ready, Wake::TimedOut, Wake::Network] {
                assert!(has(&trace, Kind::GoUnblock, wake as u8), "{wake:?}");
            }
            assert!(has(&trace, Kind::GoStop, Stop::Yield as u8));
            assert!(count(&trace, Kind::GoEnd) > 30);
        }
    });
}

/// MT-17: traces of a mixture of goroutines at ten processors, ten in a row, are consistent.
#[test]
fn ten_recordings_in_a_row_are_consistent() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(10);
    rt.run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let all = WaitGroup::new();
        for _ in 0..3 {
            let done = Arc::clone(&done);
            all.go(move || {
                while !done.load(Ordering::Relaxed) {
                    mixture();
                }
            });
        }
        for _ in 0..10 {
            let bytes = Bytes::default();
            let recording = Recording::start(bytes.clone()).expect("it starts");
            mixture();
            recording.stop().expect("it is written");
            examined(&bytes.get());
        }
        done.store(true, Ordering::Relaxed);
        all.wait();
    });
}

/// Traces that overlap each contain what happened while they ran.
#[test]
fn recordings_can_overlap() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    rt.run(|| {
        let (first, second) = (Bytes::default(), Bytes::default());
        let outer = Recording::start(first.clone()).expect("it starts");
        mixture();
        let inner = Recording::start(second.clone()).expect("it starts");
        mixture();
        let n_inner = inner.stop().expect("it is written").records;
        mixture();
        let n_outer = outer.stop().expect("it is written").records;
        assert!(n_outer > 2 * n_inner, "{n_outer} {n_inner}");
        examined(&first.get());
        examined(&second.get());
    });
}

/// MT-21: tasks, regions and messages are in the trace, with their texts.
#[test]
fn annotations_are_recorded() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(1);
    rt.run(|| {
        let bytes = Bytes::default();
        let recording = Recording::start(bytes.clone()).expect("it starts");
        let task = Task::new("request");
        region("a region with a long name", || log("category", &"long ".repeat(100)));
        let part = task.child("part");
        go(move || part.region("inner", || part.log("rows", "17"))).join().expect("it returns");
        heist::goroutine::Builder::new()
            .name("a named goroutine")
            .spawn(|| ())
            .expect("it starts")
            .join()
            .expect("it returns");
        drop(task);
        recording.stop().expect("it is written");
        let trace = examined(&bytes.get());
        let long = "long ".repeat(100);
        for text in [
            "request",
            "a region with a long name",
            "category",
            &long,
            "part",
            "inner",
            "rows",
            "17",
            "a named goroutine",
        ] {
            assert!(trace.strings.values().any(|known| known == text), "{text}");
        }
        for (kind, n) in [
            (Kind::TaskStart, 2),
            (Kind::TaskStop, 2),
            (Kind::RegionStart, 2),
            (Kind::RegionStop, 2),
            (Kind::Log, 2),
            (Kind::Name, 1),
        ] {
            assert_eq!(count(&trace, kind), n, "{kind:?}");
        }
    });
}

/// A flight recorder keeps the latest events, and can be written more than once.
#[test]
fn a_flight_recorder_is_dumped() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    rt.run(|| {
        let recorder = FlightRecorder::start(Duration::from_secs(60)).expect("it starts");
        for _ in 0..2 {
            mixture();
            let bytes = Bytes::default();
            let summary = recorder.dump(bytes.clone()).expect("it is written");
            assert!(summary.records > 100, "{summary:?}");
            examined(&bytes.get());
        }
    });
}

/// A runtime that ends while it is recorded is recorded to its end.
#[test]
fn a_runtime_can_end_while_it_is_recorded() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    let bytes = Bytes::default();
    let recording = Recording::start_on(&rt, bytes.clone()).expect("it starts");
    rt.run(mixture);
    drop(rt.handle().spawn(|| sleep(Duration::from_secs(1000))));
    drop(rt);
    assert!(recording.stop().expect("it is written").records > 100);
    let trace = examined(&bytes.get());
    assert_eq!(count(&trace, Kind::GoCreate), count(&trace, Kind::GoEnd));
}

/// Two runtimes are recorded at once, each by itself.
#[test]
fn two_runtimes_are_recorded_at_once() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let (one, other) = (runtime(2), runtime(3));
    let files = [Bytes::default(), Bytes::default()];
    let recordings = [
        Recording::start_on(&one, files[0].clone()).expect("it starts"),
        Recording::start_on(&other, files[1].clone()).expect("it starts"),
    ];
    // A goroutine of each runtime wakes one of the other.
    let (ping, pinged) = chan::bounded::<u32>(0);
    let (pong, ponged) = chan::bounded::<u32>(0);
    let there = other.handle().spawn(move || pinged.iter().try_for_each(|n| pong.send(n)).is_ok());
    one.run(move || {
        for n in 0..100 {
            ping.send(n).expect("it is received");
            assert_eq!(ponged.recv(), Ok(n));
        }
    });
    assert!(there.join().expect("it returns"));
    for (recording, bytes) in recordings.into_iter().zip(&files) {
        recording.stop().expect("it is written");
        let trace = examined(&bytes.get());
        assert!(count(&trace, Kind::GoBlock) > 50);
    }
}

/// An error of the writer is returned when the recording is stopped, and disturbs nothing else.
#[test]
fn an_error_of_the_writer_is_returned() {
    struct Limited(usize);
    impl Write for Limited {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 = self.0.checked_sub(bytes.len()).ok_or(io::ErrorKind::StorageFull)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    rt.run(|| {
        let recording = Recording::start(Limited(2000)).expect("it starts");
        mixture();
        let error = recording.stop().expect_err("it was full");
        assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    });
    assert!(Recording::start_on(&rt, Limited(3)).is_err());
    let error = Recording::start(Limited(0)).expect_err("this is no goroutine");
    assert!(error.to_string().contains("not on a goroutine"), "{error}");
}

/// A writer that panics, also when it is dropped, is an error, and disturbs nothing else.
#[test]
fn a_writer_may_panic() {
    struct Panics {
        after: usize,
    }
    impl Write for Panics {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.after = self.after.checked_sub(1).expect("a panic of the writer");
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    impl Drop for Panics {
        fn drop(&mut self) {
            assert!(std::thread::panicking(), "a panic when it is dropped");
        }
    }
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    rt.run(|| {
        let recorder = FlightRecorder::start(Duration::from_secs(60)).expect("it starts");
        for after in 0..5 {
            let error = recorder.dump(Panics { after }).expect_err("it panics");
            assert!(error.to_string().contains("panicked"), "{error}");
        }
        let start = || Recording::start(Panics { after: 0 });
        assert!(std::panic::catch_unwind(start).is_err());
        let recording = Recording::start(Panics { after: 4 }).expect("it starts");
        mixture();
        let error = recording.stop().expect_err("it panics");
        assert!(error.to_string().contains("panicked"), "{error}");
        assert!(recorder.dump(io::sink()).expect("it is written").records > 100);
    });
}

/// Dumps of a flight recorder may come at the same time, while other traces begin and end.
#[test]
fn dumps_can_overlap() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let rt = runtime(2);
    let recorder = FlightRecorder::start_on(&rt, Duration::from_millis(1)).expect("it starts");
    let done = Arc::new(AtomicBool::new(false));
    for _ in 0..4 {
        let done = Arc::clone(&done);
        drop(rt.handle().spawn(move || {
            while !done.load(Ordering::Relaxed) {
                yield_now();
            }
        }));
    }
    std::thread::scope(|threads| {
        for _ in 0..3 {
            threads.spawn(|| {
                for _ in 0..200 {
                    recorder.dump(io::sink()).expect("it is written");
                }
            });
        }
        for _ in 0..20 {
            let bytes = Bytes::default();
            let recording = Recording::start_on(&rt, bytes.clone()).expect("it starts");
            recording.stop().expect("it is written");
            examined(&bytes.get());
        }
    });
    done.store(true, Ordering::Relaxed);
}

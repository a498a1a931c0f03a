//! Execution traces under everything that disturbs a scheduler: the rules hold for each of them.

use crate::child;
use crate::matrix;
use crate::trace::{Bytes, count, examined, limits, mixture};

use heist::sync::WaitGroup;
use heist::time::{after_func, sleep};
use heist::trace::Recording;
use heist::{Runtime, go, testing, yield_now};
use heist_trace::check::check;
use heist_trace::file::Trace;
use heist_trace::record::Kind;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// Goroutines that begin later, never begin, are cancelled, and a changing number of processors.
fn upheaval(procs: usize) {
    let all = WaitGroup::new();
    for i in 0..8 {
        let born = after_func(Duration::from_micros(50 * i), || ());
        let unborn = after_func(Duration::from_secs(1000), || ());
        all.go(move || assert!(unborn.stop()));
        let sleeper = go(|| sleep(Duration::from_secs(1000)));
        let hog = go(|| {
            let from = Instant::now();
            while from.elapsed() < Duration::from_millis(2) {
                std::hint::black_box(0);
            }
        });
        all.go(move || {
            yield_now();
            sleeper.cancel();
            assert!(sleeper.join().is_err());
            hog.join().expect("it returns");
            born.stop();
        });
        if i % 4 == 3 {
            heist::set_procs(procs % 3 + 1);
            heist::set_procs(procs);
        }
    }
    all.wait();
}

/// MT-17: the rules hold with 1, 2, 4 and 16 processors, short slices, in chaos mode and without.
#[test]
fn the_rules_hold_in_every_configuration() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    for (procs, chaos) in
        [1, 2, 4, 16].into_iter().flat_map(|procs| [(procs, None), (procs, Some(7))])
    {
        let builder = Runtime::builder().procs(procs).quantum(Duration::from_micros(500));
        let builder = match chaos {
            Some(seed) => builder.chaos(seed),
            None => builder,
        };
        // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
        let rt = unsafe { builder.build() }.expect("it starts");
        let bytes = Bytes::default();
        let recording = Recording::start_on(&rt, bytes.clone()).expect("it starts");
        rt.run(move || {
            let all = WaitGroup::new();
            all.go(mixture);
            all.go(move || upheaval(procs));
            all.wait();
        });
        let started = Instant::now();
        drop(rt);
        recording.stop().expect("it is written");
        assert!(started.elapsed() < Duration::from_secs(60));
        println!("procs={procs} chaos={chaos:?}: {} bytes", bytes.len());
        let trace = examined(&bytes.get());
        for kind in [Kind::GoDrop, Kind::Procs, Kind::WorldStop] {
            assert_ne!(count(&trace, kind), 0, "{kind:?}");
        }
    }
}

/// Recordings that begin and end all the time, on goroutines and on a plain thread, while the
/// world is stopped for other reasons as well.
#[test]
fn recordings_begin_and_end_in_any_order() {
    let _watchdog = matrix::Watchdog::new(matrix::patience(), String::new);
    let builder = Runtime::builder().procs(3).quantum(Duration::from_micros(500)).chaos(3);
    // SAFETY: as above.
    let rt = unsafe { builder.build() }.expect("it starts");
    let done = Arc::new(AtomicBool::new(false));
    let outside = {
        let (handle, done) = (rt.handle(), Arc::clone(&done));
        std::thread::spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let bytes = Bytes::default();
                let recording = Recording::start_on(&handle, bytes.clone()).expect("it starts");
                drop(handle.spawn(|| ()).join());
                recording.stop().expect("it is written");
                examined(&bytes.get());
            }
        })
    };
    rt.run(|| {
        let all = WaitGroup::new();
        all.go(|| upheaval(3));
        for _ in 0..3 {
            all.go(|| {
                for _ in 0..5 {
                    let bytes = Bytes::default();
                    let recording = Recording::start(bytes.clone()).expect("it starts");
                    mixture();
                    recording.stop().expect("it is written");
                    examined(&bytes.get());
                }
            });
        }
        all.wait();
    });
    done.store(true, Ordering::Relaxed);
    outside.join().expect("it found nothing");
}

/// A writer that is too slow loses events. They are counted, and what is left is consistent.
#[test]
fn lost_events_are_counted() {
    /// Waits for the permission to write.
    struct Slow(Bytes, Arc<AtomicBool>);
    impl Write for Slow {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            while !self.1.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
            self.0.write(bytes)
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let ended = child::run(|| {
        testing::limit_trace_buffers(4);
        // SAFETY: as above.
        let rt = unsafe { Runtime::builder().procs(2).build() }.expect("it starts");
        let bytes = Bytes::default();
        let may_write = Arc::new(AtomicBool::new(true));
        let slow = Slow(bytes.clone(), Arc::clone(&may_write));
        let recording = Recording::start_on(&rt, slow).expect("it starts");
        let lost = || rt.metrics().get("/heist/trace/dropped:events").expect("it is there");
        may_write.store(false, Ordering::Relaxed);
        while lost() < 10_000 {
            rt.run(mixture);
        }
        may_write.store(true, Ordering::Relaxed);
        rt.run(mixture);
        let summary = recording.stop().expect("it is written");
        assert_eq!(summary.dropped, lost());
        let trace = Trace::read(&bytes.get()[..], |_| ()).expect("it can be read");
        let dropped: u64 = trace.drops.iter().map(|drops| drops.records).sum();
        assert_eq!(dropped, summary.dropped);
        let report = check(&trace, &limits());
        assert_eq!(report.n_findings, 0, "{:?}", report.findings);
    });
    ended.succeeded();
}

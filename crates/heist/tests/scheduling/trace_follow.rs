//! Reading a trace while it is being recorded.

use crate::trace::{Bytes, examined};

use heist::chan;
use heist::sync::WaitGroup;
use heist::trace::Recording;
use heist::{go, yield_now};
use heist_trace::file::{Reader, State};
use heist_trace::follow::{Appearance, Follower, Happening, Step};
use heist_trace::record::Kind;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// What can be told from what was written so far.
fn told(bytes: &[u8]) -> (Follower, Vec<Happening>) {
    let mut reader = Reader::new(bytes).expect("a header");
    let mut follower = Follower::new(reader.header().clone());
    let mut all = Vec::new();
    while let Some(section) = reader.next().expect("whole sections") {
        follower.take(section, &mut |happening| all.push(happening));
    }
    (follower, all)
}

/// The goroutine with this name, and what it did since it appeared.
#[track_caller]
fn story(all: &[Happening], wanted: &str) -> (Appearance, Vec<Step>) {
    let found = all.iter().find_map(|happening| match &happening.step {
        Step::Appears(appearance) if &*appearance.name == wanted => {
            Some((happening.goroutine, appearance.clone()))
        }
        _ => None,
    });
    let (id, appearance) = found.unwrap_or_else(|| panic!("no {wanted:?} in {all:?}"));
    let own = all.iter().filter(|happening| happening.goroutine == id).skip(1);
    (appearance, own.map(|happening| happening.step.clone()).collect())
}

/// Goroutines that wait do nothing that would fill a buffer: a flush shows them nevertheless.
#[heist::test(unsafe, procs = [1, 2, 4, 16])]
fn a_flush_shows_what_has_happened_up_to_now() {
    let (first_ends, first_waits) = chan::bounded::<()>(0);
    let old = heist::goroutine::Builder::new().name("old one");
    let old = old.spawn(move || first_waits.recv()).expect("it is spawned");
    // It has a chance to wait before the recording begins; both are fine.
    yield_now();
    let bytes = Bytes::default();
    let recording = Recording::start(bytes.clone()).expect("it starts");
    let (second_ends, second_waits) = chan::bounded::<()>(0);
    let new = heist::goroutine::Builder::new().name("new one");
    let new = new.spawn(move || second_waits.recv()).expect("it is spawned");
    let is_there = |wanted: &str| {
        let (follower, all) = told(&bytes.get());
        let (appearance, steps) = story(&all, wanted);
        let reason = match steps.last() {
            Some(&Step::Waits(reason)) => Some(reason),
            None if appearance.state == State::Waiting => Some(appearance.wait_reason),
            _ => None,
        };
        reason.is_some_and(|reason| follower.wait_reason(reason) == "chan receive")
    };
    let waits = || {
        recording.flush().expect("it is written");
        is_there("old one") && is_there("new one")
    };
    while !waits() {
        yield_now();
    }
    drop((first_ends, second_ends));
    assert!(old.join().expect("it returned").is_err());
    assert!(new.join().expect("it returned").is_err());
    recording.flush().expect("it is written");
    let (follower, all) = told(&bytes.get());
    for name in ["old one", "new one"] {
        let (appearance, steps) = story(&all, name);
        assert!(matches!(steps.last(), Some(Step::Ends(_))), "{steps:?}");
        let site = appearance.site.expect("it is known");
        assert!(site.file.ends_with("trace_follow.rs"), "{site}");
        assert!(!appearance.is_task);
    }
    assert_eq!(follower.n_lost(), 0);
    recording.stop().expect("it is written");
    examined(&bytes.get());
}

/// A task is marked, whether it is older than the recording or not.
#[heist::test(unsafe, procs = [1, 4])]
fn a_trace_says_which_goroutines_are_tasks() {
    let gate = WaitGroup::new();
    gate.add(1);
    let waits = |gate: &WaitGroup| {
        let gate = gate.clone();
        heist::spawn(async move { gate.wait_async().await })
    };
    let old = waits(&gate);
    let bytes = Bytes::default();
    let recording = Recording::start(bytes.clone()).expect("it starts");
    let new = waits(&gate);
    gate.done();
    old.join().expect("it ends");
    new.join().expect("it ends");
    recording.stop().expect("it is written");
    let (_, all) = told(&bytes.get());
    let tasks = all.iter().filter_map(|happening| match &happening.step {
        Step::Appears(appearance) if appearance.is_task => Some(appearance.is_new),
        _ => None,
    });
    let mut tasks: Vec<bool> = tasks.collect();
    tasks.sort_unstable();
    assert_eq!(tasks, [false, true]);
}

/// Goroutines come, wait, wake each other and go while flushes cut their buffers: the file is
/// complete and without contradictions, and a follower sees all they do.
#[heist::test(unsafe, procs = [2, 4])]
fn flushes_do_not_disturb_a_recording() {
    let (all, bytes) = (WaitGroup::new(), Bytes::default());
    let recording = Recording::start(bytes.clone()).expect("it starts");
    let n_done = Arc::new(AtomicUsize::new(0));
    for _ in 0..4 {
        let n_done = Arc::clone(&n_done);
        all.go(move || {
            for _ in 0..200 {
                let (sends, receives) = chan::bounded(0);
                let partner = go(move || sends.send(heist::current_id()));
                assert!(receives.recv().expect("it sends").is_some());
                partner.join().expect("it returns").expect("it was received");
            }
            n_done.fetch_add(1, Ordering::Relaxed);
        });
    }
    while n_done.load(Ordering::Relaxed) < 4 {
        recording.flush().expect("it is written");
        yield_now();
    }
    all.wait();
    let summary = recording.stop().expect("it is written");
    assert_eq!(summary.dropped, 0);
    let bytes = bytes.get();
    let trace = examined(&bytes);
    let records = || trace.blocks.iter().flat_map(|block| &block.records);
    let count = |kind| records().filter(|record| record.kind() == Some(kind)).count();
    let (follower, all) = told(&bytes);
    assert_eq!(follower.n_lost(), 0);
    let tell = |wanted: fn(&Step) -> bool| all.iter().filter(|h| wanted(&h.step)).count();
    assert_eq!(tell(|step| matches!(step, Step::Appears(it) if it.is_new)), 804);
    assert_eq!(tell(|step| matches!(step, Step::Ends(_))), count(Kind::GoEnd));
    assert_eq!(tell(|step| matches!(step, Step::Starts)), count(Kind::GoStart));
    assert_eq!(tell(|step| matches!(step, Step::Waits(_))), count(Kind::GoBlock));
}

/// The error of the writer is that of the flush, and of the end.
#[heist::test(unsafe, procs = [1])]
fn a_flush_answers_the_error_of_the_writer() {
    struct Full(usize);
    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0 += 1;
            let is_full = self.0 > 6;
            if is_full { Err(io::ErrorKind::StorageFull.into()) } else { Ok(bytes.len()) }
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let recording = Recording::start(Full(0)).expect("it starts");
    let error = loop {
        if let Err(error) = recording.flush() {
            break error;
        }
    };
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert_eq!(recording.stop().expect_err("it failed").kind(), io::ErrorKind::StorageFull);
}

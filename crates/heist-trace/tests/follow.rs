//! Following a trace while it is written: each goroutine's events come in their order, whatever the
//! order of the buffers.

mod harness;

use harness::script::{buffers, story, ticks};
use harness::simulation::{self, Options};
use harness::{Buffers, file, header};
use heist_trace::file::{Clock, Goroutine, Reader, Section, State, Trace, Writer};
use heist_trace::follow::{Appearance, Follower, Happening, Step};
use heist_trace::model::{Event, Machine, Visitor, replay};
use heist_trace::record::{Context, End, Kind, Record, Wake};
use std::collections::BTreeMap;

/// Reads a file section by section, as a follower gets it.
fn follow(bytes: &[u8]) -> (Follower, Vec<Happening>) {
    let mut reader = Reader::new(bytes).unwrap();
    let mut follower = Follower::new(reader.header().clone());
    let mut all = Vec::new();
    while let Some(section) = reader.next().unwrap() {
        follower.take(section, &mut |happening| all.push(happening));
    }
    (follower, all)
}

fn clock(us: u64) -> Clock {
    Clock { ticks: ticks(us), monotonic_ns: 5_000 + us * 1_000, unix_ns: 9_000_000 + us * 1_000 }
}

/// A recorder that writes what happens between two marks, in the given order of blocks.
fn recorded(snapshot: &[Goroutine], parts: &[Buffers]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(2)).unwrap();
    writer.clock(&clock(0)).unwrap();
    writer.snapshot(ticks(1), snapshot).unwrap();
    for (at, blocks) in parts.iter().enumerate() {
        for (context, records) in blocks {
            writer.block(context, records, |address| Some(harness::site(address))).unwrap();
        }
        writer.clock(&clock(1_000 * (at as u64 + 1))).unwrap();
    }
    writer.finish().unwrap()
}

fn steps(all: &[Happening], goroutine: u64) -> Vec<Step> {
    let own = all.iter().filter(|happening| happening.goroutine == goroutine);
    own.map(|happening| happening.step.clone()).collect()
}

fn appears() -> Step {
    Step::Appears(Appearance { is_new: true, state: State::Runnable, ..Appearance::default() })
}

#[test]
fn a_story_is_told_with_its_times() {
    let mut blocks = buffers(&story());
    let all = follow(&recorded(&[], &[blocks.clone()])).1;
    use Step::*;
    let woken = Wakes { how: Wake::Ready, by: 2 };
    let first = [appears(), Starts, Waits(3), woken, Starts, Ends(End::Returned)];
    assert_eq!(steps(&all, 1), first);
    let second = [appears(), Starts, CallStarts, CallStops, Freezes, Starts, Ends(End::Returned)];
    assert_eq!(steps(&all, 2), second);
    let times = all.iter().filter(|happening| happening.goroutine == 1).map(|h| h.time_ns);
    let us = [2, 10, 15, 20, 25, 32];
    assert!(times.eq(us.map(|us| 5_000 + us * 1_000)), "{all:?}");

    // The order of the buffers is not that of the events.
    blocks.reverse();
    let reversed = follow(&recorded(&[], &[blocks])).1;
    assert_eq!(steps(&reversed, 1), first);
    assert_eq!(steps(&reversed, 2), second);
}

/// The block that wakes a goroutine is written between two marks, that in which it waits later.
#[test]
fn an_event_waits_for_the_one_before_it() {
    let blocks = buffers(&story());
    let (own, wakers): (Buffers, Buffers) =
        blocks.into_iter().partition(|(context, _)| context.writer == 2);
    let (follower, all) = follow(&recorded(&[], &[Vec::new(), wakers, own, Vec::new()]));
    assert_eq!(steps(&all, 1).len(), 6);
    assert_eq!(steps(&all, 1)[3], Step::Wakes { how: Wake::Ready, by: 2 });
    assert_eq!(follower.n_lost(), 0);
}

/// The block in which a goroutine waits is never written.
#[test]
fn after_two_marks_an_event_does_not_wait_any_more() {
    let mut lost = buffers(&story());
    lost.retain(|(context, _)| context.writer != 2);
    let parts = [Vec::new(), lost, Vec::new(), Vec::new()];
    let (follower, all) = follow(&recorded(&[], &parts[..2]));
    assert_eq!(steps(&all, 1), [appears()]);
    assert_eq!(follower.n_lost(), 0);
    let (follower, all) = follow(&recorded(&[], &parts));
    assert_eq!(steps(&all, 1), [appears(), Step::Wakes { how: Wake::Ready, by: 2 }]);
    assert_eq!(follower.n_lost(), 1);
}

#[test]
fn a_missing_buffer_is_counted() {
    let mut blocks = buffers(&story());
    blocks.push((Context { writer: 1, sequence: 2, ..Context::default() }, Vec::new()));
    assert_eq!(follow(&recorded(&[], &[blocks.clone()])).0.n_lost(), 1);
    blocks.push((Context { writer: 1, sequence: 3, dropped: 7, ..Context::default() }, Vec::new()));
    assert_eq!(follow(&recorded(&[], &[blocks])).0.n_lost(), 8);
}

/// The snapshot is taken after the trace began: it may show what events will tell, or have told.
#[test]
fn goroutines_from_before_the_trace_go_on_where_the_snapshot_saw_them() {
    let seen = |id, number, state| Goroutine {
        id,
        number,
        state,
        wait_reason: 1,
        is_task: id == 7,
        name: format!("old {id}"),
        ..Goroutine::default()
    };
    let snapshot = [
        seen(7, 40, State::Waiting),
        seen(8, 50, State::Running),
        // Made and ended in the trace.
        seen(9, 1, State::Running),
    ];
    let context = Context { writer: 1, ticks: ticks(0), ..Context::default() };
    let record = |us, kind, id, number| Record::new(ticks(us), kind, 0, id, number);
    let records = vec![
        // Seen by the snapshot already.
        record(1, Kind::GoStart, 7, 39),
        record(2, Kind::GoBlock, 7, 40),
        record(5, Kind::GoCreate, 9, 0),
        record(6, Kind::GoStart, 9, 1),
        record(7, Kind::GoEnd, 9, 1),
        // Ended before the snapshot.
        record(8, Kind::GoStart, 10, 3),
        record(9, Kind::GoEnd, 10, 3),
        record(20, Kind::GoUnblock, 7, 40),
        record(21, Kind::GoStart, 7, 41),
        record(22, Kind::GoEnd, 7, 41),
    ];
    let other = Context { writer: 2, goroutine: 8, goroutine_number: 50, ..context };
    let stops = vec![record(30, Kind::GoStop, 8, 50)];
    let blocks = vec![(context, records), (other, stops)];
    let parts = [blocks, Vec::new(), Vec::new(), Vec::new()];
    let (follower, all) = follow(&recorded(&snapshot, &parts));
    let Step::Appears(appearance) = &steps(&all, 7)[0] else { panic!("{all:?}") };
    assert_eq!((&*appearance.name, appearance.is_task, appearance.is_new), ("old 7", true, false));
    assert_eq!((appearance.state, appearance.wait_reason), (State::Waiting, 1));
    assert_eq!(
        steps(&all, 7)[1..],
        [Step::Wakes { how: Wake::Ready, by: 0 }, Step::Starts, Step::Ends(End::Returned)]
    );
    assert!(matches!(steps(&all, 8)[..], [Step::Appears(_), Step::Stops(_)]), "{all:?}");
    assert_eq!(steps(&all, 9), [appears(), Step::Starts, Step::Ends(End::Returned)]);
    assert!(steps(&all, 10).is_empty());
    assert!(follower.is_settled());
    assert_eq!(follower.n_lost(), 0);
}

/// What the replay of the whole file says each goroutine did.
#[derive(Default)]
struct Told(BTreeMap<u64, Vec<Kind>>);

impl Visitor for Told {
    fn after(&mut self, event: &Event, machine: &Machine) {
        let told = matches!(
            event.kind,
            Kind::GoCreate
                | Kind::GoStart
                | Kind::GoStop
                | Kind::GoFreeze
                | Kind::GoBlock
                | Kind::GoUnblock
                | Kind::GoEnd
        );
        if told {
            let id = if event.subject == 0 { machine.goroutine_of(event) } else { event.subject };
            self.0.entry(id).or_default().push(event.kind);
        }
    }
}

/// Whole random traces with clocks that differ: the follower says of each goroutine what the replay
/// says.
#[test]
fn a_follower_tells_what_the_replay_tells() {
    for seed in 0..20 {
        let options =
            Options { seed, procs: 4, ms: 6, n_steps: 4_000, buffer: 50, skew: 3_000, warm_up: 0 };
        let bytes = file(options.procs, &simulation::simulate(options), &[]);
        let (mut told, trace) = (Told::default(), Trace::read(&bytes[..], |_| ()).unwrap());
        replay(&trace, &mut told);
        let (follower, all) = follow(&bytes);
        assert_eq!(follower.n_lost(), 0, "seed {seed}");
        let mut followed: BTreeMap<u64, Vec<Kind>> = BTreeMap::new();
        for happening in all {
            let kind = match happening.step {
                Step::Appears(_) => Kind::GoCreate,
                Step::Starts => Kind::GoStart,
                Step::Stops(_) => Kind::GoStop,
                Step::Freezes => Kind::GoFreeze,
                Step::Waits(_) => Kind::GoBlock,
                Step::Wakes { .. } => Kind::GoUnblock,
                Step::Ends(_) => Kind::GoEnd,
                Step::CallStarts | Step::CallStops => continue,
            };
            followed.entry(happening.goroutine).or_default().push(kind);
        }
        assert!(followed.len() > 20, "seed {seed}");
        assert_eq!(followed, told.0, "seed {seed}");
    }
}

/// Damaged traces are refused or followed; nothing grows without a bound and nothing panics.
#[test]
fn damaged_traces_are_followed_as_far_as_they_go() {
    let bytes = recorded(&[], &[buffers(&story()), buffers(&story())]);
    for at in 0..bytes.len() {
        for flip in [0x01, 0x80, 0xff] {
            let mut damaged = bytes.clone();
            damaged[at] ^= flip;
            let Ok(mut reader) = Reader::new(&damaged[..]) else { continue };
            let mut follower = Follower::new(reader.header().clone());
            let mut n = 0;
            while let Ok(Some(section)) = reader.next() {
                if let Section::Clock(_) | Section::Block(_) = section {
                    n += 1;
                }
                follower.take(section, &mut |_| n += 1);
            }
            assert!(n < 1_000);
        }
    }
}

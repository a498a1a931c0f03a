//! Files keep what is written, and no bytes make the reader panic.

use heist_trace::file::{
    Clock, Drops, Ending, Frame, Goroutine, Header, Reader, Section, Site, State, TicksClock,
    Trace, Writer,
};
use heist_trace::record::{Context, Kind, Record, SUBJECT_MASK};
use proptest::prelude::*;
use std::sync::Arc;

fn kinds() -> impl Strategy<Value = Kind> {
    (0..Kind::ALL.len()).prop_map(|at| Kind::ALL[at])
}

/// Mostly what a runtime writes, sometimes anything.
fn records() -> impl Strategy<Value = Vec<Record>> {
    let step = prop_oneof![9 => 0_u64..5_000, 1 => any::<u64>()];
    let subject = prop_oneof![9 => 0_u64..300, 1 => 0..=SUBJECT_MASK];
    let number = prop_oneof![9 => 0_u16..9, 1 => any::<u16>()];
    let record = (step, kinds(), any::<u8>(), subject, number);
    prop::collection::vec(record, 0..200).prop_map(|steps| {
        let mut time = 1_u64 << 50;
        let record = |(step, kind, detail, subject, number)| {
            time = time.wrapping_add(step);
            Record::new(time, kind, detail, subject, number)
        };
        steps.into_iter().map(record).collect()
    })
}

fn contexts() -> impl Strategy<Value = Context> {
    let numbers = (any::<u32>(), any::<u32>(), any::<u64>(), any::<u32>(), any::<u16>());
    let state = (0..=SUBJECT_MASK, any::<u16>(), any::<bool>(), any::<bool>(), any::<u64>());
    (numbers, state).prop_map(|(a, b)| Context {
        writer: a.0,
        sequence: a.1,
        ticks: a.2,
        p: a.3,
        p_number: a.4,
        goroutine: b.0,
        goroutine_number: b.1,
        in_call: b.2,
        spinning: b.3,
        dropped: b.4,
    })
}

fn header() -> Header {
    Header {
        ticks_clock: TicksClock::Tsc,
        pid: 77,
        program: "prögram".to_owned(),
        procs: 16,
        wait_reasons: vec!["sleep".to_owned(), "select".to_owned()],
    }
}

fn site() -> Site {
    Site { file: "src/main.rs".to_owned(), line: 12, column: 5 }
}

/// A file with each kind of section.
fn whole_file(blocks: &[(Context, Vec<Record>)]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let clock = Clock { ticks: 5, monotonic_ns: 6, unix_ns: u64::MAX };
    writer.clock(&clock).unwrap();
    assert_eq!(writer.string("").unwrap(), 0);
    let first = writer.string("first").unwrap();
    assert_ne!(writer.string("second").unwrap(), first);
    assert_eq!(writer.string("first").unwrap(), first);
    let message = writer.new_string("first").unwrap();
    assert_ne!(message, first);
    assert_ne!(writer.string("third").unwrap(), message);
    let frame = Frame { function: "main".to_owned(), file: "main.rs".to_owned(), line: 3 };
    writer.define_stack(9, &[frame]).unwrap();
    for (context, records) in blocks {
        writer.block(context, records, |address| (address != 0).then(site)).unwrap();
    }
    let goroutine = Goroutine {
        id: 3,
        parent: 1,
        number: 4,
        state: State::Waiting,
        wait_reason: 1,
        class: 2,
        is_task: true,
        site: Some(site().into()),
        name: "worker".to_owned(),
    };
    writer.snapshot(99, &[goroutine, Goroutine::default()]).unwrap();
    writer.drops(Drops { writer: 3, records: 1 << 40 }).unwrap();
    writer.finish().unwrap()
}

/// Reads as far as it goes. What matters is that it comes back.
fn read_all(bytes: &[u8]) -> (usize, Ending) {
    let Ok(mut reader) = Reader::new(bytes) else {
        return (0, Ending::NotReached);
    };
    let mut n_records = 0;
    while let Ok(Some(section)) = reader.next() {
        if let Section::Block(block) = section {
            n_records += block.events().count();
        }
    }
    (n_records, reader.ending())
}

/// A long site that many goroutines have is in memory once.
#[test]
fn goroutines_share_their_site() {
    let site = Arc::new(site());
    let goroutine = Goroutine { site: Some(site), ..Goroutine::default() };
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    writer.snapshot(1, &[goroutine.clone(), goroutine]).unwrap();
    let trace = Trace::read(&writer.finish().unwrap()[..], |_| ()).unwrap();
    let sites: Vec<_> = trace.snapshots[0].1.iter().filter_map(|g| g.site.as_ref()).collect();
    assert!(Arc::ptr_eq(sites[0], sites[1]));
}

#[test]
fn every_part_of_a_file_is_read_back() {
    let trace = Trace::read(&whole_file(&[])[..], |_| ()).unwrap();
    assert_eq!(trace.header, header());
    assert_eq!(trace.clocks[0].unix_ns, u64::MAX);
    assert_eq!(
        [1, 2, 3, 4].map(|number| &*trace.strings[&number]),
        ["first", "second", "first", "third"]
    );
    assert_eq!(trace.stacks[&9][0].line, 3);
    let (ticks, goroutines) = &trace.snapshots[0];
    assert_eq!((*ticks, goroutines.len()), (99, 2));
    assert_eq!(goroutines[0].site.as_deref(), Some(&site()));
    assert_eq!((&*goroutines[0].name, goroutines[0].state), ("worker", State::Waiting));
    assert_eq!(goroutines[1], Goroutine::default());
    assert_eq!(trace.drops, [Drops { writer: 3, records: 1 << 40 }]);
    assert!(trace.is_complete());
}

#[test]
fn another_file_is_refused_with_a_reason() {
    let error = |bytes: &[u8]| Trace::read(bytes, |_| ()).unwrap_err().to_string();
    assert_eq!(error(b""), "byte 0: this is not a trace of heist");
    assert_eq!(error(b"go 1.26 trace\0\0\0"), "byte 0: this is not a trace of heist");
    let whole = whole_file(&[]);
    assert_eq!(error(&whole[..20]), "byte 8: the trace ends before its header");
    let mut newer = whole.clone();
    newer[10] = 9;
    assert_eq!(error(&newer), "byte 10: the trace has version 9; this program reads 1");
    let mut endless = whole.clone();
    endless.truncate(8);
    endless.extend([1, 0xff, 0xff, 0xff, 0xff, 0x0f]);
    assert_eq!(error(&endless), "byte 8: a section is longer than the limit");
}

#[test]
fn a_record_without_kind_is_refused_and_leaves_the_file_whole() {
    let mut writer = Writer::new(Vec::new(), &header()).unwrap();
    let context = Context::default();
    assert!(writer.block(&context, &[Record::default()], |_| None).is_err());
    writer.block(&context, &[Record::new(1, Kind::MPark, 0, 0, 0)], |_| None).unwrap();
    let trace = Trace::read(&writer.finish().unwrap()[..], |_| ()).unwrap();
    assert_eq!(trace.n_records(), 1);
}

#[test]
fn sections_of_later_versions_are_skipped() {
    let mut bytes = Writer::new(Vec::new(), &header()).unwrap().finish().unwrap();
    let end = bytes.split_off(bytes.len() - 4);
    assert_eq!(end, [9, 2, 0, 0]);
    bytes.extend([200, 3, 1, 2, 3]);
    bytes.extend(end);
    assert!(Trace::read(&bytes[..], |_| ()).unwrap().is_complete());
}

/// A goroutine that starts, wakes another one and waits: five bytes an event.
#[test]
fn an_event_takes_about_five_bytes() {
    let mut records = Vec::new();
    let mut time = 1 << 40;
    for round in 0..1_000_u64 {
        let (g, other) = (1_000 + round % 8, 1_000 + (round + 1) % 8);
        let number = (round / 8 * 2) as u16;
        for (kind, subject, number) in [
            (Kind::GoStart, g, number + 1),
            (Kind::GoUnblock, other, number),
            (Kind::GoBlock, g, number + 2),
        ] {
            time += 900;
            records.push(Record::new(time, kind, 1, subject, number));
        }
    }
    let context = Context { writer: 1, ticks: 1 << 40, ..Context::default() };
    let empty = whole_file(&[(context, Vec::new())]).len();
    let n_bytes = whole_file(&[(context, records.clone())]).len() - empty;
    assert!(n_bytes < records.len() * 6, "{n_bytes} bytes for {} events", records.len());
}

proptest! {
    #[test]
    fn blocks_are_read_as_they_were_written(
        blocks in prop::collection::vec((contexts(), records()), 0..5),
    ) {
        let bytes = whole_file(&blocks);
        let trace = Trace::read(&bytes[..], |_| ()).unwrap();
        prop_assert_eq!(trace.blocks.len(), blocks.len());
        for (read, (context, written)) in trace.blocks.iter().zip(&blocks) {
            prop_assert_eq!(&read.context, context);
            prop_assert_eq!(read.records.len(), written.len());
            for (&read, &written) in read.records.iter().zip(written) {
                if written.kind() == Some(Kind::Site) {
                    let number = u64::from(written.subject() != 0);
                    prop_assert_eq!(read, written.with_subject(number));
                } else {
                    prop_assert_eq!(read, written);
                }
            }
        }
    }

    #[test]
    fn a_file_that_ends_early_is_read_up_to_its_last_section(
        blocks in prop::collection::vec((contexts(), records()), 1..4),
        part in 0.0..1.0_f64,
    ) {
        let bytes = whole_file(&blocks);
        let (n_whole, ending) = read_all(&bytes);
        prop_assert_eq!(ending, Ending::Complete);
        let cut = (bytes.len() as f64 * part) as usize;
        let (n_cut, ending) = read_all(&bytes[..cut]);
        prop_assert!(n_cut <= n_whole);
        prop_assert!(ending != Ending::Complete);
        if let Ending::Truncated { offset } = ending {
            prop_assert!(offset as usize <= cut);
            prop_assert_eq!(read_all(&bytes[..offset as usize]).0, n_cut);
        }
    }

    #[test]
    fn damaged_files_do_not_harm_the_reader(
        blocks in prop::collection::vec((contexts(), records()), 1..3),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
        lost in any::<prop::sample::Index>(),
    ) {
        let mut bytes = whole_file(&blocks);
        for (place, byte) in changes {
            let at = place.index(bytes.len());
            bytes[at] = byte;
        }
        read_all(&bytes);
        bytes.remove(lost.index(bytes.len()));
        read_all(&bytes);
    }

    #[test]
    fn any_bytes_do_not_harm_the_reader(
        tail in prop::collection::vec(any::<u8>(), 0..400),
    ) {
        let mut bytes = Writer::new(Vec::new(), &header()).unwrap().finish().unwrap();
        bytes.truncate(bytes.len() - 4);
        bytes.extend(tail);
        read_all(&bytes);
    }
}

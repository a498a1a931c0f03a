//! Other tools can read what is converted.

mod harness;

use harness::simulation::{Options, simulate};
use harness::{Buffers, file, trace};
use heist_trace::file::{Goroutine, Site, State, Trace};
use heist_trace::{go, perfetto, summary};
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

fn options(seed: u64) -> Options {
    let warm_up = if seed.is_multiple_of(2) { 0 } else { 150 };
    Options {
        seed: seed * 7919 + 1,
        procs: 1 + (seed % 5) as u32,
        ms: 1 + (seed % 7) as u32,
        n_steps: 3_000,
        buffer: 50,
        skew: seed % 3 * 400,
        warm_up,
    }
}

/// Loses every ninth buffer.
fn damaged(mut buffers: Buffers) -> Buffers {
    for lost in (1..buffers.len()).rev().step_by(9) {
        buffers.remove(lost);
    }
    buffers
}

/// The Go tool that GO or PATH names, if it can show traces.
fn go_tool() -> Option<std::ffi::OsString> {
    let tool = std::env::var_os("GO").unwrap_or_else(|| "go".into());
    let mut command = Command::new(&tool);
    command.args(["tool", "-n", "trace"]).env("GOTOOLCHAIN", "local");
    let found = command.output().is_ok_and(|output| output.status.success());
    if !found {
        eprintln!("SKIPPED: there is no Go tool in GO or on PATH");
    }
    found.then_some(tool)
}

#[track_caller]
fn go_accepts(tool: &std::ffi::OsStr, trace: &Trace, name: &str) {
    let (bytes, written) = go::convert(trace, Vec::new(), |_| ()).unwrap();
    assert!(written.n_events > 0);
    go_parses(tool, &bytes, name);
}

#[track_caller]
fn go_accepts_generations(tool: &std::ffi::OsStr, trace: &Trace, name: &str) {
    let n_generations = |ns| {
        let (bytes, _) = go::convert_in_generations(trace, ns, Vec::new(), |_| ()).unwrap();
        go_parses(tool, &bytes, &format!("{name}-{ns}"));
        // The batch of its clocks, from the tag of the frequency on, is in each of them.
        let clocks = b"\x08\x80\x94\xeb\xdc\x03\x33";
        bytes.windows(clocks.len()).filter(|bytes| bytes == clocks).count()
    };
    assert!(n_generations(3_000) > n_generations(u64::MAX), "{name}: there are many generations");
}

#[track_caller]
fn go_parses(tool: &std::ffi::OsStr, bytes: &[u8], name: &str) {
    let path = std::env::temp_dir().join(format!("heist-{}-{name}", std::process::id()));
    std::fs::write(&path, bytes).unwrap();
    let output = Command::new(tool)
        .args(["tool", "trace", "-d=parsed"])
        .arg(&path)
        .env("GOTOOLCHAIN", "local")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{name}: {}", text.lines().next().unwrap_or_default());
    std::fs::remove_file(&path).unwrap();
}

#[test]
fn go_accepts_random_traces() {
    let Some(tool) = go_tool() else { return };
    for seed in 0..12 {
        let buffers = simulate(options(seed));
        go_accepts(&tool, &trace(options(seed).procs, &buffers), &format!("whole-{seed}"));
    }
}

/// Whatever is missing, the result is legal for Go.
#[test]
fn go_accepts_traces_with_gaps() {
    let Some(tool) = go_tool() else { return };
    for seed in 0..12 {
        let buffers = damaged(simulate(options(seed)));
        go_accepts(&tool, &trace(options(seed).procs, &buffers), &format!("gaps-{seed}"));
    }
}

/// MT-18: each generation introduces everything again, whatever state it is in.
#[test]
fn go_accepts_many_generations() {
    let Some(tool) = go_tool() else { return };
    for seed in 0..4 {
        let (buffers, procs) = (simulate(options(seed)), options(seed).procs);
        go_accepts_generations(&tool, &trace(procs, &buffers), &format!("many-whole-{seed}"));
        let name = format!("many-gaps-{seed}");
        go_accepts_generations(&tool, &trace(procs, &damaged(buffers)), &name);
    }
}

#[test]
fn go_is_told_of_goroutines_that_did_nothing() {
    let site = Site { file: "quiet.rs".to_owned(), line: 7, column: 1 };
    let states = [State::Waiting, State::Runnable, State::InCall, State::Unborn];
    let quiet = states.iter().enumerate().map(|(at, &state)| Goroutine {
        id: 1_000_000 + at as u64,
        state,
        site: Some(site.clone().into()),
        ..Goroutine::default()
    });
    let quiet: Vec<_> = quiet.collect();
    let buffers = simulate(options(2));
    let bytes = file(options(2).procs, &buffers, &quiet);
    let trace = Trace::read(&bytes[..], |_| ()).unwrap();
    let (converted, _) = go::convert(&trace, Vec::new(), |_| ()).unwrap();
    let has_site = converted.windows(10).any(|bytes| bytes == b"quiet.rs:7");
    assert!(has_site, "the site of a quiet goroutine is a string of the trace");
    if let Some(tool) = go_tool() {
        go_accepts(&tool, &trace, "quiet");
    }
}

/// A field of a protobuf message: its number and its value.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for shift in (0..).step_by(7) {
        let (&byte, rest) = bytes.split_first().expect("a number is whole");
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            break;
        }
    }
    value
}

/// The fields of a message.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => {
                let (value, rest) = bytes.split_first_chunk().expect("eight bytes");
                bytes = rest;
                Field::Number(u64::from_le_bytes(*value))
            }
            2 => {
                let length = varint(&mut bytes) as usize;
                let (value, rest) = bytes.split_at(length);
                bytes = rest;
                Field::Bytes(value)
            }
            other => panic!("wire type {other}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn number(fields: &[(u64, Field<'_>)], field: u64) -> Option<u64> {
    fields.iter().find_map(|(number, value)| match value {
        Field::Number(value) if *number == field => Some(*value),
        _ => None,
    })
}

fn message<'a>(fields: &[(u64, Field<'a>)], field: u64) -> Option<&'a [u8]> {
    fields.iter().find_map(|(number, value)| match value {
        Field::Bytes(value) if *number == field => Some(*value),
        _ => None,
    })
}

/// Reads what Perfetto would read, and checks what it relies on.
fn check_perfetto(trace: &Trace) -> BTreeMap<u64, u64> {
    let (bytes, n_packets) = perfetto::convert(trace, Vec::new(), |_| ()).unwrap();
    let (mut tracks, mut names) = (BTreeSet::new(), BTreeSet::new());
    let (mut depth, mut flows) = (BTreeMap::<u64, i64>::new(), BTreeSet::new());
    let (mut kinds, mut last, mut n) = (BTreeMap::new(), 0, 0);
    for (field, packet) in fields(&bytes) {
        let Field::Bytes(packet) = packet else { panic!("a trace is packets") };
        assert_eq!(field, 1);
        n += 1;
        let packet = fields(packet);
        if let Some(track) = message(&packet, 60) {
            assert!(tracks.insert(number(&fields(track), 1).expect("a track has a number")));
        }
        if let Some(interned) = message(&packet, 12)
            && let Some(name) = message(&fields(interned), 2)
        {
            names.insert(number(&fields(name), 1).expect("a name has a number"));
        }
        let Some(event) = message(&packet, 11) else { continue };
        let time = number(&packet, 8).expect("an event has a time");
        assert!(time >= last, "events are in order");
        last = time;
        let event = fields(event);
        let track = number(&event, 11).expect("an event has a track");
        assert!(tracks.contains(&track), "a track is described before it is used");
        let kind = number(&event, 9).expect("an event has a type");
        *kinds.entry(kind).or_insert(0) += 1;
        if let Some(name) = number(&event, 10) {
            assert!(names.contains(&name), "a name is written before it is used");
        }
        match kind {
            1 => *depth.entry(track).or_default() += 1,
            2 => *depth.entry(track).or_default() -= 1,
            4 => assert!(number(&event, 30).is_some(), "a counter has a value"),
            _ => {}
        }
        assert!((0..=1).contains(&depth.get(&track).copied().unwrap_or(0)), "slices are flat");
        flows.extend(number(&event, 47));
        if let Some(end) = number(&event, 48) {
            assert!(flows.remove(&end), "an arrow that ends has begun");
        }
    }
    assert_eq!(n, n_packets);
    assert!(depth.values().all(|&depth| depth == 0), "all slices end");
    kinds
}

#[test]
fn perfetto_gets_slices_arrows_and_counters() {
    let options = options(3);
    let kinds = check_perfetto(&trace(options.procs, &simulate(options)));
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), [1, 2, 3, 4]);
    assert_eq!(kinds[&1], kinds[&2]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn perfetto_is_consistent_whatever_is_missing(seed in 0..1_000_u64) {
        check_perfetto(&trace(options(seed).procs, &damaged(simulate(options(seed)))));
    }

    #[test]
    fn summaries_fit_the_terminal(seed in 0..1_000_u64) {
        let options = options(seed);
        let trace = trace(options.procs, &simulate(options));
        let text = summary::summarise(&trace, |_| ()).to_string();
        for line in text.lines() {
            prop_assert!(line.chars().count() <= 80, "{}", line);
        }
    }
}

#[test]
fn conversions_depend_on_nothing_but_the_trace() {
    let trace = trace(4, &simulate(Options { procs: 4, ..options(4) }));
    let go = || go::convert(&trace, Vec::new(), |_| ()).unwrap().0;
    let perfetto = || perfetto::convert(&trace, Vec::new(), |_| ()).unwrap().0;
    assert!(go() == go());
    assert!(perfetto() == perfetto());
}

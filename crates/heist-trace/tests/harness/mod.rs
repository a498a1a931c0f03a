//! Traces for tests: written by hand, and by a small simulated scheduler.

#![allow(dead_code, reason = "each test program uses a part of it")]

pub mod script;
pub mod simulation;

use heist_trace::file::{Clock, Goroutine, Header, Site, TicksClock, Trace, Writer};
use heist_trace::record::{Context, Record};

/// The buffers of a trace.
pub type Buffers = Vec<(Context, Vec<Record>)>;

pub fn header(procs: u32) -> Header {
    Header {
        ticks_clock: TicksClock::Tsc,
        pid: 4_242,
        program: "simulation".to_owned(),
        procs,
        wait_reasons: ["sleep", "IO wait", "sync.Mutex.Lock", "chan receive", "select"]
            .map(str::to_owned)
            .to_vec(),
    }
}

/// A tick is a third of a nanosecond.
pub fn file(procs: u32, buffers: &Buffers, snapshot: &[Goroutine]) -> Vec<u8> {
    let mut writer = Writer::new(Vec::new(), &header(procs)).unwrap();
    let ends = buffers.iter().map(|(context, records)| {
        records.iter().fold(context.ticks, |last, record| record.full_time(last))
    });
    let starts = buffers.iter().map(|(context, _)| context.ticks);
    let (first, last) = (starts.min().unwrap_or(0), ends.max().unwrap_or(0) + 3);
    let wall = 1_700_000_000_000_000_000;
    writer.clock(&Clock { ticks: first, monotonic_ns: 1_000, unix_ns: wall }).unwrap();
    for text in ["task", "region", "inner", "message", "category", "worker"] {
        writer.string(text).unwrap();
    }
    if !snapshot.is_empty() {
        writer.snapshot(first, snapshot).unwrap();
    }
    for (context, records) in buffers {
        writer.block(context, records, |address| Some(site(address))).unwrap();
    }
    let span = (last - first) / 3;
    writer.clock(&Clock { ticks: last, monotonic_ns: 1_000 + span, unix_ns: wall + span }).unwrap();
    writer.finish().unwrap()
}

pub fn site(address: u64) -> Site {
    Site { file: format!("src/part{}.rs", address % 3), line: 10 + address as u32, column: 5 }
}

pub fn trace(procs: u32, buffers: &Buffers) -> Trace {
    Trace::read(&file(procs, buffers, &[])[..], |_| ()).unwrap()
}

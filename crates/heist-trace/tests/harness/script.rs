//! A trace written by hand: a list of events with their writers.

use super::Buffers;
use heist_trace::record::{Context, Kind, Record};

/// An event of a script: time in µs, writer, kind, detail, subject, number.
pub type Line = (u64, u32, Kind, u8, u64, u16);

pub fn ticks(us: u64) -> u64 {
    1_000_000 + us * 3_000
}

/// One buffer for each writer, with Ms that begin with nothing.
pub fn buffers(lines: &[Line]) -> Buffers {
    let mut buffers: Buffers = Vec::new();
    for &(us, writer, kind, detail, subject, number) in lines {
        let at = match buffers.iter().position(|(context, _)| context.writer == writer) {
            Some(at) => at,
            None => {
                let context = Context { writer, ticks: ticks(0), ..Context::default() };
                buffers.push((context, Vec::new()));
                buffers.len() - 1
            }
        };
        buffers[at].1.push(Record::new(ticks(us), kind, detail, subject, number));
    }
    buffers
}

/// M 0 makes goroutine 1, wakes M 1, which runs it; goroutine 1 waits and is woken by goroutine 2,
/// which then ends.
pub fn story() -> Vec<Line> {
    use Kind::*;
    vec![
        (1, 1, ProcStart, 0, 0, 1),
        (2, 1, GoCreate, 0, 1, 0),
        (3, 1, GoCreate, 0, 2, 0),
        (4, 1, GoStart, 0, 2, 1),
        (5, 2, MUnpark, 0, 0, 0),
        (6, 2, ProcStart, 0, 1, 1),
        (7, 2, SpinStart, 0, 0, 0),
        (8, 2, Steal, 0, 0, 1),
        (9, 2, SpinStop, 0, 0, 0),
        (10, 2, GoStart, 3, 1, 1),
        (11, 2, RegionStart, 0, 2, 0),
        (12, 2, RegionStart, 0, 3, 0),
        (13, 2, RegionStop, 0, 3, 0),
        (14, 2, RegionStop, 0, 2, 0),
        (15, 2, GoBlock, 3, 1, 2),
        (16, 2, ProcStop, 0, 1, 2),
        (17, 2, MPark, 0, 0, 0),
        (20, 1, GoUnblock, 0, 1, 2),
        (21, 1, CallStart, 0, 2, 0),
        (22, 0, ProcTake, 0, 0, 2),
        (22, 0, Victim, 0, 0, 0),
        (23, 2, MUnpark, 0, 0, 0),
        (24, 2, ProcStart, 0, 0, 3),
        (25, 2, GoStart, 0, 1, 3),
        (30, 1, CallStop, 1, 2, 0),
        (31, 1, GoFreeze, 2, 2, 1),
        (32, 2, GoEnd, 0, 1, 3),
        (33, 2, ProcStop, 0, 0, 4),
        (34, 1, ProcStart, 0, 0, 5),
        (35, 1, GoStart, 5, 2, 2),
        (36, 1, WorldStop, 0, 0, 0),
        (37, 1, WorldStart, 0, 0, 0),
        (40, 1, GoEnd, 0, 2, 2),
        (41, 1, ProcStop, 0, 0, 6),
        (42, 1, MPark, 0, 0, 0),
    ]
}

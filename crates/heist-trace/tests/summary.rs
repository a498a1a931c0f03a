//! Sums are what the events say.

mod harness;

use harness::script::{Line, buffers, story};
use harness::trace;
use heist_trace::check::{Limits, check};
use heist_trace::file::{Clock, TicksClock};
use heist_trace::record::Kind::*;
use heist_trace::summary::{Limit, Summary, summarise};
use heist_trace::{go, perfetto};

fn summary(lines: &[Line]) -> Summary {
    summarise(&trace(2, &buffers(lines)), |_| ())
}

/// Nanoseconds of a script are not exact by one or two, because ticks are shorter.
#[track_caller]
fn is_about(ns: u64, us: u64) {
    assert!(ns.abs_diff(us * 1_000) <= 20, "{ns} ns, not {us} µs");
}

#[test]
fn the_story_adds_up() {
    let summary = summary(&story());
    is_about(summary.span_ns, 41);
    // P 0: goroutine 2 from 4 to 22, goroutine 1 from 25 to 32, goroutine 2 from 35 to 40.
    is_about(summary.procs[&0].running, 18 + 7 + 5);
    // P 1: goroutine 1 from 10 to 15, a search from 7 to 9.
    is_about(summary.procs[&1].running, 5);
    is_about(summary.procs[&1].searching, 2);
    let site = summary.sites.values().next().unwrap();
    assert_eq!(site.n_goroutines, 2);
    is_about(site.in_call, 9);
    is_about(site.waiting["chan receive"], 5);
    // Goroutine 1: from 2 to 10, and from 20 to 25; goroutine 2: from 3 to 4, frozen from 31 to 35.
    is_about(site.runnable, 8 + 5 + 1 + 4);
    assert_eq!(summary.steals[&(1, 0)], (1, 1));
    assert_eq!((summary.n_wake_ups, summary.n_futile), (2, 0));
    assert_eq!(summary.world_stops.0, 1);
    let longest = &summary.long_waits[0];
    assert_eq!(longest.goroutine, 1);
    is_about(longest.ns, 8);
}

#[test]
fn a_goroutine_in_the_way_is_named() {
    let summary = summary(&[
        (1, 1, ProcStart, 0, 0, 1),
        (2, 1, GoCreate, 0, 1, 0),
        (3, 1, GoCreate, 0, 2, 0),
        (4, 1, GoStart, 0, 1, 1),
        (900, 1, GoStop, 2, 1, 1),
        (901, 1, GoStart, 0, 2, 1),
    ]);
    let longest = &summary.long_waits[0];
    assert_eq!((longest.goroutine, longest.in_the_way), (2, 1));
    is_about(longest.in_the_way_ns, 896);
    assert_eq!(summary.n_preempted, 1);
}

/// A damaged file may have times that are centuries apart.
#[test]
fn absurd_times_do_not_overflow() {
    let mut lines = vec![(1, 1, ProcStart, 0, 0, 1), (1, 2, ProcStart, 0, 1, 1)];
    for g in 1..=8 {
        lines.push((1, 1, GoCreate, 0, g, 0));
    }
    lines.push((2, 1, GoStart, 0, 1, 1));
    lines.push((2, 2, GoStart, 0, 2, 1));
    lines.push((100, 1, GoStop, 0, 1, 1));
    lines.push((100, 2, GoBlock, 0, 2, 2));
    let mut trace = trace(2, &buffers(&lines));
    trace.header.ticks_clock = TicksClock::Tsc;
    for start in [0, u64::MAX - 1_000] {
        trace.clocks = vec![
            Clock { ticks: 0, monotonic_ns: start, unix_ns: start },
            Clock { ticks: 1, monotonic_ns: u64::MAX, unix_ns: u64::MAX },
        ];
        assert!(!summarise(&trace, |_| ()).to_string().is_empty());
        assert!(check(&trace, &Limits::default()).n_events > 10);
        assert!(go::convert(&trace, std::io::sink(), |_| ()).is_ok());
        assert!(perfetto::convert(&trace, std::io::sink(), |_| ()).is_ok());
    }
}

/// Each verdict, from a program that is limited by it.
#[test]
fn the_verdict_follows_the_rules() {
    let limit = |lines: &[Line]| summary(lines).verdict().limit;
    let start: [Line; 4] = [
        (1, 1, ProcStart, 0, 0, 1),
        (2, 1, GoCreate, 0, 1, 0),
        (3, 1, GoStart, 0, 1, 1),
        (4, 2, ProcStart, 0, 1, 1),
    ];
    let and = |lines: &[Line]| [&start[..], lines].concat();
    assert_eq!(limit(&[]), Limit::Unknown);
    assert_eq!(limit(&and(&[(900, 1, GoEnd, 0, 1, 1)])), Limit::OneGoroutine);
    assert_eq!(
        limit(&and(&[
            (5, 1, GoCreate, 0, 2, 0),
            (6, 2, GoStart, 0, 2, 1),
            (900, 1, GoEnd, 0, 1, 1),
            (900, 2, GoEnd, 0, 2, 1),
        ])),
        Limit::Processors
    );
    assert_eq!(
        limit(&and(&[(5, 1, WorldStop, 0, 0, 0), (800, 1, WorldStart, 0, 0, 0)])),
        Limit::WorldStops
    );
    assert_eq!(
        limit(&and(&[
            (5, 1, GoCreate, 0, 2, 0),
            (6, 1, GoCreate, 0, 3, 0),
            (8, 1, GoBlock, 0, 1, 2),
            (900, 1, GoStart, 0, 2, 1),
        ])),
        Limit::WakeUps
    );
    assert_eq!(
        limit(&and(&[
            (5, 1, GoCreate, 0, 2, 0),
            (6, 1, GoBlock, 1, 1, 2),
            (7, 1, GoStart, 0, 2, 1),
            (8, 1, GoBlock, 1, 2, 2),
            (900, 2, ProcStop, 0, 1, 2),
        ])),
        Limit::Waiting
    );
    assert_eq!(limit(&and(&[(6, 1, GoEnd, 0, 1, 1), (900, 2, ProcStop, 0, 1, 2)])), Limit::Idle);
}

//! The validator accepts what a scheduler does, and refuses what it must not do.

mod harness;

use harness::script::{self, Line, buffers, story};
use harness::simulation::{Options, simulate};
use harness::{Buffers, trace};
use heist_trace::check::{Limits, check};
use heist_trace::model::Rule;
use heist_trace::record::{Context, Kind, Kind::*, Record};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn broken(procs: u32, buffers: &Buffers) -> BTreeSet<Rule> {
    let report = check(&trace(procs, buffers), &Limits::default());
    report.findings.iter().map(|finding| finding.rule).collect()
}

fn options() -> impl Strategy<Value = Options> {
    (any::<u64>(), 1..5_u32, 1..7_u32, 1..600_usize, 1..60_usize, 0..3_000_u64, 0..200_usize)
        .prop_map(|(seed, procs, ms, n_steps, buffer, skew, warm_up)| Options {
            seed,
            procs,
            ms,
            n_steps,
            buffer,
            skew,
            warm_up,
        })
}

#[test]
fn the_story_is_legal() {
    let report = check(&trace(2, &buffers(&story())), &Limits::default());
    assert!(report.findings.is_empty(), "{}", report.findings[0]);
    assert_eq!(report.n_events, story().len() as u64 - 1, "a victim belongs to its event");
}

/// M 0 runs goroutine 1.
const RUNNING: [Line; 3] =
    [(1, 1, ProcStart, 0, 0, 1), (2, 1, GoCreate, 0, 1, 0), (3, 1, GoStart, 0, 1, 1)];

#[track_caller]
fn breaks(rule: Rule, lines: &[Line]) {
    assert_eq!(broken(2, &buffers(lines)), BTreeSet::from([rule]));
}

/// The rule is broken after M 0 has begun to run goroutine 1.
#[track_caller]
fn breaks_running(rule: Rule, lines: &[Line]) {
    breaks(rule, &[&RUNNING, lines].concat());
}

/// Each of these breaks one rule, and no other rule finds it.
#[test]
fn each_rule_about_goroutines_is_needed() {
    breaks_running(Rule::Order, &[(4, 1, GoBlock, 0, 1, 3)]);
    breaks_running(Rule::CreatedOnce, &[(4, 1, GoCreate, 0, 1, 0)]);
    breaks_running(Rule::DeadStaysDead, &[(4, 1, GoEnd, 0, 1, 1), (5, 1, GoUnblock, 0, 1, 1)]);
    breaks_running(Rule::StartsRunnable, &[(4, 1, GoBlock, 0, 1, 2), (5, 1, GoStart, 0, 1, 3)]);
    breaks_running(Rule::OneGoroutine, &[(4, 1, GoCreate, 0, 2, 0), (5, 1, GoStart, 0, 2, 1)]);
    breaks_running(Rule::LeavesWhereItRuns, &[(4, 2, GoStop, 0, 1, 1)]);
    breaks_running(Rule::WakesWaiting, &[(4, 1, GoUnblock, 0, 1, 1)]);
    breaks_running(Rule::Calls, &[(4, 1, CallStop, 0, 1, 0)]);
    breaks_running(
        Rule::Regions,
        &[(4, 1, RegionStart, 0, 2, 0), (5, 1, RegionStart, 0, 3, 0), (6, 1, RegionStop, 0, 2, 0)],
    );
    breaks(Rule::RunsWithP, &RUNNING[1..]);
}

#[test]
fn each_rule_about_ps_and_ms_is_needed() {
    breaks(Rule::OneP, &[(1, 1, ProcStart, 0, 0, 1), (2, 1, ProcStart, 0, 1, 1)]);
    breaks(Rule::OneHolder, &[(1, 1, ProcStart, 0, 0, 1), (2, 2, ProcStart, 0, 0, 2)]);
    breaks(Rule::LeavesHolder, &[(1, 1, ProcStart, 0, 0, 1), (2, 2, ProcStop, 0, 0, 2)]);
    breaks(Rule::ProcNumber, &[(1, 1, ProcStart, 0, 0, 1), (2, 1, ProcStop, 0, 0, 3)]);
    breaks(Rule::ProcExists, &[(1, 1, ProcStart, 0, 7, 1)]);
    breaks(Rule::Asleep, &[(1, 1, MPark, 0, 0, 0), (2, 1, SpinStart, 0, 0, 0)]);
    breaks(Rule::Spins, &[(1, 1, SpinStop, 0, 0, 0)]);
    let spin = |writer: u32| (writer.into(), writer, SpinStart, 0, 0, 0);
    breaks(Rule::SpinBound, &[spin(1), spin(2), spin(3)]);
    breaks(Rule::Steals, &[(1, 1, Steal, 0, 0, 1)]);
    breaks(Rule::World, &[(1, 1, WorldStop, 0, 0, 0), (2, 1, WorldStop, 0, 0, 0)]);
}

#[test]
fn each_rule_about_time_is_needed() {
    breaks(Rule::WriterTime, &[(90, 1, SpinStart, 0, 0, 0), (50, 1, SpinStop, 0, 0, 0)]);
    breaks_running(
        Rule::GoroutineTime,
        &[(4, 1, GoBlock, 0, 1, 2), (200_000, 2, GoUnblock, 0, 1, 2), (10, 1, GoStart, 0, 1, 3)],
    );
    let mut lines = vec![
        (4, 2, ProcStart, 0, 1, 1),
        (5, 2, ProcStop, 0, 1, 2),
        (6, 1, GoCreate, 0, 2, 0),
        (200_000, 1, GoStop, 0, 1, 1),
        (200_001, 1, GoStart, 0, 2, 1),
    ];
    let stalled = [&RUNNING, &lines[..]].concat();
    assert_eq!(broken(2, &buffers(&stalled)), BTreeSet::new(), "nothing ran at all");
    lines.splice(3..3, (1..200).map(|ms| (ms * 1_000, 1, Queues, 0, 1, 0)));
    breaks_running(Rule::WorkConservation, &lines);
    let mut lines = buffers(&RUNNING);
    let context = Context { writer: 1, sequence: 1, ticks: script::ticks(9), ..lines[0].0 };
    let wrong = Context { p: 1, p_number: 1, goroutine: 7, ..context };
    lines.push((wrong, Vec::new()));
    assert_eq!(broken(2, &lines), BTreeSet::from([Rule::Contexts]));
}

#[test]
fn every_rule_has_such_a_test() {
    let text = include_str!("check.rs");
    for &rule in Rule::ALL {
        assert!(text.contains(&format!("Rule::{rule:?}")), "nothing breaks only {rule:?}");
    }
}

#[test]
fn a_finding_says_what_led_to_it() {
    let lines = [&RUNNING[..], &[(4, 2, GoStop, 0, 1, 1)]].concat();
    let report = check(&trace(2, &buffers(&lines)), &Limits::default());
    let text = report.findings[0].to_string();
    assert!(
        text.starts_with(
            "0.000003999 s: leaves-where-it-runs, M 1, goroutine 1: \
             goroutine 1 does not run here; it is running on M 0"
        ) || text.starts_with(
            "0.000004000 s: leaves-where-it-runs, M 1, goroutine 1: \
             goroutine 1 does not run here; it is running on M 0"
        ),
        "{text}"
    );
    assert!(text.contains("M 0       GoStart 1 (detail 0, number 1)"), "{text}");
}

/// What was dropped is not known, and is no error.
#[test]
fn dropped_buffers_are_no_error() {
    (1..40).for_each(drop_buffers);
}

fn drop_buffers(seed: u64) {
    let mut all = simulate(Options {
        seed,
        procs: 3,
        ms: 5,
        n_steps: 5_000,
        buffer: 40,
        skew: 500,
        warm_up: 0,
    });
    assert_eq!(broken(3, &all), BTreeSet::new());
    for lost in (2..all.len() - 5).rev().step_by(7) {
        let (context, records) = all.remove(lost);
        let next = all.iter_mut().find(|(other, _)| {
            (other.writer, other.sequence) == (context.writer, context.sequence + 1)
        });
        match next {
            Some((next, _)) => next.dropped += records.len() as u64,
            None => all.push((context, records)),
        }
    }
    let report = check(&trace(3, &all), &Limits::default());
    assert!(report.n_gaps > 5);
    assert!(report.findings.is_empty(), "seed {seed}: {}", report.findings[0]);
}

fn changes_state(kind: Kind) -> bool {
    matches!(kind, GoStart | GoBlock | GoUnblock | GoStop | ProcStart | ProcStop)
}

proptest! {
    /// MT-18
    #[test]
    fn traces_of_a_scheduler_are_accepted(options in options()) {
        let buffers = simulate(options);
        let report = check(&trace(options.procs, &buffers), &Limits::default());
        prop_assert!(report.findings.is_empty(), "{}", report.findings[0]);
    }

    /// MT-18
    #[test]
    fn a_trace_that_lacks_an_event_is_refused(
        options in options(),
        place in any::<prop::sample::Index>(),
    ) {
        let mut buffers = simulate(Options { n_steps: 600, warm_up: 0, ..options });
        let mut places = Vec::new();
        for (block, (_, records)) in buffers.iter().enumerate() {
            for (at, record) in records.iter().enumerate() {
                if record.kind().is_some_and(changes_state) {
                    places.push((block, at));
                }
            }
        }
        prop_assume!(!places.is_empty());
        let (block, at) = *place.get(&places);
        let lost = buffers[block].1.remove(at);
        let is_used_again = |record: &Record| {
            let (kind, number) = (record.kind().unwrap(), record.number());
            let same = changes_state(kind) && record.subject() == lost.subject();
            let both_procs = matches!(kind, ProcStart | ProcStop)
                == matches!(lost.kind().unwrap(), ProcStart | ProcStop);
            same && both_procs && number > lost.number()
        };
        prop_assume!(buffers.iter().any(|(_, records)| records.iter().any(is_used_again)));
        prop_assert!(!broken(options.procs, &buffers).is_empty(), "without {:?}", lost);
    }
}

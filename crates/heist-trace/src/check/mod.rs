//! Checks a trace against the rules of the scheduler.
//!
//! What happened before the trace began, or was dropped, is not known and breaks no rule.
//!
//! ```
//! use heist_trace::check::{Limits, check};
//! use heist_trace::file::Trace;
//! let report = check(&Trace::default(), &Limits::default());
//! assert!(report.findings.is_empty());
//! ```

mod finding;
mod idle;

pub use finding::Finding;

use crate::file::Trace;
use crate::model::{Event, Machine, Rule, Visitor, replay};
use crate::record::Kind;
use finding::Recent;
use idle::Idleness;

/// What is still right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For how long a goroutine may be runnable while a P is idle.
    pub wait_ns: u64,
    /// By how much a clock may go back from one event of a writer to the next. The counters of two
    /// processors differ a little.
    pub writer_back_ns: u64,
    /// By how much a clock may go back from one event of a goroutine to the next. A thread can lose
    /// its processor between an action and the record of it.
    pub goroutine_back_ns: u64,
    /// Findings beyond this number are only counted.
    pub max_findings: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            wait_ns: 100_000_000,
            writer_back_ns: 1_000,
            goroutine_back_ns: 100_000_000,
            max_findings: 100,
        }
    }
}

/// The outcome of a check.
#[derive(Clone, Debug, Default)]
pub struct Report {
    /// The first findings, in the order of the trace.
    pub findings: Vec<Finding>,
    /// How many there are in all.
    pub n_findings: usize,
    /// How many events were checked.
    pub n_events: u64,
    /// How often events are missing.
    pub n_gaps: u64,
    /// The time from which on the order of events is a guess, because events are missing that would
    /// tell; only rules about single threads are checked after it.
    pub uncertain_from: Option<u64>,
}

/// Checks a trace.
#[must_use]
pub fn check(trace: &Trace, limits: &Limits) -> Report {
    check_with_progress(trace, limits, |_| ())
}

/// Checks a trace, and tells `progress` from time to time how many events were checked.
#[must_use]
pub fn check_with_progress(trace: &Trace, limits: &Limits, progress: impl FnMut(u64)) -> Report {
    let mut checker = Checker {
        limits: *limits,
        report: Report::default(),
        recent: Recent::default(),
        idleness: Idleness::new(limits.wait_ns),
        last_time: 0,
        progress,
    };
    replay(trace, &mut checker);
    checker.report
}

struct Checker<F> {
    limits: Limits,
    report: Report,
    recent: Recent,
    idleness: Idleness,
    last_time: u64,
    progress: F,
}

impl<F: FnMut(u64)> Checker<F> {
    fn find(&mut self, rule: Rule, event: &Event, machine: Option<&Machine>, words: String) {
        if self.report.uncertain_from.is_some() && !rule.is_local() {
            return;
        }
        self.report.n_findings += 1;
        if self.report.findings.len() < self.limits.max_findings {
            self.report.findings.push(self.recent.finding(rule, event, machine, words));
        }
    }

    fn check_times(&mut self, event: &Event, machine: &Machine) {
        let back = |last: u64| last.saturating_sub(event.raw_time);
        if let Some(m) = machine.m(event.writer)
            && back(m.last_raw) > self.limits.writer_back_ns
        {
            let words = format!("the clock of the writer went back by {} ns", back(m.last_raw));
            self.find(Rule::WriterTime, event, Some(machine), words);
        }
        let id = machine.goroutine_of(event);
        if let Some(g) = machine.g(id).filter(|_| id != 0)
            && back(g.last_raw) > self.limits.goroutine_back_ns
        {
            let words = format!("the clock of goroutine {id} went back by {} ns", back(g.last_raw));
            self.find(Rule::GoroutineTime, event, Some(machine), words);
        }
    }
}

impl<F: FnMut(u64)> Visitor for Checker<F> {
    const CHECKS: bool = true;

    fn before(&mut self, event: &Event, machine: &Machine) {
        self.check_times(event, machine);
        self.idleness.pass(event.time);
        self.recent.push(event, machine);
        if event.kind == Kind::GoStart
            && let Some(words) = self.idleness.check_start(event, machine)
        {
            self.find(Rule::WorkConservation, event, Some(machine), words);
        }
        self.idleness.before(event, machine);
    }

    fn problem(&mut self, rule: Rule, event: &Event, words: String) {
        self.find(rule, event, None, words);
    }

    fn after(&mut self, event: &Event, machine: &Machine) {
        if event.kind == Kind::SpinStart
            && let Some(procs) = machine.n_procs()
            && machine.n_spinning() > procs as usize
        {
            let words = format!("{} Ms search for work, with {procs} Ps", machine.n_spinning());
            self.find(Rule::SpinBound, event, Some(machine), words);
        }
        self.last_time = event.time;
        self.report.n_events += 1;
        if self.report.n_events.is_multiple_of(1 << 16) {
            (self.progress)(self.report.n_events);
        }
    }

    fn gap(&mut self, _writer: u32, time: u64) {
        self.report.n_gaps += 1;
        self.idleness.forget(time);
    }

    fn uncertain(&mut self, time: u64) {
        self.report.uncertain_from = Some(time);
    }

    fn end(&mut self, machine: &Machine) {
        for (id, words) in self.idleness.check_end(self.last_time, machine) {
            let event = Recent::last_event(id, self.last_time);
            self.find(Rule::WorkConservation, &event, Some(machine), words);
        }
    }
}

//! The result of a step, and whether it was right.

use super::figures;
use super::lanes::Lane;
use std::fmt::Debug;
use std::time::Duration;

/// Whether a step was right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    Ok,
    Wrong,
}

/// The row of a step, with its text below the table.
#[derive(Debug, Default)]
pub struct Report {
    /// One sentence: what was done.
    pub done: String,
    /// How long it took.
    pub time: Duration,
    /// The cost of one item.
    pub each: String,
    /// Memory, in the step's own terms; empty to have the growth of the process shown.
    pub memory: String,
    /// Further remarks.
    pub notes: Vec<String>,
    /// Lines that are shown as they are: a table of the step's own.
    pub lines: Vec<String>,
    /// The counters of each P, if the step is about them.
    pub lanes: Vec<Lane>,
    /// The problems that were found.
    pub wrong: Vec<String>,
}

impl Report {
    /// A step that processed `n_items` objects called `item`.
    pub fn new(done: impl Into<String>, time: Duration, n_items: u64, item: &str) -> Self {
        Self {
            done: done.into(),
            time,
            each: format!("{} / {item}", figures::cost(time, n_items)),
            ..Self::default()
        }
    }

    /// A step that could not even finish.
    pub fn failed(problem: impl Into<String>) -> Self {
        Self { done: "did not finish".into(), wrong: vec![problem.into()], ..Self::default() }
    }

    /// Something worth knowing.
    pub fn note(&mut self, text: impl Into<String>) {
        self.notes.push(text.into());
    }

    /// Both have to be equal.
    pub fn expect<T: PartialEq + Debug>(&mut self, what: &str, got: T, expected: T) {
        if got != expected {
            let problem = format!("{what}: {got:?}, expected {expected:?}");
            self.wrong.push(problem);
        }
    }

    /// The condition has to hold.
    pub fn require(&mut self, holds: bool, problem: impl Into<String>) {
        if !holds {
            self.wrong.push(problem.into());
        }
    }

    pub fn verdict(&self) -> Verdict {
        if self.wrong.is_empty() { Verdict::Ok } else { Verdict::Wrong }
    }
}

#[test]
fn a_wrong_result_is_reported_with_both_values() {
    let mut report = Report::new("counted", Duration::from_micros(3), 3, "sheep");
    report.expect("sheep", 3, 3);
    assert_eq!(report.verdict(), Verdict::Ok);
    assert_eq!(report.each, "1.00 µs / sheep");
    report.expect("sheep", 2, 3);
    report.require(false, "the dog is gone");
    assert_eq!(report.verdict(), Verdict::Wrong);
    assert_eq!(report.wrong, ["sheep: 2, expected 3", "the dog is gone"]);
}

//! One broken rule at one place, and how all of them are shown.

use std::fmt::Write;

use crate::source::Source;

#[derive(Debug)]
pub struct Violation {
    pub file: String,
    pub line: usize,
    pub problem: String,
    pub fix: String,
}

impl Violation {
    pub fn new(
        source: &Source,
        line: usize,
        problem: impl Into<String>,
        fix: impl Into<String>,
    ) -> Self {
        Violation { file: source.path.clone(), line, problem: problem.into(), fix: fix.into() }
    }
}

/// Fails with all violations at once, each with its place and a fix.
pub fn refuse(violations: &[Violation]) {
    let mut text = String::new();
    for Violation { file, line, problem, fix } in violations {
        writeln!(text, "{file}:{line}: {problem}\n    fix: {fix}").expect("a String grows");
    }
    assert!(violations.is_empty(), "\n{text}{} violations", violations.len());
}

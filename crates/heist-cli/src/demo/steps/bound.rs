//! Fork and join against the bound of work stealing: time, work and span of six computations.

use super::Step;
use crate::bound::{self, Size};
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub const STEP: Step =
    Step { name: "bound", title: "fork and join against T1 / P + c * Tinf", run };

fn run(stage: &Stage<'_>) -> Report {
    let begun = AtomicU64::new(0);
    let size = stage.pick(Size::Quick, Size::Full);
    let start = Instant::now();
    let n_computations = bound::N_COMPUTATIONS as u64;
    let rows = stage.follow(
        STEP.title,
        n_computations,
        || begun.load(Ordering::Relaxed),
        || bound::run_all(stage.rt, size, |at| begun.store(at as u64, Ordering::Relaxed)),
    );
    let n_forks: u64 = rows.iter().map(|row| row.measured.forks).sum();
    let done = format!("{} computations, {} forks measured", rows.len(), figures::count(n_forks));
    let mut report = Report::new(done, start.elapsed(), n_computations, "problem");
    for row in &rows {
        let m = &row.measured;
        report.require(row.right, format!("{}: the result is wrong", row.name));
        report.require(m.forks > 0, format!("{}: it did not fork", row.name));
        let holds = m.work >= m.span || !m.latency.is_zero();
        report.require(holds, format!("{}: more span than work", row.name));
    }
    report.lines = bound::table(&rows);
    report.note("T1: work, Tinf: span, c: T_P = T1 / P + c * Tinf, chain: span in forks");
    report
}

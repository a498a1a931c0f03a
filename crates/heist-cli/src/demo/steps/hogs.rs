//! Endless loops without a single call, more than there are Ps, next to a ticker of 1 ms.

use super::Step;
use super::ticker::{self, Lateness};
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const STEP: Step =
    Step { name: "hogs", title: "a 1 ms ticker next to loops that never yield", run };

/// Far more than the bound: the step must not fail on a noisy machine.
const LATE_AT_MOST: Duration = Duration::from_millis(500);

fn run(stage: &Stage<'_>) -> Report {
    let length = stage.pick(Duration::from_millis(300), Duration::from_secs(3));
    let n_hogs = 2 * stage.rt.procs() as u64;
    let stop = Arc::new(AtomicBool::new(false));
    let n_ticks = Arc::new(AtomicU64::new(0));
    let start = Instant::now();
    let done = || n_ticks.load(Ordering::Relaxed);
    let turns = stage.follow(STEP.title, length.as_millis() as u64, done, || {
        stage.rt.run(|| {
            let hogs: Vec<_> = (0..n_hogs).map(|_| spin(&stop)).collect();
            let lateness = ticker::tick(length, &n_ticks);
            stop.store(true, Ordering::Relaxed);
            let turns: Vec<u64> = hogs.into_iter().map(|hog| hog.join().unwrap_or(0)).collect();
            (lateness, turns)
        })
    });
    report(stage, turns, start.elapsed())
}

fn report(stage: &Stage<'_>, outcome: (Lateness, Vec<u64>), time: Duration) -> Report {
    let (lateness, turns) = outcome;
    let procs = stage.rt.procs();
    let done = format!(
        "{} loops without a call on {procs} P{}, {} ticks beside them",
        turns.len(),
        if procs == 1 { "" } else { "s" },
        figures::count(lateness.n_ticks()),
    );
    let mut report = Report::new(done, time, lateness.n_ticks(), "tick");
    report.note(lateness.describe());
    for line in lateness.chart() {
        report.note(line);
    }
    let (forced, gave_way) = (
        stage.metric("/heist/preempt/forced:events"),
        stage.metric("/heist/preempt/gave-way:events"),
    );
    report.note(format!(
        "{forced} loops preempted by a signal, {gave_way} to make room for the ticker"
    ));
    report.require(turns.iter().all(|&n| n > 0), "a loop never got a processor");
    let worst = lateness.worst();
    report.require(
        worst <= LATE_AT_MOST,
        format!("a tick was {} late: no loop was preempted for it", figures::time(worst)),
    );
    report
}

/// Turns until it is told to stop, and returns how often.
fn spin(stop: &Arc<AtomicBool>) -> heist::JoinHandle<u64> {
    let stop = Arc::clone(stop);
    heist::go(move || {
        let mut n = 0;
        while !stop.load(Ordering::Relaxed) {
            n += 1;
        }
        n
    })
}

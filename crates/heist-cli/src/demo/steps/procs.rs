//! The number of Ps goes up and down while goroutines work: nothing may be lost.

use super::Step;
use super::mixer;
use crate::demo::figures;
use crate::demo::lanes::Lane;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const STEP: Step =
    Step { name: "procs", title: "processors come and go while goroutines work", run };

/// How many Ps there are, rung after rung.
const LADDER: [usize; 7] = [1, 2, 4, 8, 3, 1, 8];
const WORKERS: u64 = 32;
const ROUNDS_PER_PIECE: u32 = 2_000;

/// The result of the changes.
struct Changed {
    n: u64,
    /// At the last rung, where there are most Ps.
    lanes: Vec<Lane>,
}

const PAUSES: &str = "/sched/pauses/total/other:seconds";

fn n_pauses(stage: &Stage<'_>) -> u64 {
    stage.rt.metrics().histogram(PAUSES).map_or(0, |pauses| pauses.count())
}

fn run(stage: &Stage<'_>) -> Report {
    let n_pieces = stage.pick(500, 8_000);
    let hold = stage.pick(Duration::from_millis(5), Duration::from_millis(40));
    let before = stage.rt.procs();
    // A trace begins with a pause.
    let n_pauses_before = n_pauses(stage);
    let done = AtomicU64::new(0);
    let start = Instant::now();
    let (sum, changed) = stage.follow(
        STEP.title,
        WORKERS * n_pieces,
        || done.load(Ordering::Relaxed),
        || {
            std::thread::scope(|scope| {
                let work = scope.spawn(|| stage.rt.run(|| work(n_pieces, &done)));
                let changed = climb(stage, hold, || work.is_finished());
                (work.join().expect("the work does not panic"), changed)
            })
        },
    );
    let time = start.elapsed();
    let back = u64::from(stage.rt.set_procs(before) != before);

    let changes = figures::count(changed.n);
    let mut report = Report::new(
        format!("{} pieces of work, {changes} changes", figures::count(WORKERS * n_pieces)),
        time,
        changed.n,
        "change",
    );
    let metrics = stage.rt.metrics();
    if let Some(pauses) = metrics.histogram(PAUSES) {
        let at_most = |share| {
            let time = pauses.quantile(share).unwrap_or(0.0).min(1e6);
            figures::time(Duration::from_secs_f64(time))
        };
        report.note(format!(
            "half of the pauses below {}, all below {}",
            at_most(0.5),
            at_most(1.0)
        ));
        let n_new = pauses.count() - n_pauses_before;
        report.expect("pauses counted", n_new, changed.n + back);
    }
    report.lanes = changed.lanes;
    let expected =
        (0..WORKERS).map(|worker| piece_sum(worker, n_pieces)).fold(0, u64::wrapping_add);
    report.expect("checksum", sum, expected);
    report.expect("pieces done", done.into_inner(), WORKERS * n_pieces);
    report.expect("processors at the end", stage.rt.procs(), before);
    report
}

/// Changes the number of Ps until the work is done, at least once through the ladder.
fn climb(stage: &Stage<'_>, hold: Duration, is_done: impl Fn() -> bool) -> Changed {
    let mut n = 0;
    loop {
        for rung in LADDER {
            n += u64::from(stage.rt.set_procs(rung) != rung);
            std::thread::sleep(hold);
        }
        if is_done() {
            return Changed { n, lanes: stage.lanes() };
        }
    }
}

/// Goroutines that do their pieces and yield after each.
fn work(n_pieces: u64, done: &AtomicU64) -> u64 {
    heist::scope(|scope| {
        let workers: Vec<_> = (0..WORKERS)
            .map(|worker| {
                scope.go(move || {
                    let mut sum = 0u64;
                    for piece in 0..n_pieces {
                        sum = sum.wrapping_add(do_piece(worker, piece));
                        done.fetch_add(1, Ordering::Relaxed);
                        heist::yield_now();
                    }
                    sum
                })
            })
            .collect();
        let sums = workers.into_iter().map(|worker| worker.join().unwrap_or(0));
        sums.fold(0, u64::wrapping_add)
    })
}

fn do_piece(worker: u64, piece: u64) -> u64 {
    mixer::churn(worker << 32 | piece, ROUNDS_PER_PIECE)
}

fn piece_sum(worker: u64, n_pieces: u64) -> u64 {
    (0..n_pieces).map(|piece| do_piece(worker, piece)).fold(0, u64::wrapping_add)
}

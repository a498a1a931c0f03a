//! A thousand goroutines in `std::thread::sleep`, which blocks their threads, next to a ticker.

use super::Step;
use super::ticker;
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

pub const STEP: Step =
    Step { name: "sleeps", title: "calls that block their thread, and a 1 ms ticker", run };

const NAP: Duration = Duration::from_millis(50);

fn run(stage: &Stage<'_>) -> Report {
    let n_sleepers: u64 = stage.pick(100, 1000);
    let n_woken = Arc::new(AtomicU64::new(0));
    let n_ticks = Arc::new(AtomicU64::new(0));
    let done = || n_woken.load(Ordering::Relaxed);
    let (time, lateness) = stage.follow(STEP.title, n_sleepers, done, || {
        stage.rt.run(|| {
            let start = Instant::now();
            let ticks = Arc::clone(&n_ticks);
            let ticker = heist::go(move || ticker::tick(4 * NAP, &ticks));
            let sleepers: Vec<_> = (0..n_sleepers)
                .map(|_| {
                    let n_woken = Arc::clone(&n_woken);
                    heist::go(move || {
                        // This call is not announced to the scheduler.
                        std::thread::sleep(NAP);
                        n_woken.fetch_add(1, Ordering::Relaxed);
                    })
                })
                .collect();
            for sleeper in sleepers {
                sleeper.join().expect("a sleeper does not panic");
            }
            (start.elapsed(), ticker.join().expect("the ticker does not panic"))
        })
    });
    let done = format!(
        "{} blocking sleeps of {}, one after the other {}",
        figures::count(n_sleepers),
        figures::time(NAP),
        figures::time(NAP * n_sleepers as u32),
    );
    let mut report = Report::new(done, time, n_sleepers, "sleep");
    report.expect("sleepers that woke", n_woken.load(Ordering::Relaxed), n_sleepers);
    report.note(lateness.describe());
    let found = stage.metric("/heist/blocking/unannounced:events");
    let foreseen = stage.metric("/heist/blocking/foreseen:events");
    report.note(format!(
        "{found} blocking calls detected and {foreseen} foreseen, their processors given to others"
    ));
    let one_by_one = NAP * (n_sleepers as u32 / stage.rt.procs() as u32);
    report.require(time < one_by_one, "the sleeps kept the processors from the others");
    report
}

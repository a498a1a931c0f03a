//! A million goroutines, spawned by one and joined by a `WaitGroup`.

use super::Step;
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub const STEP: Step = Step { name: "spawn", title: "goroutines spawned and joined", run };

fn run(stage: &Stage<'_>) -> Report {
    let n: u64 = stage.pick(100_000, 1_000_000);
    let (sum, time) = stage.follow(
        STEP.title,
        n,
        || stage.n_finished(),
        || {
            stage.rt.run(|| {
                let start = Instant::now();
                let sum = spawn_and_join(n);
                (sum, start.elapsed())
            })
        },
    );
    let done = format!("{} goroutines spawned and joined", figures::count(n));
    let mut report = Report::new(done, time, n, "spawn");
    report.expect("the sum of all they brought", sum, n * (n - 1) / 2);
    // One more is the goroutine that spawned them.
    let n_created = stage.metric("/sched/goroutines-created:goroutines");
    report.expect("goroutines spawned", n_created, n + 1);
    report
}

fn spawn_and_join(n: u64) -> u64 {
    let group = WaitGroup::new();
    let sum = Arc::new(AtomicU64::new(0));
    for i in 0..n {
        group.add(1);
        let (group, sum) = (group.clone(), Arc::clone(&sum));
        heist::go(move || {
            sum.fetch_add(i, Ordering::Relaxed);
            group.done();
        });
    }
    group.wait();
    sum.load(Ordering::Relaxed)
}

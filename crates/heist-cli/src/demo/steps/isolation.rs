//! A goroutine that panics and one that recurses without end, next to a thousand that work.

use super::Step;
use super::mixer;
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use heist::{JoinError, JoinHandle};
use std::hint::black_box;
use std::time::Instant;

pub const STEP: Step = Step {
    name: "isolation",
    title: "a panic and an endless recursion among a thousand at work",
    run,
};

const N_WORKERS: u64 = 1000;
const ROUNDS_PER_TURN: u32 = 100;
const PANIC: &str = "a panic on purpose";

fn run(stage: &Stage<'_>) -> Report {
    let n_turns: u32 = stage.pick(50, 1000);
    let start = Instant::now();
    let n_finished = || stage.n_finished();
    let (sum, panicked, overflowed) = stage.follow(STEP.title, N_WORKERS, n_finished, || {
        let workers = stage.rt.handle().spawn(move || work_together(n_turns));
        // Their reports go to stderr.
        let (panicked, overflowed) = stage.scene.aside(|| {
            eprintln!("isolation: two accidents on purpose, as the runtime reports them:");
            stage.rt.run(|| {
                let panicking = named("unlucky", panic_on_purpose);
                let recursing = named("bottomless", || recurse(0));
                (panicking.join(), recursing.join())
            })
        });
        (workers.join(), panicked, overflowed)
    });
    let time = start.elapsed();

    let done = format!(
        "a panic and an endless recursion beside {} at work: only they ended",
        figures::count(N_WORKERS),
    );
    let n_turns_all = N_WORKERS * u64::from(n_turns);
    let mut report = Report::new(done, time, n_turns_all, "turn");
    let message = panicked.as_ref().err().and_then(JoinError::panic_message);
    report.expect("the panic, at its handle", message, Some(PANIC));
    let overflow = overflowed.as_ref().err();
    report.expect(
        "the recursion, at its handle",
        overflow.map(JoinError::is_stack_overflow),
        Some(true),
    );
    let n_panicked = stage.metric("/heist/goroutines/panicked:goroutines");
    report.expect("goroutines that panicked", n_panicked, 1);
    let n_overflowed = stage.metric("/heist/goroutines/overflowed:goroutines");
    report.expect("goroutines that overflowed", n_overflowed, 1);
    let expected = (0..N_WORKERS)
        .fold(0, |sum: u64, seed| sum.wrapping_add(mixer::churn(seed, n_turns * ROUNDS_PER_TURN)));
    report.expect("what the others brought", sum.ok(), Some(expected));
    report
}

/// Spawns all workers and adds up their results.
fn work_together(n_turns: u32) -> u64 {
    let workers: Vec<_> =
        (0..N_WORKERS).map(|seed| heist::go(move || work(seed, n_turns))).collect();
    workers.into_iter().fold(0, |sum: u64, worker| sum.wrapping_add(worker.join().unwrap_or(0)))
}

fn work(seed: u64, n_turns: u32) -> u64 {
    (0..n_turns).fold(seed, |state, _| {
        heist::yield_now();
        mixer::churn(state, ROUNDS_PER_TURN)
    })
}

fn named<T: Send + 'static>(name: &str, f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let spawned = heist::goroutine::Builder::new().name(name).spawn(f);
    spawned.unwrap_or_else(|error| panic!("cannot spawn '{name}': {error}"))
}

/// A panic on purpose is reported without a backtrace, whatever `RUST_BACKTRACE` says.
pub fn shorten_its_report() {
    let usual = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if info.payload_as_str() == Some(PANIC) {
            eprintln!("{info}");
        } else {
            usual(info);
        }
    }));
}

fn panic_on_purpose() {
    panic!("{PANIC}");
}

fn recurse(depth: u64) -> u64 {
    if black_box(depth) == u64::MAX {
        return depth;
    }
    recurse(depth + 1) + black_box(depth)
}

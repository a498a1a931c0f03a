//! parked_*: many tasks started and parked at a gate, then all woken.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::ns_each;
use crate::contract::blocking::{Gate as _, Group as _, Tasks};
use crate::reading::{Figures, Outcome, cannot};
use crate::sys;

static N_STARTED: AtomicUsize = AtomicUsize::new(0);

/// A task says it has started just before it parks; this long after the last one said so,
/// all are parked.
const SETTLE: Duration = Duration::from_millis(50);

/// The result of one round.
pub struct Round {
    pub rss_each: f64,
    pub spawn_ns: f64,
    pub wake_ns: f64,
}

impl Round {
    fn into_figures(self) -> Figures {
        Figures::many(vec![self.rss_each, self.spawn_ns, self.wake_ns])
    }
}

fn none_started() {
    N_STARTED.store(0, Ordering::Relaxed);
}

fn all_started(n: usize) -> bool {
    N_STARTED.load(Ordering::Relaxed) == n
}

fn started() {
    N_STARTED.fetch_add(1, Ordering::Relaxed);
}

fn rss_each(before: u64, n: usize) -> f64 {
    sys::resident_bytes().saturating_sub(before) as f64 / n as f64
}

/// Starts and parks `n` tasks, lets them settle, wakes them.
pub fn round<R: Tasks>(n: usize, settle: Duration) -> Round {
    none_started();
    let (gate, group) = (R::Gate::new(), R::Group::new());
    let rss_before = sys::resident_bytes();
    let start = Instant::now();
    group.add(n);
    for _ in 0..n {
        let (gate, group) = (gate.clone(), group.clone());
        R::spawn(move || {
            started();
            gate.wait();
            group.done();
        });
    }
    while !all_started(n) {
        R::yield_now();
    }
    let spawn_ns = ns_each(start.elapsed(), n);
    let settled = Instant::now() + settle;
    while Instant::now() < settled {
        R::yield_now();
    }
    let rss_each = rss_each(rss_before, n);
    let start = Instant::now();
    gate.open();
    group.wait();
    Round { rss_each, spawn_ns, wake_ns: ns_each(start.elapsed(), n) }
}

pub fn blocking<R: Tasks>(procs: usize, n: usize) -> Outcome {
    if n > R::MAX_TASKS {
        return cannot(R::LIMIT_NOTE.unwrap_or("too many tasks"));
    }
    Ok(R::run(procs, move || round::<R>(n, SETTLE).into_figures()))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{futures, memory_of_futures, round_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use super::*;
    use crate::contract::futures::{Gate as _, Group as _, Tasks};

    pub async fn round_futures<R: Tasks>(n: usize, settle: Duration) -> Round {
        none_started();
        let (gate, group) = (R::Gate::new(), R::Group::new());
        let rss_before = sys::resident_bytes();
        let start = Instant::now();
        group.add(n);
        for _ in 0..n {
            let (gate, group) = (gate.clone(), group.clone());
            R::spawn(async move {
                gate.wait(started).await;
                group.done();
            });
        }
        while !all_started(n) {
            R::yield_now().await;
        }
        let spawn_ns = ns_each(start.elapsed(), n);
        let settled = Instant::now() + settle;
        while Instant::now() < settled {
            R::yield_now().await;
        }
        let rss_each = rss_each(rss_before, n);
        let start = Instant::now();
        gate.open();
        group.wait().await;
        Round { rss_each, spawn_ns, wake_ns: ns_each(start.elapsed(), n) }
    }

    /// Only the memory of each.
    pub fn memory_of_futures<R: Tasks>(procs: usize, n: usize) -> Outcome {
        let round = async move { round_futures::<R>(n, SETTLE).await.rss_each };
        Ok(Figures::one(R::run(procs, round)))
    }

    pub fn futures<R: Tasks>(procs: usize, n: usize) -> Outcome {
        let round = async move { round_futures::<R>(n, SETTLE).await.into_figures() };
        Ok(R::run(procs, round))
    }
}

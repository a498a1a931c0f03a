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

fn all_started(n: usize) -> bool {
    N_STARTED.load(Ordering::Relaxed) == n
}

fn started() {
    N_STARTED.fetch_add(1, Ordering::Relaxed);
}

fn rss_each(before: u64, n: usize) -> f64 {
    sys::resident_bytes().saturating_sub(before) as f64 / n as f64
}

pub fn blocking<R: Tasks>(procs: usize, n: usize) -> Outcome {
    if n > R::MAX_TASKS {
        return cannot(R::LIMIT_NOTE.unwrap_or("too many tasks"));
    }
    R::run(procs, move || {
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
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            R::yield_now();
        }
        let rss = rss_each(rss_before, n);
        let start = Instant::now();
        gate.open();
        group.wait();
        Ok(Figures::many(vec![rss, spawn_ns, ns_each(start.elapsed(), n)]))
    })
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize, n: usize) -> Outcome {
    use crate::contract::futures::{Gate as _, Group as _};

    R::run(procs, async move {
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
        let settled = Instant::now() + SETTLE;
        while Instant::now() < settled {
            R::yield_now().await;
        }
        let rss = rss_each(rss_before, n);
        let start = Instant::now();
        gate.open();
        group.wait().await;
        Ok(Figures::many(vec![rss, spawn_ns, ns_each(start.elapsed(), n)]))
    })
}

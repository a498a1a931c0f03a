//! spawn_latency: from the creation of a task until it runs, as a busy server sees it.
//!
//! One task per proc, save one, accepts: it works for a while, spawns a burst of short tasks and
//! lets others run. Every spawned task notes how long after its creation it began.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::contract::blocking;
use crate::reading::{Figures, Outcome};
use crate::stats::quantile;

/// Tasks whose latency is noted.
pub const N_SAMPLES: usize = 200_000;
/// A burst has one task more than the last, up to this many; then it begins with one again.
const BURST_MAX: usize = 8;
/// The time that an acceptor works before each burst.
const ACCEPTING: Duration = Duration::from_micros(20);
/// The time that a spawned task works.
const SERVING: Duration = Duration::from_micros(4);

/// Where the tasks of a run leave their latencies.
#[derive(Debug)]
struct Samples {
    epoch: Instant,
    next: AtomicUsize,
    latencies_ns: Box<[AtomicU64]>,
}

impl Samples {
    fn leaked(n: usize) -> &'static Self {
        let latencies_ns = (0..n).map(|_| AtomicU64::new(0)).collect();
        Box::leak(Box::new(Self { epoch: Instant::now(), next: AtomicUsize::new(0), latencies_ns }))
    }

    fn now_ns(&self) -> u64 {
        self.epoch.elapsed().as_nanos() as u64
    }

    /// The work of a spawned task.
    fn serve(&self, created_ns: u64) {
        let began_ns = self.now_ns();
        let place = self.next.fetch_add(1, Ordering::Relaxed);
        if let Some(latency_ns) = self.latencies_ns.get(place) {
            latency_ns.store(began_ns.saturating_sub(created_ns).max(1), Ordering::Relaxed);
        }
        work_for(SERVING);
    }

    fn is_full(&self) -> bool {
        self.next.load(Ordering::Relaxed) >= self.latencies_ns.len()
    }

    /// A place is taken before its latency is written.
    fn is_complete(&self) -> bool {
        self.latencies_ns.iter().all(|latency| latency.load(Ordering::Relaxed) != 0)
    }

    fn outcome(&self) -> Outcome {
        let load = |latency: &AtomicU64| latency.load(Ordering::Relaxed);
        let mut all: Vec<u64> = self.latencies_ns.iter().map(load).collect();
        let us = |q| quantile(&mut all, q) as f64 / 1e3;
        Ok(Figures::many([0.5, 0.95, 0.99, 0.9999].map(us).to_vec()))
    }
}

fn work_for(time: Duration) {
    let from = Instant::now();
    while from.elapsed() < time {
        black_box(());
    }
}

fn n_acceptors(procs: usize) -> usize {
    procs.saturating_sub(1).max(1)
}

pub fn blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    R::run(procs, move || {
        round::<R>(procs, N_SAMPLES / 10);
        round::<R>(procs, N_SAMPLES).outcome()
    })
}

fn round<R: blocking::Tasks>(procs: usize, n: usize) -> &'static Samples {
    let samples = Samples::leaked(n);
    let acceptor = |_| {
        R::fork(move || {
            let mut burst = 0;
            while !samples.is_full() {
                work_for(ACCEPTING);
                burst = burst % BURST_MAX + 1;
                for _ in 0..burst {
                    let created_ns = samples.now_ns();
                    R::spawn(move || samples.serve(created_ns));
                }
                R::yield_now();
            }
        })
    };
    let acceptors: Vec<_> = (0..n_acceptors(procs)).map(acceptor).collect();
    acceptors.into_iter().for_each(R::join);
    while !samples.is_complete() {
        R::yield_now();
    }
    samples
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::futures;

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use super::*;
    use crate::contract::futures::Tasks;

    pub fn futures<R: Tasks>(procs: usize) -> Outcome {
        R::run(procs, async move {
            round::<R>(procs, N_SAMPLES / 10).await;
            round::<R>(procs, N_SAMPLES).await.outcome()
        })
    }

    async fn round<R: Tasks>(procs: usize, n: usize) -> &'static Samples {
        let samples = Samples::leaked(n);
        let acceptor = |_| {
            R::fork(async move {
                let mut burst = 0;
                while !samples.is_full() {
                    work_for(ACCEPTING);
                    burst = burst % BURST_MAX + 1;
                    for _ in 0..burst {
                        let created_ns = samples.now_ns();
                        R::spawn(async move { samples.serve(created_ns) });
                    }
                    R::yield_now().await;
                }
            })
        };
        let acceptors: Vec<_> = (0..n_acceptors(procs)).map(acceptor).collect();
        for acceptor in acceptors {
            R::join(acceptor).await;
        }
        while !samples.is_complete() {
            R::yield_now().await;
        }
        samples
    }
}

//! Work that is where it cannot be done, or more than can be done.

use heist::{Runtime, chan, go};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// What the goroutines of a symptom share.
#[derive(Clone)]
pub struct Load {
    pub is_cured: bool,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    is_over: AtomicBool,
    rounds: AtomicU64,
    lateness: Mutex<Vec<Duration>>,
}

impl Load {
    pub fn new(is_cured: bool) -> Self {
        Self { is_cured, shared: Arc::default() }
    }

    pub fn stop(&self) {
        self.shared.is_over.store(true, Ordering::Relaxed);
    }

    pub fn is_over(&self) -> bool {
        self.shared.is_over.load(Ordering::Relaxed)
    }

    /// Counts a round of the work.
    pub fn count(&self) {
        self.shared.rounds.fetch_add(1, Ordering::Relaxed);
    }

    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::Relaxed)
    }

    /// Notes how late a tick was.
    pub fn note(&self, late: Duration) {
        self.shared.lateness.lock().unwrap_or_else(PoisonError::into_inner).push(late);
    }

    /// How late ticks were, sorted.
    pub fn lateness(&self) -> Vec<Duration> {
        let mut all = self.shared.lateness.lock().unwrap_or_else(PoisonError::into_inner).clone();
        all.sort_unstable();
        all
    }
}

/// Computes without a call into the runtime.
pub fn compute(us: u64) {
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_micros(us) {
        std::hint::spin_loop();
    }
}

/// Halves of a computation: one goes to a new goroutine, which nobody takes from `run_next` under
/// the gentle policy.
pub fn forks(runtime: &Runtime, load: &Load) {
    let load = load.clone();
    drop(runtime.spawn(move || {
        while !load.is_over() {
            let half = go(|| compute(3_000));
            compute(3_000);
            if half.join().is_ok() {
                load.count();
            }
        }
    }));
}

/// Goroutines that compute and yield in turn.
pub fn turns(runtime: &Runtime, load: &Load) {
    for _ in 0..8 {
        let load = load.clone();
        drop(runtime.spawn(move || {
            while !load.is_over() {
                compute(300);
                load.count();
                heist::yield_now();
            }
        }));
    }
}

/// A consumer that gets one item at a time, a little later than it wants it; or, cured, many.
pub fn trickle(runtime: &Runtime, load: &Load) {
    let (items, queue) = chan::bounded::<Vec<u64>>(1);
    let (producer, consumer) = (load.clone(), load.clone());
    drop(runtime.spawn(move || {
        let n = if producer.is_cured { 1_000 } else { 1 };
        while !producer.is_over() {
            let mut batch = Vec::new();
            for item in 0..n {
                compute(10);
                batch.push(item);
            }
            if items.send(batch).is_err() {
                return;
            }
        }
    }));
    drop(runtime.spawn(move || {
        for batch in queue {
            batch.iter().for_each(|_| consumer.count());
        }
    }));
}

/// A thread outside the runtime that brings a job every 20 us, each of which takes 200.
pub fn flood(runtime: &Runtime, load: &Load) {
    let (handle, load) = (runtime.handle(), load.clone());
    let (jobs, queue) = chan::bounded::<()>(64);
    for _ in 0..16 {
        let (queue, load) = (queue.clone(), load.clone());
        drop(runtime.spawn(move || queue.iter().for_each(|()| job(&load))));
    }
    std::thread::spawn(move || {
        while !load.is_over() {
            compute(20);
            let load = load.clone();
            let is_refused = if load.is_cured {
                // Waits while the workers are behind.
                jobs.send(()).is_err()
            } else {
                handle.try_spawn(move || job(&load)).is_err()
            };
            if is_refused {
                return;
            }
        }
    });
}

fn job(load: &Load) {
    if !load.is_over() {
        compute(200);
        load.count();
    }
}

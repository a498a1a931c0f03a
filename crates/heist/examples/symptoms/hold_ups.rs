//! Goroutines that hold up others, or themselves.

use super::loads::{Load, compute};
use heist::goroutine::{Builder, Class, lock_os_thread};
use heist::sync::{Mutex, Semaphore};
use heist::{Runtime, chan};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Two goroutines that take turns; one of them is locked to its thread.
pub fn ping_pong(runtime: &Runtime, load: &Load) {
    let (pings, to_answer) = chan::bounded::<()>(0);
    let (answers, pongs) = chan::bounded::<()>(0);
    let (asker, answerer) = (load.clone(), load.clone());
    drop(runtime.spawn(move || {
        let _locked = (!answerer.is_cured).then(lock_os_thread);
        while to_answer.recv().is_ok() && answers.send(()).is_ok() {}
    }));
    drop(runtime.spawn(move || {
        while !asker.is_over() && pings.send(()).is_ok() && pongs.recv().is_ok() {
            asker.count();
        }
    }));
}

/// Workers that compute while they hold the lock of a shared result.
pub fn one_lock(runtime: &Runtime, load: &Load) {
    let result = Arc::new(Mutex::new(0_u64));
    for _ in 0..8 {
        let (result, load) = (Arc::clone(&result), load.clone());
        drop(runtime.spawn(move || {
            while !load.is_over() {
                if load.is_cured {
                    compute(500);
                    *result.lock() += 1;
                } else {
                    let mut result = result.lock();
                    compute(500);
                    *result += 1;
                }
                load.count();
            }
        }));
    }
}

/// Computes without end.
fn compute_on(load: &Load) {
    while !load.is_over() {
        compute(100);
    }
}

/// A ticker beside goroutines that compute without end.
pub fn ticker(runtime: &Runtime, load: &Load) {
    for _ in 0..6 {
        let load = load.clone();
        drop(runtime.spawn(move || compute_on(&load)));
    }
    let class = if load.is_cured { Class::Latency } else { Class::Normal };
    let load = load.clone();
    let ticks = move || {
        let period = Duration::from_millis(1);
        let mut due = Instant::now() + period;
        while !load.is_over() {
            heist::time::sleep(due.saturating_duration_since(Instant::now()));
            load.note(due.elapsed());
            load.count();
            due = Instant::now() + period;
        }
    };
    let builder = Builder::new().name("ticker").class(class);
    drop(builder.spawn_on(&runtime.handle(), ticks).expect("there is memory for it"));
}

/// Goroutines that compute for 50 ms, at once or in small pieces.
pub fn hogs(runtime: &Runtime, load: &Load) {
    for _ in 0..4 {
        let load = load.clone();
        drop(runtime.spawn(move || {
            while !load.is_over() {
                for _ in 0..500 {
                    compute(100);
                    if load.is_cured {
                        heist::yield_now();
                    }
                }
                load.count();
            }
        }));
    }
}

/// Goroutines that block their threads with a call that nobody announces.
pub fn blocking(runtime: &Runtime, load: &Load) {
    let permits = Arc::new(Semaphore::new(4));
    for _ in 0..40 {
        let (permits, load) = (Arc::clone(&permits), load.clone());
        drop(runtime.spawn(move || {
            while !load.is_over() {
                let _permit = load.is_cured.then(|| permits.acquire(1));
                std::thread::sleep(Duration::from_millis(20));
                load.count();
            }
        }));
    }
}

/// Requests whose goroutines wait for the end of a channel of which they have the sender.
pub fn leak(runtime: &Runtime, load: &Load) {
    let load = load.clone();
    drop(runtime.spawn(move || {
        while !load.is_over() {
            let (parts, request) = chan::unbounded::<u64>();
            let is_cured = load.is_cured;
            drop(heist::go(move || {
                // An `Err` would mean that the receiver is gone; it is here.
                let _ = parts.send(1);
                let kept = (!is_cured).then_some(parts);
                let sum: u64 = request.iter().sum();
                drop(kept);
                sum
            }));
            load.count();
            heist::time::sleep(Duration::from_millis(1));
        }
    }));
}

/// A goroutine that is to run beside others that compute without end.
pub fn starved(runtime: &Runtime, load: &Load) {
    for _ in 0..4 {
        let load = load.clone();
        drop(runtime.spawn(move || compute_on(&load)));
    }
    let class = if load.is_cured { Class::Normal } else { Class::Idle };
    let load = load.clone();
    let rounds = move || {
        while !load.is_over() {
            load.count();
            heist::yield_now();
        }
    };
    let builder = Builder::new().name("statistics").class(class);
    drop(builder.spawn_on(&runtime.handle(), rounds).expect("there is memory for it"));
}

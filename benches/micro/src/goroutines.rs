//! Whole paths through a runtime with one P, from the public API downwards.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use heist::Runtime;
use heist::sync::WaitGroup;

use crate::Repeat;

/// A runtime in which no goroutine is preempted: the slice is longer than every measurement, so
/// that the counts do not depend on the speed of the machine.
pub fn runtime() -> Runtime {
    let builder = Runtime::builder().procs(1).seed(1).quantum(Duration::from_secs(3600));
    // SAFETY: the paths keep nothing that is bound to a thread.
    unsafe { builder.forced_preemption(false).build() }.expect("a runtime with one P")
}

/// Repeats an operation of one goroutine.
pub fn alone(operation: impl Fn() + Send + Sync + 'static) -> Repeat {
    let rt = runtime();
    Box::new(move |n| rt.run(|| (0..n).for_each(|_| operation())))
}

pub fn enter_leave() -> Repeat {
    alone(|| {
        black_box(heist::testing::tick());
    })
}

pub fn blocking() -> Repeat {
    alone(|| heist::blocking(|| ()))
}

pub fn yield_alone() -> Repeat {
    alone(heist::yield_now)
}

pub fn yield_two() -> Repeat {
    let rt = runtime();
    Box::new(move |n| {
        rt.run(|| {
            let half = n.div_ceil(2);
            let other = heist::go(move || (0..half).for_each(|_| heist::yield_now()));
            (0..half).for_each(|_| heist::yield_now());
            other.join().expect("it does not panic");
        });
    })
}

/// The closures are opaque, as they are in a recursion.
fn fork() {
    black_box(heist::join(|| black_box(1), || black_box(2)));
}

pub fn join() -> Repeat {
    let rt = runtime();
    Box::new(move |n| {
        rt.run(|| {
            heist::join(|| (0..n).for_each(|_| fork()), || ());
        });
    })
}

pub fn join_last() -> Repeat {
    alone(fork)
}

/// Batches, so that records and stacks are reused as they are in a program.
pub fn spawn_detached() -> Repeat {
    const BATCH: usize = 100;
    let rt = runtime();
    Box::new(move |n| {
        rt.run(|| {
            let group: &'static WaitGroup = Box::leak(Box::new(WaitGroup::new()));
            for _ in 0..n.div_ceil(BATCH) {
                group.add(BATCH);
                for _ in 0..BATCH {
                    heist::go(|| group.done());
                }
                group.wait();
            }
        });
    })
}

pub fn spawn_join() -> Repeat {
    alone(|| assert!(heist::go(|| true).join().expect("it does not panic")))
}

/// A round of two: each is woken by the other and waits again.
pub fn park_ready() -> Repeat {
    let rt = runtime();
    Box::new(move |n| {
        let there = WaitGroup::new();
        let back = WaitGroup::new();
        there.add(1);
        back.add(1);
        let stop = Arc::new(AtomicBool::new(false));
        rt.run(|| {
            let other = {
                let (there, back, stop) = (there.clone(), back.clone(), stop.clone());
                heist::go(move || {
                    loop {
                        there.wait();
                        there.add(1);
                        let last = stop.load(Ordering::Relaxed);
                        back.done();
                        if last {
                            return;
                        }
                    }
                })
            };
            for i in 0..n {
                stop.store(i + 1 == n, Ordering::Relaxed);
                there.done();
                back.wait();
                back.add(1);
            }
            other.join().expect("it does not panic");
        });
    })
}

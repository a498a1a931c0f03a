//! The order in which one P runs the goroutines that one goroutine spawned, against a model of
//! plain deques.
//!
//! It checks `run_next`, the ring, the overflow, the one tick in 61 and the refill from the global
//! queue together.
#![cfg(not(loom))]

mod jobs;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::List;
use heist_core::policy::global_first;
use heist_core::run_queue::{Popped, RunQueue, Slot};
use jobs::{Job, id, jobs};
use std::collections::VecDeque;
use std::ptr::NonNull;

/// One P and the global queue, made of the crate's parts.
struct OneProc {
    local: RunQueue<Job>,
    global: GlobalQueue<Job>,
    global_len: GlobalLen,
    tick: u32,
}

impl OneProc {
    fn new(tick: u32) -> Self {
        Self {
            local: RunQueue::starting_at(u32::MAX - tick % 500),
            global: GlobalQueue::new(),
            global_len: GlobalLen::new(),
            tick,
        }
    }

    fn spawn(&mut self, job: &Job) {
        // SAFETY: one thread.
        let owner = unsafe { self.local.owner() };
        owner.push(NonNull::from(job), Slot::Next, |overflow| {
            let mut batch = List::new();
            for &mut gp in overflow {
                // SAFETY: just taken out of the ring, so in no list.
                unsafe { batch.push_back(gp) };
            }
            self.global.append(&self.global_len, Lane::Normal, &mut batch);
        });
    }

    /// The next goroutine. The tick advances unless the goroutine inherits the slice.
    fn find_runnable(&mut self) -> Option<NonNull<Job>> {
        let found = self.take_global_first();
        // SAFETY: one thread.
        let owner = unsafe { self.local.owner() };
        let popped = found.map(Popped::Fresh).or_else(|| owner.pop());
        if let Some(Popped::Inherits(gp)) = popped {
            return Some(gp);
        }
        let found = popped.map(|popped| popped.goroutine()).or_else(|| {
            let mut batch = self.global.pop_batch(&self.global_len, 1);
            let first = batch.pop_front();
            owner.push_batch(&mut batch);
            assert!(batch.is_empty(), "a share fits into an empty ring");
            first
        })?;
        self.tick = self.tick.wrapping_add(1);
        Some(found)
    }

    fn take_global_first(&mut self) -> Option<NonNull<Job>> {
        if global_first(self.tick) && self.global_len.get() > 0 {
            self.global.pop(&self.global_len)
        } else {
            None
        }
    }

    fn order(jobs: &[Job], tick: u32) -> Vec<u32> {
        let mut proc = Self::new(tick);
        jobs.iter().for_each(|job| proc.spawn(job));
        std::iter::from_fn(|| proc.find_runnable()).map(id).collect()
    }
}

/// The same order from its description alone: numbers and deques, nothing of the crate.
fn model_order(n: u32, mut tick: u32) -> Vec<u32> {
    let (mut ring, mut global) = (VecDeque::new(), VecDeque::new());
    let mut run_next = None;
    for id in 0..n {
        let Some(old) = run_next.replace(id) else {
            continue;
        };
        if ring.len() == 256 {
            global.extend(ring.drain(..128));
            global.push_back(old);
        } else {
            ring.push_back(old);
        }
    }
    let mut order = Vec::new();
    loop {
        let ran = if tick.is_multiple_of(61) && !global.is_empty() {
            global.pop_front()
        } else if let Some(next) = run_next.take() {
            order.push(next);
            continue;
        } else if let Some(head) = ring.pop_front() {
            Some(head)
        } else {
            let share = 128.min(global.len()).min(global.len() + 1);
            let mut batch = global.drain(..share);
            let first = batch.next();
            ring.extend(batch);
            first
        };
        let Some(ran) = ran else { return order };
        order.push(ran);
        tick = tick.wrapping_add(1);
    }
}

fn check(jobs: &[Job], n: u32, tick: u32) {
    let order = OneProc::order(&jobs[..n as usize], tick);
    assert!(order == model_order(n, tick), "{n} spawned, starting at tick {tick}");
    assert_eq!(order.len(), n as usize);
}

/// RQ-09: with up to 257 spawned goroutines the last runs first and the others follow in order, at
/// every tick.
#[test]
fn last_spawned_runs_first_then_in_order() {
    let jobs = jobs(257);
    for n in 1..=257 {
        for tick in 0..61 {
            let expected: Vec<u32> = [n - 1].into_iter().chain(0..n - 1).collect();
            assert!(OneProc::order(&jobs[..n as usize], tick) == expected, "{n} at tick {tick}");
        }
    }
}

/// RQ-09, IN-03 to IN-05, IN-09 to IN-11: every number of spawns up to 3000, each at another tick.
#[test]
fn every_number_of_spawns_follows_the_model() {
    let jobs = jobs(3000);
    for n in 0..=3000 {
        check(&jobs, n, n.wrapping_mul(7));
    }
}

/// RQ-09, IN-11: the numbers around the overflows, at all 61 phases and where the tick wraps.
#[test]
fn every_phase_follows_the_model() {
    let jobs = jobs(3000);
    for n in [256, 257, 258, 259, 300, 385, 386, 387, 400, 515, 516, 520, 1000, 3000] {
        for tick in (0..61).chain([u32::MAX - 300, u32::MAX - 61, u32::MAX]) {
            check(&jobs, n, tick);
        }
    }
}

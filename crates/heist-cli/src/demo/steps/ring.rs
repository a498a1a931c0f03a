//! A token that travels through a ring of goroutines.
//!
//! Each of them waits at its own gate, a `WaitGroup` that counts one while the token is elsewhere.
//! The goroutine that has the token closes its own gate again and opens the next one's. There is
//! one token, so a gate is opened only when its owner waits there or is about to.

use super::Step;
use crate::demo::figures;
use crate::demo::report::Report;
use crate::demo::stage::Stage;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

pub const STEP: Step = Step { name: "ring", title: "a token travels through a ring of 1,000", run };

const N_NODES: u64 = 1000;

struct Ring {
    gates: Vec<WaitGroup>,
    /// The token: only its holder writes it.
    n_hops: AtomicU64,
}

fn run(stage: &Stage<'_>) -> Report {
    let n_rounds: u64 = stage.pick(100, 20_000);
    let n_hops = n_rounds * N_NODES;
    let ring = Arc::new(Ring {
        gates: (0..N_NODES).map(|_| WaitGroup::new()).collect(),
        n_hops: AtomicU64::new(0),
    });
    let travelled = || ring.n_hops.load(Ordering::Relaxed);
    let (n_early, time) = stage.follow(STEP.title, n_hops, travelled, || {
        stage.rt.run(|| {
            let start = Instant::now();
            let n_early = travel(&ring, n_rounds);
            (n_early, start.elapsed())
        })
    });
    let done =
        format!("{} hops around {} goroutines", figures::count(n_hops), figures::count(N_NODES),);
    let mut report = Report::new(done, time, n_hops, "hop");
    report.expect("hops", travelled(), n_hops);
    report.expect("waits that ended without the token", n_early, 0);
    report
}

/// Sends the token round and counts the waits that ended too early.
fn travel(ring: &Arc<Ring>, n_rounds: u64) -> u64 {
    for gate in &ring.gates {
        gate.add(1);
    }
    let nodes: Vec<_> = (0..N_NODES)
        .map(|at| {
            let ring = Arc::clone(ring);
            heist::go(move || pass_on(&ring, at, n_rounds))
        })
        .collect();
    ring.gates[0].done();
    let counts = nodes.into_iter().map(|node| match node.join() {
        Ok(n_early) => n_early,
        Err(error) => panic!("the ring is broken: {error}"),
    });
    counts.sum()
}

fn pass_on(ring: &Ring, at: u64, n_rounds: u64) -> u64 {
    let own = &ring.gates[at as usize];
    let next = &ring.gates[((at + 1) % N_NODES) as usize];
    let mut n_early = 0;
    for round in 0..n_rounds {
        let turn = round * N_NODES + at;
        own.wait();
        while ring.n_hops.load(Ordering::Relaxed) != turn {
            n_early += 1;
            own.wait();
        }
        own.add(1);
        ring.n_hops.store(turn + 1, Ordering::Relaxed);
        next.done();
    }
    n_early
}

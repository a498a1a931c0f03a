//! Many goroutines parked at once, and their cost.
//!
//! `HEIST_PARKED` sets how many; the promise is a million.

use crate::child;
use crate::matrix;

use heist::go;
use heist::sync::WaitGroup;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The memory that a parked goroutine may keep resident: its record, one page of stack and a little
/// of the tables for both.
const LIMIT_BYTES: u64 = 4800;

fn how_many() -> u64 {
    let asked = std::env::var("HEIST_PARKED").ok();
    asked.map_or(20_000, |n| n.parse().expect("HEIST_PARKED is a number"))
}

/// Parks `n` goroutines, calls `then` when all of them wait, and lets them go.
fn park(n: u64, then: impl FnOnce()) {
    let (arrived, gate) = (WaitGroup::new(), WaitGroup::new());
    arrived.add(n as usize);
    gate.add(1);
    let sum = Arc::new(AtomicU64::new(0));
    let mut handles = Vec::with_capacity(n as usize);
    for i in 0..n {
        let (arrived, gate, sum) = (arrived.clone(), gate.clone(), Arc::clone(&sum));
        handles.push(go(move || {
            arrived.done();
            gate.wait();
            sum.fetch_add(i, Ordering::Relaxed);
        }));
    }
    arrived.wait();
    then();
    gate.done();
    for handle in handles {
        handle.join().unwrap();
    }
    assert_eq!(sum.load(Ordering::Relaxed), n * (n - 1) / 2);
}

/// Each of very many parked goroutines has a guarded stack of its own and keeps little more than a
/// page resident.
#[test]
fn a_parked_goroutine_keeps_little_memory() {
    if matrix::emulator::cannot_show("what it uses itself is counted as the program's memory") {
        return;
    }
    let ended = child::run(|| {
        let rt = matrix::plain(2);
        let n = how_many();
        // Tables that grow with the first goroutines are not theirs.
        rt.run(|| park(100, || ()));
        let handles = n * size_of::<heist::JoinHandle<()>>() as u64;
        let before = child::own_status("VmRSS") * 1024;
        rt.run(|| {
            park(n, || {
                let now = child::own_status("VmRSS") * 1024;
                let each = now.saturating_sub(before + handles) / n;
                eprintln!("{each} bytes for each of {n}");
                assert!(each <= LIMIT_BYTES, "{each} bytes for each of {n}");
                let stacks = rt.metrics().get("/heist/stacks/in-use:stacks").unwrap();
                assert!(stacks >= n, "{stacks}");
                assert!(heist::num_goroutines() as u64 > n);
            });
        });
    });
    ended.succeeded();
}

/// The same stacks are reused in every round: after the first, nothing grows.
#[test]
fn stacks_are_reused_over_rounds() {
    if matrix::emulator::cannot_show("what it uses itself is counted as the program's memory") {
        return;
    }
    let ended = child::run(|| {
        let n = (how_many() / 10).max(5000);
        for procs in [1, 2, 4] {
            let rt = matrix::plain(procs);
            let usage = || {
                (
                    rt.metrics().get("/heist/stacks/mapped:bytes").unwrap(),
                    child::own_status("VmRSS"),
                )
            };
            rt.run(|| park(n, || ()));
            rt.run(|| park(n, || ()));
            let (_, resident) = usage();
            // Their stacks with the guards, the stacks that processors cache, and the rest of a
            // slab: 64 MiB, or a 32nd.
            let needed = (n + 1 + 33 * procs as u64) * ((256 + 16) << 10);
            let most = needed + (needed / 32).max(64 << 20);
            for round in 2..10 {
                rt.run(|| park(n, || ()));
                let (mapped, resident_now) = usage();
                assert!(mapped <= most, "procs={procs} round={round}: {mapped} bytes");
                let grown = resident_now.saturating_sub(resident);
                // Stacks that a processor kept to itself in one round may be touched in another.
                assert!(grown <= resident / 20, "procs={procs} round={round}: {grown} KiB");
            }
        }
    });
    ended.succeeded();
}

/// The memory of unused stacks is returned to the system, except for those that processors keep,
/// and the stacks can be used again.
#[test]
fn idle_stacks_are_given_back() {
    if matrix::emulator::cannot_show("what it uses itself is counted as the program's memory") {
        return;
    }
    let ended = child::run(|| {
        let n = 5000;
        let rt = matrix::plain(2);
        for _ in 0..2 {
            rt.run(|| park(n, || ()));
            let full = child::own_status("VmRSS");
            matrix::eventually("cold stacks", || {
                rt.metrics().get("/heist/stacks/cold:stacks").unwrap() > n * 9 / 10
            });
            let back = full.saturating_sub(child::own_status("VmRSS"));
            assert!(back > n * 4 * 9 / 10, "{back} of {full} KiB were returned");
        }
    });
    ended.succeeded();
}

/// Parked goroutines are unwound by the end of the runtime, however many.
#[test]
fn many_parked_goroutines_are_unwound() {
    struct Counted(Arc<AtomicU64>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
    for procs in [1, 4] {
        let rt = matrix::plain(procs);
        let drops = Arc::new(AtomicU64::new(0));
        rt.run(|| {
            let arrived = WaitGroup::new();
            arrived.add(2000);
            let gate = WaitGroup::new();
            gate.add(1);
            for _ in 0..2000 {
                let (arrived, gate) = (arrived.clone(), gate.clone());
                let counted = Counted(Arc::clone(&drops));
                go(move || {
                    let _counted = counted;
                    arrived.done();
                    gate.wait();
                });
            }
            arrived.wait();
        });
        drop(rt);
        assert_eq!(drops.load(Ordering::Relaxed), 2000);
    }
}

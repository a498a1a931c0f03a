//! Random trees of forks whose nodes park, yield, block, panic and are cancelled.

use crate::matrix;
use heist::sync::Mutex;
use heist::{Runtime, chan, go, join};
use heist_core::rng::Rng;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// What the nodes of a tree share.
#[derive(Default)]
struct Shared {
    lock: Mutex<u64>,
    /// Nodes that are on a stack.
    alive: AtomicI64,
    visited: AtomicU64,
}

struct Alive<'a>(&'a Shared);

impl<'a> Alive<'a> {
    fn new(shared: &'a Shared) -> Self {
        shared.alive.fetch_add(1, Ordering::Relaxed);
        Self(shared)
    }
}

impl Drop for Alive<'_> {
    fn drop(&mut self) {
        self.0.alive.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What may happen in a node.
#[derive(Clone, Copy)]
enum Wild {
    Parks,
    /// It may also panic.
    Panics,
}

fn disturb(shared: &Shared, rng: &mut Rng, wild: Wild) {
    match rng.next_u32() % 24 {
        0 | 1 => heist::yield_now(),
        2 => heist::time::sleep(Duration::from_micros((rng.next_u32() % 30).into())),
        3 => *shared.lock.lock() += 1,
        4 => {
            let (tx, rx) = chan::bounded(0);
            let (sent, got) = join(|| tx.send(1), || rx.recv());
            assert_eq!((sent, got), (Ok(()), Ok(1)));
        }
        5 => heist::blocking(|| std::thread::sleep(Duration::from_micros(5))),
        6 => assert_eq!(go(|| 1).join().unwrap(), 1),
        7 if matches!(wild, Wild::Panics) => panic!("a node panics"),
        8 => (0..2000).for_each(|_| std::hint::spin_loop()),
        _ => {}
    }
}

/// The number of leaves below.
fn tree(shared: &Shared, seed: u64, depth: u32, wild: Wild) -> u64 {
    let _alive = Alive::new(shared);
    let mut rng = Rng::new(seed);
    shared.visited.fetch_add(1, Ordering::Relaxed);
    disturb(shared, &mut rng, wild);
    if depth == 0 {
        return 1;
    }
    let local = [seed; 8];
    let (left, right) = join(
        || tree(shared, local[0].wrapping_mul(3) + 1, depth - 1, wild),
        || tree(shared, local[7].wrapping_mul(5) + 2, depth - 1, wild),
    );
    disturb(shared, &mut rng, wild);
    assert_eq!(local, [seed; 8], "a frame was changed");
    left + right
}

fn builders() -> Vec<(String, heist::Builder)> {
    let mut builders = Vec::new();
    for procs in [1, 2, 4, 16] {
        for (chaos, quantum) in
            [(None, None), (Some(7), None), (None, Some(500)), (Some(9), Some(500))]
        {
            let mut builder = Runtime::builder().procs(procs);
            builder = chaos.map_or(builder.clone(), |seed| builder.chaos(seed));
            if let Some(micros) = quantum {
                builder = builder.exact_quantum(Duration::from_micros(micros));
            }
            builders.push((format!("procs={procs} chaos={chaos:?} quantum={quantum:?}"), builder));
        }
    }
    builders
}

fn each(body: impl Fn(&Runtime, u64)) {
    matrix::stress(1, |round| {
        for (name, builder) in builders() {
            println!("{name}, round {round}");
            let rt = matrix::start(builder);
            let about = name.clone();
            let watchdog = matrix::Watchdog::new(matrix::patience(), move || about);
            body(&rt, round);
            drop(rt);
            drop(watchdog);
        }
    });
}

/// Trees whose nodes do everything that parks return the right number, several at a time.
#[test]
fn trees_that_park() {
    each(|rt, round| {
        rt.run(|| {
            let shared = Arc::new(Shared::default());
            let trees = (0..3).map(|i| {
                let shared = Arc::clone(&shared);
                go(move || tree(&shared, round * 100 + i, 9, Wild::Parks))
            });
            let trees: Vec<_> = trees.collect();
            for tree in trees {
                assert_eq!(tree.join().unwrap(), 512);
            }
            assert_eq!(shared.alive.load(Ordering::Relaxed), 0);
        });
    });
}

/// Trees whose nodes panic are unwound to the root, and nothing is left.
#[test]
fn trees_that_panic() {
    each(|rt, round| {
        rt.run(|| {
            for i in 0..10 {
                let shared = Shared::default();
                let run = || tree(&shared, round * 1000 + i, 8, Wild::Panics);
                if let Ok(n) = catch_unwind(AssertUnwindSafe(run)) {
                    assert_eq!(n, 256);
                }
                assert_eq!(shared.alive.load(Ordering::Relaxed), 0);
            }
        });
    });
}

/// Trees that are cancelled at a random moment are unwound, and nothing is left.
#[test]
fn trees_that_are_cancelled() {
    each(|rt, round| {
        rt.run(|| {
            let mut rng = Rng::new(round);
            for i in 0..10 {
                let shared = Arc::new(Shared::default());
                let of_tree = Arc::clone(&shared);
                let handle = go(move || tree(&of_tree, round * 1000 + i, 9, Wild::Parks));
                let nodes = u64::from(rng.next_u32() % 700);
                matrix::yield_until("nodes", || {
                    handle.is_finished() || shared.visited.load(Ordering::Relaxed) >= nodes
                });
                handle.cancel();
                match handle.join() {
                    Ok(n) => assert_eq!(n, 512),
                    Err(error) => assert!(error.is_cancelled(), "{error}"),
                }
                assert_eq!(shared.alive.load(Ordering::Relaxed), 0);
            }
        });
    });
}

/// Computations that never enter the runtime are preempted, and their forks are taken meanwhile.
#[test]
fn trees_that_compute() {
    fn fib(n: u32) -> u64 {
        if n < 2 {
            return n.into();
        }
        let (a, b) = join(|| fib(n - 1), || fib(n - 2));
        a + b
    }
    each(|rt, _| {
        rt.run(|| {
            let all: Vec<_> = (0..4).map(|_| go(|| fib(20))).collect();
            for one in all {
                assert_eq!(one.join().unwrap(), 6765);
            }
        });
    });
}

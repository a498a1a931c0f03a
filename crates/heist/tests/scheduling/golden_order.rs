//! The order in which one processor runs goroutines, against a model of the queues.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{Runtime, StealPolicy, go, testing, yield_now};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

/// Queue lengths around every limit: `run_next`, the ring, one overflow, several.
const COUNTS: [u32; 14] = [1, 2, 3, 10, 64, 256, 257, 258, 259, 300, 400, 520, 1000, 3000];
/// The goroutine that spawns, in the model.
const MAIN: u32 = u32::MAX;

/// One processor as the rules describe it, written independently of the scheduler's code.
#[derive(Default)]
struct Model {
    run_next: Option<u32>,
    ring: VecDeque<u32>,
    global: VecDeque<u32>,
    tick: u32,
}

impl Model {
    fn at(tick: u32) -> Self {
        Self { tick, ..Self::default() }
    }

    fn spawn(&mut self, id: u32) {
        let Some(kicked) = self.run_next.replace(id) else {
            return;
        };
        if self.ring.len() < 256 {
            self.ring.push_back(kicked);
        } else {
            self.global.extend(self.ring.drain(..128));
            self.global.push_back(kicked);
        }
    }

    fn yields(&mut self, id: u32) {
        self.global.push_back(id);
    }

    fn next(&mut self) -> Option<u32> {
        let in_turn = self.tick.is_multiple_of(61) && !self.global.is_empty();
        if !in_turn {
            if let Some(id) = self.run_next.take() {
                return Some(id);
            }
            if self.ring.is_empty() {
                // With one processor the fair share is everything, up to half a ring.
                let batch = self.global.len().min(128);
                self.ring.extend(self.global.drain(..batch));
            }
        }
        let queue = if in_turn { &mut self.global } else { &mut self.ring };
        let id = queue.pop_front()?;
        self.tick = self.tick.wrapping_add(1);
        Some(id)
    }

    fn drain(&mut self) -> Vec<u32> {
        std::iter::from_fn(|| self.next()).collect()
    }
}

/// The actions of the goroutines, in order.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u32>>>);

impl Log {
    fn add(&self, id: u32) {
        self.0.lock().unwrap().push(id);
    }

    fn take(&self) -> Vec<u32> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

fn one_processor(policy: StealPolicy) -> Runtime {
    // No slice ends in the middle of an order.
    let quantum = std::time::Duration::from_secs(3600);
    matrix::start(Runtime::builder().procs(1).steal_policy(policy).exact_quantum(quantum))
}

/// Spawns `n` from the calling goroutine, blocks, and returns the order in which they ran.
fn observed(n: u32, tick: u32) -> Vec<u32> {
    let log = Log::default();
    let group = WaitGroup::new();
    group.add(n as usize);
    testing::set_tick(tick);
    for id in 0..n {
        let (log, group) = (log.clone(), group.clone());
        go(move || {
            log.add(id);
            group.done();
        });
    }
    group.wait();
    log.take()
}

/// RQ-09, IN-04, IN-05, IN-10, IN-11: one processor runs any number of new goroutines in exactly
/// the order of the model, whatever the phase of the one-in-61 rule.
#[test]
fn spawned_goroutines_run_in_the_golden_order() {
    for policy in [StealPolicy::go(), StealPolicy::gentle()] {
        let rt = one_processor(policy);
        for n in COUNTS {
            for tick in (0..61).chain([u32::MAX - 100, u32::MAX - 3, u32::MAX]) {
                let mut model = Model::at(tick);
                (0..n).for_each(|id| model.spawn(id));
                let order = rt.run(|| observed(n, tick));
                assert!(order == model.drain(), "n={n} tick={tick} {policy:?}: {order:?}");
            }
        }
    }
}

/// RQ-09: up to one ring and `run_next`, the last one spawned runs first and then the others in
/// order; no phase matters, because the global queue stays empty.
#[test]
fn the_last_spawned_goes_first_while_the_ring_suffices() {
    let rt = one_processor(StealPolicy::go());
    for n in COUNTS.into_iter().filter(|&n| n <= 257) {
        let expected: Vec<_> = std::iter::once(n - 1).chain(0..n - 1).collect();
        assert_eq!(rt.run(|| observed(n, 61)), expected, "n={n}");
    }
}

/// IN-11: only goroutines with a slice of their own count as ticks: a chain of hand-overs through
/// `run_next` does not move the tick.
#[test]
fn a_chain_through_run_next_leaves_the_tick_alone() {
    fn chain(left: u32) -> u32 {
        match left {
            0 => testing::tick().unwrap(),
            _ => go(move || chain(left - 1)).join().unwrap(),
        }
    }
    let rt = one_processor(StealPolicy::go());
    rt.run(|| {
        testing::set_tick(1000);
        assert_eq!(chain(50), 1000);
        // Each of the 50 that waited came back through `run_next` as well.
        assert_eq!(testing::tick(), Some(1000));
        yield_now();
        assert_eq!(testing::tick(), Some(1001));
    });
}

/// RQ-10: a goroutine that yields goes behind all local work and is not lost: 5 0 1 2 3 4, then the
/// yielder.
#[test]
fn a_yield_lets_the_local_work_go_first() {
    for policy in [StealPolicy::go(), StealPolicy::gentle()] {
        let rt = one_processor(policy);
        for tick in 0..61 {
            let log = Log::default();
            rt.run(|| {
                testing::set_tick(tick);
                for id in 0..6 {
                    let log = log.clone();
                    go(move || log.add(id));
                }
                yield_now();
                log.add(MAIN);
                // The tick decides whether some are left: they run before the next `run`.
                while heist::num_goroutines() > 1 {
                    yield_now();
                }
            });
            let mut model = Model::at(tick);
            (0..6).for_each(|id| model.spawn(id));
            model.yields(MAIN);
            assert_eq!(log.take(), model.drain(), "tick={tick}");
        }
        let golden = [5, 0, 1, 2, 3, 4, MAIN];
        let mut model = Model::at(1);
        (0..6).for_each(|id| model.spawn(id));
        model.yields(MAIN);
        assert_eq!(model.drain(), golden, "the model itself");
    }
}

/// RQ-10: goroutines that do nothing but yield take turns.
#[test]
fn yielders_take_turns() {
    let rt = one_processor(StealPolicy::go());
    let log = Log::default();
    rt.run(|| {
        testing::set_tick(1);
        let handles: Vec<_> = (0..3)
            .map(|id| {
                let log = log.clone();
                go(move || {
                    for _ in 0..10 {
                        log.add(id);
                        yield_now();
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    });
    let order = log.take();
    // The last one spawned leads, the others follow in the order of their spawning.
    assert_eq!(order, [2, 0, 1].repeat(10));
}

/// IN-12: a new goroutine and one that is made ready take the place in front; the previous one goes
/// to the tail of the ring.
#[test]
fn spawn_and_ready_go_in_front_on_the_acting_processor() {
    let rt = one_processor(StealPolicy::go());
    let log = Log::default();
    rt.run(|| {
        testing::set_tick(1);
        let gate = WaitGroup::new();
        gate.add(1);
        let waiter = {
            let (log, gate) = (log.clone(), gate.clone());
            go(move || {
                gate.wait();
                log.add(0);
            })
        };
        // It runs and parks.
        yield_now();
        assert_eq!(testing::sample(&rt).queued, [0]);
        let spawned = [1, 2].map(|id| {
            let log = log.clone();
            go(move || log.add(id))
        });
        gate.done();
        let sample = testing::sample(&rt);
        assert_eq!((sample.queued, sample.global), (vec![3], 0));
        waiter.join().unwrap();
        for handle in spawned {
            handle.join().unwrap();
        }
    });
    assert_eq!(log.take(), [0, 1, 2]);
}

/// IN-12: a goroutine that yields is in the global queue.
#[test]
fn a_yielder_waits_in_the_global_queue() {
    let rt = Arc::new(one_processor(StealPolicy::go()));
    let looker = Arc::clone(&rt);
    rt.run(move || {
        testing::set_tick(1);
        let seen = go(move || testing::sample(&looker));
        yield_now();
        let seen = seen.join().unwrap();
        assert_eq!((seen.queued, seen.global), (vec![0], 1));
    });
}

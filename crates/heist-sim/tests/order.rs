//! The order in which one processor runs goroutines: the golden order of the runtime
//! (`crates/heist/tests/scheduling/golden_order.rs`), by the same independent model.

use heist_sim::workloads::Script;
use heist_sim::{Config, Op, Sim, Task, Tuning};
use std::collections::VecDeque;

const COUNTS: [u32; 14] = [1, 2, 3, 10, 64, 256, 257, 258, 259, 300, 400, 520, 1000, 3000];
const MAIN: u32 = u32::MAX;

/// One processor as the rules describe it.
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

    fn next(&mut self) -> Option<u32> {
        let in_turn = self.tick.is_multiple_of(61) && !self.global.is_empty();
        if !in_turn {
            if let Some(id) = self.run_next.take() {
                return Some(id);
            }
            if self.ring.is_empty() {
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

/// A goroutine that starts `n` others, which note their numbers, and then takes `last`.
fn observed(n: u32, tick: u32, tuning: Tuning, last: &[Op]) -> Vec<u32> {
    let main = (0..n).map(|id| Op::Spawn(Task::new(id + 1))).chain(last.iter().copied());
    let mut programs = vec![main.collect::<Vec<_>>()];
    programs.extend((0..n).map(|id| vec![Op::Log(id)]));
    let mut config = Config::new(1, 1);
    // The first goroutine has a slice of its own, which is a tick.
    config.first_tick = tick.wrapping_sub(1);
    config.quantum_ns = 1 << 40;
    config.tuning = tuning;
    let report = Sim::new(config, &mut Script::new(programs)).run();
    assert_eq!(report.stuck, 0);
    report.log
}

#[test]
fn spawned_goroutines_run_in_the_golden_order() {
    for tuning in [Tuning::heist(), Tuning::go(), Tuning::gentle()] {
        for n in COUNTS {
            for tick in [0, 1, 2, 30, 59, 60, 61, u32::MAX - 100, u32::MAX] {
                let mut model = Model::at(tick);
                (0..n).for_each(|id| model.spawn(id));
                let order = observed(n, tick, tuning, &[Op::Join]);
                assert!(order == model.drain(), "n={n} tick={tick}: {order:?}");
            }
        }
    }
}

#[test]
fn a_yield_lets_the_local_work_go_first() {
    for tick in 0..61 {
        let order = observed(6, tick, Tuning::heist(), &[Op::Yield, Op::Log(MAIN), Op::Join]);
        let mut model = Model::at(tick);
        (0..6).for_each(|id| model.spawn(id));
        model.global.push_back(MAIN);
        assert_eq!(order, model.drain(), "tick={tick}");
    }
}

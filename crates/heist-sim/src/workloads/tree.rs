//! A tree of goroutines: fork and join.

use crate::workload::{Arrival, Op, Task, Workload};
use heist_core::rng::Rng;

/// Each goroutine computes, starts children, waits for them and computes again.
#[derive(Clone, Debug)]
pub struct Tree {
    depth: u32,
    fan_out: u32,
    work_ns: u64,
    left: u32,
}

impl Tree {
    /// A tree of this depth (a leaf has depth zero) whose inner nodes have `fan_out` children.
    #[must_use]
    pub const fn new(depth: u32, fan_out: u32, work_ns: u64) -> Self {
        Self { depth, fan_out, work_ns, left: 1 }
    }

    /// Several trees, one after the other.
    #[must_use]
    pub const fn times(mut self, n: u32) -> Self {
        self.left = n;
        self
    }

    /// How many goroutines a tree has.
    #[must_use]
    pub fn size(&self) -> u64 {
        (0..=self.depth).map(|depth| u64::from(self.fan_out).pow(depth)).sum()
    }
}

impl Workload for Tree {
    fn arrival(&mut self, _rng: &mut Rng) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        Some(Arrival { after_ns: 0, task: Task::new(self.depth) })
    }

    fn next(&mut self, task: &mut Task, _rng: &mut Rng) -> Op {
        let children = if task.kind == 0 { 0 } else { self.fan_out };
        let step = task.step;
        task.step += 1;
        match step {
            0 => Op::Compute(self.work_ns),
            step if step <= children => {
                Op::Spawn(Task { kind: task.kind - 1, step: 0, home: None, ..*task })
            }
            step if step == children + 1 && children > 0 => Op::Join,
            _ => Op::End,
        }
    }
}

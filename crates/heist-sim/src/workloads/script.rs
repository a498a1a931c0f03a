//! Goroutines whose steps are written down: for tests, and for recorded traces.

use crate::workload::{Arrival, Op, Task, Workload};
use heist_core::rng::Rng;

/// Programs, by their number. A goroutine of kind `k` takes the steps of program `k`, and ends.
#[derive(Clone, Debug, Default)]
pub struct Script {
    programs: Vec<Vec<Op>>,
    arrivals: Vec<Arrival>,
    capacity: u32,
    n_arrived: usize,
}

impl Script {
    /// Programs, with one goroutine of program zero at the beginning.
    #[must_use]
    pub fn new(programs: Vec<Vec<Op>>) -> Self {
        let first = Arrival { after_ns: 0, task: Task::new(0) };
        Self { programs, arrivals: vec![first], ..Self::default() }
    }

    /// With other goroutines from outside.
    #[must_use]
    pub fn with_arrivals(mut self, arrivals: Vec<Arrival>) -> Self {
        self.arrivals = arrivals;
        self
    }

    /// With this capacity of all channels.
    #[must_use]
    pub const fn with_capacity(mut self, capacity: u32) -> Self {
        self.capacity = capacity;
        self
    }
}

impl Workload for Script {
    fn arrival(&mut self, _rng: &mut Rng) -> Option<Arrival> {
        let arrival = self.arrivals.get(self.n_arrived).copied();
        self.n_arrived += 1;
        arrival
    }

    fn next(&mut self, task: &mut Task, _rng: &mut Rng) -> Op {
        let step = task.step as usize;
        task.step += 1;
        self.programs[task.kind as usize].get(step).copied().unwrap_or(Op::End)
    }

    fn capacity(&self, _channel: u32) -> u32 {
        self.capacity
    }
}

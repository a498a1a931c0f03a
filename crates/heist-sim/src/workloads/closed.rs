//! Closed loops: a fixed number of goroutines that compute, and sleep or wake each other.

use crate::random::exponential_ns;
use crate::workload::{Arrival, Op, Task, Workload};
use heist_core::rng::Rng;

/// Clients that think, that is, sleep, and then compute.
#[derive(Clone, Debug)]
pub struct ClosedLoop {
    think_ns: f64,
    service_ns: f64,
    rounds: u32,
    left: u32,
}

impl ClosedLoop {
    /// So many clients, each with so many rounds. The times are exponentially distributed.
    #[must_use]
    pub const fn new(clients: u32, rounds: u32, think_ns: f64, service_ns: f64) -> Self {
        Self { think_ns, service_ns, rounds, left: clients }
    }
}

impl Workload for ClosedLoop {
    fn arrival(&mut self, _rng: &mut Rng) -> Option<Arrival> {
        self.left = self.left.checked_sub(1)?;
        Some(Arrival { after_ns: 0, task: Task::new(0) })
    }

    fn next(&mut self, task: &mut Task, rng: &mut Rng) -> Op {
        let (round, part) = (task.step / 3, task.step % 3);
        task.step += 1;
        match part {
            _ if round == self.rounds => Op::End,
            0 => Op::Sleep(exponential_ns(rng, self.think_ns)),
            1 => Op::Compute(exponential_ns(rng, self.service_ns)),
            _ => Op::Done,
        }
    }
}

/// Pairs of goroutines that pass a value to and fro over rendezvous channels.
#[derive(Clone, Debug)]
pub struct PingPong {
    pairs: u32,
    rounds: u32,
    work_ns: u64,
    made: u32,
}

impl PingPong {
    /// So many pairs, each with so many rounds, and a computation before each message.
    #[must_use]
    pub const fn new(pairs: u32, rounds: u32, work_ns: u64) -> Self {
        Self { pairs, rounds, work_ns, made: 0 }
    }
}

const PING: u32 = 0;
const PONG: u32 = 1;

impl Workload for PingPong {
    fn arrival(&mut self, _rng: &mut Rng) -> Option<Arrival> {
        let pair = self.made;
        (pair < self.pairs).then(|| {
            self.made += 1;
            Arrival { after_ns: 0, task: Task::new(PING).with(pair.into()) }
        })
    }

    fn next(&mut self, task: &mut Task, _rng: &mut Rng) -> Op {
        let (there, back) = (2 * task.data[0] as u32, 2 * task.data[0] as u32 + 1);
        if task.kind == PING && task.step == 0 {
            task.step = 1;
            return Op::Spawn(Task { kind: PONG, step: 1, ..*task });
        }
        let (round, part) = ((task.step - 1) / 3, (task.step - 1) % 3);
        task.step += 1;
        match (part, task.kind) {
            _ if round == self.rounds => Op::End,
            (0, PING) => Op::Compute(self.work_ns),
            (1, PING) => Op::Send(there),
            (_, PING) => Op::Recv(back),
            (0, _) => Op::Recv(there),
            (1, _) => Op::Compute(self.work_ns),
            (_, _) => Op::Send(back),
        }
    }
}

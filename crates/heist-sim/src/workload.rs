//! The seam to what is simulated: which goroutines arrive, and what each of them does.

use heist_core::rng::Rng;

/// The class of a goroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Class {
    /// It waits in its own lane, which every M checks first.
    Latency,
    /// Most of them.
    #[default]
    Normal,
}

/// What a workload knows of a goroutine. The simulator hands it back at every step.
#[derive(Clone, Copy, Debug, Default)]
pub struct Task {
    /// Which program it runs; the workload's own number.
    pub kind: u32,
    /// Where it is in the program; the workload's own number.
    pub step: u32,
    /// Anything else that the workload needs.
    pub data: [u64; 2],
    /// Its class.
    pub class: Class,
    /// The node of its data. None: that of the goroutine that starts it, or where it first runs.
    pub home: Option<u32>,
}

impl Task {
    /// A goroutine that runs program `kind`.
    #[must_use]
    pub fn new(kind: u32) -> Self {
        Self { kind, ..Self::default() }
    }

    /// With a first number of its own.
    #[must_use]
    pub const fn with(mut self, data: u64) -> Self {
        self.data[0] = data;
        self
    }
}

/// How a blocking call is announced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Announced {
    /// By `heist::blocking`: sysmon takes the P after one nap.
    Yes,
    /// Not at all: sysmon needs two long naps to be sure.
    No,
}

/// The next step of a goroutine.
#[derive(Clone, Copy, Debug)]
pub enum Op {
    /// Computes for this long, on the node of its data.
    Compute(u64),
    /// Starts another goroutine.
    Spawn(Task),
    /// Waits until all goroutines that it has started have ended.
    Join,
    /// Gives way to others.
    Yield,
    /// Waits for a signal of this number, unless one came before.
    Park(u32),
    /// Wakes the goroutine that waits longest for this number, or leaves the signal there.
    Signal(u32),
    /// Sends into a channel, and waits while it is full.
    Send(u32),
    /// Receives from a channel, and waits while it is empty.
    Recv(u32),
    /// Sleeps.
    Sleep(u64),
    /// Blocks its thread.
    Block(u64, Announced),
    /// Notes a number in the log of the run.
    Log(u32),
    /// Ends a request: the time since the goroutine was born, or woke from a sleep, is recorded.
    Done,
    /// Ends. A goroutine that did not end a request before is recorded as one.
    End,
}

/// A goroutine from outside.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// How long after the one before.
    pub after_ns: u64,
    /// The goroutine.
    pub task: Task,
}

/// What is simulated. A recorded execution trace can be one: each goroutine's spans between two
/// events of the trace are its steps.
pub trait Workload {
    /// The next goroutine from outside, if there is one. It enters through the global queue, as a
    /// goroutine that a plain thread starts.
    fn arrival(&mut self, rng: &mut Rng) -> Option<Arrival>;

    /// The next step of a goroutine.
    fn next(&mut self, task: &mut Task, rng: &mut Rng) -> Op;

    /// How many goroutines there will be, if that is known.
    fn total(&self) -> Option<u64> {
        None
    }

    /// The capacity of a channel.
    fn capacity(&self, _channel: u32) -> u32 {
        0
    }
}

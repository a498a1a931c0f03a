//! What a file holds besides events.

use std::panic::Location;
use std::sync::Arc;

/// The clock that counts the ticks of a trace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TicksClock {
    /// Nanoseconds of the monotonic clock.
    #[default]
    Monotonic = 0,
    /// The time stamp counter of x86.
    Tsc = 1,
    /// The virtual counter of aarch64.
    Cntvct = 2,
}

impl TicksClock {
    /// The clock with this number.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::Monotonic),
            1 => Some(Self::Tsc),
            2 => Some(Self::Cntvct),
            _ => None,
        }
    }
}

/// What a file says about the program and the trace as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Header {
    /// The clock of the ticks.
    pub ticks_clock: TicksClock,
    /// The process.
    pub pid: u32,
    /// The name of the program.
    pub program: String,
    /// The number of Ps when the trace began.
    pub procs: u32,
    /// The texts of the wait reasons: the detail of `GoBlock` is a place in this list.
    pub wait_reasons: Vec<String>,
}

/// The same moment on three clocks. The first pair and the last one say how long a tick is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Clock {
    /// In ticks of the trace.
    pub ticks: u64,
    /// On the monotonic clock.
    pub monotonic_ns: u64,
    /// Since 1970.
    pub unix_ns: u64,
}

/// A place in the source where goroutines are spawned.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Site {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: u32,
    /// The column, from 1.
    pub column: u32,
}

impl From<&Location<'_>> for Site {
    fn from(location: &Location<'_>) -> Self {
        Self { file: location.file().to_owned(), line: location.line(), column: location.column() }
    }
}

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}:{}:{}", self.file, self.line, self.column)
    }
}

/// One call in a stack.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Frame {
    /// The function.
    pub function: String,
    /// The file, or nothing.
    pub file: String,
    /// The line, or 0.
    pub line: u32,
}

/// What a goroutine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum State {
    /// It is made and waits for the clock before it begins.
    Unborn = 0,
    /// It waits for a P.
    #[default]
    Runnable = 1,
    /// It runs.
    Running = 2,
    /// It waits for something.
    Waiting = 3,
    /// It is in a blocking call.
    InCall = 4,
    /// It waits for a P together with its thread.
    Frozen = 5,
}

impl State {
    /// The state with this number.
    #[must_use]
    pub const fn from_u8(value: u8) -> Option<Self> {
        match value {
            0 => Some(Self::Unborn),
            1 => Some(Self::Runnable),
            2 => Some(Self::Running),
            3 => Some(Self::Waiting),
            4 => Some(Self::InCall),
            5 => Some(Self::Frozen),
            _ => None,
        }
    }
}

/// A goroutine as a snapshot saw it. Its events with a number that is not larger may have happened
/// before the snapshot, those with a larger one happened after it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Goroutine {
    /// Its id.
    pub id: u64,
    /// The goroutine that spawned it, or 0.
    pub parent: u64,
    /// How often it began to run or to wait: see [`record`](crate::record).
    pub number: u16,
    /// What it did.
    pub state: State,
    /// What it waited for, if it waited: a place in [`Header::wait_reasons`].
    pub wait_reason: u8,
    /// Its class: 0 normal, 1 latency, 2 idle.
    pub class: u8,
    /// It polls a future.
    pub is_task: bool,
    /// Where it was spawned, if known. Goroutines share it, so that many of them with a long one
    /// take little memory.
    pub site: Option<Arc<Site>>,
    /// Its name, or nothing.
    pub name: String,
}

/// How many records of a writer are missing in the whole file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drops {
    /// As in [`Context::writer`](crate::record::Context::writer).
    pub writer: u32,
    /// How many.
    pub records: u64,
}

//! The events of one goroutine in their order.
//!
//! A number has two halves: with the first one the goroutine begins to run or to wait, with the
//! second one that ends. In between, a goroutine that runs begins and ends blocking calls. The
//! first half of the next number may come without the second half of this one: a goroutine that
//! runs begins to wait.

use crate::file::{Goroutine, State};
use crate::record::{End, Kind, Record, Stop, Wake};

/// An event of a goroutine, as a thread wrote it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pending {
    pub(super) number: u16,
    pub(super) ticks: u64,
    pub(super) raw: Raw,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Raw {
    Create(Made),
    Start,
    Stop(Stop),
    Freeze,
    Block(u8),
    Unblock { how: Wake, by: u64 },
    CallStart,
    CallStop,
    End(End),
}

/// What is known about a new goroutine, as numbers.
#[derive(Clone, Copy, Debug)]
pub(super) struct Made {
    pub(super) parent: u64,
    pub(super) class: u8,
    pub(super) is_unborn: bool,
    pub(super) is_task: bool,
    pub(super) site: u64,
    pub(super) name: u64,
}

/// What a record says about a goroutine, if it does. `current` is the goroutine that runs on the
/// thread that wrote it.
pub(super) fn raw(kind: Kind, record: Record, current: u64) -> Option<Raw> {
    let detail = record.detail();
    Some(match kind {
        Kind::GoCreate => Raw::Create(Made {
            parent: current,
            class: 0,
            is_unborn: detail == 1,
            is_task: detail == 2,
            site: 0,
            name: 0,
        }),
        Kind::GoStart => Raw::Start,
        Kind::GoStop => Raw::Stop(Stop::from_u8(detail).unwrap_or(Stop::Preempted)),
        Kind::GoFreeze => Raw::Freeze,
        Kind::GoBlock => Raw::Block(detail),
        Kind::GoUnblock => {
            let how = Wake::from_u8(detail).unwrap_or(Wake::Ready);
            let by = if matches!(how, Wake::Ready | Wake::Cancelled) { current } else { 0 };
            Raw::Unblock { how, by }
        }
        Kind::CallStart => Raw::CallStart,
        Kind::CallStop => Raw::CallStop,
        Kind::GoEnd => Raw::End(End::from_u8(detail).unwrap_or(End::Returned)),
        Kind::GoDrop => Raw::End(End::Cancelled),
        _ => return None,
    })
}

const fn rank(raw: &Raw) -> u8 {
    match raw {
        Raw::Create(_) | Raw::Start | Raw::Block(_) => 0,
        Raw::CallStart | Raw::CallStop => 1,
        Raw::Stop(_) | Raw::Freeze | Raw::Unblock { .. } | Raw::End(_) => 2,
    }
}

/// Whether one place in a chain is after another. Numbers are the low bits of larger ones.
const fn is_after(a: (u16, u8), b: (u16, u8)) -> bool {
    let step = a.0.wrapping_sub(b.0) as i16;
    step > 0 || step == 0 && a.1 > b.1
}

impl Pending {
    /// Whether it comes after another event of its goroutine.
    pub(super) const fn is_after(&self, other: &Self) -> bool {
        is_after((self.number, rank(&self.raw)), (other.number, rank(&other.raw)))
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Doing {
    #[default]
    Runnable,
    Running,
    Waiting,
}

/// What a goroutine has reached.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Life {
    number: u16,
    rank: u8,
    doing: Doing,
}

impl Life {
    /// As a snapshot saw it.
    pub(super) fn seen(seen: &Goroutine) -> Self {
        let (rank, doing) = match seen.state {
            State::Unborn | State::Waiting => (0, Doing::Waiting),
            State::Running | State::InCall => (0, Doing::Running),
            State::Runnable | State::Frozen => (2, Doing::Runnable),
        };
        Self { number: seen.number, rank, doing }
    }

    /// Whether the event comes before what the goroutine has reached.
    pub(super) const fn is_past(&self, event: &Pending) -> bool {
        !is_after((event.number, rank(&event.raw)), (self.number, self.rank))
    }

    pub(super) fn apply(&mut self, event: &Pending) {
        let doing = match event.raw {
            Raw::Create(made) if made.is_unborn => Doing::Waiting,
            Raw::Create(_) | Raw::Stop(_) | Raw::Freeze | Raw::Unblock { .. } => Doing::Runnable,
            Raw::Start | Raw::CallStart | Raw::CallStop | Raw::End(_) => Doing::Running,
            Raw::Block(_) => Doing::Waiting,
        };
        // A goroutine can have several calls while it runs.
        let rank = rank(&event.raw) & 2;
        *self = Self { number: event.number, rank, doing };
    }
}

/// Whether the event is the next one of its goroutine.
pub(super) fn is_due(life: Option<&Life>, event: &Pending) -> bool {
    let Some(life) = life else { return matches!(event.raw, Raw::Create(_)) };
    let (next, same) = (event.number == life.number.wrapping_add(1), event.number == life.number);
    match event.raw {
        // The snapshot may have seen it before.
        Raw::Create(_) => false,
        Raw::Start => next && life.doing == Doing::Runnable,
        Raw::Block(_) => next && life.doing == Doing::Running,
        Raw::Stop(_) | Raw::Freeze => same && life.doing == Doing::Running,
        Raw::CallStart | Raw::CallStop => same && life.doing == Doing::Running,
        Raw::Unblock { .. } => same && life.doing == Doing::Waiting,
        // A goroutine that was never born ends while it waits.
        Raw::End(_) => same && life.doing != Doing::Runnable,
    }
}

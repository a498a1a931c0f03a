//! The calendar of the simulation: events in the order of their times.
//!
//! It is the timer heap of heist-core. Two events of the same nanosecond happen in the order in
//! which they were planned: the low bits of the key count them.

use heist_core::timer_heap::{Entry, Siblings, TimerHeap};

/// Bits of the key that count events.
const ORDER_BITS: u32 = 20;
/// Bits of an event that hold the generation.
const GENERATION_BITS: u32 = 28;

/// The latest time that the calendar can hold: about four hours.
pub(crate) const END_OF_TIME: u64 = (1 << (64 - ORDER_BITS)) - 1;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// An M ends the step that it is in, or its turn on the CPU.
    Machine,
    /// A goroutine arrives from outside.
    Arrival,
    /// A timer of a P is due.
    Timer,
    /// sysmon looks at an M in a blocking call.
    Retake,
    /// A blocking call returns.
    Unblock,
    /// The nap of the watcher is over.
    Nap,
    /// The controller of the latency class looks.
    Control,
}

const KINDS: [Kind; 7] = [
    Kind::Machine,
    Kind::Arrival,
    Kind::Timer,
    Kind::Retake,
    Kind::Unblock,
    Kind::Nap,
    Kind::Control,
];

/// An event of an M or a P. An event whose generation is not that of its M any more is void.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) kind: Kind,
    pub(crate) id: u32,
    pub(crate) generation: u32,
}

impl Event {
    pub(crate) const fn new(kind: Kind, id: u32, generation: u32) -> Self {
        Self { kind, id, generation: generation & ((1 << GENERATION_BITS) - 1) }
    }

    const fn to_bits(self) -> u64 {
        (self.kind as u64) << 60 | (self.generation as u64) << 32 | self.id as u64
    }

    const fn from_bits(bits: u64) -> Self {
        let generation = (bits >> 32) as u32 & ((1 << GENERATION_BITS) - 1);
        Self { kind: KINDS[(bits >> 60) as usize], id: bits as u32, generation }
    }
}

/// The events to come.
#[derive(Debug)]
pub(crate) struct Calendar {
    heap: TimerHeap<u64, Vec<Siblings<u64>>>,
    n_planned: u64,
}

impl Calendar {
    pub(crate) const fn new() -> Self {
        Self { heap: TimerHeap::new(Vec::new()), n_planned: 0 }
    }

    /// Plans an event.
    pub(crate) fn plan(&mut self, at_ns: u64, event: Event) {
        let order = self.n_planned & ((1 << ORDER_BITS) - 1);
        self.n_planned += 1;
        let when = at_ns.min(END_OF_TIME - 1) << ORDER_BITS | order;
        let planned = self.heap.push(Entry { when, what: event.to_bits() });
        assert!(planned, "a vector grows, or the process ends");
    }

    /// Takes the next event, with its time.
    pub(crate) fn next(&mut self) -> Option<(u64, Event)> {
        let entry = self.heap.pop_due(u64::MAX - 1)?;
        Some((entry.when >> ORDER_BITS, Event::from_bits(entry.what)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_of_one_moment_keep_their_order() {
        let mut calendar = Calendar::new();
        for id in 0..1000 {
            calendar.plan(if id % 2 == 0 { 7 } else { 3 }, Event::new(Kind::Machine, id, id));
        }
        let order: Vec<_> =
            std::iter::from_fn(|| calendar.next()).map(|(at, event)| (at, event.id)).collect();
        let odd = (0..500).map(|n| (3, 2 * n + 1));
        let even = (0..500).map(|n| (7, 2 * n));
        assert_eq!(order, odd.chain(even).collect::<Vec<_>>());
    }

    #[test]
    fn an_event_keeps_its_parts() {
        for kind in KINDS {
            let event = Event::new(kind, u32::MAX, (1 << GENERATION_BITS) - 1);
            assert_eq!(Event::from_bits(event.to_bits()), event);
        }
    }
}

//! The events of all writers as one story.
//!
//! [`replay`] merges the buffers of a trace by time and by the exact numbers of goroutines and Ps,
//! applies each event to a [`Machine`], the emulated scheduler, and tells a [`Visitor`]. The order
//! depends on nothing but the trace.

mod apply;
mod check;
mod event;
mod ids;
mod machine;
mod merge;
mod rule;
mod timeline;

pub use event::{Event, Extra};
pub use ids::{IdSet, Map};
pub use machine::{Doing, G, M, Machine, P};
pub use merge::replay;
pub use rule::Rule;
pub use timeline::Timeline;

use crate::record::Context;

/// Learns what happened, in order.
pub trait Visitor {
    /// The rules are checked; without it [`problem`](Self::problem) is not called.
    const CHECKS: bool = false;

    /// The first buffer of an M begins, or its first one after a gap: this is what the M does.
    fn begin(&mut self, _context: &Context, _time: u64) {}

    /// The event comes next; the machine is as before it.
    fn before(&mut self, _event: &Event, _machine: &Machine) {}

    /// The event has happened.
    fn after(&mut self, _event: &Event, _machine: &Machine) {}

    /// The event breaks a rule. It is called between [`before`](Self::before) and
    /// [`after`](Self::after), and the machine is as before the event.
    fn problem(&mut self, _rule: Rule, _event: &Event, _words: String) {}

    /// A buffer begins after a gap: events of this writer are missing.
    fn gap(&mut self, _writer: u32, _time: u64) {}

    /// From here on the order of events of different writers is a guess, because events are missing
    /// that would tell. Only rules that need a single writer are checked.
    fn uncertain(&mut self, _time: u64) {}

    /// All events have happened.
    fn end(&mut self, _machine: &Machine) {}
}

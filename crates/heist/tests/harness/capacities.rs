//! Channels of every kind, for tests of their common behaviour.

#![allow(dead_code, reason = "every test program uses its own part of this")]

use heist::chan::{self, Receiver, Sender};

/// Capacities around the limits: none, one, a few, more than a ring of goroutines.
pub const CAPACITIES: [usize; 6] = [0, 1, 2, 3, 16, 199];

/// A channel of each capacity, and one without a bound.
pub fn channels<T>() -> impl Iterator<Item = (Sender<T>, Receiver<T>)> {
    CAPACITIES.into_iter().map(chan::bounded).chain(std::iter::once_with(chan::unbounded))
}

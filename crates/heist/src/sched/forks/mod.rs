//! Forks: latent jobs that become goroutines only if another P takes them.
//!
//! A goroutine that forks keeps its jobs in a deque (`jobs`). A thief makes a goroutine of the
//! oldest one (`life::take_job`). `measured` says which meter measures a goroutine and its forks.
//! docs/design/fork_join.md has the protocol.

mod jobs;
pub(crate) mod measured;

pub(crate) use jobs::{
    are_wanted, await_pushes, end, end_patience, half_lasted, has_fork, next_in_turn, push,
    push_measured, steal_fork, suspend,
};

use heist_core::sync::AtomicU32;

/// The state of this room. The deques are in the records of goroutines, and listed at the Ps.
pub(crate) struct Forks {
    /// How many deques are listed at Ps.
    n_deques: AtomicU32,
    /// How many halves in a row were short, of those that were taken: a hint.
    n_short_halves: AtomicU32,
}

impl Forks {
    pub(super) fn new() -> Self {
        Self { n_deques: AtomicU32::new(0), n_short_halves: AtomicU32::new(0) }
    }
}

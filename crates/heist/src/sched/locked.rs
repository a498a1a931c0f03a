//! What the scheduler lock protects.

use super::stacks::Stackless;
use super::threads::Roster;
use crate::gmp::{G, M};
use heist_core::global_queue::GlobalQueue;
use heist_core::idle::IdleProcs;
use heist_core::idle_ms::IdleMs;
use heist_core::level_time::LevelTime;

/// What the scheduler lock protects. The queue comes first, on the cache line of the lock itself.
#[repr(C)]
pub(crate) struct Locked {
    pub(crate) global: GlobalQueue<G>,
    pub(crate) idle_ps: IdleProcs,
    pub(crate) idle_ms: IdleMs<M>,
    pub(crate) roster: Roster,
    pub(super) stackless: Stackless,
    /// The integral of the number of Ps over time.
    pub(crate) proc_time: LevelTime,
}

impl Locked {
    pub(super) fn new(idle_ps: IdleProcs, proc_time: LevelTime) -> Self {
        Self {
            global: GlobalQueue::new(),
            idle_ps,
            idle_ms: IdleMs::new(),
            roster: Roster::new(),
            stackless: Stackless::new(),
            proc_time,
        }
    }
}

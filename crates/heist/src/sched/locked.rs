//! What the scheduler lock protects.

use super::threads::begin::Orphans;
use crate::gmp::{G, M};
use heist_core::global_queue::GlobalQueue;
use heist_core::idle::IdleProcs;
use heist_core::idle_ms::IdleMs;
use heist_core::level_time::LevelTime;
use heist_core::list::{DoubleList, List};
use heist_core::policy::PROCS_MAX;

/// What the scheduler lock protects. The queue comes first: it is on the lock's own cache line.
#[repr(C)]
pub(crate) struct Locked {
    pub(crate) global: GlobalQueue<G>,
    pub(crate) idle_ps: IdleProcs,
    pub(crate) idle_ms: IdleMs<M>,
    /// Records whose threads have ended, for the helper to give to others.
    pub(super) gone_ms: DoubleList<M>,
    /// Records of threads that were Ms for a while and are the runtime's no more.
    pub(super) free_guests: DoubleList<M>,
    /// Ps that got work but no M yet: the helper makes one for each.
    pub(super) orphans: Orphans,
    /// Goroutines that could not start because there was no memory for a stack.
    pub(super) stackless: List<G>,
    /// Goroutines that do not start because threads are scarce.
    pub(super) held_back: List<G>,
    /// Ms that have a thread.
    pub(crate) n_ms: u32,
    /// Of these, how many have not begun to run: each of them looks for an orphan first.
    pub(crate) n_starting: u32,
    /// How long there were how many Ps.
    pub(crate) proc_time: LevelTime,
}

impl Locked {
    pub(super) fn new(idle_ps: IdleProcs, proc_time: LevelTime) -> Self {
        Self {
            global: GlobalQueue::new(),
            idle_ps,
            idle_ms: IdleMs::new(),
            gone_ms: DoubleList::new(),
            free_guests: DoubleList::new(),
            orphans: Orphans::new(PROCS_MAX),
            stackless: List::new(),
            held_back: List::new(),
            n_ms: 0,
            n_starting: 0,
            proc_time,
        }
    }
}

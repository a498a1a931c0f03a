//! Stops all Ps at once, and changes their number.
//!
//! The number of Ps and the order in which thieves visit them change only here, while the world is
//! stopped. The table of Ps grows only here, under the world lock.

mod resize;
mod stop;

pub(crate) use resize::{
    Prepared, ProcsChoice, ProcsDefault, default_procs, follow_default_procs, resize_procs,
};
pub(crate) use stop::{
    Cause, WorldState, await_stopped_p, count_given, count_stopped, lock_world, stop_here,
    stop_instead, stop_searching, stop_the_world,
};

use crate::current::{self, InRuntime};
use crate::gmp::proc_table::ProcTable;
use crate::gmp::{Holder, M, P};
use crate::sched::{Sched, stall};
use crate::sys::lock::{Guard, Lock};
use crossbeam_utils::CachePadded;
use heist_core::lock_rank::Rank;
use heist_core::steal_order::StealOrder;
use heist_core::stop::StopCount;
use std::cell::UnsafeCell;
use stop::Pauses;

/// The Ps of a runtime, and the lock that gives the right to stop them.
pub(crate) struct World {
    table: ProcTable,
    /// Changes only while the world is stopped.
    steal_order: UnsafeCell<StealOrder>,
    /// Whether the world stops, and how many Ps have not stopped yet.
    stop: CachePadded<StopCount>,
    pauses: Pauses,
    /// The world lock: held across a stop of the world.
    lock: Lock<WorldState>,
}

impl World {
    pub(super) fn new(table: ProcTable, choice: ProcsChoice) -> Self {
        let procs = table.n_live();
        Self {
            table,
            steal_order: UnsafeCell::new(StealOrder::new(procs)),
            stop: CachePadded::new(StopCount::new()),
            pauses: Pauses::default(),
            lock: Lock::new(Rank::World, WorldState::new(choice)),
        }
    }

    /// The table of Ps.
    #[inline]
    pub(super) const fn table(&self) -> &ProcTable {
        &self.table
    }

    /// All Ps that were ever made. Those that were removed are among them: their counters stay.
    pub(crate) fn all_made(&self) -> impl Iterator<Item = &P> {
        self.table.made()
    }

    /// Whether the world stops, or has stopped.
    #[inline]
    pub(crate) fn is_stopping(&self) -> bool {
        self.stop.pending()
    }

    /// How many Ps have not stopped yet.
    pub(crate) fn n_left_to_stop(&self) -> u32 {
        self.stop.left()
    }

    /// How long stops took.
    pub(crate) const fn pauses(&self) -> &Pauses {
        &self.pauses
    }

    /// Takes the world lock; while it is held, no stop of the world begins. For a thread that is
    /// not an M of the runtime.
    pub(super) fn lock(&self) -> Guard<'_, WorldState> {
        self.lock.lock()
    }

    /// The orders in which a thief visits the other Ps. The thief holds a P.
    #[inline]
    pub(super) fn steal_order(&self, _thief: Holder<'_>) -> &StealOrder {
        // SAFETY: the order changes only while the world is stopped, and then no M holds a P.
        unsafe { &*self.steal_order.get() }
    }

    /// Replaces the steal order.
    ///
    /// # Safety
    /// The caller has stopped the world.
    unsafe fn swap_steal_order(&self, order: &mut StealOrder) {
        // SAFETY: readers hold a P, and by the caller's promise no M does.
        std::mem::swap(unsafe { &mut *self.steal_order.get() }, order);
    }
}

/// Calls `f` with the world lock of `sched`, the lock of a stop of the world, and the M of the
/// calling thread, if the M belongs to `sched`.
///
/// `f` runs as the runtime does: it must not allocate, free, panic or wait.
pub(crate) fn with_world_lock<T>(
    sched: &Sched,
    f: impl FnOnce(Option<&M>, Guard<'_, WorldState>) -> T,
) -> T {
    // A goroutine of another runtime is a plain thread to this one.
    match current::enter().filter(|rt| std::ptr::eq(rt.sched(), sched)) {
        Some(rt) => {
            let (rt, world_lock) = lock_world(sched, Some(rt));
            f(rt.as_ref().map(InRuntime::m), world_lock)
        }
        None => stall::blocking::blocking(|| f(None, lock_world(sched, None).1)),
    }
}

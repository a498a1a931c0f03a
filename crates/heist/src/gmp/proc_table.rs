//! All Ps of a runtime: the table only grows and never moves.
//!
//! A P that is removed keeps its place, its counters and its number, and is used again when the
//! number of Ps grows. So a reader without any lock (sysmon, a metric, a thief) may keep a
//! reference to a P as long as the runtime lives.
//!
//! # Ordering
//! A P is stored with Release before the counts that include it, which are stored with Release too;
//! readers load with Acquire.
//!
//! GO: proc.go allp, procresize.

use super::P;
use heist_core::policy::PROCS_MAX;
use heist_core::sync::{AtomicPtr, AtomicU32, Ordering};
use std::ptr::null_mut;

/// The Ps of a runtime by number.
pub(crate) struct ProcTable {
    slots: Box<[AtomicPtr<P>]>,
    /// The number of Ps that run goroutines: those with the lowest ids.
    live: AtomicU32,
    /// The number of Ps that were ever made.
    made: AtomicU32,
}

impl ProcTable {
    pub(crate) fn new() -> Self {
        Self {
            slots: (0..PROCS_MAX).map(|_| AtomicPtr::new(null_mut())).collect(),
            live: AtomicU32::new(0),
            made: AtomicU32::new(0),
        }
    }

    /// Adds a P with the next number. Only one thread at a time may call this.
    pub(crate) fn add(&self, pp: Box<P>) {
        let id = self.n_made();
        if pp.id != id {
            heist_core::throw!("ProcTable::add: P{} in the place of P{id}", pp.id);
        }
        self.slots[id as usize].store(Box::into_raw(pp), Ordering::Release);
        self.made.store(id + 1, Ordering::Release);
    }

    /// How many Ps run goroutines.
    #[inline]
    pub(crate) fn n_live(&self) -> u32 {
        self.live.load(Ordering::Acquire)
    }

    /// How many Ps were ever made.
    pub(crate) fn n_made(&self) -> u32 {
        self.made.load(Ordering::Acquire)
    }

    /// Makes the first `n` Ps those that run goroutines. Only while the world is stopped.
    pub(crate) fn set_live(&self, n: u32) {
        if n == 0 || n > self.n_made() {
            heist_core::throw!("ProcTable::set_live: {n} of {} Ps", self.n_made());
        }
        self.live.store(n, Ordering::Release);
    }

    /// A P by number.
    #[inline]
    pub(crate) fn get(&self, id: u32) -> &P {
        // SAFETY: null, or from a box that lives as long as the table.
        match unsafe { self.slots[id as usize].load(Ordering::Acquire).as_ref() } {
            Some(pp) => pp,
            None => heist_core::throw!("ProcTable::get: there is no P{id}"),
        }
    }

    /// The Ps that run goroutines.
    #[inline]
    pub(crate) fn live(&self) -> impl Iterator<Item = &P> {
        (0..self.n_live()).map(|id| self.get(id))
    }

    /// Every P that was ever made: the counters of removed Ps still count.
    pub(crate) fn made(&self) -> impl Iterator<Item = &P> {
        (0..self.n_made()).map(|id| self.get(id))
    }
}

impl Drop for ProcTable {
    fn drop(&mut self) {
        for slot in &self.slots {
            let pp = slot.load(Ordering::Relaxed);
            if !pp.is_null() {
                // SAFETY: from `Box::into_raw`, and the runtime is gone.
                drop(unsafe { Box::from_raw(pp) });
            }
        }
    }
}

//! Samples of stacks, counted without allocating: the hooks of profiles in the scheduler.
//!
//! A hook runs in a signal handler, or inside the runtime. It walks the stack with a [`Walker`]
//! that was made in advance and counts what it found in a [`Table`]. All of it is made when a
//! profile is switched on. While it is off, a hook costs one relaxed load.

pub(crate) mod cpu;
pub(crate) mod table;
pub(crate) mod waits;

use crate::sys::walk::Walker;
use std::ptr::{NonNull, null_mut};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use table::Table;

/// How many stacks can be walked at the same time. A sample more is lost, and counted as such.
const WALKERS: usize = 32;

struct Place {
    /// Set by the user of the walker, and by the thread that makes it.
    busy: AtomicBool,
    walker: AtomicPtr<Walker>,
}

static PLACES: [Place; WALKERS] =
    [const { Place { busy: AtomicBool::new(false), walker: AtomicPtr::new(null_mut()) } }; WALKERS];

/// Makes what the hooks need. It allocates.
pub(crate) fn prepare() {
    crate::sys::modules::current();
    for place in &PLACES {
        // ORDERING: Acquire pairs with the Release in `with_walker`.
        if place.walker.load(Ordering::Relaxed).is_null()
            && !place.busy.swap(true, Ordering::Acquire)
        {
            let walker = &place.walker;
            if walker.load(Ordering::Relaxed).is_null() {
                walker.store(Box::into_raw(Box::new(Walker::new())), Ordering::Relaxed);
            }
            // ORDERING: Release pairs with the Acquire in `with_walker`.
            place.busy.store(false, Ordering::Release);
        }
    }
}

/// Calls `walk` with a walker, if one is free. For hooks.
fn with_walker<R>(hint: u32, walk: impl FnOnce(&mut Walker) -> R) -> Option<R> {
    for n in 0..WALKERS {
        let place = &PLACES[(hint as usize + n) % WALKERS];
        // ORDERING: Acquire pairs with the Release below: the last user is done with the walker.
        if place.busy.load(Ordering::Relaxed) || place.busy.swap(true, Ordering::Acquire) {
            continue;
        }
        let walker = place.walker.load(Ordering::Relaxed);
        // SAFETY: null, or a walker that is never freed; the flag makes this its only user.
        let walked = unsafe { walker.as_mut() }.map(walk);
        // ORDERING: see above.
        place.busy.store(false, Ordering::Release);
        return walked;
    }
    None
}

/// The table of a profile that is switched on, or none.
pub(crate) struct Current {
    table: AtomicPtr<Table>,
    /// Hooks that may be using it.
    n_users: AtomicU32,
}

impl Current {
    pub(crate) const fn none() -> Self {
        Self { table: AtomicPtr::new(null_mut()), n_users: AtomicU32::new(0) }
    }

    /// Uses the table, if there is one. For hooks.
    fn with(&self, with: impl FnOnce(&Table)) {
        // ORDERING: SeqCst, as the accesses of `take`: either this sees that the table is gone, or
        // the other sees that it is in use.
        self.n_users.fetch_add(1, Ordering::SeqCst);
        // SAFETY: null, or a table that is not unmapped while it has users.
        if let Some(table) = unsafe { self.table.load(Ordering::SeqCst).as_ref() } {
            with(table);
        }
        // ORDERING: SeqCst: see above. It also makes the counts visible to `take`.
        self.n_users.fetch_sub(1, Ordering::SeqCst);
    }

    /// Sets the table, if there is none. False if there is one.
    pub(crate) fn set(&self, table: Table) -> bool {
        let table = Box::into_raw(Box::new(table));
        let (both, relaxed) = (Ordering::SeqCst, Ordering::Relaxed);
        // ORDERING: SeqCst: see `with`.
        let set = self.table.compare_exchange(null_mut(), table, both, relaxed).is_ok();
        if !set {
            // SAFETY: made above, and not published.
            drop(unsafe { Box::from_raw(table) });
        }
        set
    }

    /// Takes the table out, when no hook uses it any more.
    pub(crate) fn take(&self) -> Option<Table> {
        // ORDERING: SeqCst: see `with`.
        let table = NonNull::new(self.table.swap(null_mut(), Ordering::SeqCst))?;
        while self.n_users.load(Ordering::SeqCst) != 0 {
            std::thread::yield_now();
        }
        // SAFETY: made by `set`; no other thread has it any more.
        Some(*unsafe { Box::from_raw(table.as_ptr()) })
    }

    /// Reads the table, which stays.
    pub(crate) fn read(&self) -> Vec<table::Row> {
        let mut rows = Vec::new();
        self.with(|table| rows = table.rows());
        rows
    }

    /// How many samples were lost.
    pub(crate) fn lost(&self) -> u64 {
        let mut lost = 0;
        self.with(|table| lost = table.lost());
        lost
    }
}

//! The deadlines that no runtime keeps: one thread waits for them all.
//!
//! A deadline that is set on a goroutine is a timer of its runtime. One that is set on a plain
//! thread comes here, and so does one whose runtime ends before it. The thread is there as long as
//! a deadline is.
//!
//! If the system refuses the thread, the deadlines are kept, and whoever asks a context tries again
//! ([`look_after`]) or, if that is in vain too, does what the thread would have done by then.

use super::node::Expiry;
use crate::sync::{Condvar, Mutex};
use crate::sys::thread;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Which deadline: the moment, and a number that no other has.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(Instant, u64);

struct Deadlines {
    to_come: BTreeMap<Ticket, Expiry>,
    n_added: u64,
    has_thread: bool,
}

static DEADLINES: Mutex<Deadlines> =
    Mutex::new(Deadlines { to_come: BTreeMap::new(), n_added: 0, has_thread: false });

/// There is another deadline to wait for, or none.
static CHANGED: Condvar = Condvar::new();

impl Ticket {
    /// Forgets the deadline, if it has not come.
    pub(super) fn cancel(self) {
        let mut deadlines = DEADLINES.lock_shielded();
        let removed = deadlines.to_come.remove(&self);
        if deadlines.to_come.is_empty() {
            CHANGED.notify_one();
        }
        drop(deadlines);
        // Without the lock: it may hold a user's error.
        drop(removed);
    }
}

/// Sees to it that somebody expires at `deadline`.
pub(super) fn keep(deadline: Instant, expiry: Expiry) -> Ticket {
    let mut deadlines = DEADLINES.lock_shielded();
    deadlines.n_added += 1;
    let ticket = Ticket(deadline, deadlines.n_added);
    deadlines.to_come.insert(ticket, expiry);
    let has_thread = std::mem::replace(&mut deadlines.has_thread, true);
    drop(deadlines);
    if has_thread {
        CHANGED.notify_one();
    } else {
        start_thread();
    }
    ticket
}

/// There are deadlines, and the system refused the thread. A hint: who sees it late asks late.
static UNWATCHED: AtomicBool = AtomicBool::new(false);

/// Whether [`look_after`] is needed.
#[inline]
pub(super) fn are_unwatched() -> bool {
    UNWATCHED.load(Ordering::Relaxed)
}

/// The caller has said that there is a thread. False, and it is taken back, if there is none to be
/// had.
fn start_thread() -> bool {
    let is_started = thread::spawn_roomy("heist-deadlines", Box::new(wait_for_all)).is_ok();
    if !is_started {
        let mut deadlines = DEADLINES.lock_shielded();
        deadlines.has_thread = false;
        UNWATCHED.store(true, Ordering::Relaxed);
    }
    is_started
}

/// Starts the thread, or else ends those whose deadlines have come.
#[cold]
pub(super) fn look_after() {
    let mut deadlines = DEADLINES.lock_shielded();
    UNWATCHED.store(false, Ordering::Relaxed);
    if deadlines.has_thread || deadlines.to_come.is_empty() {
        return;
    }
    deadlines.has_thread = true;
    drop(deadlines);
    if start_thread() {
        return;
    }
    let is_due = |Ticket(deadline, _): &Ticket| *deadline <= Instant::now();
    loop {
        let mut deadlines = DEADLINES.lock_shielded();
        if !deadlines.to_come.keys().next().is_some_and(is_due) {
            return;
        }
        let due = deadlines.to_come.pop_first();
        drop(deadlines);
        expire(due);
    }
}

/// Destructors of users may run. The others are looked after all the same.
fn expire(due: Option<(Ticket, Expiry)>) {
    let expired = catch_unwind(AssertUnwindSafe(|| due.map(|(_, expiry)| expiry.expire())));
    if let Err(payload) = expired {
        std::mem::forget(payload);
    }
}

/// What the thread does.
fn wait_for_all() {
    let mut deadlines = DEADLINES.lock();
    while let Some(Ticket(deadline, _)) = deadlines.to_come.keys().next().copied() {
        if Instant::now() < deadline {
            deadlines = CHANGED.wait_until(deadlines, deadline).0;
            continue;
        }
        let due = deadlines.to_come.pop_first();
        drop(deadlines);
        expire(due);
        deadlines = DEADLINES.lock();
    }
    deadlines.has_thread = false;
}

//! The deadlines that no runtime keeps. One thread waits for all of them.
//!
//! A deadline that is set on a goroutine is a timer of its runtime. A deadline that is set on a
//! plain thread is kept here, and so is one whose runtime ends before it. The thread lives as long
//! as there is a deadline.
//!
//! If the system refuses the thread, the deadlines are kept. Each query of a context then tries to
//! start the thread again ([`start_or_expire`]) and, if that fails too, expires the deadlines that
//! have passed.

use super::node::Expiry;
use crate::sync::{Condvar, Mutex};
use crate::sys::thread;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// Identifies a deadline: the moment, and a unique number.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Ticket(Instant, u64);

struct Deadlines {
    to_come: BTreeMap<Ticket, Expiry>,
    n_added: u64,
    has_thread: bool,
}

static DEADLINES: Mutex<Deadlines> =
    Mutex::new(Deadlines { to_come: BTreeMap::new(), n_added: 0, has_thread: false });

/// Notified when the first deadline changes, or the last one is gone.
static CHANGED: Condvar = Condvar::new();

impl Ticket {
    /// Removes the deadline, if it has not passed.
    pub(super) fn cancel(self) {
        let mut deadlines = DEADLINES.lock_shielded();
        let removed = deadlines.to_come.remove(&self);
        if deadlines.to_come.is_empty() {
            CHANGED.notify_one();
        }
        drop(deadlines);
        // Dropped without the lock: it may hold a user's error.
        drop(removed);
    }
}

/// Makes sure that `expiry` expires at `deadline`.
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

/// There are deadlines, and the system refused the thread. A hint: a caller that sees it late helps
/// late.
static UNWATCHED: AtomicBool = AtomicBool::new(false);

/// Whether [`start_or_expire`] is needed.
#[inline]
pub(super) fn are_unwatched() -> bool {
    UNWATCHED.load(Ordering::Relaxed)
}

/// Starts the thread that the caller has marked as running. Returns false, and clears the mark, if
/// the system refuses it.
fn start_thread() -> bool {
    let is_started = thread::spawn_roomy("heist-deadlines", Box::new(wait_for_all)).is_ok();
    if !is_started {
        let mut deadlines = DEADLINES.lock_shielded();
        deadlines.has_thread = false;
        UNWATCHED.store(true, Ordering::Relaxed);
    }
    is_started
}

/// Starts the thread or, if that fails, expires the deadlines that have passed.
#[cold]
pub(super) fn start_or_expire() {
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

/// Expires one deadline. The user's destructors may run and panic; the other deadlines are kept
/// regardless.
fn expire(due: Option<(Ticket, Expiry)>) {
    let expired = catch_unwind(AssertUnwindSafe(|| due.map(|(_, expiry)| expiry.expire())));
    if let Err(payload) = expired {
        std::mem::forget(payload);
    }
}

/// The main function of the thread.
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

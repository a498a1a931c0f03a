//! The deadlines that no runtime keeps: one thread waits for them all.
//!
//! A deadline that is set on a goroutine is a timer of its runtime. One that is set on a plain thread comes
//! here, and so does one whose runtime ends before it. The thread is there as long as a deadline is.

use super::node::Expiry;
use crate::sync::{Condvar, Mutex};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
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
        let builder = std::thread::Builder::new().name("heist-deadlines".to_owned());
        if builder.spawn(wait_for_all).is_err() {
            // The next one who comes tries again.
            DEADLINES.lock_shielded().has_thread = false;
        }
    }
    ticket
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
        // Destructors of users may run. The others are waited for all the same.
        let expired = catch_unwind(AssertUnwindSafe(|| due.map(|(_, expiry)| expiry.expire())));
        if let Err(payload) = expired {
            std::mem::forget(payload);
        }
        deadlines = DEADLINES.lock();
    }
    deadlines.has_thread = false;
}

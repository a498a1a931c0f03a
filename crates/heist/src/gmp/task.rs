//! A task that left its address where an event will find it.
//!
//! A task that waits for a descriptor is published there, as a goroutine is. It has no ticket: it
//! may wait for several things. In place of the ticket there is a mark, and the address counts one
//! reference to the record, which the thread that takes the address gives up.

use super::{G, pool};
use heist_core::status::Ticket;
use heist_core::task_word::Wakeup;
use std::ptr::NonNull;

/// In place of a ticket. No ticket has this number.
pub(crate) const MARK: Ticket = Ticket::from_bits(1);

/// Wakes a task whose address was taken out, and gives up its reference. True: the caller has
/// claimed the task, and queues it.
///
/// # Safety
/// The address was left with [`MARK`] and a reference, and only the caller took it. The caller
/// cannot be preempted.
pub(crate) unsafe fn claim_left(gp: NonNull<G>) -> bool {
    // SAFETY: records are never unmapped.
    let g = unsafe { gp.as_ref() };
    // SAFETY: by the caller's promise there is a reference.
    let word = unsafe { g.task_word() };
    // As in `sched::futures::waker`: if the second claim fails, a canceller queues the task.
    let claimed = word.wake() == Wakeup::Queue && g.status.claim_idle(|| !g.has_started());
    if word.drop_reference() {
        pool::give_one(gp);
    }
    claimed
}

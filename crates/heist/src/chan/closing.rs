//! The close of a signal channel, as one of the events that can end a wait of another module.

use super::queues::{Interest, Queues, Side};
use super::receiver::{Flavor, Receiver};
use super::state::Chan;
use crate::sys::lock::Lock;
use crate::wait::Entry;
use heist_core::buffer::Meeting;
use std::convert::Infallible;

/// A channel through which nothing is sent: its waiters are woken with `Closed`, and by nothing
/// else.
#[derive(Clone, Copy)]
pub(crate) struct Closing<'a>(&'a Chan<Infallible, Meeting>);

impl<'a> Closing<'a> {
    /// None if it is never closed.
    pub(crate) fn of(receiver: &'a Receiver<Infallible>) -> Option<Self> {
        match &receiver.flavor {
            Flavor::Meeting(chan) => Some(Self(chan)),
            _ => None,
        }
    }

    /// The lock of its queue.
    pub(crate) fn lock(self) -> &'a Lock<Queues> {
        &self.0.queues
    }

    /// Whether it is closed. While the caller holds the lock, the answer does not change.
    pub(crate) fn is_closed(self) -> bool {
        self.0.is_closed()
    }

    /// Queues an entry. The caller holds the lock, and the channel is open.
    ///
    /// # Safety
    /// As for `WaitQueue::push`. `queues` is the data that the lock protects.
    pub(crate) unsafe fn push(self, queues: &mut Queues, entry: &Entry) {
        // SAFETY: by the caller's promise.
        if !unsafe { self.0.push(queues, entry, (Side::Receive, Interest::Do)) } {
            heist_core::throw!("Closing::push: a channel without a buffer has a message");
        }
    }

    /// Removes an entry, if it is queued. The caller holds the lock.
    pub(crate) fn remove(self, queues: &mut Queues, entry: &Entry) {
        self.0.remove(queues, entry, (Side::Receive, Interest::Do));
    }
}

//! The close of a signal channel, as one of the things that a wait of another module can end with.

use super::queues::{Interest, Queues, Side};
use super::receiver::{Flavor, Receiver};
use super::state::Chan;
use crate::sys::lock::Lock;
use crate::wait::Entry;
use heist_core::buffer::Meeting;
use std::convert::Infallible;

/// A channel through which nothing is sent: whoever waits for it is woken with `Closed`, and by
/// nothing else.
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

    /// Whether it is closed. With the lock held it stays as it is.
    pub(crate) fn is_closed(self) -> bool {
        self.0.is_closed()
    }

    /// Queues an entry. The lock is held, and the channel open.
    ///
    /// # Safety
    /// As for `WaitQueue::push`. `queues` is what is behind the lock.
    pub(crate) unsafe fn push(self, queues: &mut Queues, entry: &Entry) {
        // SAFETY: by the caller's promise.
        if !unsafe { self.0.push(queues, entry, (Side::Receive, Interest::Do)) } {
            heist_core::throw!("Closing::push: a channel without a buffer has a message");
        }
    }

    /// Takes an entry out, if it is queued. The lock is held.
    pub(crate) fn remove(self, queues: &mut Queues, entry: &Entry) {
        self.0.remove(queues, entry, (Side::Receive, Interest::Do));
    }
}

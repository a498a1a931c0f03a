//! Those who wait at a channel, behind its lock, and what the buffer is told of them.
//!
//! Every function here that changes a queue keeps the buffer's words in step with it; see
//! `heist_core::buffer`. Watchers take nothing: they are told after the message, or the room, is there.

use super::state::{Attempt, Chan};
use super::waiter::{Claimed, Entry, WaitQueue};
use crate::current::InRuntime;
use crate::sys::lock::Guard;
use heist_core::buffer::{Buffer, Put, Take};

/// Those who wait.
pub(super) struct Queues {
    /// They want a message.
    pub(super) receivers: WaitQueue,
    /// They have one.
    pub(super) senders: WaitQueue,
    /// They want to know when a message can be received, and take none.
    pub(super) receive_watchers: WaitQueue,
    /// They want to know when a message can be sent.
    pub(super) send_watchers: WaitQueue,
}

impl Queues {
    pub(super) const fn new() -> Self {
        Self {
            receivers: WaitQueue::new(),
            senders: WaitQueue::new(),
            receive_watchers: WaitQueue::new(),
            send_watchers: WaitQueue::new(),
        }
    }
}

/// Whether somebody who waits wants an operation done, or only to know that it could be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Do,
    Know,
}

impl<T, B: Buffer<T>> Chan<T, B> {
    /// Whether the buffer is told that somebody waits for a message.
    pub(super) const fn is_message_awaited(queues: &Queues) -> bool {
        !queues.receivers.is_empty() || (!B::MEETS && !queues.receive_watchers.is_empty())
    }

    /// Whether the buffer is told that somebody waits for room.
    pub(super) const fn is_room_awaited(queues: &Queues) -> bool {
        !queues.senders.is_empty() || (!B::MEETS && !queues.send_watchers.is_empty())
    }

    /// Claims the first receiver that waits.
    #[inline]
    pub(super) fn claim_receiver(&self, queues: &mut Queues) -> Option<Claimed> {
        if queues.receivers.is_empty() {
            return None;
        }
        let claimed = queues.receivers.claim_first();
        if !Self::is_message_awaited(queues) {
            self.buffer.no_receivers();
        }
        claimed
    }

    /// Claims the first sender that waits, moves its message in and the oldest one to `into`.
    ///
    /// # Safety
    /// `into` is valid for a message.
    #[inline]
    pub(super) unsafe fn claim_sender(&self, queues: &mut Queues, into: *mut T) -> Option<Claimed> {
        if queues.senders.is_empty() {
            return None;
        }
        let claimed = queues.senders.claim_first();
        if let Some(sender) = &claimed {
            // SAFETY: a sender's place holds one message of this channel, and it was claimed. It was
            // queued, so senders were announced.
            unsafe { self.buffer.rotate(sender.place::<T>(), into) };
        }
        if !Self::is_room_awaited(queues) {
            self.buffer.no_senders();
        }
        claimed
    }

    /// Puts a message in for those who only want to know that there is one, and tells them. Nobody else
    /// waits for it.
    ///
    /// # Safety
    /// As for [`Self::send_locked`].
    #[cold]
    pub(super) unsafe fn put_watched(
        &self,
        mut queues: Guard<'_, Queues>,
        rt: Option<&InRuntime>,
        message: *mut T,
        spare: &mut B::Spare,
    ) -> Attempt {
        if !self.buffer.suffices(spare) {
            return Attempt::Starved;
        }
        self.buffer.no_receivers();
        // SAFETY: by the caller's promise.
        let put = unsafe { self.buffer.put(message, spare) };
        // If it is not in, others were faster: there is a message for those who watch.
        queues.receive_watchers.tell(rt);
        drop(queues);
        if put == Put::Done { Attempt::Done } else { Attempt::Again }
    }

    /// Takes a message out for those who only want to know that there is room, and tells them. Nobody else
    /// waits for it.
    ///
    /// # Safety
    /// As for [`Self::recv_locked`].
    #[cold]
    pub(super) unsafe fn take_watched(
        &self,
        mut queues: Guard<'_, Queues>,
        rt: Option<&InRuntime>,
        place: *mut T,
        spent: &mut B::Spare,
    ) -> Attempt {
        self.buffer.no_senders();
        // SAFETY: by the caller's promise.
        let take = unsafe { self.buffer.take(place, spent) };
        // If none is out, others were faster: there is room for those who watch.
        queues.send_watchers.tell(rt);
        drop(queues);
        if take == Take::Done { Attempt::Done } else { Attempt::Again }
    }

    /// Queues somebody who waits for a message, or for the news of one. False if there is one.
    ///
    /// # Safety
    /// As for `WaitQueue::push`.
    pub(super) unsafe fn push_receiver(
        &self,
        queues: &mut Queues,
        entry: &Entry,
        interest: Interest,
    ) -> bool {
        let (queue, is_told) = match interest {
            Interest::Do => (&mut queues.receivers, true),
            Interest::Know => (&mut queues.receive_watchers, !B::MEETS),
        };
        let may_wait = !is_told || self.buffer.await_message();
        if may_wait {
            // SAFETY: by the caller's promise.
            unsafe { queue.push(entry) };
        }
        may_wait
    }

    /// Queues somebody who waits for room, or for the news of it. False if there is some.
    ///
    /// # Safety
    /// As for `WaitQueue::push`.
    pub(super) unsafe fn push_sender(
        &self,
        queues: &mut Queues,
        entry: &Entry,
        interest: Interest,
    ) -> bool {
        let (queue, is_told) = match interest {
            Interest::Do => (&mut queues.senders, true),
            Interest::Know => (&mut queues.send_watchers, !B::MEETS),
        };
        let may_wait = !is_told || self.buffer.await_room();
        if may_wait {
            // SAFETY: by the caller's promise.
            unsafe { queue.push(entry) };
        }
        may_wait
    }

    /// Takes a receiver out that gives up.
    pub(super) fn remove_receiver(&self, queues: &mut Queues, entry: &Entry, interest: Interest) {
        if !entry.is_listed() {
            return;
        }
        let was_awaited = Self::is_message_awaited(queues);
        let queue = match interest {
            Interest::Do => &mut queues.receivers,
            Interest::Know => &mut queues.receive_watchers,
        };
        // SAFETY: an entry of a receiver with that interest is in this queue or in none.
        unsafe { queue.remove(entry) };
        if was_awaited && !Self::is_message_awaited(queues) {
            self.buffer.no_receivers();
        }
    }

    /// Takes a sender out that gives up.
    pub(super) fn remove_sender(&self, queues: &mut Queues, entry: &Entry, interest: Interest) {
        if !entry.is_listed() {
            return;
        }
        let was_awaited = Self::is_room_awaited(queues);
        let queue = match interest {
            Interest::Do => &mut queues.senders,
            Interest::Know => &mut queues.send_watchers,
        };
        // SAFETY: an entry of a sender with that interest is in this queue or in none.
        unsafe { queue.remove(entry) };
        if was_awaited && !Self::is_room_awaited(queues) {
            self.buffer.no_senders();
        }
    }
}

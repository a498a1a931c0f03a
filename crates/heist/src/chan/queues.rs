//! The waits at a channel, behind its lock, and how the buffer learns of them.
//!
//! Every function here that changes a queue keeps the buffer's words consistent with it; see
//! `heist_core::buffer`. Watchers take nothing: they are notified after the message, or the room,
//! is there.

use super::state::{Attempt, Chan};
use crate::current::{self, InRuntime};
use crate::sys::lock::Guard;
use crate::wait::{AllClaimed, Claimed, Ended, Entry, WaitQueue, Wake, WakeAll};
use heist_core::buffer::{Buffer, Put, Take};

/// The waits at a channel.
pub(crate) struct Queues {
    /// Waits for a message.
    pub(super) receivers: WaitQueue,
    /// Waits of senders, each with a message.
    pub(super) senders: WaitQueue,
    /// Waits until a message can be received, which take none.
    pub(super) receive_watchers: WaitQueue,
    /// Waits until a message can be sent, which send none.
    pub(super) send_watchers: WaitQueue,
}

/// The two operations of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// Waits for room, or for a receiver.
    Send,
    /// Waits for a message.
    Receive,
}

impl Side {
    const fn other(self) -> Self {
        match self {
            Self::Send => Self::Receive,
            Self::Receive => Self::Send,
        }
    }
}

/// Whether a wait does the operation, or only learns that it can be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Interest {
    Do,
    Know,
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

    #[inline(always)]
    pub(super) const fn queue(&mut self, side: Side, interest: Interest) -> &mut WaitQueue {
        match (side, interest) {
            (Side::Send, Interest::Do) => &mut self.senders,
            (Side::Send, Interest::Know) => &mut self.send_watchers,
            (Side::Receive, Interest::Do) => &mut self.receivers,
            (Side::Receive, Interest::Know) => &mut self.receive_watchers,
        }
    }

    /// Claims the watchers of an operation, which can be done: all up to the first future. They are
    /// woken after the lock is released.
    #[inline]
    pub(super) fn claim_watchers(&mut self, side: Side) -> Watchers {
        let watchers = self.queue(side, Interest::Know);
        if watchers.is_empty() { Watchers::NONE } else { claim_some(watchers) }
    }

    /// Claims the watchers of the other side: an operation of this side is queued.
    #[inline]
    pub(super) fn claim_watchers_of_other(&mut self, side: Side) -> Watchers {
        self.claim_watchers(side.other())
    }

    /// Whether the other side is watched.
    pub(super) const fn is_watched(&self, side: Side) -> bool {
        !match side {
            Side::Send => &self.receive_watchers,
            Side::Receive => &self.send_watchers,
        }
        .is_empty()
    }

    /// Whether an operation of the other side waits, with which an operation of this side can be
    /// done. With [`Interest::Do`] an entry whose wait is over counts too: the operation removes it
    /// when it claims.
    pub(super) fn is_met(&self, side: Side, interest: Interest) -> bool {
        let others = match side {
            Side::Send => &self.receivers,
            Side::Receive => &self.senders,
        };
        match interest {
            Interest::Do => !others.is_empty(),
            Interest::Know => others.has_open(),
        }
    }
}

/// Watchers that were claimed and must be woken.
///
/// # Futures
/// A future that receives is a watcher, too: it takes no message before it is polled, so none is
/// lost if it is dropped. All other watchers are woken at once, but of the futures only the first:
/// one message is for one of them. The buffer is then no longer told of those that remain. The one
/// that was woken makes up for that, when it has taken a message or gives up: if there are messages
/// left it wakes the next, otherwise it tells the buffer again ([`Chan::pass_on`]). So as long as
/// futures are queued, the buffer knows of them, or one of them is awake and will pass on.
#[must_use]
pub(super) struct Watchers {
    claimed: AllClaimed,
    futures: AllClaimed,
    /// Whether a future must pass on.
    more: bool,
}

/// The place of a future's entry among the watchers; that of others is null.
pub(super) const FUTURE: *mut () = std::ptr::dangling_mut::<u64>().cast();

impl Watchers {
    pub(super) const NONE: Self =
        Self { claimed: AllClaimed::new(), futures: AllClaimed::new(), more: false };

    #[inline]
    pub(super) fn wake(self, rt: Option<&InRuntime>) {
        self.claimed.wake_last_first(|watcher| watcher.wake(Ended::Done, rt));
        let ended = if self.more { Ended::Changed } else { Ended::Done };
        self.futures.wake_all(ended, rt);
    }

    /// Adds those of another channel.
    pub(super) fn add(&mut self, other: Self) {
        other.claimed.wake_in_order(|watcher| self.claimed.push(watcher));
        other.futures.wake_in_order(|future| self.futures.push(future));
        self.more |= other.more;
    }
}

#[cold]
fn claim_some(watchers: &mut WaitQueue) -> Watchers {
    let mut woken = Watchers::NONE;
    while let Some(place) = watchers.first_place() {
        let Some(Some(claimed)) = watchers.take_first() else { continue };
        if place == FUTURE {
            woken.futures.push(claimed);
            woken.more = !watchers.is_empty();
            break;
        }
        woken.claimed.push(claimed);
    }
    woken
}

impl<T, B: Buffer<T>> Chan<T, B> {
    /// Whether the buffer must know of waits: for a message, or for room.
    #[inline(always)]
    pub(super) const fn is_awaited(queues: &Queues, side: Side) -> bool {
        let (doers, watchers) = match side {
            Side::Send => (&queues.senders, &queues.send_watchers),
            Side::Receive => (&queues.receivers, &queues.receive_watchers),
        };
        !doers.is_empty() || (!B::MEETS && !watchers.is_empty())
    }

    /// Tells the buffer that an operation is about to wait. False if the operation need not wait.
    #[inline(always)]
    pub(super) fn announce(&self, side: Side) -> bool {
        match side {
            Side::Send => self.buffer.await_room(),
            Side::Receive => self.buffer.await_message(),
        }
    }

    /// Tells the buffer that no operation of this side waits any more.
    #[inline(always)]
    pub(super) fn no_longer_awaited(&self, side: Side) {
        match side {
            Side::Send => self.buffer.no_senders(),
            Side::Receive => self.buffer.no_receivers(),
        }
    }

    /// Claims the first receiver that waits.
    #[inline]
    pub(super) fn claim_receiver(&self, queues: &mut Queues) -> Option<Claimed> {
        if queues.receivers.is_empty() {
            return None;
        }
        let claimed = queues.receivers.claim_first();
        if !Self::is_awaited(queues, Side::Receive) {
            self.buffer.no_receivers();
        }
        claimed
    }

    /// Claims the first sender that waits, moves its message into the buffer and the oldest message
    /// to `into`.
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
            // SAFETY: a sender's place holds one message of this channel, and it was claimed. It
            // was queued, so senders were announced.
            unsafe { self.buffer.rotate(sender.place().cast(), into) };
        }
        if !Self::is_awaited(queues, Side::Send) {
            self.buffer.no_senders();
        }
        claimed
    }

    /// Puts a message into the buffer while only watchers wait for one, and wakes them.
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
        // If it was not put in, other senders were faster, so there is a message for the watchers.
        let watchers = queues.claim_watchers(Side::Receive);
        drop(queues);
        watchers.wake(rt);
        if put == Put::Done { Attempt::Done } else { Attempt::Again }
    }

    /// Takes a message out of the buffer while only watchers wait for room, and wakes them.
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
        // If none was taken, other receivers were faster, so there is room for the watchers.
        let watchers = queues.claim_watchers(Side::Send);
        drop(queues);
        watchers.wake(rt);
        if take == Take::Done { Attempt::Done } else { Attempt::Again }
    }

    /// Passes on what a future that watches for messages was told, because it has taken one, or
    /// takes none: see [`Watchers`].
    #[cold]
    pub(super) fn pass_on(&self) {
        let rt = current::enter();
        let mut queues = self.queues.lock();
        let can_be_done = !queues.receive_watchers.is_empty()
            && if B::MEETS {
                queues.is_met(Side::Receive, Interest::Know)
            } else {
                self.buffer.is_closed() || !self.announce(Side::Receive)
            };
        let watchers =
            if can_be_done { queues.claim_watchers(Side::Receive) } else { Watchers::NONE };
        drop(queues);
        watchers.wake(rt.as_ref());
    }

    /// Queues a wait that does the operation, or watches for it. False if the operation can be done
    /// now.
    ///
    /// # Safety
    /// As for `WaitQueue::push`.
    pub(super) unsafe fn push(
        &self,
        queues: &mut Queues,
        entry: &Entry,
        (side, interest): (Side, Interest),
    ) -> bool {
        let is_told = interest == Interest::Do || !B::MEETS;
        let may_wait = !is_told || self.announce(side);
        if may_wait {
            // SAFETY: by the caller's promise.
            unsafe { queues.queue(side, interest).push(entry) };
        }
        may_wait
    }

    /// Removes a wait that is over, if it is still queued.
    pub(super) fn remove(
        &self,
        queues: &mut Queues,
        entry: &Entry,
        (side, interest): (Side, Interest),
    ) {
        if !entry.is_listed() {
            return;
        }
        let was_awaited = Self::is_awaited(queues, side);
        // SAFETY: an entry of that side with that interest is in this queue or in none.
        unsafe { queues.queue(side, interest).remove(entry) };
        if was_awaited && !Self::is_awaited(queues, side) {
            self.no_longer_awaited(side);
        }
    }
}

//! A send whose message is passed after the operation was chosen.
//!
//! There is no message while the select waits, so no receiver can take one: the case waits as a
//! watcher, and is tried again when the channel becomes ready. On a channel without a buffer, the
//! try claims a receiver that waits and does not wake it before the message is there. So the
//! operation that was chosen can be completed. A channel with a buffer has no such reservation: if
//! another sender is faster, the send waits.

use super::super::error::SendError;
use super::super::queues::{Interest, Queues, Side, Watchers};
use super::super::sender::{Flavor, Sender};
use super::super::state::Chan;
use super::Case;
use super::case::send_stamp;
use crate::current::{self, InRuntime};
use crate::sys::lock::Lock;
use crate::wait::{Claimed, Ended, Entry, Wait, Wake, idle_entry};
use heist_core::buffer::Meeting;
use heist_core::timer_heap::NEVER;
use std::ptr::null_mut;

/// A send without a message yet.
pub(super) struct LaterCase<'a, T> {
    sender: &'a Sender<T>,
    entry: Entry,
    /// The receiver that gets the message, if the channel has no buffer.
    receiver: Option<Claimed>,
}

impl<'a, T> LaterCase<'a, T> {
    pub(super) fn new(sender: &'a Sender<T>) -> Self {
        Self { sender, entry: idle_entry(), receiver: None }
    }

    /// Completes the operation.
    pub(super) fn send(&mut self, message: T) -> Result<(), SendError<T>> {
        let Some(receiver) = self.receiver.take() else { return self.sender.send(message) };
        // SAFETY: a receiver's place is for one message of this channel, and it was claimed.
        unsafe { receiver.place().cast::<T>().write(message) };
        receiver.wake(Ended::Done, current::enter().as_ref());
        Ok(())
    }
}

/// Claims a receiver that waits. None if there is none.
fn claim<T>(chan: &Chan<T, Meeting>) -> Option<Claimed> {
    let mut queues = chan.queues.lock();
    chan.claim_receiver(&mut queues)
}

/// Evaluates the same expression for each type of channel.
macro_rules! with_chan {
    ($flavor:expr, $chan:ident => $do:expr, never => $never:expr) => {
        match $flavor {
            Flavor::Ring($chan) => $do,
            Flavor::Blocks($chan) => $do,
            Flavor::Meeting($chan) => $do,
            Flavor::Never => $never,
        }
    };
}

impl<T> Case for LaterCase<'_, T> {
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool {
        if let Flavor::Meeting(chan) = &self.sender.flavor {
            self.receiver = claim(chan);
            return self.receiver.is_some() || chan.is_closed();
        }
        // Checking for readiness enters the runtime by itself.
        drop(rt.take());
        let ready = self.is_ready();
        *rt = current::enter();
        ready
    }

    fn is_ready(&self) -> bool {
        with_chan!(&self.sender.flavor, chan => chan.can_send(), never => false)
    }

    fn stamp(&self) -> u64 {
        with_chan!(&self.sender.flavor, chan => send_stamp(chan), never => 0)
    }

    fn lock(&self) -> Option<&Lock<Queues>> {
        with_chan!(&self.sender.flavor, chan => Some(&chan.queues), never => None)
    }

    fn is_met(&self, queues: &Queues, _: Interest) -> bool {
        with_chan!(&self.sender.flavor,
            chan => queues.is_met(Side::Send, Interest::Know) || chan.is_closed(),
            never => false)
    }

    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, _: Interest) -> bool {
        self.entry.assign(wait, null_mut());
        with_chan!(&self.sender.flavor,
            // SAFETY: by the caller's promise.
            chan => unsafe { chan.push(queues, &self.entry, (Side::Send, Interest::Know)) },
            never => true)
    }

    /// A watcher can be met by no one.
    fn claim_watchers(&self, _: &mut Queues) -> Watchers {
        Watchers::NONE
    }

    fn delist(&self, queues: &mut Queues, _: Interest) {
        with_chan!(&self.sender.flavor,
            chan => chan.remove(queues, &self.entry, (Side::Send, Interest::Know)),
            never => ());
    }

    fn deadline_ns(&self) -> u64 {
        NEVER
    }

    fn entry(&self) -> *const Entry {
        &raw const self.entry
    }

    /// Always to be tried again: only a try reserves.
    fn complete(&mut self, _: Ended) -> bool {
        false
    }

    fn forget(&mut self) {
        if let Some(receiver) = self.receiver.take() {
            // It checks again, and finds nothing of this select.
            receiver.wake(Ended::Changed, current::enter().as_ref());
        }
    }
}

impl<T> Drop for LaterCase<'_, T> {
    fn drop(&mut self) {
        self.forget();
    }
}

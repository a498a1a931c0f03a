//! The cases of a select.

use super::super::error::{RecvError, SendError};
use super::super::parcel::{Parcel, message_ptr, was_sent};
use super::super::queues::{Interest, Queues, Side, Watchers};
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Chan, Refused};
use super::attempt;
use super::{Case, Handle};
use crate::current::InRuntime;
use crate::sys::lock::Lock;
use crate::wait::{Ended, Entry, Wait, idle_entry};
use heist_core::buffer::Buffer;
use heist_core::timer_heap::NEVER;
use std::cell::UnsafeCell;

/// The progress of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    /// There is no message to send: it is never done.
    Idle,
    /// The message was moved.
    Done,
    /// The channel is closed.
    Closed,
}

impl Progress {
    #[inline]
    const fn of(tried: Result<(), Refused>) -> Self {
        match tried {
            Ok(()) => Self::Done,
            Err(Refused::Disconnected) => Self::Closed,
            Err(Refused::NotReady) => Self::Open,
        }
    }

    /// The progress after a wait that ended in this way.
    const fn after(ended: Ended) -> Self {
        match ended {
            Ended::Done => Self::Done,
            Ended::Closed => Self::Closed,
            Ended::Changed | Ended::TimedOut | Ended::Cancelled => Self::Open,
        }
    }
}

/// A receive.
pub struct RecvCase<'a, T> {
    receiver: &'a Receiver<T>,
    entry: Entry,
    /// Holds a message when the receive is done.
    parcel: UnsafeCell<Parcel<T>>,
    progress: Progress,
}

/// A send.
pub struct SendCase<'a, T> {
    sender: &'a Sender<T>,
    entry: Entry,
    /// Holds the message unless the send is done.
    message: UnsafeCell<Option<T>>,
    progress: Progress,
    /// Where a message goes that was not sent; None if it is dropped.
    owner: Option<&'a mut Option<T>>,
}

impl<T> Drop for SendCase<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(owner) = self.owner.take() {
            *owner = self.message.get_mut().take();
        }
    }
}

impl<'a, T> RecvCase<'a, T> {
    /// The case in the form that the select uses.
    #[inline]
    pub fn handle(&mut self) -> Handle<'_> {
        Handle(self, Interest::Do)
    }

    /// Not chosen yet.
    #[inline]
    pub fn new(receiver: &'a Receiver<T>) -> Self {
        let parcel = UnsafeCell::new(Parcel::empty());
        Self { receiver, entry: idle_entry(), parcel, progress: Progress::Open }
    }

    /// Whether this case was chosen.
    #[inline]
    pub fn is_chosen(&self) -> bool {
        self.progress != Progress::Open
    }

    /// The result of the receive. The case can be used again.
    #[inline]
    pub fn take(&mut self) -> Result<T, RecvError> {
        match std::mem::replace(&mut self.progress, Progress::Open) {
            Progress::Done => Ok(self.parcel.get_mut().take()),
            _ => Err(RecvError),
        }
    }
}

impl<'a, T> SendCase<'a, T> {
    /// The case in the form that the select uses.
    #[inline]
    pub fn handle(&mut self) -> Handle<'_> {
        Handle(self, Interest::Do)
    }

    /// Not chosen yet, with its message.
    #[inline]
    pub const fn new(sender: &'a Sender<T>, message: Option<T>) -> Self {
        let message = UnsafeCell::new(message);
        Self { sender, entry: idle_entry(), message, progress: Progress::Open, owner: None }
    }

    /// Not chosen yet, with a message that is returned to its owner if it is not sent. Without a
    /// message it is never chosen.
    #[inline]
    pub fn lent(sender: &'a Sender<T>, owner: &'a mut Option<T>) -> Self {
        let message = owner.take();
        let progress = if message.is_some() { Progress::Open } else { Progress::Idle };
        let message = UnsafeCell::new(message);
        Self { sender, entry: idle_entry(), message, progress, owner: Some(owner) }
    }

    /// Whether this case was chosen.
    #[inline]
    pub fn is_chosen(&self) -> bool {
        matches!(self.progress, Progress::Done | Progress::Closed)
    }

    /// Whether there is no message, or none any more.
    const fn is_spent(&self) -> bool {
        matches!(self.progress, Progress::Done | Progress::Idle)
    }

    /// Ok if the message was sent, otherwise an error with the message. The case cannot be used
    /// again.
    #[inline]
    pub fn take(&mut self) -> Result<(), SendError<T>> {
        self.progress = Progress::Done;
        match self.message.get_mut().take() {
            None => Ok(()),
            Some(message) => Err(SendError(message)),
        }
    }
}

/// Evaluates the same expression for each type of channel.
macro_rules! with_chan {
    ($end:ident, $flavor:expr, $chan:ident => $do:expr, $($other:pat => $else:expr),+) => {
        match $flavor {
            $end::Flavor::Ring($chan) => $do,
            $end::Flavor::Blocks($chan) => $do,
            $end::Flavor::Meeting($chan) => $do,
            $($other => $else),+
        }
    };
}

impl<T> Case for RecvCase<'_, T> {
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool {
        self.progress = Progress::of(attempt::recv(self.receiver, rt, self.parcel.get_mut()));
        self.is_chosen()
    }

    #[inline]
    fn stamp(&self) -> u64 {
        with_chan!(receiver, &self.receiver.flavor, chan => receive_stamp(chan),
            receiver::Flavor::Alarm(alarm, _) => alarm.when_ns(),
            receiver::Flavor::Never => 0)
    }

    fn lock(&self) -> Option<&Lock<Queues>> {
        with_chan!(receiver, &self.receiver.flavor, chan => Some(&chan.queues),
            receiver::Flavor::Alarm(alarm, _) => Some(&alarm.queues),
            receiver::Flavor::Never => None)
    }

    fn is_ready(&self) -> bool {
        with_chan!(receiver, &self.receiver.flavor, chan => chan.can_recv(),
            receiver::Flavor::Alarm(alarm, _) => alarm.is_due(),
            receiver::Flavor::Never => false)
    }

    fn is_met(&self, queues: &Queues, interest: Interest) -> bool {
        with_chan!(receiver, &self.receiver.flavor,
            chan => queues.is_met(Side::Receive, interest) || chan.is_closed(),
            receiver::Flavor::Alarm(alarm, _) => alarm.is_due(),
            receiver::Flavor::Never => false)
    }

    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, interest: Interest) -> bool {
        self.entry.assign(wait, Parcel::place(&self.parcel));
        with_chan!(receiver, &self.receiver.flavor,
            // SAFETY: by the caller's promise.
            chan => unsafe { chan.push(queues, &self.entry, (Side::Receive, interest)) },
            receiver::Flavor::Alarm(..) => {
                // SAFETY: by the caller's promise.
                unsafe { queues.receivers.push(&self.entry) };
                true
            },
            receiver::Flavor::Never => true)
    }

    fn claim_watchers(&self, queues: &mut Queues) -> Watchers {
        if matches!(self.receiver.flavor, receiver::Flavor::Meeting(_)) {
            queues.claim_watchers_of_other(Side::Receive)
        } else {
            Watchers::NONE
        }
    }

    fn delist(&self, queues: &mut Queues, interest: Interest) {
        with_chan!(receiver, &self.receiver.flavor,
            chan => chan.remove(queues, &self.entry, (Side::Receive, interest)),
            receiver::Flavor::Alarm(alarm, _) => alarm.remove(queues, &self.entry),
            receiver::Flavor::Never => ());
    }

    fn deadline_ns(&self) -> u64 {
        match &self.receiver.flavor {
            receiver::Flavor::Alarm(alarm, _) => alarm.when_ns(),
            _ => NEVER,
        }
    }

    fn entry(&self) -> *const Entry {
        &raw const self.entry
    }

    fn complete(&mut self, ended: Ended) -> bool {
        self.progress = Progress::after(ended);
        if self.progress == Progress::Done {
            // SAFETY: the claimer moved the message in.
            unsafe { self.parcel.get_mut().was_filled() };
        }
        self.is_chosen()
    }

    fn forget(&mut self) {
        drop(self.take());
    }
}

impl<T> Case for SendCase<'_, T> {
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool {
        if self.is_spent() {
            return false;
        }
        // Set first: leaving the runtime may unwind, and the message is gone by then.
        self.progress = Progress::Done;
        self.progress = Progress::of(attempt::send(self.sender, rt, self.message.get_mut()));
        self.is_chosen()
    }

    #[inline]
    fn stamp(&self) -> u64 {
        with_chan!(sender, &self.sender.flavor, chan => send_stamp(chan),
            sender::Flavor::Never => 0)
    }

    fn lock(&self) -> Option<&Lock<Queues>> {
        if self.is_spent() {
            // There is nothing left to send.
            return None;
        }
        with_chan!(sender, &self.sender.flavor, chan => Some(&chan.queues),
            sender::Flavor::Never => None)
    }

    fn is_ready(&self) -> bool {
        with_chan!(sender, &self.sender.flavor,
            chan => !self.is_spent() && chan.can_send(),
            sender::Flavor::Never => false)
    }

    fn is_met(&self, queues: &Queues, interest: Interest) -> bool {
        with_chan!(sender, &self.sender.flavor,
            chan => queues.is_met(Side::Send, interest) || chan.is_closed(),
            sender::Flavor::Never => false)
    }

    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, interest: Interest) -> bool {
        // SAFETY: no other thread can access the case before it is queued.
        let place = message_ptr(unsafe { &mut *self.message.get() });
        self.entry.assign(wait, place.cast());
        with_chan!(sender, &self.sender.flavor,
            // SAFETY: by the caller's promise.
            chan => unsafe { chan.push(queues, &self.entry, (Side::Send, interest)) },
            sender::Flavor::Never => true)
    }

    fn claim_watchers(&self, queues: &mut Queues) -> Watchers {
        if matches!(self.sender.flavor, sender::Flavor::Meeting(_)) {
            queues.claim_watchers_of_other(Side::Send)
        } else {
            Watchers::NONE
        }
    }

    fn delist(&self, queues: &mut Queues, interest: Interest) {
        with_chan!(sender, &self.sender.flavor,
            chan => chan.remove(queues, &self.entry, (Side::Send, interest)),
            sender::Flavor::Never => ());
    }

    fn deadline_ns(&self) -> u64 {
        NEVER
    }

    fn entry(&self) -> *const Entry {
        &raw const self.entry
    }

    fn complete(&mut self, ended: Ended) -> bool {
        self.progress = Progress::after(ended);
        if self.progress == Progress::Done {
            was_sent(self.message.get_mut());
        }
        self.is_chosen()
    }

    fn forget(&mut self) {
        if self.progress == Progress::Closed {
            self.progress = Progress::Open;
        }
    }
}

// A function, because the type of the messages must be named for a buffer that does not depend on
// it.

#[inline]
fn receive_stamp<T, B: Buffer<T>>(chan: &Chan<T, B>) -> u64 {
    chan.buffer.receive_stamp()
}

#[inline]
pub(super) fn send_stamp<T, B: Buffer<T>>(chan: &Chan<T, B>) -> u64 {
    chan.buffer.send_stamp()
}

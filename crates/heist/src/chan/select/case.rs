//! The cases of a select.

use super::super::error::{RecvError, SendError};
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Chan, Queues};
use super::super::waiter::{Entry, Outcome, Wait, WaitQueue, idle_entry};
use super::{Case, Handle, Interest, attempt};
use crate::current::InRuntime;
use crate::sys::lock::Lock;
use heist_core::buffer::Buffer;
use heist_core::timer_heap::NEVER;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;

/// How far a case is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    Open,
    /// The message was moved.
    Done,
    /// The channel is closed.
    Closed,
}

/// A receive.
pub struct RecvCase<'a, T> {
    receiver: &'a Receiver<T>,
    entry: Entry,
    /// Holds a message when the receive is done.
    place: UnsafeCell<MaybeUninit<T>>,
    progress: Progress,
}

/// A send.
pub struct SendCase<'a, T> {
    sender: &'a Sender<T>,
    entry: Entry,
    /// Holds the message unless the send is done.
    place: UnsafeCell<MaybeUninit<T>>,
    progress: Progress,
}

impl<'a, T> RecvCase<'a, T> {
    /// The case as the select sees it.
    #[inline]
    pub fn handle(&mut self) -> Handle<'_> {
        Handle(self, Interest::Do)
    }

    /// Not chosen yet.
    #[inline]
    pub fn new(receiver: &'a Receiver<T>) -> Self {
        let place = UnsafeCell::new(MaybeUninit::uninit());
        Self { receiver, entry: idle_entry(), place, progress: Progress::Open }
    }

    /// Whether this case was chosen.
    #[inline]
    pub fn is_chosen(&self) -> bool {
        self.progress != Progress::Open
    }

    /// What was received. The case is open again.
    #[inline]
    pub fn take(&mut self) -> Result<T, RecvError> {
        match std::mem::replace(&mut self.progress, Progress::Open) {
            // SAFETY: the place holds a message when the receive is done, and not any more.
            Progress::Done => Ok(unsafe { self.place.get_mut().assume_init_read() }),
            _ => Err(RecvError),
        }
    }
}

impl<T> Drop for RecvCase<'_, T> {
    #[inline]
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<'a, T> SendCase<'a, T> {
    /// The case as the select sees it.
    #[inline]
    pub fn handle(&mut self) -> Handle<'_> {
        Handle(self, Interest::Do)
    }

    /// Not chosen yet.
    #[inline]
    pub fn new(sender: &'a Sender<T>, message: T) -> Self {
        let place = UnsafeCell::new(MaybeUninit::new(message));
        Self { sender, entry: idle_entry(), place, progress: Progress::Open }
    }

    /// Whether this case was chosen.
    #[inline]
    pub fn is_chosen(&self) -> bool {
        self.progress != Progress::Open
    }

    /// Whether the message was sent; else here it is. The case is over.
    #[inline]
    pub fn take(&mut self) -> Result<(), SendError<T>> {
        match std::mem::replace(&mut self.progress, Progress::Done) {
            Progress::Done => Ok(()),
            // SAFETY: it was not sent, and is not the case's any more.
            _ => Err(SendError(unsafe { self.place.get_mut().assume_init_read() })),
        }
    }
}

impl<T> Drop for SendCase<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if self.progress != Progress::Done {
            // SAFETY: it was not sent.
            unsafe { self.place.get_mut().assume_init_drop() };
        }
    }
}

/// Does the same with whatever channel there is.
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
        match attempt::recv(self.receiver, rt) {
            Some(Ok(message)) => {
                self.place.get_mut().write(message);
                self.progress = Progress::Done;
            }
            Some(Err(RecvError)) => self.progress = Progress::Closed,
            None => {}
        }
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
            chan => is_met(&queues.senders, interest) || chan.is_closed(),
            receiver::Flavor::Alarm(alarm, _) => alarm.is_due(),
            receiver::Flavor::Never => false)
    }

    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, interest: Interest) -> bool {
        let place = match &self.receiver.flavor {
            // Who waits for a moment only wants to know.
            receiver::Flavor::Alarm(..) => std::ptr::null_mut(),
            _ if interest == Interest::Know => std::ptr::null_mut(),
            _ => self.place.get().cast(),
        };
        let may_wait = with_chan!(receiver, &self.receiver.flavor, chan => await_message(chan),
            _ => true);
        if may_wait {
            self.entry.assign(wait, place);
            // SAFETY: by the caller's promise.
            unsafe { queues.receivers.push(&self.entry) };
        }
        may_wait
    }

    fn delist(&self, queues: &mut Queues) {
        with_chan!(receiver, &self.receiver.flavor,
            chan => chan.remove_receiver(queues, &self.entry),
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

    fn complete(&mut self, outcome: Outcome) -> bool {
        self.progress = progress(outcome);
        self.is_chosen()
    }

    fn forget(&mut self) {
        drop(self.take());
    }
}

impl<T> Case for SendCase<'_, T> {
    fn attempt(&mut self, rt: &mut Option<InRuntime>) -> bool {
        if self.progress == Progress::Done {
            return false;
        }
        // SAFETY: the send is not done, so the place holds the message. It comes back if it is not sent.
        let mut message = Some(unsafe { self.place.get_mut().assume_init_read() });
        // Leaving the runtime may unwind, and then the message is gone.
        self.progress = Progress::Done;
        let sent = attempt::send(self.sender, rt, &mut message);
        let (message, progress) = match (sent, message) {
            (Some(Err(SendError(message))), _) => (message, Progress::Closed),
            (None, Some(message)) => (message, Progress::Open),
            _ => return true,
        };
        self.place.get_mut().write(message);
        self.progress = progress;
        self.is_chosen()
    }

    #[inline]
    fn stamp(&self) -> u64 {
        with_chan!(sender, &self.sender.flavor, chan => send_stamp(chan),
            sender::Flavor::Never => 0)
    }

    fn lock(&self) -> Option<&Lock<Queues>> {
        if self.progress == Progress::Done {
            // There is nothing left to send.
            return None;
        }
        with_chan!(sender, &self.sender.flavor, chan => Some(&chan.queues),
            sender::Flavor::Never => None)
    }

    fn is_ready(&self) -> bool {
        with_chan!(sender, &self.sender.flavor,
            chan => self.progress != Progress::Done && chan.can_send(),
            sender::Flavor::Never => false)
    }

    fn is_met(&self, queues: &Queues, interest: Interest) -> bool {
        with_chan!(sender, &self.sender.flavor,
            chan => is_met(&queues.receivers, interest) || chan.is_closed(),
            sender::Flavor::Never => false)
    }

    unsafe fn enlist(&self, queues: &mut Queues, wait: *const Wait, interest: Interest) -> bool {
        let place = match interest {
            Interest::Do => self.place.get().cast(),
            Interest::Know => std::ptr::null_mut(),
        };
        let may_wait = with_chan!(sender, &self.sender.flavor, chan => await_room(chan), _ => true);
        if may_wait {
            self.entry.assign(wait, place);
            // SAFETY: by the caller's promise.
            unsafe { queues.senders.push(&self.entry) };
        }
        may_wait
    }

    fn delist(&self, queues: &mut Queues) {
        with_chan!(sender, &self.sender.flavor,
            chan => chan.remove_sender(queues, &self.entry),
            sender::Flavor::Never => ());
    }

    fn deadline_ns(&self) -> u64 {
        NEVER
    }

    fn entry(&self) -> *const Entry {
        &raw const self.entry
    }

    fn complete(&mut self, outcome: Outcome) -> bool {
        self.progress = progress(outcome);
        self.is_chosen()
    }

    fn forget(&mut self) {
        if self.progress == Progress::Closed {
            self.progress = Progress::Open;
        }
    }
}

const fn progress(outcome: Outcome) -> Progress {
    match outcome {
        Outcome::Done => Progress::Done,
        Outcome::Closed => Progress::Closed,
        Outcome::Changed => Progress::Open,
    }
}

/// Whether somebody waits there. To be met means to wake those who only want to know, too; they do not
/// meet each other.
fn is_met(others: &WaitQueue, interest: Interest) -> bool {
    match interest {
        Interest::Do => !others.is_empty(),
        Interest::Know => others.has_operation(),
    }
}

// The type of the messages has to be named for a buffer that does not depend on it.

#[inline]
fn receive_stamp<T, B: Buffer<T>>(chan: &Chan<T, B>) -> u64 {
    chan.buffer.receive_stamp()
}

#[inline]
fn send_stamp<T, B: Buffer<T>>(chan: &Chan<T, B>) -> u64 {
    chan.buffer.send_stamp()
}

fn await_message<T, B: Buffer<T>>(chan: &Chan<T, B>) -> bool {
    chan.buffer.await_message()
}

fn await_room<T, B: Buffer<T>>(chan: &Chan<T, B>) -> bool {
    chan.buffer.await_room()
}

//! A channel: a buffer, and behind a lock those who wait.
//!
//! What can be done without waiting is done by the buffer alone, without the lock; how the two
//! agree is in `heist_core::buffer`. With the lock, sending looks in Go's order: closed, a receiver
//! that waits (it gets the message straight, past the buffer), else wait; receiving: a sender that
//! waits (its message goes in at the end, the oldest one comes out), else wait. Whenever the state
//! under the lock is not what it was when the buffer refused, the fast path is tried again.

use super::waiter::{Awoken, Claimed, Entry, Outcome, Wait, WaitQueue};
use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::g::WaitReason;
use crate::sched::cancel::{self, Why};
use crate::sched::park;
use crate::sys::lock::Lock;
use crate::time;
use heist_core::buffer::{Buffer, Put, Take};
use heist_core::lock_rank::Rank;
use heist_core::timer_heap::NEVER;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr::NonNull;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

/// How long an operation may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Patience {
    /// Not at all.
    None,
    /// Until this moment of the scheduler's time.
    Until(u64),
}

impl Patience {
    /// As long as it takes.
    pub(super) const ENDLESS: Self = Self::Until(NEVER);

    /// Until so much later.
    pub(super) fn lasting(duration: Duration) -> Self {
        Self::Until(time::deadline_after(duration))
    }

    /// Until that moment.
    pub(super) fn until(deadline: Instant) -> Self {
        Self::Until(time::deadline_at(deadline))
    }
}

/// Why a message was not sent, or none received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// It could not be done, now or in time.
    NotReady,
    /// It can never be done.
    Disconnected,
}

/// Those who wait.
pub(super) struct Queues {
    pub(super) receivers: WaitQueue,
    pub(super) senders: WaitQueue,
}

/// A channel.
pub(super) struct Chan<T, B> {
    pub(super) queues: Lock<Queues>,
    pub(super) buffer: B,
    /// Handles that can send.
    pub(super) n_senders: AtomicUsize,
    /// Handles that can receive.
    pub(super) n_receivers: AtomicUsize,
    /// Whether a receiver may close it.
    pub(super) receivers_close: bool,
    pub(super) messages: PhantomData<T>,
}

// SAFETY: messages move through the channel from one thread to another and are shared by none. What
// is in the queues is used under the lock.
unsafe impl<T: Send, B: Sync> Sync for Chan<T, B> {}
// SAFETY: as above.
unsafe impl<T: Send, B: Send> Send for Chan<T, B> {}

/// A message that is its holder's until it was sent.
pub(super) struct Parcel<T>(MaybeUninit<T>);

impl<T> Parcel<T> {
    #[inline]
    pub(super) const fn new(message: T) -> Self {
        Self(MaybeUninit::new(message))
    }

    #[inline]
    pub(super) const fn as_mut_ptr(&mut self) -> *mut T {
        self.0.as_mut_ptr()
    }

    /// The message was moved out through the pointer.
    #[inline]
    pub(super) const fn was_sent(self) {
        std::mem::forget(self);
    }

    #[inline]
    pub(super) const fn into_inner(self) -> T {
        // SAFETY: it was not sent, and is not dropped.
        let message = unsafe { self.0.assume_init_read() };
        std::mem::forget(self);
        message
    }
}

impl<T> Drop for Parcel<T> {
    fn drop(&mut self) {
        // SAFETY: it was not sent.
        unsafe { self.0.assume_init_drop() };
    }
}

/// What came of an attempt with the lock.
pub(super) enum Attempt {
    /// The message moved.
    Done,
    /// The channel was closed meanwhile.
    Closed,
    /// The time was over.
    TimedOut,
    /// The buffer has changed: try the fast path again.
    Again,
}

impl<T, B: Buffer<T>> Chan<T, B> {
    pub(super) const fn new(buffer: B) -> Self {
        let queues = Queues { receivers: WaitQueue::new(), senders: WaitQueue::new() };
        Self {
            queues: Lock::new(Rank::WaitQueue, queues),
            buffer,
            n_senders: AtomicUsize::new(1),
            n_receivers: AtomicUsize::new(1),
            receivers_close: true,
            messages: PhantomData,
        }
    }

    /// Sends `message`, or gives it back.
    #[inline]
    pub(super) fn send(&self, message: T, patience: Patience) -> Result<(), (Refused, T)> {
        let mut parcel = Parcel::new(message);
        let mut spare = B::Spare::default();
        let mut rt = current::enter();
        let refused = loop {
            // SAFETY: the message is in the parcel.
            match unsafe { self.buffer.put(parcel.as_mut_ptr(), &mut spare) } {
                Put::Done => {
                    parcel.was_sent();
                    return Ok(());
                }
                Put::Closed => break Refused::Disconnected,
                Put::Full if patience == Patience::None => break Refused::NotReady,
                Put::Full | Put::Attend => {
                    let attempt;
                    // SAFETY: as above.
                    (rt, attempt) = unsafe { self.send_locked(rt, parcel.as_mut_ptr(), patience) };
                    match attempt {
                        Attempt::Done => {
                            parcel.was_sent();
                            return Ok(());
                        }
                        Attempt::Closed => break Refused::Disconnected,
                        Attempt::TimedOut => break Refused::NotReady,
                        Attempt::Again => {}
                    }
                }
                Put::Starved => {
                    drop(rt);
                    B::provide(&mut spare);
                    rt = current::enter();
                }
            }
        };
        drop(rt);
        Err((refused, parcel.into_inner()))
    }

    /// Receives a message.
    #[inline]
    pub(super) fn recv(&self, patience: Patience) -> Result<T, Refused> {
        let mut place = MaybeUninit::uninit();
        let mut spent = B::Spare::default();
        let mut rt = current::enter();
        loop {
            // SAFETY: there is room for a message.
            match unsafe { self.buffer.take(place.as_mut_ptr(), &mut spent) } {
                Take::Done => break,
                Take::Closed => return Err(Refused::Disconnected),
                Take::Empty if patience == Patience::None => return Err(Refused::NotReady),
                Take::Empty | Take::Attend => {
                    let attempt;
                    // SAFETY: as above.
                    (rt, attempt) = unsafe { self.recv_locked(rt, place.as_mut_ptr(), patience) };
                    match attempt {
                        Attempt::Done => break,
                        Attempt::Closed => return Err(Refused::Disconnected),
                        Attempt::TimedOut => return Err(Refused::NotReady),
                        Attempt::Again => {}
                    }
                }
            }
        }
        // SAFETY: a message was moved in. It is owned before the runtime is left, which may unwind.
        let message = unsafe { place.assume_init() };
        drop(rt);
        Ok(message)
    }

    /// The part of sending that needs the lock. Inlined, as all that is between a switch and the user's
    /// code; see `park_until`.
    ///
    /// # Safety
    /// `message` points to a message. It was moved out if the answer is `Done`, and only then.
    #[inline(always)]
    pub(super) unsafe fn send_locked(
        &self,
        rt: Option<InRuntime>,
        message: *mut T,
        patience: Patience,
    ) -> (Option<InRuntime>, Attempt) {
        let deadline_ns = match patience {
            Patience::None => 0,
            Patience::Until(deadline_ns) => deadline_ns,
        };
        let rt = if deadline_ns == 0 { rt } else { at_park_point(rt) };
        let mut queues = self.queues.lock();
        if self.buffer.is_closed() {
            drop(queues);
            return (rt, Attempt::Closed);
        }
        if let Some(receiver) = self.claim_receiver(&mut queues, rt.as_ref()) {
            drop(queues);
            // SAFETY: a receiver's place is for one message of this channel, and it was claimed.
            unsafe { receiver.place::<T>().copy_from_nonoverlapping(message, 1) };
            receiver.wake(Outcome::Done, rt.as_ref());
            return (rt, Attempt::Done);
        }
        if deadline_ns == 0 || !self.buffer.await_room() {
            drop(queues);
            return (rt, Attempt::Again);
        }
        let wait = Wait::new(rt.as_ref());
        let entry = Entry::new(&raw const wait, place_of(message));
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { queues.senders.push(&entry) };
        std::mem::forget(queues);
        // SAFETY: this thread holds the lock and forgot the guard; the channel outlives the call.
        let (rt, awoken) = unsafe {
            wait.sleep(rt, WaitReason::ChanSend, release, self.lock_address(), deadline_ns)
        };
        if awoken == Awoken::Claimed {
            return (rt, attempt_of(wait.ended_by().1));
        }
        let mut queues = self.queues.lock();
        self.remove_sender(&mut queues, &entry);
        drop(queues);
        if awoken == Awoken::TimedOut {
            return (rt, Attempt::TimedOut);
        }
        drop(rt);
        cancel::unwind(Why::Cancelled);
    }

    /// The part of receiving that needs the lock. Inlined, as above.
    ///
    /// # Safety
    /// `place` is valid for a message, and was written if the answer is `Done`.
    #[inline(always)]
    pub(super) unsafe fn recv_locked(
        &self,
        rt: Option<InRuntime>,
        place: *mut T,
        patience: Patience,
    ) -> (Option<InRuntime>, Attempt) {
        let deadline_ns = match patience {
            Patience::None => 0,
            Patience::Until(deadline_ns) => deadline_ns,
        };
        let rt = if deadline_ns == 0 { rt } else { at_park_point(rt) };
        let mut queues = self.queues.lock();
        // SAFETY: by the caller's promise.
        if let Some(sender) = unsafe { self.claim_sender(&mut queues, rt.as_ref(), place) } {
            drop(queues);
            sender.wake(Outcome::Done, rt.as_ref());
            return (rt, Attempt::Done);
        }
        if deadline_ns == 0 || self.buffer.is_closed() || !self.buffer.await_message() {
            drop(queues);
            return (rt, Attempt::Again);
        }
        let wait = Wait::new(rt.as_ref());
        let entry = Entry::new(&raw const wait, place_of(place));
        // SAFETY: the entry stays on this stack until it is taken out.
        unsafe { queues.receivers.push(&entry) };
        std::mem::forget(queues);
        // SAFETY: this thread holds the lock and forgot the guard; the channel outlives the call.
        let (rt, awoken) = unsafe {
            wait.sleep(rt, WaitReason::ChanReceive, release, self.lock_address(), deadline_ns)
        };
        if awoken == Awoken::Claimed {
            return (rt, attempt_of(wait.ended_by().1));
        }
        let mut queues = self.queues.lock();
        self.remove_receiver(&mut queues, &entry);
        drop(queues);
        if awoken == Awoken::TimedOut {
            return (rt, Attempt::TimedOut);
        }
        drop(rt);
        cancel::unwind(Why::Cancelled);
    }

    const fn lock_address(&self) -> *mut () {
        (&raw const self.queues).cast_mut().cast()
    }

    /// Claims the first receiver that waits.
    #[inline]
    fn claim_receiver(&self, queues: &mut Queues, rt: Option<&InRuntime>) -> Option<Claimed> {
        if queues.receivers.is_empty() {
            return None;
        }
        let claimed = queues.receivers.claim_first(rt);
        if queues.receivers.is_empty() {
            self.buffer.no_receivers();
        }
        claimed
    }

    /// Claims the first sender that waits, moves its message in and the oldest one to `into`.
    ///
    /// # Safety
    /// `into` is valid for a message.
    #[inline]
    unsafe fn claim_sender(
        &self,
        queues: &mut Queues,
        rt: Option<&InRuntime>,
        into: *mut T,
    ) -> Option<Claimed> {
        if queues.senders.is_empty() {
            return None;
        }
        let claimed = queues.senders.claim_first(rt);
        if let Some(sender) = &claimed {
            // SAFETY: a sender's place holds one message of this channel, and it was claimed. It was
            // queued, so senders were announced.
            unsafe { self.buffer.rotate(sender.place::<T>(), into) };
        }
        if queues.senders.is_empty() {
            self.buffer.no_senders();
        }
        claimed
    }

    /// Takes a receiver out that gives up.
    pub(super) fn remove_receiver(&self, queues: &mut Queues, entry: &Entry) {
        if entry.is_listed() {
            // SAFETY: an entry of a receiver is in this queue or in none.
            unsafe { queues.receivers.remove(entry) };
            if queues.receivers.is_empty() {
                self.buffer.no_receivers();
            }
        }
    }

    /// Takes a sender out that gives up.
    pub(super) fn remove_sender(&self, queues: &mut Queues, entry: &Entry) {
        if entry.is_listed() {
            // SAFETY: an entry of a sender is in this queue or in none.
            unsafe { queues.senders.remove(entry) };
            if queues.senders.is_empty() {
                self.buffer.no_senders();
            }
        }
    }

    /// Closes the channel and sends everybody who waits home. False if it was closed already.
    pub(super) fn close(&self) -> bool {
        let rt = current::enter();
        let mut queues = self.queues.lock();
        if self.buffer.is_closed() {
            return false;
        }
        // Closed before the fast path is open again: nobody may send to a receiver that goes home.
        self.buffer.close();
        if !queues.receivers.is_empty() {
            self.buffer.no_receivers();
        }
        if !queues.senders.is_empty() {
            self.buffer.no_senders();
        }
        let receivers = queues.receivers.claim_all();
        let senders = queues.senders.claim_all();
        drop(queues);
        receivers.wake(Outcome::Closed, rt.as_ref());
        senders.wake(Outcome::Closed, rt.as_ref());
        true
    }

    pub(super) fn is_closed(&self) -> bool {
        self.buffer.is_closed()
    }

    /// Whether a receive would not wait, or would fail.
    pub(super) fn can_recv(&self) -> bool {
        if self.is_closed() || !self.buffer.is_empty() {
            return true;
        }
        let rt = current::enter();
        let met = self.queues.lock().senders.has_operation();
        drop(rt);
        met
    }

    /// Whether a send would not wait, or would fail.
    pub(super) fn can_send(&self) -> bool {
        let has_room = self.buffer.capacity().is_none_or(|capacity| self.buffer.len() < capacity);
        if self.is_closed() || has_room {
            return true;
        }
        let rt = current::enter();
        let met = self.queues.lock().receivers.has_operation();
        drop(rt);
        met
    }

    pub(super) fn n_buffered(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn buffer_capacity(&self) -> Option<usize> {
        self.buffer.capacity()
    }

    /// The last receiver is gone: so are the messages that nobody can receive any more.
    pub(super) fn discard_messages(&self) {
        while self.recv(Patience::None).is_ok() {}
    }
}

/// What the claimer of a wait says, as the answer of an attempt.
const fn attempt_of(outcome: Outcome) -> Attempt {
    match outcome {
        Outcome::Done => Attempt::Done,
        Outcome::Closed => Attempt::Closed,
        Outcome::Changed => Attempt::Again,
    }
}

/// Messages of no size may have any address, but a place must not be null.
#[inline]
fn place_of<T>(message: *mut T) -> *mut () {
    message.cast()
}

/// Where a goroutine that may wait lets itself be disturbed, and ends if it was cancelled.
#[inline]
fn at_park_point(rt: Option<InRuntime>) -> Option<InRuntime> {
    rt.map(|rt| cancel::check(park::chaos_point(rt)))
}

/// The waiter is off its stack: others may find it.
pub(super) unsafe fn release(_: NonNull<G>, queues: *mut ()) -> bool {
    // SAFETY: whoever waits holds the lock on this thread and forgot the guard; it keeps the channel
    // alive until it is awake, and cannot be woken before the lock is released.
    unsafe { (*queues.cast::<Lock<Queues>>()).unlock_forgotten() };
    true
}

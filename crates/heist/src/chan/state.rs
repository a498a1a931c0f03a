//! A channel: a buffer, and behind a lock those who wait.
//!
//! What can be done without waiting is done by the buffer alone, without the lock; how the two
//! agree is in `heist_core::buffer`. With the lock, sending looks in Go's order: closed, a receiver
//! that waits (it gets the message straight, past the buffer), else wait; receiving: a sender that
//! waits (its message goes in at the end, the oldest one comes out), else wait. Whenever the state
//! under the lock is not what it was when the buffer refused, the fast path is tried again.

use super::parcel::{Parcel, message_ptr, was_sent};
use super::queues::{Interest, Queues, Side};
use crate::current::{self, InRuntime};
use crate::sys::lock::{Guard, Lock};
use crate::time;
use crate::wait::{self, Ended, Terms, WaitReason, Wake};
use heist_core::buffer::{Buffer, Put, Take};
use heist_core::lock_rank::Rank;
use heist_core::timer_heap::NEVER;
use std::marker::PhantomData;
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
    /// When the wait ends; zero if there is none.
    #[inline(always)]
    const fn deadline_ns(self) -> u64 {
        match self {
            Self::None => 0,
            Self::Until(deadline_ns) => deadline_ns,
        }
    }

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

/// The same from within the runtime.
pub(super) enum Refusal {
    /// The caller is still inside.
    NotReady(Option<InRuntime>),
    Disconnected,
}

impl Refusal {
    /// Leaves the runtime.
    #[inline(always)]
    fn leave(self) -> Refused {
        match self {
            Self::NotReady(_rt) => Refused::NotReady,
            Self::Disconnected => Refused::Disconnected,
        }
    }
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
    /// The spare has to be filled first.
    Starved,
}

impl<T, B: Buffer<T>> Chan<T, B> {
    pub(super) const fn new(buffer: B) -> Self {
        Self {
            queues: Lock::new(Rank::WaitQueue, Queues::new()),
            buffer,
            n_senders: AtomicUsize::new(1),
            n_receivers: AtomicUsize::new(1),
            receivers_close: true,
            messages: PhantomData,
        }
    }

    /// Sends the message, which is there, or leaves it there.
    #[inline(always)]
    pub(super) fn send(&self, message: &mut Option<T>, patience: Patience) -> Result<(), Refused> {
        self.send_in(current::enter, message, patience).map_err(Refusal::leave)
    }

    /// Receives a message into `parcel`, which is empty.
    #[inline(always)]
    pub(super) fn recv(&self, parcel: &mut Parcel<T>, patience: Patience) -> Result<(), Refused> {
        self.recv_in(current::enter, parcel, patience).map_err(Refusal::leave)
    }

    /// Sends from within the runtime, which is left unless the channel is not ready. Each end has a
    /// way out of its own: one for all would have to remember which it was.
    #[inline(always)]
    pub(super) fn send_in(
        &self,
        enter: impl FnOnce() -> Option<InRuntime>,
        message: &mut Option<T>,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let place = message_ptr(message);
        let mut spare = B::Spare::default();
        let mut rt = enter();
        loop {
            // SAFETY: the message is there.
            match unsafe { self.buffer.put(place, &mut spare) } {
                Put::Done => break,
                Put::Closed => return Err(Refusal::Disconnected),
                // A buffer that needs a spare is never full, so there is nothing to free inside.
                Put::Full if patience == Patience::None => return Err(Refusal::NotReady(rt)),
                Put::Full | Put::Attend => {
                    let attempt;
                    // SAFETY: as above.
                    (rt, attempt) = unsafe { self.send_locked(rt, place, &mut spare, patience) };
                    match attempt {
                        Attempt::Done => break,
                        Attempt::Closed => return Err(Refusal::Disconnected),
                        Attempt::TimedOut => return Err(Refusal::NotReady(rt)),
                        Attempt::Again => {}
                        Attempt::Starved => rt = provide::<T, B>(rt, &mut spare),
                    }
                }
                Put::Starved => rt = provide::<T, B>(rt, &mut spare),
            }
        }
        // Before the runtime is left, which may unwind.
        was_sent(message);
        drop(rt);
        Ok(())
    }

    /// Receives from within the runtime, likewise.
    #[inline(always)]
    pub(super) fn recv_in(
        &self,
        enter: impl FnOnce() -> Option<InRuntime>,
        parcel: &mut Parcel<T>,
        patience: Patience,
    ) -> Result<(), Refusal> {
        let place = parcel.as_mut_ptr();
        let mut spent = B::Spare::default();
        let mut rt = enter();
        loop {
            // SAFETY: there is room for a message.
            match unsafe { self.buffer.take(place, &mut spent) } {
                Take::Done => break,
                Take::Closed => return Err(Refusal::Disconnected),
                // None was taken, so there is nothing to free inside.
                Take::Empty if patience == Patience::None => return Err(Refusal::NotReady(rt)),
                Take::Empty | Take::Attend => {
                    let attempt;
                    // SAFETY: as above.
                    (rt, attempt) = unsafe { self.recv_locked(rt, place, &mut spent, patience) };
                    match attempt {
                        Attempt::Done => break,
                        Attempt::Closed => return Err(Refusal::Disconnected),
                        Attempt::TimedOut => return Err(Refusal::NotReady(rt)),
                        Attempt::Again | Attempt::Starved => {}
                    }
                }
            }
        }
        // SAFETY: a message was moved in. It is owned before the runtime is left, which may unwind.
        unsafe { parcel.was_filled() };
        drop(rt);
        Ok(())
    }

    /// The part of sending that needs the lock. Inlined, as all that is between a switch and the
    /// user's code; see `park_until`.
    ///
    /// # Safety
    /// `message` points to a message. It was moved out if the answer is `Done`, and only then.
    #[inline(always)]
    unsafe fn send_locked(
        &self,
        rt: Option<InRuntime>,
        message: *mut T,
        spare: &mut B::Spare,
        patience: Patience,
    ) -> (Option<InRuntime>, Attempt) {
        let deadline_ns = patience.deadline_ns();
        let rt = if deadline_ns == 0 { rt } else { wait::park_point(rt) };
        let mut queues = self.queues.lock();
        if self.buffer.is_closed() {
            drop(queues);
            return (rt, Attempt::Closed);
        }
        if let Some(receiver) = self.claim_receiver(&mut queues) {
            drop(queues);
            // SAFETY: a receiver's place is for one message of this channel, and it was claimed.
            unsafe { receiver.place().cast::<T>().copy_from_nonoverlapping(message, 1) };
            receiver.wake(Ended::Done, rt.as_ref());
            return (rt, Attempt::Done);
        }
        if !B::MEETS && !queues.receive_watchers.is_empty() {
            // SAFETY: by the caller's promise.
            let attempt = unsafe { self.put_watched(queues, rt.as_ref(), message, spare) };
            return (rt, attempt);
        }
        if deadline_ns == 0 || !self.announce(Side::Send) {
            drop(queues);
            return (rt, Attempt::Again);
        }
        self.wait(rt, queues, Side::Send, message, deadline_ns)
    }

    /// The part of receiving that needs the lock. Inlined, as above.
    ///
    /// # Safety
    /// `place` is valid for a message, and was written if the answer is `Done`.
    #[inline(always)]
    unsafe fn recv_locked(
        &self,
        rt: Option<InRuntime>,
        place: *mut T,
        spent: &mut B::Spare,
        patience: Patience,
    ) -> (Option<InRuntime>, Attempt) {
        let deadline_ns = patience.deadline_ns();
        let rt = if deadline_ns == 0 { rt } else { wait::park_point(rt) };
        let mut queues = self.queues.lock();
        // SAFETY: by the caller's promise.
        if let Some(sender) = unsafe { self.claim_sender(&mut queues, place) } {
            drop(queues);
            sender.wake(Ended::Done, rt.as_ref());
            return (rt, Attempt::Done);
        }
        if !B::MEETS && !queues.send_watchers.is_empty() {
            // SAFETY: by the caller's promise.
            let attempt = unsafe { self.take_watched(queues, rt.as_ref(), place, spent) };
            return (rt, attempt);
        }
        if deadline_ns == 0 || self.buffer.is_closed() || !self.announce(Side::Receive) {
            drop(queues);
            return (rt, Attempt::Again);
        }
        self.wait(rt, queues, Side::Receive, place, deadline_ns)
    }

    /// Waits for an operation that was announced to the buffer: the waker moves the message.
    #[inline(always)]
    fn wait(
        &self,
        rt: Option<InRuntime>,
        mut queues: Guard<'_, Queues>,
        side: Side,
        place: *mut T,
        deadline_ns: u64,
    ) -> (Option<InRuntime>, Attempt) {
        let reason = match side {
            Side::Send => WaitReason::ChanSend,
            Side::Receive => WaitReason::ChanReceive,
        };
        if B::MEETS {
            // They look when the lock is free, and the entry is queued then.
            queues.tell_queued(side, rt.as_ref());
        }
        let (rt, ended) = wait::wait_in(
            rt,
            queues,
            Terms::new(reason).until(deadline_ns),
            place.cast(),
            // SAFETY: the entry stays on the stack of `wait_in` until it is taken out.
            |queues, entry| unsafe { queues.queue(side, Interest::Do).push(entry) },
            |queues, entry| self.remove(queues, entry, (side, Interest::Do)),
        );
        // Apart, so that the usual end is not looked at again by the loop.
        if ended == Ended::Done {
            return (rt, Attempt::Done);
        }
        let attempt = match ended {
            Ended::Closed => Attempt::Closed,
            Ended::TimedOut => Attempt::TimedOut,
            _ => Attempt::Again,
        };
        (rt, attempt)
    }

    /// Closes the channel and wakes every waiter with `Closed`. False if it was closed already.
    pub(super) fn close(&self) -> bool {
        let rt = current::enter();
        let mut queues = self.queues.lock();
        if self.buffer.is_closed() {
            return false;
        }
        // Closed before the fast path is open again: nobody may send to a receiver that is woken
        // here.
        self.buffer.close();
        for side in [Side::Receive, Side::Send] {
            if Self::is_awaited(&queues, side) {
                self.no_longer_awaited(side);
            }
        }
        let receivers = queues.receivers.claim_all();
        let senders = queues.senders.claim_all();
        queues.tell_watchers(Side::Receive, rt.as_ref());
        queues.tell_watchers(Side::Send, rt.as_ref());
        drop(queues);
        for waits in [receivers, senders] {
            waits.wake_last_first(|wait| wait.wake(Ended::Closed, rt.as_ref()));
        }
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
        let met = self.queues.lock().senders.has_open();
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
        let met = self.queues.lock().receivers.has_open();
        drop(rt);
        met
    }

    pub(super) fn n_buffered(&self) -> usize {
        self.buffer.len()
    }

    pub(super) fn buffer_capacity(&self) -> Option<usize> {
        self.buffer.capacity()
    }

    /// The last receiver is gone: so are the messages that nobody can receive any more. If dropping
    /// one panics, the rest leaks: another panic during the unwinding would end the process.
    pub(super) fn discard_messages(&self) {
        struct LeakRest<'a, T, B: Buffer<T>>(&'a Chan<T, B>);
        impl<T, B: Buffer<T>> Drop for LeakRest<'_, T, B> {
            fn drop(&mut self) {
                let mut parcel = Parcel::empty();
                while self.0.recv(&mut parcel, Patience::None).is_ok() {
                    parcel.leak();
                }
            }
        }
        let leak_rest = LeakRest(self);
        while self.recv(&mut Parcel::empty(), Patience::None).is_ok() {}
        std::mem::forget(leak_rest);
    }
}

/// Fills the spare, outside the runtime.
#[cold]
pub(super) fn provide<T, B: Buffer<T>>(
    rt: Option<InRuntime>,
    spare: &mut B::Spare,
) -> Option<InRuntime> {
    drop(rt);
    B::provide(spare);
    current::enter()
}

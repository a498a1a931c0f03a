//! A channel: a buffer, and the queues of its waiters behind a lock.
//!
//! Operations that need not wait are done by the buffer alone, without the lock;
//! `heist_core::buffer` says how the two agree. With the lock, a send checks in Go's order: a
//! closed channel; a receiver that waits, which gets the message directly, past the buffer;
//! otherwise it waits. A receive checks for a sender that waits, whose message goes in at the end
//! while the oldest one comes out; otherwise it waits. Whenever the state under the lock is not
//! what it was when the buffer refused, the fast path is tried again.

pub(super) use super::patience::Patience;

use super::parcel::{Parcel, message_ptr, was_sent};
use super::queues::{Interest, Queues, Side};
use crate::current::{self, InRuntime};
use crate::sys::lock::{Guard, Lock};
use crate::wait::{self, AllClaimed, Ended, Entry, Terms, Wait, WaitReason, Wake, Wakers};
use heist_core::buffer::{Buffer, Put, Take};
use heist_core::lock_rank::Rank;
use std::marker::PhantomData;
use std::sync::atomic::AtomicUsize;

/// Why a message was not sent, or none received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    /// The operation could not be done, now or in time.
    NotReady,
    /// The operation can never be done.
    Disconnected,
}

/// As [`Refused`], from inside the runtime.
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

// SAFETY: messages move through the channel from one thread to another and are never shared. The
// queues are used under the lock.
unsafe impl<T: Send, B: Sync> Sync for Chan<T, B> {}
// SAFETY: as above.
unsafe impl<T: Send, B: Send> Send for Chan<T, B> {}

/// The result of an attempt with the lock.
pub(super) enum Attempt {
    /// The message moved.
    Done,
    /// The channel was closed meanwhile.
    Closed,
    /// The time was over.
    TimedOut,
    /// The buffer has changed: try the fast path again.
    Again,
    /// The spare must be filled first.
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

    /// Sends the message, which is present, or leaves it in place.
    #[inline(always)]
    pub(super) fn send(&self, message: &mut Option<T>, patience: Patience) -> Result<(), Refused> {
        self.send_in(current::enter, message, patience).map_err(Refusal::leave)
    }

    /// Receives a message into `parcel`, which is empty.
    #[inline(always)]
    pub(super) fn recv(&self, parcel: &mut Parcel<T>, patience: Patience) -> Result<(), Refused> {
        self.recv_in(current::enter, parcel, patience).map_err(Refusal::leave)
    }

    /// Sends from inside the runtime. Leaves the runtime, unless the channel is not ready. Each
    /// outcome has its own exit path: a shared one would have to remember the outcome.
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
                // A buffer that needs a spare is never full, so there is nothing to free inside the
                // runtime.
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

    /// Receives from inside the runtime. Leaves the runtime, unless the channel is not ready.
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
                // No message was taken, so there is nothing to free inside the runtime.
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
        // SAFETY: a message was moved in. The parcel owns it before the runtime is left, which may
        // unwind.
        unsafe { parcel.was_filled() };
        drop(rt);
        Ok(())
    }

    /// The part of sending that needs the lock. Inlined, as is all code between a switch and the
    /// user's code; see `park_until`.
    ///
    /// # Safety
    /// `message` points to a message. It has been moved out if the result is `Done`, and only then.
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
    /// `place` is valid for a message. It has been written if the result is `Done`.
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
        if B::MEETS && queues.is_watched(side) {
            if rt.is_none() {
                return self.wait_watched(queues, side, place, deadline_ns);
            }
            // The watchers check when they get the lock; the entry is queued by then.
            queues.claim_watchers_of_other(side).wake(rt.as_ref());
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
        // Checked first and separately, so that the loop does not examine the usual result again.
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

    /// As [`Self::wait`], for a plain thread that others watch for. They are woken without the
    /// lock, because the waker of a future may do anything, and after the entry is queued.
    #[cold]
    fn wait_watched(
        &self,
        mut queues: Guard<'_, Queues>,
        side: Side,
        place: *mut T,
        deadline_ns: u64,
    ) -> (Option<InRuntime>, Attempt) {
        let wait = Wait::new(None);
        let entry = Entry::new(&raw const wait, place.cast());
        // SAFETY: the entry stays in this frame until it is taken out, by a waker or below.
        unsafe { queues.queue(side, Interest::Do).push(&entry) };
        let watchers = queues.claim_watchers_of_other(side);
        drop(queues);
        watchers.wake(None);
        // SAFETY: a plain thread, as the wait was made; there is no lock to release.
        let (_, ended) =
            unsafe { wait.sleep(None, Terms::new(WaitReason::ChanSend).until(deadline_ns), &()) };
        self.remove(&mut self.queues.lock(), &entry, (side, Interest::Do));
        let attempt = match ended {
            Ended::Done => Attempt::Done,
            Ended::Closed => Attempt::Closed,
            Ended::TimedOut => Attempt::TimedOut,
            _ => Attempt::Again,
        };
        (None, attempt)
    }

    /// Closes the channel and wakes every waiter with `Closed`. False if it was closed already.
    pub(super) fn close(&self) -> bool {
        let rt = current::enter();
        let mut queues = self.queues.lock();
        if self.buffer.is_closed() {
            return false;
        }
        // Closed before the fast path is open again: nothing may be sent to a receiver that is
        // woken here.
        self.buffer.close();
        for side in [Side::Receive, Side::Send] {
            if Self::is_awaited(&queues, side) {
                self.no_longer_awaited(side);
            }
        }
        let receivers = queues.receivers.claim_all();
        let senders = queues.senders.claim_all();
        let watchers =
            [Side::Receive, Side::Send].map(|side| queues.queue(side, Interest::Know).claim_all());
        drop(queues);
        let mut later = Wakers::new();
        let mut wake = |waits: AllClaimed, ended| {
            waits.wake_last_first(|wait| wait.wake_or_collect(ended, rt.as_ref(), &mut later));
        };
        for watchers in watchers {
            wake(watchers, Ended::Done);
        }
        for waits in [receivers, senders] {
            wake(waits, Ended::Closed);
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

    /// Drops the messages after the last receiver is gone. If dropping one panics, the rest is
    /// leaked: another panic during the unwinding would end the process.
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

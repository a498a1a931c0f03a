//! Operations that do not wait, done from within the runtime.
//!
//! A select enters the runtime once for all its cases. It is left by the attempt that was successful:
//! only that one may have something to free, and nothing may be freed in there.

use super::super::alarm::Alarm;
use super::super::parcel::{Parcel, message_ptr, was_sent};
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Attempt, Chan, Patience, provide};
use crate::current::InRuntime;
use heist_core::buffer::{Buffer, Put, Take};
use std::time::Instant;

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(super) enum Tried {
    /// The message was moved.
    Done,
    /// It can never be done: the channel is closed.
    Closed,
    /// It cannot be done now. The caller is still in the runtime.
    NotReady,
}

/// Receives into `parcel`, which is empty, if that is possible now.
#[inline(always)]
pub(super) fn recv<T>(
    receiver: &Receiver<T>,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Tried {
    match &receiver.flavor {
        receiver::Flavor::Ring(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Blocks(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Meeting(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Alarm(alarm, message) => recv_moment(alarm, *message, rt, parcel),
        receiver::Flavor::Never => Tried::NotReady,
    }
}

/// Sends the message, which is there, if that is possible now, else leaves it there.
#[inline(always)]
pub(super) fn send<T>(
    sender: &Sender<T>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Tried {
    match &sender.flavor {
        sender::Flavor::Ring(chan) => send_to(chan, rt, message),
        sender::Flavor::Blocks(chan) => send_to(chan, rt, message),
        sender::Flavor::Meeting(chan) => send_to(chan, rt, message),
        sender::Flavor::Never => Tried::NotReady,
    }
}

#[inline(never)]
fn recv_moment<T>(
    alarm: &Alarm,
    message: fn(Instant) -> T,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Tried {
    match alarm.take_in(rt) {
        Some(moment) => {
            receiver::put_moment(parcel, message, moment);
            Tried::Done
        }
        None => Tried::NotReady,
    }
}

#[inline(never)]
fn recv_from<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Tried {
    let place = parcel.as_mut_ptr();
    let mut spent = B::Spare::default();
    let tried = loop {
        // SAFETY: there is room for a message.
        match unsafe { chan.buffer.take(place, &mut spent) } {
            Take::Done => break Tried::Done,
            Take::Closed => break Tried::Closed,
            Take::Empty => return Tried::NotReady,
            Take::Attend => {
                let attempt;
                // SAFETY: as above.
                (*rt, attempt) =
                    unsafe { chan.recv_locked(rt.take(), place, &mut spent, Patience::None) };
                match attempt {
                    Attempt::Done => break Tried::Done,
                    Attempt::Closed => break Tried::Closed,
                    Attempt::TimedOut | Attempt::Again | Attempt::Starved => {}
                }
            }
        }
    };
    if tried == Tried::Done {
        // SAFETY: it was moved in. It is owned before the runtime is left, which may unwind.
        unsafe { parcel.was_filled() };
    }
    drop(rt.take());
    tried
}

#[inline(never)]
fn send_to<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Tried {
    let place = message_ptr(message);
    let mut spare = B::Spare::default();
    let tried = loop {
        // SAFETY: the message is there.
        match unsafe { chan.buffer.put(place, &mut spare) } {
            Put::Done => break Tried::Done,
            Put::Closed => break Tried::Closed,
            // A buffer that needs a spare is never full, so there is nothing to free.
            Put::Full => return Tried::NotReady,
            Put::Attend => {
                let attempt;
                // SAFETY: as above.
                (*rt, attempt) =
                    unsafe { chan.send_locked(rt.take(), place, &mut spare, Patience::None) };
                match attempt {
                    Attempt::Done => break Tried::Done,
                    Attempt::Closed => break Tried::Closed,
                    Attempt::TimedOut | Attempt::Again => {}
                    Attempt::Starved => *rt = provide::<T, B>(rt.take(), &mut spare),
                }
            }
            Put::Starved => *rt = provide::<T, B>(rt.take(), &mut spare),
        }
    };
    if tried == Tried::Done {
        // Before the runtime is left, which may unwind.
        was_sent(message);
    }
    drop(rt.take());
    tried
}

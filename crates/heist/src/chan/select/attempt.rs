//! Operations that do not wait, done from within the runtime.
//!
//! A select enters the runtime once for all its cases. It is left by the attempt that was successful:
//! only that one may have something to free, and nothing may be freed in there.

use super::super::alarm::Alarm;
use super::super::parcel::{Parcel, message_ptr, was_sent};
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Chan, Patience, Refused};
use crate::current::InRuntime;
use heist_core::buffer::Buffer;
use std::time::Instant;

/// Receives into `parcel`, which is empty, if that is possible now.
#[inline(always)]
pub(super) fn recv<T>(
    receiver: &Receiver<T>,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Result<(), Refused> {
    match &receiver.flavor {
        receiver::Flavor::Ring(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Blocks(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Meeting(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Alarm(alarm, message) => recv_moment(alarm, *message, rt, parcel),
        receiver::Flavor::Never => Err(Refused::NotReady),
    }
}

/// Sends the message, which is there, if that is possible now, else leaves it there.
#[inline(always)]
pub(super) fn send<T>(
    sender: &Sender<T>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Result<(), Refused> {
    match &sender.flavor {
        sender::Flavor::Ring(chan) => send_to(chan, rt, message),
        sender::Flavor::Blocks(chan) => send_to(chan, rt, message),
        sender::Flavor::Meeting(chan) => send_to(chan, rt, message),
        sender::Flavor::Never => Err(Refused::NotReady),
    }
}

#[inline(never)]
fn recv_moment<T>(
    alarm: &Alarm,
    message: fn(Instant) -> T,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Result<(), Refused> {
    match alarm.take_in(rt) {
        Some(moment) => {
            receiver::put_moment(parcel, message, moment);
            Ok(())
        }
        None => Err(Refused::NotReady),
    }
}

#[inline(never)]
fn recv_from<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    parcel: &mut Parcel<T>,
) -> Result<(), Refused> {
    let place = parcel.as_mut_ptr();
    let mut spent = B::Spare::default();
    // SAFETY: there is room for a message.
    match unsafe { chan.recv_in(rt.take(), place, &mut spent, Patience::None) } {
        Ok(inside) => {
            // SAFETY: it was moved in. It is owned before the runtime is left, which may unwind.
            unsafe { parcel.was_filled() };
            drop(inside);
            Ok(())
        }
        Err((inside, refused)) => Err(refuse(rt, inside, refused)),
    }
}

#[inline(never)]
fn send_to<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Result<(), Refused> {
    let place = message_ptr(message);
    let mut spare = B::Spare::default();
    // SAFETY: the message is there.
    match unsafe { chan.send_in(rt.take(), place, &mut spare, Patience::None) } {
        Ok(inside) => {
            // Before the runtime is left, which may unwind.
            was_sent(message);
            drop(inside);
            Ok(())
        }
        Err((inside, refused)) => Err(refuse(rt, inside, refused)),
    }
}

/// Stays in the runtime if the channel is not ready. Then there is nothing to free: a buffer that needs a
/// spare is never full, and one that is empty has spent none.
#[inline(always)]
fn refuse(rt: &mut Option<InRuntime>, inside: Option<InRuntime>, refused: Refused) -> Refused {
    if refused == Refused::NotReady {
        *rt = inside;
    }
    refused
}

//! Operations that do not wait, done from inside the runtime.
//!
//! A select enters the runtime once for all its cases. The attempt that succeeds leaves it: only
//! that attempt may have memory to free, which is not allowed inside the runtime.

use super::super::alarm::Alarm;
use super::super::parcel::Parcel;
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Chan, Patience, Refusal, Refused};
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
        // Saves a call for most cases that are not ready.
        receiver::Flavor::Ring(chan) if chan.buffer.is_seen_empty() => Err(Refused::NotReady),
        receiver::Flavor::Ring(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Blocks(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Meeting(chan) => recv_from(chan, rt, parcel),
        receiver::Flavor::Alarm(alarm, message) => recv_moment(alarm, *message, rt, parcel),
        receiver::Flavor::Never => Err(Refused::NotReady),
    }
}

/// Sends the message, which is present, if that is possible now; otherwise leaves it in place.
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
    let received = chan.recv_in(|| rt.take(), parcel, Patience::None);
    received.map_err(|refusal| stay_inside(rt, refusal))
}

#[inline(never)]
fn send_to<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Result<(), Refused> {
    let sent = chan.send_in(|| rt.take(), message, Patience::None);
    sent.map_err(|refusal| stay_inside(rt, refusal))
}

#[inline(always)]
fn stay_inside(rt: &mut Option<InRuntime>, refusal: Refusal) -> Refused {
    match refusal {
        Refusal::NotReady(inside) => {
            *rt = inside;
            Refused::NotReady
        }
        Refusal::Disconnected => Refused::Disconnected,
    }
}

//! Operations that do not wait, done from within the runtime.
//!
//! A select enters the runtime once for all its cases. It is left by the attempt that was successful:
//! only that one may have something to free, and nothing may be freed in there.

use super::super::alarm::Alarm;
use super::super::error::{RecvError, SendError};
use super::super::receiver::{self, Receiver};
use super::super::sender::{self, Sender};
use super::super::state::{Attempt, Chan, Parcel, Patience};
use crate::current::{self, InRuntime};
use heist_core::buffer::{Buffer, Put, Take};
use std::mem::MaybeUninit;
use std::time::Instant;

/// Receives if that is possible now, or never will be.
#[inline(always)]
pub(super) fn recv<T>(
    receiver: &Receiver<T>,
    rt: &mut Option<InRuntime>,
) -> Option<Result<T, RecvError>> {
    match &receiver.flavor {
        receiver::Flavor::Ring(chan) => recv_from(chan, rt),
        receiver::Flavor::Blocks(chan) => recv_from(chan, rt),
        receiver::Flavor::Meeting(chan) => recv_from(chan, rt),
        receiver::Flavor::Alarm(alarm, message) => recv_moment(alarm, *message, rt),
        receiver::Flavor::Never => None,
    }
}

/// Sends the message, which is taken, if that is possible now, or never will be.
#[inline(always)]
pub(super) fn send<T>(
    sender: &Sender<T>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Option<Result<(), SendError<T>>> {
    match &sender.flavor {
        sender::Flavor::Ring(chan) => send_to(chan, rt, message),
        sender::Flavor::Blocks(chan) => send_to(chan, rt, message),
        sender::Flavor::Meeting(chan) => send_to(chan, rt, message),
        sender::Flavor::Never => None,
    }
}

#[inline(never)]
fn recv_moment<T>(
    alarm: &Alarm,
    message: fn(Instant) -> T,
    rt: &mut Option<InRuntime>,
) -> Option<Result<T, RecvError>> {
    alarm.take_in(rt).map(message).map(Ok)
}

#[inline(never)]
fn recv_from<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
) -> Option<Result<T, RecvError>> {
    let mut place = MaybeUninit::uninit();
    let mut spent = B::Spare::default();
    let received = loop {
        // SAFETY: there is room for a message.
        match unsafe { chan.buffer.take(place.as_mut_ptr(), &mut spent) } {
            // SAFETY: it was moved in.
            Take::Done => break Ok(unsafe { place.assume_init() }),
            Take::Closed => break Err(RecvError),
            Take::Empty => return None,
            Take::Attend => {
                let attempt;
                // SAFETY: there is room for a message.
                (*rt, attempt) =
                    unsafe { chan.recv_locked(rt.take(), place.as_mut_ptr(), Patience::None) };
                match attempt {
                    // SAFETY: it was moved in.
                    Attempt::Done => break Ok(unsafe { place.assume_init() }),
                    Attempt::Closed => break Err(RecvError),
                    Attempt::TimedOut | Attempt::Again => {}
                }
            }
        }
    };
    drop(rt.take());
    Some(received)
}

#[inline(never)]
fn send_to<T, B: Buffer<T>>(
    chan: &Chan<T, B>,
    rt: &mut Option<InRuntime>,
    message: &mut Option<T>,
) -> Option<Result<(), SendError<T>>> {
    let mut parcel = Parcel::new(message.take()?);
    let mut spare = B::Spare::default();
    let sent = loop {
        // SAFETY: the message is in the parcel.
        match unsafe { chan.buffer.put(parcel.as_mut_ptr(), &mut spare) } {
            Put::Done => break Attempt::Done,
            Put::Closed => break Attempt::Closed,
            Put::Full => {
                // A buffer that needs a spare is never full, so there is nothing to free.
                *message = Some(parcel.into_inner());
                return None;
            }
            Put::Attend => {
                let attempt;
                // SAFETY: as above.
                (*rt, attempt) =
                    unsafe { chan.send_locked(rt.take(), parcel.as_mut_ptr(), Patience::None) };
                if matches!(attempt, Attempt::Done | Attempt::Closed) {
                    break attempt;
                }
            }
            Put::Starved => {
                drop(rt.take());
                B::provide(&mut spare);
                *rt = current::enter();
            }
        }
    };
    Some(if matches!(sent, Attempt::Done) {
        parcel.was_sent();
        drop(rt.take());
        Ok(())
    } else {
        drop(rt.take());
        Err(SendError(parcel.into_inner()))
    })
}

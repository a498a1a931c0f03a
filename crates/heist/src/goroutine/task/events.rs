//! A waker that is called by an event of a descriptor.

use crate::gmp::flags::Flag;
use crate::gmp::task::MARK;
use crate::goroutine::SpawnError;
use crate::netpoll::desc::Half;
use crate::netpoll::poller::Shared;
use crate::sched::futures::waker;
use heist_core::readiness::Look;
use heist_core::timer_heap::NEVER;
use std::panic::Location;
use std::task::Waker;

/// Publishes a waker in a direction of a descriptor that is registered with `home`, for the next
/// event. False if something happened since `look`. The waker of a task is published as it is;
/// others are called by an unborn goroutine, which the event wakes.
pub(crate) fn leave_waker(
    half: &'static Half,
    look: Look,
    home: &Shared,
    waker: &Waker,
) -> Result<bool, SpawnError> {
    if let Some(gp) = waker::record_of(waker)
        // SAFETY: records are never unmapped.
        && unsafe { gp.as_ref() }.flags.has(Flag::TASK)
    {
        // SAFETY: the waker has a reference. The new one goes to the word, or is given up.
        unsafe { gp.as_ref().task_word() }.add_reference();
        home.waiter_came();
        let published = half.publish(look, gp, MARK);
        if !published {
            home.waiters_gone(1);
            // SAFETY: the reference that was just made.
            unsafe { waker::release(gp) };
        }
        return Ok(published);
    }
    let waker = waker.clone();
    let (handle, ticket) =
        super::super::spawn_later(move || waker.wake(), Location::caller(), NEVER)?;
    home.waiter_came();
    let published = half.publish(look, handle.pointer(), ticket);
    if !published {
        home.waiters_gone(1);
        handle.cancel_unborn(ticket);
    }
    Ok(published)
}

//! Waits that are published in a word: joins, and directions of descriptors.
//!
//! The word has room for one waiter. The goroutine leaves its stack, its status says that it waits,
//! and then the commit function writes the word. If the word says that there is nothing to wait
//! for, it refuses the waiter, which continues at once. The wait is sealed meanwhile: the clock and
//! a canceller can end it only after the commit function is done with the goroutine's frame. A
//! waker that reads the word carries the ticket of the wait, so it does nothing to a goroutine that
//! another waker woke.

use super::{Ended, Terms, WaitReason, unwind};
use crate::current::InRuntime;
use crate::gmp::G;
use crate::gmp::fork::{Job, Taken};
use crate::gmp::g::Woken;
use crate::gmp::m::{Commit, Seal};
use crate::netpoll::desc::Half;
use crate::netpoll::poller::Shared;
use crate::sampler::waits;
use crate::sched::futures::parker::Parker;
use crate::sched::life::cancel::GivingUp;
use crate::sched::life::park;
use crate::sched::waiter::{ThreadWaiter, Waiter};
use crate::sys::registers::here;
use heist_core::readiness::Look;
use heist_core::status::Ticket;
use std::cell::Cell;
use std::ptr::NonNull;

/// Waits until the goroutine `target` has ended, or returns at once because it has. A cancelled
/// caller unwinds, unless the terms shield it.
#[inline]
pub(crate) fn wait_for_end(rt: Option<InRuntime>, target: &G, terms: Terms) {
    /// Stores the waiter's address in the word of the goroutine it waits for.
    unsafe fn register(me: NonNull<G>, target: *mut ()) -> bool {
        // SAFETY: the argument is the record of a goroutine whose handle waits; records are never
        // unmapped.
        let (me, target) = unsafe { (me.as_ref(), &*target.cast::<G>()) };
        target.join.register(Waiter::address_of(me))
    }
    let Some(rt) = rt else { return wait_as_thread(target) };
    let me = rt.goroutine();
    target.joiner.set(me.status.next_ticket());
    let arg = std::ptr::from_ref(target).cast_mut().cast();
    // SAFETY: the function uses records only.
    let (rt, ended) = unsafe { park_sealed(rt, terms, register, arg) };
    if ended == Ended::Cancelled {
        // If the finishing goroutine has taken the word, its wake-up carries the ticket of a wait
        // that is over and does nothing.
        let _ = target.join.unregister(Waiter::address_of(me));
        unwind(Some(rt));
    }
}

/// Waits until the half of a fork that `taken` names has ended, or returns at once because it has.
/// Returns how the wait ended, and unwinds nothing: the half uses the caller's frame. The caller
/// checks whether the half has ended.
pub(crate) fn wait_for_fork(rt: InRuntime, taken: &Taken, terms: Terms) -> (InRuntime, Ended) {
    /// Stores the forker's ticket in the word of the job.
    unsafe fn register(_: NonNull<G>, publishing: *mut ()) -> bool {
        // SAFETY: it is in the frame of the goroutine that parks, as is the job. After this the
        // frame may be gone.
        let (job, ticket) = unsafe { *publishing.cast::<(NonNull<Job>, Ticket)>() };
        // SAFETY: as above.
        unsafe { job.as_ref() }.word.register(ticket)
    }
    let ticket = rt.goroutine().status.next_ticket();
    let mut publishing = (taken.job, ticket);
    let giving_up = GivingUp::if_panicking(&rt);
    // SAFETY: `publishing` and the job are in the frame of the caller, which waits.
    let (rt, ended) = unsafe { park_sealed(rt, terms, register, (&raw mut publishing).cast()) };
    drop(giving_up);
    // The forker may have been woken by a canceller. If the half has ended meanwhile, the wake-up
    // carries the ticket of a wait that is over.
    // SAFETY: as above.
    let _ = unsafe { taken.job.as_ref() }.word.unregister(ticket);
    (rt, ended)
}

#[cold]
#[inline(never)]
fn wait_as_thread(target: &G) {
    let thread = ThreadWaiter::new();
    if target.join.register(thread.address()) {
        thread.sleep();
    }
}

/// Waits until a waker of `parker` is called, or returns at once because one was. A cancelled
/// caller unwinds.
pub(crate) fn wait_for_wake(rt: Option<InRuntime>, parker: &Parker) {
    /// Lets wakers find the goroutine.
    unsafe fn publish(me: NonNull<G>, publishing: *mut ()) -> bool {
        // SAFETY: the goroutine that parks made it and waits.
        let (parker, ticket) = unsafe { *publishing.cast::<(&Parker, Ticket)>() };
        parker.publish(Waiter::Goroutine(me, ticket))
    }
    let Some(rt) = rt else { return parker.block_thread() };
    let mut publishing = (parker, rt.goroutine().status.next_ticket());
    let arg = (&raw mut publishing).cast();
    // SAFETY: `publishing` lives until the goroutine continues.
    let (rt, ended) = unsafe { park_sealed(rt, Terms::new(WaitReason::BlockOn), publish, arg) };
    parker.resume();
    if ended == Ended::Cancelled {
        unwind(Some(rt));
    }
}

/// A goroutine that is about to wait for a descriptor.
struct Parking<'a> {
    half: &'static Half,
    look: Look,
    home: &'a Shared,
    ticket: Ticket,
    /// Whether it is counted as a waiter.
    counted: Cell<bool>,
}

/// Waits until an operation in one direction of a descriptor, which is registered with `home`, may
/// succeed, or until the direction is poked or the deadline comes. Does not wait if something has
/// happened since `look`. A cancelled goroutine unwinds. A panicking
/// one continues, and the caller checks whether it was cancelled.
pub(crate) fn wait_for_event(
    rt: InRuntime,
    half: &'static Half,
    look: Look,
    home: &Shared,
    deadline_ns: u64,
) {
    /// Publishes the goroutine, which is off its stack: events may find it.
    unsafe fn publish(gp: NonNull<G>, parking: *mut ()) -> bool {
        // SAFETY: the goroutine that parks made it and waits.
        let parking = unsafe { &*parking.cast::<Parking<'_>>() };
        // Before the goroutine can be found: after that its frame, with `parking`, may be gone.
        parking.counted.set(true);
        parking.home.waiter_came();
        if parking.half.publish(parking.look, gp, parking.ticket) {
            return true;
        }
        // No event found it, and the wait is sealed, so its frame is still valid.
        parking.home.waiters_gone(1);
        parking.counted.set(false);
        false
    }
    let ticket = rt.goroutine().status.next_ticket();
    let parking = Parking { half, look, home, ticket, counted: Cell::new(false) };
    let arg = (&raw const parking).cast_mut().cast();
    let terms = Terms::new(WaitReason::IoWait).until(deadline_ns);
    let giving_up = GivingUp::if_panicking(&rt);
    // SAFETY: `parking` lives until the goroutine continues.
    let (rt, ended) = unsafe { park_sealed(rt, terms, publish, arg) };
    let unwinds = giving_up.is_none();
    drop(giving_up);
    if !ended.gave_up() {
        return;
    }
    half.withdraw();
    if parking.counted.get() {
        home.waiters_gone(1);
    }
    if ended == Ended::Cancelled && unwinds {
        unwind(Some(rt));
    }
}

/// Parks the calling goroutine. Until `commit` is done, only a thread that reads what it wrote can
/// wake the goroutine.
///
/// # Safety
/// `commit` may be called with `arg` on the scheduler's stack, before the goroutine continues.
#[inline(always)]
unsafe fn park_sealed(
    rt: InRuntime,
    terms: Terms,
    commit: Commit,
    arg: *mut (),
) -> (InRuntime, Ended) {
    let Terms { reason, deadline_ns, .. } = terms;
    let shield = terms.shield(&rt);
    let since_ns = waits::wait_begins();
    // SAFETY: passed on.
    let (rt, woken) =
        unsafe { park::park_until(rt, reason, Seal::Sealed, commit, arg, deadline_ns) };
    drop(shield);
    if since_ns != 0 {
        waits::wait_ends(&rt, here(), reason, since_ns);
    }
    let ended = match woken {
        Woken::Ready => Ended::Done,
        Woken::TimedOut => Ended::TimedOut,
        Woken::Cancelled => Ended::Cancelled,
    };
    (rt, ended)
}

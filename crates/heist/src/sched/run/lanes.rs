//! Classes, seen from the scheduler.
//!
//! A goroutine of the latency class waits in the latency lane of the global queue, which every M
//! checks first. An M with a P that is reserved for the class runs goroutines of no other lane. The
//! ring of such a P stays empty, so there is nothing to steal from it: a goroutine of another class
//! that becomes runnable there goes to the global queue.
//!
//! A goroutine of the idle class waits in the idle lane. An M takes from it when it would otherwise
//! give its P back. If another goroutine waits for a P while it runs, it is asked at once to yield.
//!
//! # Why no wake-up is lost
//! The latency lane and the idle reserved Ps are under the scheduler lock. A thread that queues a
//! goroutine of the latency class takes an idle reserved P in the same critical section. An M that
//! makes a reserved P idle has seen the lane empty in the same critical section.
//!
//! The idle lane is under the scheduler lock too. An M that found nothing has seen it empty in the
//! critical section in which it makes its P idle. A thread that queues a goroutine of the idle
//! class wakes an M after that, as every submitter does.

use super::queue;
use crate::gmp::flags::Flag;
use crate::gmp::g::G;
use crate::gmp::{Holder, M, P};
use crate::sched::rest::Start;
use crate::sched::run::find::Next;
use crate::sched::{Locked, Sched};
use crate::sched::{outside, rest};
use crate::sys::{clock, thread};
use heist_core::global_queue::Lane;
use heist_trace::record::Found as Origin;
use std::ptr::NonNull;

/// Puts a runnable goroutine into the lane of its class.
///
/// # Safety
/// `gp` is runnable, in no queue, and the caller's to move.
pub(crate) unsafe fn push_locked(sched: &Sched, locked: &mut Locked, gp: NonNull<G>) {
    // SAFETY: `gp` is valid and in no queue, by the caller's promise.
    unsafe { locked.global.push(sched.global_len(), gp.as_ref().lane(), gp) };
}

/// Puts a frozen goroutine into the lane of its class. It waits there together with its thread.
///
/// # Safety
/// As for `push_locked`.
pub(crate) unsafe fn push_frozen(sched: &Sched, locked: &mut Locked, gp: NonNull<G>) {
    // SAFETY: `gp` is valid and in no queue, by the caller's promise.
    unsafe { locked.global.push_frozen(sched.global_len(), gp.as_ref().lane(), gp) };
}

/// Takes out a frozen goroutine whose M can take `pp` over. One of the idle class is taken only if
/// there is no other.
pub(crate) fn pop_frozen(sched: &Sched, locked: &mut Locked, pp: &P) -> Option<NonNull<G>> {
    let lanes = [Lane::Latency, Lane::Normal, Lane::Idle];
    let usable = if pp.is_reserved { &lanes[..1] } else { &lanes };
    usable.iter().find_map(|&lane| locked.global.pop_frozen(sched.global_len(), lane))
}

/// Queues a goroutine in the lane of its class, and wakes an M for it.
///
/// # Safety
/// As for `push_locked`.
#[cold]
pub(super) unsafe fn push_by_class(sched: &Sched, gp: NonNull<G>) {
    // SAFETY: `gp` is valid, by the caller's promise, and is not touched after it was queued.
    let latency = unsafe { gp.as_ref() }.flags.has(Flag::LATENCY);
    sched.stats.global_put.add_shared(1);
    let mut locked = sched.lock.lock();
    // SAFETY: passed on.
    unsafe { push_locked(sched, &mut locked, gp) };
    let reserved = if latency { locked.idle_ps.take_reserved(sched.rest.idle()) } else { None };
    drop(locked);
    if let Some(id) = reserved {
        return start_reserved(sched, id);
    }
    rest::announce_work(sched);
    if latency && sched.rest.idle().count() == 0 {
        sched.stall.bell().ring_before(clock::now_ns().saturating_add(sched.config.wake_up_ns));
    }
}

/// Wakes an M with an idle reserved P, if there is one. The M runs goroutines of the latency class;
/// if there are none, it waits in the poller and watches the clock.
pub(crate) fn wake_reserved(sched: &Sched) {
    let reserved = sched.lock.lock().idle_ps.take_reserved(sched.rest.idle());
    if let Some(id) = reserved {
        start_reserved(sched, id);
    }
}

fn start_reserved(sched: &Sched, id: u32) {
    sched.stall.bell().ring();
    sched.stats.wake_ups.add_shared(1);
    rest::start_m(sched, sched.p(id), Start::Working);
}

/// Asks the kernel for short turns when the thread of `m` begins to serve the latency class, and
/// for the usual ones when it no longer does. Next to threads that compute, a thread that wakes up
/// waits for the end of their turns, a few milliseconds, unless its own turns are shorter.
///
/// A thread that serves the class is woken by the poller or with a reserved P. So this costs
/// nothing in a runtime without reserved Ps, and a system call only when the thread changes sides.
#[inline]
pub(crate) fn suit_turns(sched: &Sched, m: &M, latency: bool) {
    let short = latency || sched.config.short_turns;
    if sched.rest.idle().n_reserved() != 0 && m.short_turns.replace(short) != short {
        if short { thread::short_turns() } else { thread::normal_turns() }
    }
}

/// The search of an M that holds a reserved P.
pub(super) fn find_latency(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    outside::run_own_timers(sched, m);
    next_latency(sched, m).or_else(|| {
        let woken = outside::poll_without_waiting(sched);
        queue::inject(sched, m, woken);
        next_latency(sched, m)
    })
}

fn next_latency(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    if sched.global_len().latency() == 0 {
        return None;
    }
    let gp = sched.lock.lock().global.pop_lane(sched.global_len(), Lane::Latency);
    m.p().stats.global_taken.bump_if(gp.is_some());
    gp.map(|gp| Next::fresh(gp, Origin::Global))
}

/// Whether a goroutine waits that `pp` can run.
pub(crate) fn has_work_for(sched: &Sched, pp: &P) -> bool {
    if pp.is_reserved {
        return sched.global_len().latency() != 0;
    }
    sched.global_len().get() != 0 || !pp.is_empty()
}

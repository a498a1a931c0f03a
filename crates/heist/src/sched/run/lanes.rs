//! Classes, seen from the scheduler.
//!
//! A goroutine of the latency class waits in the first part of the global queue, which every P
//! looks at first. The Ps that are reserved for the class look at nothing else, nobody robs them,
//! and their rings stay empty: what becomes runnable there and is not of the class goes to the
//! global queue.
//!
//! A goroutine of the idle class waits in a list that an M looks at when it would give its P back.
//! If somebody waits while it runs, it is asked to yield at once.
//!
//! # Why no wake-up is lost
//! The front part and the reserved Ps at rest are under the scheduler lock. Who queues a goroutine
//! takes a reserved P in the same critical section; an M that puts one to rest has seen the part
//! empty in the same critical section. For the idle class the same holds of the list, and of a P
//! that anybody may use, who queues then wakes as every submitter does.

use super::queue;
use crate::gmp::g::{self, G};
use crate::gmp::{M, P};
use crate::sched::rest::wake::Start;
use crate::sched::run::find::Next;
use crate::sched::{Locked, Sched};
use crate::sched::{outside, rest};
use crate::sys::{clock, thread};
use heist_core::sync::{Ordering, fence};
use std::ptr::NonNull;

/// Whether a goroutine waits that was stopped together with its thread.
pub(crate) fn has_stopped(locked: &Locked) -> bool {
    locked.global.has_stopped() || locked.idle_work.iter().any(is_bound)
}

fn is_bound(gp: &G) -> bool {
    !gp.bound_m.get().is_null()
}

/// Puts a runnable goroutine where its class waits.
///
/// # Safety
/// `gp` is runnable, in no queue, and the caller's to move.
pub(crate) unsafe fn push_locked(sched: &Sched, locked: &mut Locked, gp: NonNull<G>) {
    // SAFETY: valid, by the caller's promise.
    let g = unsafe { gp.as_ref() };
    // SAFETY: passed on.
    unsafe {
        if g.has_flag(g::LATENCY) {
            locked.global.push_latency(sched.global_len(), gp);
        } else if g.has_flag(g::IDLE) {
            push_idle(sched, locked, gp);
        } else {
            locked.global.push_back(sched.global_len(), gp);
        }
    }
}

/// The same for one that was stopped together with its thread.
///
/// # Safety
/// As for `push_locked`.
pub(crate) unsafe fn push_stopped(sched: &Sched, locked: &mut Locked, gp: NonNull<G>) {
    // SAFETY: valid, by the caller's promise.
    let g = unsafe { gp.as_ref() };
    // SAFETY: passed on.
    unsafe {
        if g.has_flag(g::LATENCY) {
            locked.global.push_stopped_latency(sched.global_len(), gp);
        } else if g.has_flag(g::IDLE) {
            push_idle(sched, locked, gp);
        } else {
            locked.global.push_stopped(sched.global_len(), gp);
        }
    }
}

/// Takes out a stopped goroutine whose M could take `pp` over: one of the idle class only if
/// there is no other.
pub(crate) fn pop_stopped(sched: &Sched, locked: &mut Locked, pp: &P) -> Option<NonNull<G>> {
    let Locked { global, idle_work, .. } = locked;
    let latency = global.pop_stopped_latency(sched.global_len());
    if latency.is_some() || pp.is_reserved {
        return latency;
    }
    let normal = global.pop_stopped(sched.global_len());
    normal.or_else(|| {
        let idle = idle_work.take_first(u32::MAX, is_bound);
        sched.run.idle_waiting.store(idle_work.len(), Ordering::Relaxed);
        idle
    })
}

/// Queues a runnable goroutine of the idle class.
///
/// # Safety
/// As for `push_locked`.
unsafe fn push_idle(sched: &Sched, locked: &mut Locked, gp: NonNull<G>) {
    // SAFETY: passed on.
    unsafe { locked.idle_work.push_back(gp) };
    sched.run.idle_waiting.store(locked.idle_work.len(), Ordering::Relaxed);
}

/// Takes out a goroutine of the idle class, for an M that has nothing else to run.
pub(crate) fn pop_idle(sched: &Sched, locked: &mut Locked) -> Option<NonNull<G>> {
    let gp = locked.idle_work.pop_front();
    sched.run.idle_waiting.store(locked.idle_work.len(), Ordering::Relaxed);
    gp
}

/// Queues a goroutine that does not belong into a ring, and wakes whom it needs.
///
/// # Safety
/// As for `push_locked`.
#[cold]
pub(super) unsafe fn push_by_class(sched: &Sched, gp: NonNull<G>) {
    // SAFETY: valid, by the caller's promise; not touched after it is queued.
    let latency = unsafe { gp.as_ref() }.has_flag(g::LATENCY);
    sched.stats.global_put.add_shared(1);
    let mut locked = sched.lock.lock();
    // SAFETY: passed on.
    unsafe { push_locked(sched, &mut locked, gp) };
    let reserved = if latency { locked.idle_ps.take_reserved(sched.rest.idle()) } else { None };
    drop(locked);
    if let Some(id) = reserved {
        return start_reserved(sched, id);
    }
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    fence(Ordering::SeqCst);
    rest::wake_p(sched);
    if latency && sched.rest.idle().count() == 0 {
        sched.stall.bell().ring_before(clock::now_ns().saturating_add(sched.config.wake_up_ns));
    }
}

/// Wakes an M for a reserved P, so that somebody watches the clock.
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

/// Asks the kernel for short turns of a thread that serves the latency class, and for the usual
/// ones again when it does not. Next to threads that compute, one that wakes up waits for the end
/// of their turns, some milliseconds, unless its own are shorter.
///
/// Who serves the class is woken by the poller or with a reserved P, so it costs nothing where no
/// P is reserved, and a system call only where a thread changes sides.
#[inline]
pub(crate) fn suit_turns(sched: &Sched, m: &M, latency: bool) {
    if sched.rest.idle().n_reserved() != 0 && m.short_turns.replace(latency) != latency {
        if latency { thread::short_turns() } else { thread::normal_turns() }
    }
}

/// The search of an M that holds a reserved P.
pub(super) fn find_latency(sched: &Sched, m: &M) -> Option<Next> {
    outside::run_own_timers(sched, m);
    next_latency(sched, m).or_else(|| {
        let woken = outside::poll_without_waiting(sched);
        queue::inject(sched, m, woken);
        next_latency(sched, m)
    })
}

fn next_latency(sched: &Sched, m: &M) -> Option<Next> {
    if sched.global_len().latency() == 0 {
        return None;
    }
    let gp = sched.lock.lock().global.pop_latency(sched.global_len());
    m.p().stats.global_taken.bump_if(gp.is_some());
    gp.map(Next::fresh)
}

/// Whether somebody waits whom this P could run.
pub(crate) fn has_work_for(sched: &Sched, pp: &P) -> bool {
    if pp.is_reserved {
        return sched.global_len().latency() != 0;
    }
    sched.global_len().get() != 0 || !pp.is_empty()
}

//! Wakes Ms for work, and finds Ms for Ps.
//!
//! GO: proc.go wakep, startm.

use crate::gmp::{M, P};
use crate::sched::{Locked, Sched, forks};
use crate::sched::{run, stall, threads, world};
use crate::trace::emit;
use heist_core::sync::{Ordering, fence};
use std::ptr::NonNull;

/// Whether an M starts as a spinner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It spins; the caller has counted it already.
    Spinning,
    /// Its P has work.
    Working,
}

/// Wakes one M as a spinner, if there is an idle P and no M spins.
///
/// The caller has published the work by an operation that is a full fence; `heist_core::spinning`
/// explains why none is lost. When every P is busy there is no M to wake, and this must cost
/// nothing: it reads four words that rarely change.
#[inline]
#[doc(alias = "wakep")]
pub(crate) fn wake_p(sched: &Sched) {
    if sched.rest.spinning.n() != 0 {
        return;
    }
    if sched.rest.idle().count() == 0 {
        if !sched.rest.spinning.requested() {
            sched.rest.spinning.request();
            // ORDERING: an M that drops its P raises the count of idle Ps, fences and reads the
            // request. This thread writes the request, fences and reads the count. One of the two
            // sees the other.
            fence(Ordering::SeqCst);
        }
        if sched.rest.idle().count() == 0 {
            if sched.run.is_idle_class_running() {
                // A goroutine of the idle class runs while others wait: sysmon asks it to yield.
                sched.stall.bell().ring_before(0);
            }
            return;
        }
    }
    wake_spinner(sched);
}

/// Wakes an M as [`wake_p`] does, for work that was published without a full fence: the fence is
/// here.
#[inline]
pub(crate) fn announce_work(sched: &Sched) {
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    fence(Ordering::SeqCst);
    wake_p(sched);
}

#[cold]
fn wake_spinner(sched: &Sched) {
    if !sched.rest.spinning.try_be_first() {
        return;
    }
    let mut locked = sched.lock.lock();
    let Some(id) = locked.idle_ps.take(sched.rest.idle()) else {
        return sched.rest.spinning.withdraw();
    };
    drop(locked);
    sched.stall.bell().ring();
    sched.stats.wake_ups.add_shared(1);
    start_m(sched, sched.p(id), Start::Spinning);
}

/// Gives `pp` to an idle M or to the M of a frozen goroutine. If there is none, `pp` waits until
/// the helper thread has made an M.
#[doc(alias = "startm")]
pub(crate) fn start_m(sched: &Sched, pp: &P, start: Start) {
    let mut locked = sched.lock.lock();
    if sched.world.is_stopping() {
        return world::count_given(sched, &mut locked, pp, start);
    }
    if let Some(m) = locked.idle_ms.pop() {
        drop(locked);
        // SAFETY: an idle M is alive, and this thread, which took it off the list, is the only one
        // that can wake it.
        return unsafe { hand_over(sched, m, pp, start) };
    }
    // This does not only save a thread: the helper thread, which makes them, may have to wait for a
    // lock that a frozen goroutine holds.
    if let Some(m) = find_taker(sched, &mut locked, pp) {
        if start == Start::Spinning {
            sched.rest.spinning.withdraw();
        }
        drop(locked);
        // SAFETY: the M sleeps or is about to, and its goroutine was just taken out of the queue,
        // so no other thread can wake it.
        return unsafe { hand_over(sched, m, pp, Start::Working) };
    }
    locked.roster.orphans().push(pp.id, start);
    drop(locked);
    sched.threads.helper().ask();
}

/// Whether an M can take over a P at once, without a new thread.
pub(crate) fn has_taker(sched: &Sched) -> bool {
    let locked = sched.lock.lock();
    !locked.idle_ms.is_empty() || locked.global.has_frozen()
}

/// Takes an M out of its list that can take over a P at once: an idle M, or the M of a frozen
/// goroutine.
///
/// The M of a frozen goroutine runs nothing but that goroutine. Two of them with goroutines that
/// compute without end would hand the P to each other for ever, so the helper is asked for an idle
/// M whenever there is none left.
pub(crate) fn find_taker(sched: &Sched, locked: &mut Locked, pp: &P) -> Option<NonNull<M>> {
    let taker = locked.idle_ms.pop().or_else(|| {
        let gp = run::pop_frozen(sched, locked, pp)?;
        // SAFETY: goroutines in a queue are valid.
        NonNull::new(unsafe { gp.as_ref() }.bound_m.get().cast_mut())
    });
    if taker.is_some() && locked.idle_ms.is_empty() {
        sched.threads.helper().ask_for_spare();
    }
    taker
}

/// If a frozen goroutine is the next one to run on `pp`, takes it out of the queue and returns its
/// M. Then no other M has to wake up only to find that goroutine.
pub(crate) fn next_frozen(sched: &Sched, locked: &mut Locked, pp: &P) -> Option<NonNull<M>> {
    if pp.is_reserved || !pp.is_empty() || sched.global_len().urgent() != 0 {
        return None;
    }
    let gp = locked.global.pop_frozen_in_turn(sched.global_len())?;
    // SAFETY: goroutines in a queue are valid.
    NonNull::new(unsafe { gp.as_ref() }.bound_m.get().cast_mut())
}

/// Wakes `m` with `pp`.
///
/// # Safety
/// `m` sleeps, or is about to, and no other thread can wake it.
pub(crate) unsafe fn hand_over(sched: &Sched, m: NonNull<M>, pp: &P, start: Start) {
    // SAFETY: by the caller's promise.
    let m = unsafe { m.as_ref() };
    if start == Start::Spinning && !pp.is_empty() {
        heist_core::throw!("hand_over: P{} has work for a spinning M", pp.id);
    }
    m.next_p.set(pp);
    m.wake_spinning.set(start == Start::Spinning);
    sched.stats.m_unparks.add_shared(1);
    emit::proc_hand(&sched.recorder, pp);
    m.note.wake(&m.doorbell);
}

/// Wakes an M if a goroutine is runnable, or if timers or descriptors wait and no M looks at them.
/// In the latter case the M finds nothing to run, and waits in the poller.
pub(crate) fn wake_p_if_work(sched: &Sched) {
    let mut locked = sched.lock.lock();
    threads::admit(sched, &mut locked);
    let idle_work = locked.global.has_idle();
    drop(locked);
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    fence(Ordering::SeqCst);
    let queued = sched.global_len().get() != 0 || sched.all_ps().any(|pp| !pp.is_empty());
    let queued = queued || forks::has_fork(sched);
    if queued || idle_work || stall::is_unattended(sched) {
        wake_p(sched);
    }
    if sched.global_len().latency() != 0 {
        run::wake_reserved(sched);
    }
}

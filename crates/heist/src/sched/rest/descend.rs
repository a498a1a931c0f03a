//! How an M goes to sleep without missing work.
//!
//! An M that found nothing gives its P back and sleeps. Work may arrive between its last look and
//! the moment when others can see that it sleeps. `heist_core::spinning` and
//! docs/design/spinning.md have the order of the steps, and explain why no work is lost.
//!
//! GO: proc.go findRunnable (second half), stopm.

use super::{spin, watch};
use crate::gmp::p::Stopped;
use crate::gmp::{Holder, M, P};
use crate::sched::run::{Found, Next, take_batch};
use crate::sched::{Locked, Phase, Sched, forks};
use crate::sched::{outside, run, threads, world};
use crate::sys::clock;
use crate::trace::emit;
use heist_core::global_queue::Lane;
use heist_core::idle_ms::IdleMs;
use heist_core::m_word::STOP;
use heist_core::note::Woken;
use heist_core::policy;
use heist_core::timer_heap::NEVER;
use heist_trace::record::Found as Origin;
use std::ptr::{NonNull, null};
use std::time::Duration;

/// What an M that gave its P back does next.
enum LastLook {
    /// It found work and has a P again.
    Awake(Found),
    /// There are at most goroutines that their P most likely runs itself: the M watches them.
    Watch,
    /// There is no work, or it is left to another M: the M sleeps.
    Sleep,
}

/// Gives the P back and sleeps until there is something to do. It returns earlier, with the P, if
/// it finds something under the scheduler lock.
pub(crate) fn sleep(sched: &Sched, holder: Holder<'_>) -> Found {
    let m = holder.m();
    let mut locked = sched.lock.lock();
    if sched.world.is_stopping() {
        drop(locked);
        return world::stop_searching(sched, m);
    }
    if sched.phase() == Phase::Stopped {
        let pp = m.release_p();
        put_idle(sched, &mut locked, pp);
        drop(locked);
        spin::end_spin(sched, m);
        return Found::Leave;
    }
    if m.p().is_reserved {
        if sched.global_len().latency() != 0 {
            return Found::Retry;
        }
        let pp = m.release_p();
        put_idle(sched, &mut locked, pp);
        drop(locked);
        // ORDERING: the P was made idle before this fence, and the timers are read after it. An M
        // that adds a timer fences and then checks for idle Ps. One of the two sees the other.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        return sleep_without_p(sched, m);
    }
    if !locked.global.is_empty() {
        let mut batch = locked.global.pop_batch(sched.global_len(), sched.common_procs());
        drop(locked);
        return take_batch(holder, &mut batch).map_or(Found::Retry, Found::Run);
    }
    if !m.spinning.get() && sched.rest.spinning.requested() {
        drop(locked);
        spin::become_spinning(sched, m);
        return Found::Retry;
    }
    if threads::admit(sched, &mut locked) {
        drop(locked);
        super::announce_work(sched);
        return Found::Retry;
    }
    if let Some(gp) = locked.global.pop_lane(sched.global_len(), Lane::Idle) {
        return Found::Run(Next::fresh(gp, Origin::Global));
    }
    let pp = m.release_p();
    if !pp.is_empty() {
        heist_core::throw!("sleep: P{} is not empty", pp.id);
    }
    put_idle(sched, &mut locked, pp);
    drop(locked);

    let was_spinning = spin::end_spin(sched, m);
    // ORDERING: the number of idle Ps was raised and that of spinning Ms lowered by SeqCst
    // read-modify-writes. What follows reads what submitters wrote before they read these counts.
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
    let forks = forks::await_pushes(sched);
    if was_spinning || forks || sched.rest.spinning.requested() {
        loop {
            match look_once_more(sched, m) {
                LastLook::Awake(found) => return found,
                LastLook::Sleep => break,
                LastLook::Watch => match watch::keep_watch(sched, m) {
                    Found::Nothing => {}
                    found => return watch::leave_watch(sched, m, found),
                },
            }
        }
    }
    sleep_without_p(sched, m)
}

fn sleep_without_p(sched: &Sched, m: &M) -> Found {
    // This M watches the timers itself now, or another M does.
    m.new_timer_ns.set(NEVER);
    match outside::wait_in_poller(sched, m, NEVER) {
        None | Some(Found::Nothing) => stop_m(sched, m),
        Some(found) => found,
    }
}

/// Makes a P idle, or counts it as stopped if the world stops. It is the only way onto the idle
/// stack after the runtime has started.
pub(crate) fn put_idle(sched: &Sched, locked: &mut Locked, pp: &P) {
    if sched.world.is_stopping() {
        return world::count_stopped(sched, locked, pp, Stopped::Free);
    }
    locked.idle_ps.put(sched.rest.idle(), pp.id, pp.timers.earliest() != NEVER);
}

/// Looks through all queues after the M has given its P back.
fn look_once_more(sched: &Sched, m: &M) -> LastLook {
    if !run::has_stealable_ring(sched) {
        let nothing = !sched.all_ps().any(|pp| run::is_stealable(sched, pp));
        // An M that is going to wait for the network does not watch the other Ps as well.
        if nothing && (sched.outside.has_waiters() || !watch::others_are_busy(sched, m)) {
            return LastLook::Sleep;
        }
        // The watch begins before the closer look, so that no M is woken meanwhile.
        if !sched.rest.watch.begin() {
            return LastLook::Sleep;
        }
        if !run::has_stealable_work(sched) {
            return LastLook::Watch;
        }
        sched.rest.watch.end();
    }
    let mut locked = sched.lock.lock();
    let Some(id) = locked.idle_ps.take(sched.rest.idle()) else {
        // Every P is busy. The next M that would give its P back searches instead.
        sched.rest.spinning.request();
        return LastLook::Sleep;
    };
    m.acquire_p(sched.p(id));
    drop(locked);
    sched.stall.bell().ring();
    spin::become_spinning(sched, m);
    LastLook::Awake(Found::Retry)
}

/// Sleeps until another thread hands over a P, or until this M was not needed for so long that its
/// thread ends.
#[doc(alias = "stopm")]
pub(crate) fn stop_m(sched: &Sched, m: &M) -> Found {
    if m.has_p() || m.spinning.get() {
        heist_core::throw!("stop_m: M{} holds a P or spins", m.id);
    }
    let mut locked = sched.lock.lock();
    if sched.phase() == Phase::Stopped {
        return Found::Leave;
    }
    // This M may have lent its P to another M. If that M has given the P up meanwhile, this one may
    // be the only M that can take it.
    if threads::take_orphan(sched, m, &mut locked) {
        drop(locked);
        run::suit_turns(sched, m, m.p().is_reserved);
        return Found::Retry;
    }
    // SAFETY: this M is in no list, and its record does not move.
    unsafe { locked.idle_ms.push(NonNull::from(m)) };
    let admitted = threads::admit_to_idle(sched, &mut locked);
    let surplus = locked.idle_ms.has_surplus(sched.procs());
    drop(locked);
    if admitted {
        super::announce_work(sched);
    }
    let asleep_ns = clock::now_ns();
    if surplus {
        let in_vain = sleeps_out(sched, m, asleep_ns + policy::IDLE_M_NS, |idle_ms| {
            // SAFETY: the M of a live thread can be in no other list than that of the idle Ms.
            unsafe { idle_ms.give_up(NonNull::from(m), sched.procs()) }
        });
        if in_vain {
            return Found::Leave;
        }
    }
    sleep_since(sched, m, asleep_ns)
}

/// Sleeps in the list of idle Ms, at the latest until `until_ns`. `Nothing`: no thread needed this
/// M.
pub(super) fn nap(sched: &Sched, m: &M, until_ns: u64) -> Found {
    let mut locked = sched.lock.lock();
    if sched.phase() == Phase::Stopped {
        return Found::Leave;
    }
    // SAFETY: this M is in no list, and its record does not move.
    unsafe { locked.idle_ms.push(NonNull::from(m)) };
    let admitted = threads::admit_to_idle(sched, &mut locked);
    drop(locked);
    if admitted {
        super::announce_work(sched);
    }
    // SAFETY: the M of a live thread can be in no other list than that of the idle Ms.
    if sleeps_out(sched, m, until_ns, |idle_ms| unsafe { idle_ms.remove(NonNull::from(m)) }) {
        return Found::Nothing;
    }
    m.note.sleep(&m.doorbell);
    take_over(sched, m)
}

/// Sleeps in the list of idle Ms, at the latest until `until_ns`; then `leave` takes the M off that
/// list. True if `leave` did so: no thread needed the M.
fn sleeps_out(
    sched: &Sched,
    m: &M,
    until_ns: u64,
    leave: impl FnOnce(&mut IdleMs<M>) -> bool,
) -> bool {
    let left = || {
        let left = until_ns.saturating_sub(clock::now_ns());
        (left != 0).then(|| Duration::from_nanos(left))
    };
    emit::m_park(m);
    let noted = m.note.sleep_while(&m.doorbell, left) == Woken::Noted;
    emit::m_unpark(m);
    !noted && leave(&mut sched.lock.lock().idle_ms)
}

/// Sleeps until another thread hands over a P. The caller has put the M where that thread finds it.
pub(crate) fn sleep_idle(sched: &Sched, m: &M) -> Found {
    sleep_since(sched, m, clock::now_ns())
}

fn sleep_since(sched: &Sched, m: &M, asleep_ns: u64) -> Found {
    sched.stats.m_parks.add_shared(1);
    emit::m_park(m);
    m.note.sleep(&m.doorbell);
    emit::m_unpark(m);
    sched.rest.linger.learn(clock::now_ns() - asleep_ns);
    take_over(sched, m)
}

/// Takes over the P that the waker left for this M. `Leave`: there is none, because the runtime has
/// ended.
pub(crate) fn take_over(sched: &Sched, m: &M) -> Found {
    m.note.clear();
    let next = m.next_p.replace(null());
    // SAFETY: a P, or null if the runtime has ended; Ps live as long as the runtime.
    let Some(pp) = (unsafe { next.as_ref() }) else {
        return Found::Leave;
    };
    m.acquire_p(pp);
    run::suit_turns(sched, m, pp.is_reserved);
    if m.wake_spinning.get() {
        spin::begin_spin(sched, m);
    }
    if sched.world.is_stopping() {
        // The stopper may not have seen that this M holds the P now.
        m.word.call_attention(STOP);
    }
    Found::Retry
}

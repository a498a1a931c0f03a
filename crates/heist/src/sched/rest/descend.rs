//! The careful way to sleep.
//!
//! An M that found nothing gives its P back and sleeps, but between its last look and the moment
//! others can see it asleep, work may arrive. The order of the steps, and why they lose nothing,
//! is in `heist_core::spinning` and docs/design/spinning.md.
//!
//! GO: proc.go findRunnable (second half), stopm.

use super::{spin, watch};
use crate::gmp::p::Stopped;
use crate::gmp::{M, P};
use crate::sched::run::find::{Found, Next, take_batch};
use crate::sched::{Locked, Phase, Sched};
use crate::sched::{outside, run, threads, world};
use crate::sys::clock;
use heist_core::idle_ms::IdleMs;
use heist_core::m_word::STOP;
use heist_core::note::Woken;
use heist_core::policy;
use heist_core::timer_heap::NEVER;
use std::ptr::{NonNull, null};
use std::time::Duration;

/// What an M that gave its P back does next.
enum LastLook {
    /// It found work and has a P again.
    Awake(Found),
    /// There is nothing but what a P most likely runs itself: see to it.
    Watch,
    /// Nothing: sleep.
    Sleep,
}

/// Gives the P back and sleeps until there is something to do.
pub(crate) fn sleep(sched: &Sched, m: &M) -> Found {
    let mut locked = sched.lock.lock();
    if sched.world.is_stopping() {
        drop(locked);
        return world::stop_searching(sched, m);
    }
    if sched.phase() == Phase::Stopped {
        let pp = m.release_p();
        rest_p(sched, &mut locked, pp);
        drop(locked);
        spin::end_spin(sched, m);
        return Found::Leave;
    }
    if m.p().is_reserved {
        if sched.global_len().latency() != 0 {
            return Found::Retry;
        }
        let pp = m.release_p();
        rest_p(sched, &mut locked, pp);
        drop(locked);
        // ORDERING: the P is at rest; who adds a timer looks for that after a fence.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        return sleep_without_p(sched, m);
    }
    if !locked.global.is_empty() {
        let mut batch = locked.global.pop_batch(sched.global_len(), sched.common_procs());
        drop(locked);
        return take_batch(m, &mut batch).map_or(Found::Retry, Found::Run);
    }
    if !m.spinning.get() && sched.rest.spinning.requested() {
        drop(locked);
        spin::become_spinning(sched, m);
        return Found::Retry;
    }
    if threads::admit(sched, &mut locked) {
        drop(locked);
        threads::wake_for_admitted(sched);
        return Found::Retry;
    }
    if let Some(gp) = run::pop_idle(sched, &mut locked) {
        return Found::Run(Next::fresh(gp));
    }
    let pp = m.release_p();
    if !pp.is_empty() {
        heist_core::throw!("Sched::sleep: P{} is not empty", pp.id);
    }
    rest_p(sched, &mut locked, pp);
    drop(locked);

    let was_spinning = spin::end_spin(sched, m);
    // ORDERING: putting the P to rest and leaving the spinners were SeqCst read-modify-writes;
    // what follows reads what submitters wrote before they read those.
    heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
    if was_spinning || sched.rest.spinning.requested() {
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
    // It watches the timers itself, or somebody else does.
    m.new_timer_ns.set(NEVER);
    match outside::wait_in_poller(sched, m, NEVER) {
        None | Some(Found::Nothing) => stop_m(sched, m),
        Some(found) => found,
    }
}

/// Puts a P to rest, or counts it if the world stops: the only way onto the idle stack.
pub(crate) fn rest_p(sched: &Sched, locked: &mut Locked, pp: &P) {
    if sched.world.is_stopping() {
        return world::count_stopped(sched, locked, pp, Stopped::Free);
    }
    locked.idle_ps.put(sched.rest.idle(), pp.id, pp.timers.earliest() != NEVER);
}

/// Looks through all queues after the P is gone.
fn look_once_more(sched: &Sched, m: &M) -> LastLook {
    if !run::has_ring_loot(sched) {
        let nothing = !sched.all_ps().any(|pp| run::can_rob(sched, pp));
        // An M that is to wait for the network does not watch the others as well.
        if nothing && (sched.outside.has_waiters() || !watch::others_are_busy(sched, m)) {
            return LastLook::Sleep;
        }
        // Before it looks closer: nobody is to be woken meanwhile.
        if !sched.rest.watch.begin() {
            return LastLook::Sleep;
        }
        if !run::has_loot(sched) {
            return LastLook::Watch;
        }
        sched.rest.watch.end();
    }
    let mut locked = sched.lock.lock();
    let Some(id) = locked.idle_ps.take(sched.rest.idle()) else {
        // Every P is held by somebody; the next one that would let go looks instead.
        sched.rest.spinning.request();
        return LastLook::Sleep;
    };
    m.acquire_p(sched.p(id));
    drop(locked);
    sched.stall.bell().ring();
    spin::become_spinning(sched, m);
    LastLook::Awake(Found::Retry)
}

/// Sleeps until somebody hands a P over, or until this M was not needed for so long that its
/// thread ends.
#[doc(alias = "stopm")]
pub(crate) fn stop_m(sched: &Sched, m: &M) -> Found {
    if m.has_p() || m.spinning.get() {
        heist_core::throw!("Sched::stop_m: M{} holds a P or spins", m.id);
    }
    let mut locked = sched.lock.lock();
    if sched.phase() == Phase::Stopped {
        return Found::Leave;
    }
    // This M may have lent its P to another one, which could give it to none but this.
    if threads::take_orphan(sched, m, &mut locked) {
        drop(locked);
        run::suit_turns(sched, m, m.p().is_reserved);
        return Found::Retry;
    }
    // SAFETY: this M is in no list and stays where it is until its thread ends.
    unsafe { locked.idle_ms.push(NonNull::from(m)) };
    let admitted = threads::admit_to_idle(sched, &mut locked);
    let surplus = locked.idle_ms.has_surplus(sched.procs());
    drop(locked);
    if admitted {
        threads::wake_for_admitted(sched);
    }
    let asleep_ns = clock::now_ns();
    if surplus {
        let in_vain = sleeps_out(sched, m, asleep_ns + policy::IDLE_M_NS, |idle_ms| {
            // SAFETY: an M with a thread can be in no other list.
            unsafe { idle_ms.give_up(NonNull::from(m), sched.procs()) }
        });
        if in_vain {
            return Found::Leave;
        }
    }
    sleep_since(sched, m, asleep_ns)
}

/// Sleeps where others find it, but not for longer than until then. Nothing: nobody did.
pub(super) fn nap(sched: &Sched, m: &M, until_ns: u64) -> Found {
    let mut locked = sched.lock.lock();
    if sched.phase() == Phase::Stopped {
        return Found::Leave;
    }
    // SAFETY: this M is in no list and stays where it is until its thread ends.
    unsafe { locked.idle_ms.push(NonNull::from(m)) };
    let admitted = threads::admit_to_idle(sched, &mut locked);
    drop(locked);
    if admitted {
        threads::wake_for_admitted(sched);
    }
    // SAFETY: an M with a thread can be in no other list.
    if sleeps_out(sched, m, until_ns, |idle_ms| unsafe { idle_ms.remove(NonNull::from(m)) }) {
        return Found::Nothing;
    }
    m.note.sleep(&m.doorbell);
    take_over(sched, m)
}

/// Sleeps until then, in the list of idle Ms, from which `leave` takes it then. True if it did:
/// nobody needed it.
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
    m.note.sleep_while(&m.doorbell, left) != Woken::Noted && leave(&mut sched.lock.lock().idle_ms)
}

/// Sleeps until somebody hands a P over. The M is where they find it.
pub(crate) fn sleep_idle(sched: &Sched, m: &M) -> Found {
    sleep_since(sched, m, clock::now_ns())
}

fn sleep_since(sched: &Sched, m: &M, asleep_ns: u64) -> Found {
    sched.stats.m_parks.add_shared(1);
    m.note.sleep(&m.doorbell);
    sched.rest.linger.learn(clock::now_ns() - asleep_ns);
    take_over(sched, m)
}

/// Picks up what the waker left.
pub(crate) fn take_over(sched: &Sched, m: &M) -> Found {
    m.note.clear();
    let next = m.next_p.replace(null());
    // SAFETY: a P, or null if the runtime has stopped; Ps live as long as the runtime.
    let Some(pp) = (unsafe { next.as_ref() }) else {
        return Found::Leave;
    };
    m.acquire_p(pp);
    run::suit_turns(sched, m, pp.is_reserved);
    if m.wake_spinning.get() {
        spin::begin_spin(sched, m);
    }
    if sched.world.is_stopping() {
        // The stopper may not have seen who holds this P now.
        m.word.call_attention(STOP);
    }
    Found::Retry
}

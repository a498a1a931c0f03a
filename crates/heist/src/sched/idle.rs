//! The careful way to sleep.
//!
//! An M that found nothing gives its P back and sleeps, but between its last look and the moment
//! others can see it asleep, work may arrive. The order of the steps, and why they lose nothing,
//! is in `heist_core::spinning` and docs/design/spinning.md.
//!
//! GO: proc.go findRunnable (second half), stopm.

use super::find_runnable::{Found, Next, take_batch};
use super::{Locked, Phase, Sched};
use crate::gmp::p::Stopped;
use crate::gmp::{M, P};
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

impl Sched {
    /// Gives the P back and sleeps until there is something to do.
    pub(crate) fn sleep(&self, m: &M) -> Found {
        let mut locked = self.lock.lock();
        if self.stop.pending() {
            drop(locked);
            return self.stop_searching(m);
        }
        if self.phase() == Phase::Stopped {
            let pp = m.release_p();
            self.rest_p(&mut locked, pp);
            drop(locked);
            self.end_spin(m);
            return Found::Leave;
        }
        if m.p().is_reserved {
            if self.global_len().latency() != 0 {
                return Found::Retry;
            }
            let pp = m.release_p();
            self.rest_p(&mut locked, pp);
            drop(locked);
            // ORDERING: the P is at rest; who adds a timer looks for that after a fence.
            heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
            return self.sleep_without_p(m);
        }
        if !locked.global.is_empty() {
            let mut batch = locked.global.pop_batch(self.global_len(), self.common_procs());
            drop(locked);
            return take_batch(m, &mut batch).map_or(Found::Retry, Found::Run);
        }
        if !m.spinning.get() && self.spinning.requested() {
            drop(locked);
            self.become_spinning(m);
            return Found::Retry;
        }
        if self.admit(&mut locked) {
            drop(locked);
            self.wake_for_admitted();
            return Found::Retry;
        }
        if let Some(gp) = locked.idle_work.pop_front() {
            return Found::Run(Next::fresh(gp));
        }
        let pp = m.release_p();
        if !pp.is_empty() {
            heist_core::throw!("Sched::sleep: P{} is not empty", pp.id);
        }
        self.rest_p(&mut locked, pp);
        drop(locked);

        let was_spinning = self.end_spin(m);
        // ORDERING: putting the P to rest and leaving the spinners were SeqCst read-modify-writes;
        // what follows reads what submitters wrote before they read those.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        if was_spinning || self.spinning.requested() {
            loop {
                match self.look_once_more(m) {
                    LastLook::Awake(found) => return found,
                    LastLook::Sleep => break,
                    LastLook::Watch => match self.keep_watch(m) {
                        Found::Nothing => {}
                        found => return self.leave_watch(m, found),
                    },
                }
            }
        }
        self.sleep_without_p(m)
    }

    fn sleep_without_p(&self, m: &M) -> Found {
        // It watches the timers itself, or somebody else does.
        m.new_timer_ns.set(NEVER);
        match self.wait_in_poller(m, NEVER) {
            None | Some(Found::Nothing) => self.stop_m(m),
            Some(found) => found,
        }
    }

    /// Puts a P to rest, or counts it if the world stops: the only way onto the idle stack.
    pub(crate) fn rest_p(&self, locked: &mut Locked, pp: &P) {
        if self.stop.pending() {
            return self.count_stopped(locked, pp, Stopped::Free);
        }
        locked.idle_ps.put(&self.idle, pp.id, pp.timers.earliest() != NEVER);
    }

    /// Looks through all queues after the P is gone.
    fn look_once_more(&self, m: &M) -> LastLook {
        if !self.has_ring_loot() {
            let nothing = !self.all_ps().any(|pp| self.can_rob(pp));
            // Who is to wait for the network is not to watch the others as well.
            if nothing && (self.poll.has_waiters() || !self.others_are_busy(m)) {
                return LastLook::Sleep;
            }
            // Before it looks closer: nobody is to be woken meanwhile.
            if !self.watch.begin() {
                return LastLook::Sleep;
            }
            if !self.has_loot() {
                return LastLook::Watch;
            }
            self.watch.end();
        }
        let mut locked = self.lock.lock();
        let Some(id) = locked.idle_ps.take(&self.idle) else {
            // Every P is held by somebody; the next one that would let go looks instead.
            self.spinning.request();
            return LastLook::Sleep;
        };
        m.acquire_p(self.p(id));
        drop(locked);
        self.bell.ring();
        self.become_spinning(m);
        LastLook::Awake(Found::Retry)
    }

    /// Sleeps until somebody hands a P over, or until this M was not needed for so long that its
    /// thread ends.
    #[doc(alias = "stopm")]
    pub(crate) fn stop_m(&self, m: &M) -> Found {
        if m.has_p() || m.spinning.get() {
            heist_core::throw!("Sched::stop_m: M{} holds a P or spins", m.id);
        }
        let mut locked = self.lock.lock();
        if self.phase() == Phase::Stopped {
            return Found::Leave;
        }
        // SAFETY: this M is in no list and stays where it is until its thread ends.
        unsafe { locked.idle_ms.push(NonNull::from(m)) };
        let admitted = self.admit_to_idle(&mut locked);
        let surplus = locked.idle_ms.has_surplus(self.procs());
        drop(locked);
        if admitted {
            self.wake_for_admitted();
        }
        let asleep_ns = clock::now_ns();
        if surplus {
            let in_vain = self.sleeps_out(m, asleep_ns + policy::IDLE_M_NS, |idle_ms| {
                // SAFETY: an M with a thread can be in no other list.
                unsafe { idle_ms.give_up(NonNull::from(m), self.procs()) }
            });
            if in_vain {
                return Found::Leave;
            }
        }
        self.sleep_since(m, asleep_ns)
    }

    /// Sleeps where others find it, but not for longer than until then. Nothing: nobody did.
    pub(super) fn nap(&self, m: &M, until_ns: u64) -> Found {
        let mut locked = self.lock.lock();
        if self.phase() == Phase::Stopped {
            return Found::Leave;
        }
        // SAFETY: this M is in no list and stays where it is until its thread ends.
        unsafe { locked.idle_ms.push(NonNull::from(m)) };
        let admitted = self.admit_to_idle(&mut locked);
        drop(locked);
        if admitted {
            self.wake_for_admitted();
        }
        // SAFETY: an M with a thread can be in no other list.
        if self.sleeps_out(m, until_ns, |idle_ms| unsafe { idle_ms.remove(NonNull::from(m)) }) {
            return Found::Nothing;
        }
        m.note.sleep(&m.doorbell);
        self.take_over(m)
    }

    /// Sleeps until then, in the list of idle Ms, from which `leave` takes it then. True if it did:
    /// nobody needed it.
    fn sleeps_out(&self, m: &M, until_ns: u64, leave: impl FnOnce(&mut IdleMs<M>) -> bool) -> bool {
        let left = || {
            let left = until_ns.saturating_sub(clock::now_ns());
            (left != 0).then(|| Duration::from_nanos(left))
        };
        m.note.sleep_while(&m.doorbell, left) != Woken::Noted
            && leave(&mut self.lock.lock().idle_ms)
    }

    /// Sleeps until somebody hands a P over. The M is where they find it.
    pub(super) fn sleep_idle(&self, m: &M) -> Found {
        self.sleep_since(m, clock::now_ns())
    }

    fn sleep_since(&self, m: &M, asleep_ns: u64) -> Found {
        self.stats.m_parks.add_shared(1);
        m.note.sleep(&m.doorbell);
        self.linger.learn(clock::now_ns() - asleep_ns);
        self.take_over(m)
    }

    /// Picks up what the waker left.
    pub(crate) fn take_over(&self, m: &M) -> Found {
        m.note.clear();
        let next = m.next_p.replace(null());
        // SAFETY: a P, or null if the runtime has stopped; Ps live as long as the runtime.
        let Some(pp) = (unsafe { next.as_ref() }) else {
            return Found::Leave;
        };
        m.acquire_p(pp);
        self.suit_turns(m, pp.is_reserved);
        if m.wake_spinning.get() {
            self.begin_spin(m);
        }
        if self.stop.pending() {
            // The stopper may not have seen who holds this P now.
            m.word.call_attention(STOP);
        }
        Found::Retry
    }
}

//! Goroutines that must run on one M: the one mechanism for all of them.
//!
//! A bound M runs its goroutine and nothing else. While the goroutine waits, the M gives its P
//! away and sleeps; whoever finds the goroutine in a queue gives it his own P, wakes the M and
//! goes to sleep himself.
//!
//! GO: proc.go stoplockedm, startlockedm, lockOSThread, handoffp.

use super::Sched;
use super::find_runnable::{Found, Next};
use super::wake::Start;
use crate::gmp::{G, M, P};
use crate::sys::futex::Kernel;
use heist_core::timer_heap::NEVER;
use std::ptr::{NonNull, null};

/// Ties a goroutine to the M it runs on. False if it is tied already: then somebody else unties it.
#[must_use]
pub(crate) fn bind(m: &M, gp: &G) -> bool {
    if !gp.bound_m.get().is_null() {
        return false;
    }
    gp.bound_m.set(m);
    m.bound_g.set(gp);
    true
}

/// Unties it, if it is tied.
pub(crate) fn unbind(m: &M, gp: &G) {
    if !gp.bound_m.get().is_null() {
        if !std::ptr::eq(m.bound_g.get(), gp) {
            heist_core::throw!("unbind: M{} and its goroutine disagree", m.id);
        }
        gp.bound_m.set(null());
        m.bound_g.set(null());
    }
}

impl Sched {
    /// Sleeps until somebody has found the goroutine of this M and gives a P for it.
    #[doc(alias = "stoplockedm")]
    pub(crate) fn wait_for_bound(&self, m: &M) -> Option<Next> {
        if m.has_p() {
            let pp = m.release_p();
            self.handoff_p(pp);
        }
        self.stats.m_parks.add_shared(1);
        m.note.sleep(&Kernel);
        if !matches!(self.take_over(m), Found::Retry) {
            return None;
        }
        let gp = NonNull::new(m.bound_g.get().cast_mut())?;
        Some(Next::fresh(gp))
    }

    /// Gives this M's P to the M that must run `gp`, and sleeps. False: the runtime has stopped.
    #[doc(alias = "startlockedm")]
    pub(crate) fn lend_p(&self, m: &M, gp: NonNull<G>) -> bool {
        // SAFETY: the goroutine was just found, so it is valid and this M's to move.
        let owner = unsafe { gp.as_ref() }.bound_m.get().cast_mut();
        let Some(owner) = NonNull::new(owner) else {
            heist_core::throw!("lend_p: the goroutine is not bound");
        };
        let pp = m.release_p();
        // SAFETY: a bound M sleeps, or is about to, while its goroutine is in a queue; only who
        // took the goroutine out of the queue wakes it.
        unsafe { self.hand_over(owner, pp, Start::Working) };
        !matches!(self.stop_m(m), Found::Leave)
    }

    /// Finds an M for a P whose own M is about to sleep, or puts it to rest.
    #[doc(alias = "handoffp")]
    pub(crate) fn handoff_p(&self, pp: &P) {
        if !pp.is_empty() || self.global_len().get() != 0 {
            return self.start_m(pp, Start::Working);
        }
        if self.spinning.n() + self.idle.count() == 0 && self.spinning.try_be_first() {
            return self.start_m(pp, Start::Spinning);
        }
        let mut locked = self.lock.lock();
        if !locked.global.is_empty() {
            drop(locked);
            return self.start_m(pp, Start::Working);
        }
        self.rest_p(&mut locked, pp);
        drop(locked);
        // ORDERING: the P is at rest; who submitted before that and asked for a spinner is served
        // here, as in `Sched::sleep`.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        if self.spinning.requested() {
            self.wake_p();
        }
        if pp.timers.earliest() != NEVER {
            self.watch_timer(pp.timers.earliest());
        }
    }
}

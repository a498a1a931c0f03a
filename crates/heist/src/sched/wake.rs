//! Waking: Ms for work, Ps for Ms.
//!
//! GO: proc.go wakep, startm.

use super::Sched;
use crate::gmp::{M, P};
use crate::sys::futex::Kernel;
use std::ptr::NonNull;

/// Whether an M starts as a spinner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Start {
    /// It looks for work; the caller has counted it already.
    Spinning,
    /// Its P has work.
    Working,
}

impl Sched {
    /// Wakes one M to look for work, if there is an idle P and nobody looks already.
    ///
    /// The caller has published the work by an operation that is a full fence; see
    /// `heist_core::spinning` for why none is lost. When every P is busy there is nobody to wake
    /// and this must cost nothing: it reads three words that rarely change.
    #[inline]
    #[doc(alias = "wakep")]
    pub(crate) fn wake_p(&self) {
        if self.spinning.n() != 0 {
            return;
        }
        if self.idle.count() == 0 {
            if !self.spinning.requested() {
                self.spinning.request();
                // ORDERING: an M that drops its P raises the count, fences and reads the request;
                // this writes the request, fences and reads the count. One sees the other.
                heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
            }
            if self.idle.count() == 0 {
                return;
            }
        }
        self.wake_spinner();
    }

    #[cold]
    fn wake_spinner(&self) {
        if !self.spinning.try_be_first() {
            return;
        }
        let mut locked = self.lock.lock();
        let Some(id) = locked.idle_ps.take(&self.idle) else {
            return self.spinning.withdraw();
        };
        drop(locked);
        self.stats.wake_ups.add_shared(1);
        self.start_m(self.p(id), Start::Spinning);
    }

    /// Gives `pp` to an M that sleeps, or has one made.
    #[doc(alias = "startm")]
    pub(crate) fn start_m(&self, pp: &P, start: Start) {
        let mut locked = self.lock.lock();
        let Some(m) = locked.idle_ms.pop() else {
            locked.orphans.push(pp.id, start);
            drop(locked);
            return self.helper.ask();
        };
        drop(locked);
        // SAFETY: an idle M is alive and, off the list, this thread's to wake.
        unsafe { self.hand_over(m, pp, start) };
    }

    /// Wakes `m` with `pp`.
    ///
    /// # Safety
    /// `m` sleeps, or is about to, and nobody else can wake it.
    pub(crate) unsafe fn hand_over(&self, m: NonNull<M>, pp: &P, start: Start) {
        // SAFETY: by the caller's promise.
        let m = unsafe { m.as_ref() };
        if start == Start::Spinning && !pp.is_empty() {
            heist_core::throw!("hand_over: P{} has work for a spinning M", pp.id);
        }
        m.next_p.set(pp);
        m.wake_spinning.set(start == Start::Spinning);
        self.stats.m_unparks.add_shared(1);
        m.note.wake(&Kernel);
    }
}

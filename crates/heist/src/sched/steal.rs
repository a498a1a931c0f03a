//! Robbing other Ps.
//!
//! GO: proc.go stealWork.

use super::Sched;
use super::find_runnable::{Found, Next, next_local, take_batch};
use crate::gmp::{G, M, P};
use crate::sys::clock;
use heist_core::m_word::Place;
use heist_core::policy::{self, RunNextTheft};
use heist_core::run_queue::{RunNext, Stolen};
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// A pass over the other Ps.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Pass {
    Early,
    /// This one also runs timers and may take `run_next`.
    Last,
}

/// Whether somebody runs with this P and so may be about to run its `run_next`. Who is in a blocking
/// call will not soon.
pub(super) fn is_running(pp: &P) -> bool {
    // SAFETY: an M lives as long as its runtime.
    unsafe { pp.m().as_ref() }.is_some_and(|m| m.word.stamp().place() != Place::Blocked)
}

impl Sched {
    /// Looks for work at the other Ps, if not enough Ms do so already.
    pub(crate) fn steal_work(&self, m: &M) -> Found {
        if !m.spinning.get() {
            if !policy::may_spin(self.spinning.n(), self.common_procs(), self.idle.count()) {
                return Found::Nothing;
            }
            self.become_spinning(m);
        }
        let steal = &self.config.steal;
        let mut timer_ran = false;
        for attempt in 1..=steal.tries {
            let pass = if attempt == steal.tries { Pass::Last } else { Pass::Early };
            match self.steal_once(m, pass, &mut timer_ran) {
                Found::Nothing if self.global_len().get() != 0 => return Found::Retry,
                Found::Nothing => {}
                found => return found,
            }
        }
        // Whom it woke may be anywhere.
        if timer_ran { Found::Retry } else { Found::Nothing }
    }

    /// One visit to every other P. Those at rest have no goroutines, but may have timers.
    fn steal_once(&self, m: &M, pass: Pass, timer_ran: &mut bool) -> Found {
        let pp = m.p();
        // SAFETY: this M holds its P, and no other reference to its data is alive.
        let seed = unsafe { pp.local() }.rng.next_u32();
        let run_next = match self.config.steal.run_next {
            RunNextTheft::LastTry if pass == Pass::Last => RunNext::Take,
            _ => RunNext::Leave,
        };
        // SAFETY: this M holds its P.
        for id in unsafe { self.steal_order() }.walk(self.config.steal.order, seed) {
            if self.stop.pending() {
                return Found::Retry;
            }
            if id == pp.id {
                continue;
            }
            if pass == Pass::Last && self.steal_timers(m, id) {
                *timer_ran = true;
                if let Some(next) = next_local(m) {
                    return Found::Run(next);
                }
            }
            if !self.idle.idle.contains(id)
                && let Some(gp) = self.rob(m, id, run_next)
            {
                return Found::Run(Next::fresh(gp));
            }
        }
        Found::Nothing
    }

    /// Runs what is due at another P. True if that woke somebody.
    fn steal_timers(&self, m: &M, victim: u32) -> bool {
        let pp = self.p(victim);
        self.idle.timers.contains(victim)
            && pp.timers.earliest() != NEVER
            && self.run_timers_of(m, pp)
    }

    fn rob(&self, m: &M, victim: u32, run_next: RunNext) -> Option<NonNull<G>> {
        self.rob_ring(m, victim, run_next).or_else(|| self.rob_yielded(m, victim))
    }

    /// Takes a share of the ring of another P, or its `run_next`.
    pub(super) fn rob_ring(&self, m: &M, victim: u32, run_next: RunNext) -> Option<NonNull<G>> {
        let pp = m.p();
        pp.stats.steal_attempts.bump();
        let back_off = || self.leaves_its_next(self.p(victim));
        // SAFETY: this M holds its P.
        let own = unsafe { pp.owner() };
        let stolen = self.p(victim).queue.thief().steal_into(
            &own,
            self.config.steal.share,
            run_next,
            back_off,
        );
        let (gp, n) = match stolen {
            Stolen::Nothing => return None,
            Stolen::Batch { run, n } => (run, n),
            Stolen::RunNext(gp) => {
                pp.stats.stolen_run_next.bump();
                (gp, 1)
            }
        };
        pp.stats.steals.bump();
        pp.stats.stolen.add(n.into());
        Some(gp)
    }

    /// Takes a share of what yielded at another P.
    fn rob_yielded(&self, m: &M, victim: u32) -> Option<NonNull<G>> {
        let yielded = &self.p(victim).yielded;
        let n = self.config.steal.share.of(yielded.len()).min(policy::GLOBAL_BATCH_MAX);
        if n == 0 {
            return None;
        }
        let mut batch = yielded.take(n);
        let stats = &m.p().stats;
        stats.steals.bump_if(!batch.is_empty());
        stats.stolen.add(batch.len().into());
        take_batch(m, &mut batch).map(|next| next.gp)
    }

    /// Counts `m` among those who look for work.
    #[doc(alias = "becomeSpinning")]
    pub(crate) fn become_spinning(&self, m: &M) {
        self.begin_spin(m);
        self.spinning.start();
        m.p().stats.spins.bump();
    }

    /// `m` looks for work from now on, and is counted.
    pub(crate) fn begin_spin(&self, m: &M) {
        m.spinning.set(true);
        m.spins_since_ns.set(clock::now_ns());
        m.readied_before.set(self.n_readied());
    }

    /// If `m` looks for work, it does no longer.
    pub(crate) fn end_spin(&self, m: &M) -> bool {
        let was_spinning = m.spinning.replace(false);
        if was_spinning {
            self.spinning.stop();
            self.stats.spin_ns.add_shared(clock::now_ns() - m.spins_since_ns.get());
        }
        was_spinning
    }

    /// A spinner found work: if it was the last, somebody else must look in its place.
    #[doc(alias = "resetspinning")]
    pub(crate) fn stop_spinning(&self, m: &M) {
        self.end_spin(m);
        // There may be more where this came from.
        self.wake_p();
    }
}

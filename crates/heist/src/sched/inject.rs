//! Queueing goroutines that became ready together: what timers and the poller found.
//!
//! Work for several comes at once, so several are woken at once. Leaving it to the chain of
//! spinners, each of whom wakes the next, would take as many wake-ups one after the other as there
//! are processors at rest.
//!
//! What was found without a P has waited for somebody to look: it goes to the urgent part of the
//! global queue (docs/design/timers.md), where Go uses the tail.
//!
//! GO: proc.go injectglist.

use super::Sched;
use super::park;
use super::wake::Start;
use crate::gmp::M;
use crate::gmp::g::{self, G};
use heist_core::list::List;
use heist_core::policy;
use heist_core::run_queue::Slot;
use heist_core::sync::{Ordering, fence};

impl Sched {
    /// Queues goroutines that timers woke, at this P: the first runs next.
    pub(crate) fn queue_woken(&self, m: &M, mut woken: List<G>) {
        if woken.is_empty() {
            return;
        }
        self.bear(&woken);
        m.p().stats.readied.add(woken.len().into());
        let mut slot = Slot::Next;
        for _ in 0..policy::RING_CAPACITY / 2 {
            let Some(gp) = woken.pop_front() else { break };
            // SAFETY: just claimed, and in no queue but the list it was taken from.
            unsafe { park::push_local(m, gp, slot) };
            slot = Slot::Tail;
        }
        let mut rest = self.sort_out(woken);
        if !rest.is_empty() {
            m.p().stats.global_put.add(rest.len().into());
            self.lock.lock().global.append(self.global_len(), &mut rest);
        }
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        fence(Ordering::SeqCst);
        self.wake_p();
    }

    /// Queues goroutines that the poller found: one for each P at rest into the global queue, with
    /// an M to fetch it, the others here.
    #[doc(alias = "injectglist")]
    pub(crate) fn inject(&self, m: &M, woken: List<G>) {
        if woken.is_empty() {
            return;
        }
        let pp = m.p();
        if pp.is_reserved {
            return self.inject_without_p(woken);
        }
        self.bear(&woken);
        pp.stats.readied.add(woken.len().into());
        woken.iter().for_each(|gp| self.maybe_sample(m, gp));
        let mut local = self.sort_out(woken);
        let mut shared = local.split_front(self.idle.count());
        let n_shared = shared.len();
        if n_shared != 0 {
            pp.stats.global_put.add(n_shared.into());
            self.lock.lock().global.append(self.global_len(), &mut shared);
            self.start_idle(n_shared);
        }
        // SAFETY: this M holds its P.
        unsafe { pp.owner() }.push_batch(&mut local);
        if !local.is_empty() {
            pp.stats.overflows.bump();
            pp.stats.global_put.add(local.len().into());
            self.lock.lock().global.append(self.global_len(), &mut local);
        }
        // A P may have come to rest since.
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        fence(Ordering::SeqCst);
        self.wake_p();
    }

    /// Queues them without a P: they go to the front of the global queue, and as many Ms are
    /// started as there are Ps for.
    pub(crate) fn inject_without_p(&self, woken: List<G>) {
        if woken.is_empty() {
            return;
        }
        self.bear(&woken);
        self.stats.readied.add_shared(woken.len().into());
        let mut urgent = self.sort_out(woken);
        let n = urgent.len();
        self.stats.global_put.add_shared(n.into());
        self.lock.lock().global.append_urgent(self.global_len(), &mut urgent);
        // ORDERING: the submitter's fence of `heist_core::spinning`: the count below is read after
        // the goroutines are there.
        fence(Ordering::SeqCst);
        if self.start_idle(n.min(self.idle.count())) == 0 {
            self.wake_p();
        }
    }

    /// Starts an M on each of at most `n` Ps at rest, and answers how many that were. They are not
    /// counted as spinners: there is work for each.
    fn start_idle(&self, n: u32) -> u32 {
        for started in 0..n {
            let Some(id) = self.lock.lock().idle_ps.take(&self.idle) else { return started };
            self.bell.ring();
            self.stats.wake_ups.add_shared(1);
            self.start_m(self.p(id), Start::Working);
        }
        n
    }

    /// Queues those of other classes where they belong, and hands back the rest.
    fn sort_out(&self, mut woken: List<G>) -> List<G> {
        let mut normal = List::new();
        while let Some(gp) = woken.pop_front() {
            // SAFETY: just claimed, so it is valid, and it is in no queue.
            unsafe {
                if gp.as_ref().is_classed() {
                    self.push_by_class(gp);
                } else {
                    normal.push_back(gp);
                }
            }
        }
        normal
    }

    /// Counts goroutines whose life begins with this wake-up.
    fn bear(&self, woken: &List<G>) {
        for gp in woken.iter() {
            self.bear_one(gp);
        }
    }

    /// As `bear`, for one that the caller has claimed.
    pub(crate) fn bear_one(&self, gp: &G) {
        if gp.has_flag(g::UNBORN) {
            gp.clear_flag(g::UNBORN);
            // Counted as alive before it is no longer counted as unborn: who waits until there is
            // nobody left must not look in between.
            self.stats.created.add_shared(1);
            // ORDERING: Release pairs with the reader's fence in `n_live`.
            self.unborn.fetch_sub(1, heist_core::sync::Ordering::Release);
        }
    }
}

//! Stealing from other Ps, as `sched/run/steal.rs` does it, and what could replace it.

use super::{After, Sim};
use crate::machines::{Scan, Todo};
use crate::queues::Theft;
use crate::stats::Spent;
use crate::tuning::{Shape, Take, Victims};
use heist_core::policy::{self, RunNextTheft};
use heist_core::run_queue::RunNext;

/// Visits that cost something, in one step. Thieves and owners take turns after so many.
const VISITS_PER_STEP: u32 = 4;

/// The result of a visit to a P.
enum Visit {
    Found(Theft),
    Nothing,
    /// Its `run_next` may be taken after a back-off.
    BackOff,
}

impl Sim<'_> {
    /// Searches the other Ps, unless the policy or the number of searchers forbids it.
    pub(super) fn search_others(&mut self, m: u32) -> After {
        let p = self.p_of(m);
        let tuning = &self.config.tuning;
        if self.idle.is_reserved(p) || !tuning.balance.searches() {
            return self.then(m, Todo::Descend);
        }
        if !self.ms[m as usize].spinning {
            let n_spinning = self.spinning.n();
            if !tuning.may_spin(n_spinning, self.common_procs(), self.idle.count()) {
                return self.then(m, Todo::Descend);
            }
            self.become_spinning(m);
        }
        let scan = self.scan(p, 1, false);
        self.then(m, Todo::Steal(scan))
    }

    fn scan(&mut self, p: u32, attempt: u32, timer_ran: bool) -> Scan {
        let seed = self.ps[p as usize].rng.next_u32();
        let walk = self.order.walk(self.config.tuning.steal.order, seed);
        Scan { attempt, walk, near: true, timer_ran }
    }

    /// Visits a few Ps.
    pub(super) fn steal_some(&mut self, m: u32, mut scan: Scan) -> After {
        if let Victims::TwoChoices(rounds) = self.config.tuning.victims {
            return self.choose_of_two(m, scan, rounds);
        }
        let p = self.p_of(m);
        let is_last = scan.attempt == self.config.tuning.steal.tries;
        let mut visits = 0;
        while visits < VISITS_PER_STEP {
            let Some(victim) = scan.walk.next() else {
                return self.end_pass(m, scan);
            };
            if victim == p || self.is_of_other_round(p, victim, &scan) {
                continue;
            }
            if is_last && self.has_due_timer(victim) {
                scan.timer_ran = true;
                self.run_timers_of(m, victim);
                if let Some((g, inherits)) = self.next_local(p) {
                    return self.execute(m, g, inherits);
                }
            }
            if self.is_skipped(victim, is_last) {
                continue;
            }
            visits += 1;
            match self.visit(p, victim, is_last) {
                Visit::Found(theft) => return self.execute_stolen(m, victim, theft),
                Visit::BackOff => return self.back_off(m, scan, victim),
                Visit::Nothing => {}
            }
        }
        self.then(m, Todo::Steal(scan))
    }

    /// Whether the other round of a walk in two rounds visits this P.
    fn is_of_other_round(&self, p: u32, victim: u32, scan: &Scan) -> bool {
        self.config.tuning.victims == Victims::NodeFirst && self.same_node(p, victim) != scan.near
    }

    /// Whether a thief passes a P by without touching it.
    fn is_skipped(&mut self, victim: u32, is_last: bool) -> bool {
        if self.idle.idle.contains(victim) {
            self.spend(Spent::Search, self.config.costs.mask());
            return true;
        }
        self.config.tuning.victims == Victims::WorkMask
            && !self.can_steal_ring(victim)
            && !(is_last && self.can_steal_next(victim))
    }

    fn end_pass(&mut self, m: u32, mut scan: Scan) -> After {
        let p = self.p_of(m);
        match self.config.tuning.victims {
            Victims::NodeFirst if scan.near => {
                scan.near = false;
                let seed = self.ps[p as usize].rng.next_u32();
                scan.walk = self.order.walk(self.config.tuning.steal.order, seed);
                return self.then(m, Todo::Steal(scan));
            }
            // The summary, which any owner may have changed.
            Victims::WorkMask => self.spend(Spent::Search, self.config.costs.look()),
            _ => {}
        }
        if self.queues.global_len() != 0 {
            return self.then(m, Todo::Find);
        }
        if scan.attempt < self.config.tuning.steal.tries {
            let scan = self.scan(p, scan.attempt + 1, scan.timer_ran);
            return self.then(m, Todo::Steal(scan));
        }
        self.give_up(m, scan.timer_ran)
    }

    /// The longer of two random rings; as many times as the policy says.
    fn choose_of_two(&mut self, m: u32, mut scan: Scan, rounds: u32) -> After {
        let p = self.p_of(m);
        if scan.attempt > rounds {
            return if self.queues.global_len() != 0 {
                self.then(m, Todo::Find)
            } else {
                self.give_up(m, scan.timer_ran)
            };
        }
        let is_last = scan.attempt == rounds;
        scan.attempt += 1;
        let procs = self.config.procs;
        let two = [(); 2].map(|()| self.ps[p as usize].rng.below(procs));
        let victim = if self.queues.ring_len(two[0]) >= self.queues.ring_len(two[1]) {
            two[0]
        } else {
            two[1]
        };
        // Both lengths are read; the visit counts the second reading.
        self.report.counts.steal_attempts += 1;
        self.spend(Spent::Search, self.config.costs.look());
        if victim == p || self.idle.idle.contains(victim) {
            self.report.counts.steal_attempts += 1;
            return self.then(m, Todo::Steal(scan));
        }
        match self.visit(p, victim, is_last) {
            Visit::Found(theft) => self.execute_stolen(m, victim, theft),
            Visit::BackOff => self.back_off(m, scan, victim),
            Visit::Nothing => self.then(m, Todo::Steal(scan)),
        }
    }

    fn give_up(&mut self, m: u32, timer_ran: bool) -> After {
        if timer_ran {
            return self.then(m, Todo::Find);
        }
        let machine = &mut self.ms[m as usize];
        if self.config.tuning.lingers && !std::mem::replace(&mut machine.lingered, true) {
            let linger_ns = self.linger_ns.max(self.config.tuning.linger_min_ns);
            let until_ns = self.now_ns + self.step_ns + linger_ns;
            return self.then(m, Todo::Linger(until_ns));
        }
        self.then(m, Todo::Descend)
    }

    /// Visits a P that is not idle.
    fn visit(&mut self, p: u32, victim: u32, is_last: bool) -> Visit {
        self.report.counts.steal_attempts += 1;
        let near = self.same_node(p, victim);
        let look_ns = self.config.topology.far(self.config.costs.look(), near);
        self.spend(Spent::Search, look_ns);
        self.ps[victim as usize].disturbed = true;
        if is_last && self.can_steal_next(victim) && self.is_running(victim) {
            return Visit::BackOff;
        }
        match self.steal_from(p, victim, is_last, true) {
            Some(theft) => Visit::Found(theft),
            None => Visit::Nothing,
        }
    }

    fn steal_from(&mut self, p: u32, victim: u32, is_last: bool, takes: bool) -> Option<Theft> {
        let tuning = self.config.tuning;
        let len = self.queues.ring_len(victim);
        let exact = match (tuning.shape, tuning.take) {
            (Shape::Blocks(size), _) => (len != 0).then_some(if len > size { size } else { 0 }),
            (Shape::Ring, Take::Policy) => None,
            (Shape::Ring, Take::One) => (len != 0).then_some(1),
            (Shape::Ring, Take::Quarter) => (len != 0).then_some(len.div_ceil(4)),
            (Shape::Ring, Take::All) => (len != 0).then_some(len),
        };
        let theft = if let Some(n) = exact {
            self.queues.steal_oldest(p, victim, n)
        } else {
            let takes_next = is_last && tuning.steal.run_next == RunNextTheft::LastTry;
            let run_next = if takes_next { RunNext::Take } else { RunNext::Leave };
            self.queues.steal(p, victim, tuning.steal.share, run_next, takes)
        };
        theft.or_else(|| self.queues.steal_yielded(p, victim, tuning.steal.share))
    }

    /// Waits before it takes the `run_next` of a P: the owner is most likely about to run it.
    fn back_off(&mut self, m: u32, scan: Scan, victim: u32) -> After {
        self.spend(Spent::Search, policy::RUN_NEXT_BACK_OFF_NS);
        let executed = self.ps[victim as usize].executed;
        self.then(m, Todo::BackOff(scan, victim, executed))
    }

    /// Takes the `run_next` of a P that has run nothing during the back-off.
    pub(super) fn steal_next(&mut self, m: u32, scan: Scan, victim: u32, executed: u64) -> After {
        let takes = self.ps[victim as usize].executed == executed && self.queues.has_next(victim);
        match self.steal_from(self.p_of(m), victim, true, takes) {
            Some(theft) => self.execute_stolen(m, victim, theft),
            None => self.then(m, Todo::Steal(scan)),
        }
    }

    fn execute_stolen(&mut self, m: u32, victim: u32, theft: Theft) -> After {
        let near = self.same_node(self.p_of(m), victim);
        let counts = &mut self.report.counts;
        counts.steals += 1;
        counts.stolen += u64::from(theft.n);
        counts.stolen_run_next += u64::from(theft.was_next);
        counts.remote_steals += u64::from(!near);
        let costs = &self.config.costs;
        let ns = costs.theft() + u64::from(theft.n) * costs.stolen();
        self.spend(Spent::Search, self.config.topology.far(ns, near));
        self.execute(m, theft.run, false)
    }

    /// Whether an M holds this P and may be about to run its `run_next`.
    pub(super) fn is_running(&self, p: u32) -> bool {
        let m = self.ps[p as usize].m;
        m.is_some_and(|m| self.ms[m as usize].blocked_since_ns.is_none())
    }

    /// Whether a thief may take `run_next` of this P now: that is, if its ring is empty.
    fn can_steal_next(&self, p: u32) -> bool {
        self.config.tuning.steal.run_next == RunNextTheft::LastTry
            && self.queues.ring_is_empty(p)
            && self.queues.has_next(p)
    }

    /// Whether a thief could take something other than `run_next` from a busy P.
    pub(super) fn can_steal_ring(&self, p: u32) -> bool {
        let tuning = &self.config.tuning;
        let share = tuning.steal.share;
        match (tuning.shape, tuning.take) {
            (Shape::Blocks(size), _) => {
                self.queues.ring_len(p) > size || share.of(self.queues.yielded_len(p)) != 0
            }
            (Shape::Ring, Take::Policy) => self.queues.has_stealable_ring(p, share),
            (Shape::Ring, _) => {
                !self.queues.ring_is_empty(p) || share.of(self.queues.yielded_len(p)) != 0
            }
        }
    }

    /// Whether a thief could take something from a busy P.
    pub(super) fn can_steal(&self, p: u32) -> bool {
        let tuning = &self.config.tuning;
        if tuning.shape == Shape::Ring && tuning.take == Take::Policy {
            return self.queues.has_stealable(p, &tuning.steal);
        }
        self.can_steal_ring(p) || self.can_steal_next(p)
    }
}

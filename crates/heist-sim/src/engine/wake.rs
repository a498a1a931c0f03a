//! Wakes Ms for work, as `sched/rest/wake.rs` does it.

use super::Sim;
use crate::events::{Event, Kind};
use crate::machines::{Machine, Todo};
use crate::stats::Spent;
use heist_core::global_queue::Lane;
use heist_core::policy::balance::Placement;
use heist_core::run_queue::Slot;

/// Whether an M starts as a spinner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Start {
    /// It spins; the caller has counted it already.
    Spinning,
    /// There is work for it.
    Working,
}

impl Sim<'_> {
    /// Wakes one M as a spinner, if there is an idle P and no M spins.
    pub(super) fn wake_p(&mut self) {
        if !self.config.tuning.balance.searches() || self.spinning.n() != 0 {
            return;
        }
        if self.idle.count() == 0 {
            return self.spinning.request();
        }
        if !self.spinning.try_be_first() {
            return;
        }
        self.lock(0);
        let Some(p) = self.idle_ps.take(&self.idle) else {
            return self.spinning.withdraw();
        };
        self.report.counts.wake_ups += 1;
        self.start_m(p, Start::Spinning);
    }

    /// Wakes an M after a push into the `run_next` of a P; not if an M watches and the goroutine is
    /// alone.
    pub(super) fn wake_p_for_next(&mut self, p: u32) {
        if self.watch.is_on() && self.queues.ring_is_empty(p) {
            return;
        }
        self.wake_p();
    }

    /// Starts an M on each of at most `n` idle Ps, and returns their number.
    pub(super) fn start_idle(&mut self, n: u32) -> u32 {
        for started in 0..n {
            self.lock(0);
            let Some(p) = self.idle_ps.take(&self.idle) else { return started };
            self.report.counts.wake_ups += 1;
            self.start_m(p, Start::Working);
        }
        n
    }

    /// Gives a P, which was just taken off the idle stack or from an M, to an idle M or to a new
    /// one.
    pub(super) fn start_m(&mut self, p: u32, start: Start) {
        self.no_longer_idle(p);
        self.spend(Spent::Kernel, self.config.costs.unpark());
        let (m, delay_ns) = match self.idle_ms.pop() {
            Some(m) => (m, self.config.costs.wake_latency()),
            None => {
                let m = self.ms.len() as u32;
                self.ms.push(Machine::new());
                self.idle_ms.admit(m);
                (m, self.config.costs.new_thread())
            }
        };
        self.hold(m, p);
        if start == Start::Spinning {
            self.begin_spin(m);
        }
        self.start_thread(m, delay_ns, Todo::Begin);
    }

    /// Notes that an M holds a P.
    pub(super) fn hold(&mut self, m: u32, p: u32) {
        self.ms[m as usize].p = Some(p);
        self.ps[p as usize].m = Some(m);
    }

    /// Puts a P into the list of those that are not idle.
    pub(super) fn no_longer_idle(&mut self, p: u32) {
        if self.ps[p as usize].place == usize::MAX {
            self.ps[p as usize].place = self.busy.len();
            self.busy.push(p);
        }
    }

    /// Makes a P idle.
    pub(super) fn put_idle(&mut self, p: u32) {
        let place = std::mem::replace(&mut self.ps[p as usize].place, usize::MAX);
        self.busy.swap_remove(place);
        if let Some(&moved) = self.busy.get(place) {
            self.ps[moved as usize].place = place;
        }
        let has_timers = !self.ps[p as usize].timers.is_empty();
        self.idle_ps.put(&self.idle, p, has_timers);
        for late in std::mem::take(&mut self.late_timers) {
            self.calendar.plan(self.now_ns, Event::new(Kind::Timer, late, 0));
        }
    }

    /// Makes a goroutine runnable at a P.
    pub(super) fn ready(&mut self, p: u32, g: u32) {
        self.report.counts.readied += 1;
        self.gs[g as usize].readied_ns = self.now_ns + self.step_ns;
        if self.is_classed(g) || self.idle.is_reserved(p) {
            return self.push_by_class(g);
        }
        match self.config.tuning.balance.place(self.idle.count()) {
            Placement::Here => {
                self.push_local(p, g, Slot::Next);
                self.wake_p_for_next(p);
            }
            Placement::IdleP => self.share(g),
        }
    }

    /// Queues a goroutine at an idle P, and wakes an M for it.
    fn share(&mut self, g: u32) {
        self.lock(0);
        let to = self.idle_ps.take(&self.idle).expect("a P is idle");
        self.spend(Spent::Schedule, self.config.costs.look());
        self.push_local(to, g, Slot::Next);
        self.report.counts.shared += 1;
        self.report.counts.wake_ups += 1;
        self.start_m(to, Start::Working);
    }

    /// Queues a goroutine at a P. If the ring is full, half of it goes to the global queue.
    pub(super) fn push_local(&mut self, p: u32, g: u32, slot: Slot) {
        let moved = self.queues.push(p, g, slot, self.config.tuning.ring);
        if moved != 0 {
            self.report.counts.overflows += 1;
            self.report.counts.global_put += u64::from(moved);
            let shard = self.queues.shard_of(p);
            self.lock(shard);
        }
    }

    /// Queues a goroutine that a thread without a P made runnable.
    pub(super) fn inject(&mut self, g: u32, lane: Lane) {
        self.report.counts.readied += 1;
        self.report.counts.global_put += 1;
        self.gs[g as usize].readied_ns = self.now_ns;
        let shard = self.rng.below(self.queues.n_shards() as u32) as usize;
        self.queues.push_global(shard, lane, g);
    }
}

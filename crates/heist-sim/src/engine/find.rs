//! The search for the next goroutine, as `sched/run/find.rs` and `sched/run/execute.rs` do it.

use super::{After, Sim};
use crate::machines::Todo;
use crate::stats::Spent;
use crate::tuning::{Chain, Shape};

impl Sim<'_> {
    /// Looks near: the own queue and the global one, in the order of `find_with_p`.
    pub(super) fn find(&mut self, m: u32) -> After {
        let p = self.p_of(m);
        self.spend(Spent::Schedule, self.config.costs.find());
        self.run_own_timers(m);
        let near = if self.idle.is_reserved(p) {
            self.next_latency().map(|g| (g, false))
        } else {
            self.urgent(p)
                .or_else(|| self.global_in_turn(p))
                .map(|g| (g, false))
                .or_else(|| self.next_local(p))
                .or_else(|| self.next_global(p).map(|g| (g, false)))
        };
        match near {
            Some((g, inherits)) => self.execute(m, g, inherits),
            None => self.search_others(m),
        }
    }

    fn urgent(&mut self, p: u32) -> Option<u32> {
        let shard = (0..self.queues.n_shards()).find(|&at| self.queues.global(at).urgent() != 0)?;
        let processor = &mut self.ps[p as usize];
        if !processor.streak.continues(processor.tick) {
            return None;
        }
        self.lock(shard);
        let g = self.queues.pop_urgent(shard);
        self.report.counts.global_taken += u64::from(g.is_some());
        g
    }

    fn global_in_turn(&mut self, p: u32) -> Option<u32> {
        if !self.config.tuning.global_first(self.ps[p as usize].tick) {
            return None;
        }
        let shard = self.shard_with_work(p);
        let first = match shard {
            Some(shard) => {
                self.lock(shard);
                self.queues.pop_global(shard)
            }
            None => self.queues.pop_yielded(p),
        };
        self.report.counts.global_taken += u64::from(first.is_some());
        first
    }

    /// The part of the global queue from which a P takes: its own, or the next that has something.
    fn shard_with_work(&self, p: u32) -> Option<usize> {
        let (own, n) = (self.queues.shard_of(p), self.queues.n_shards());
        (0..n).map(|step| (own + step) % n).find(|&shard| self.queues.global(shard).get() != 0)
    }

    /// Takes from the own queue. What that costs depends on its shape, and on the thieves.
    pub(super) fn next_local(&mut self, p: u32) -> Option<(u32, bool)> {
        let popped = self.queues.pop(p)?;
        let look_ns = self.config.costs.look();
        let processor = &mut self.ps[p as usize];
        let disturbed = std::mem::take(&mut processor.disturbed);
        processor.n_ops = processor.n_ops.wrapping_add(1);
        let pays = match self.config.tuning.shape {
            Shape::Ring => disturbed,
            // A new block is entered by an atomic operation on its words.
            Shape::Blocks(size) => disturbed && processor.n_ops.is_multiple_of(size),
        };
        if pays {
            self.spend(Spent::Schedule, look_ns);
        }
        Some(popped)
    }

    /// Takes a fair share of the global queue, or of those that yielded here.
    pub(super) fn next_global(&mut self, p: u32) -> Option<u32> {
        let shard = match self.shard_with_work(p) {
            Some(shard) => {
                self.lock(shard);
                shard
            }
            None if self.queues.yielded_len(p) != 0 => self.queues.shard_of(p),
            None => return None,
        };
        let (g, n) = self.queues.take_batch(p, shard)?;
        self.report.counts.global_taken += u64::from(n);
        Some(g)
    }

    /// Runs a goroutine that was found.
    pub(super) fn execute(&mut self, m: u32, g: u32, inherits: bool) -> After {
        let p = self.p_of(m);
        if self.ms[m as usize].spinning {
            self.end_spin(m);
            let more = || {
                self.queues.global_len() != 0
                    || !self.queues.ring_is_empty(p)
                    || self.queues.has_next(p)
            };
            if self.config.tuning.chain == Chain::Always || more() {
                self.wake_p();
            }
        }
        self.report.counts.executed += 1;
        self.settle(p, g);
        let now_ns = self.now_ns + self.step_ns;
        let processor = &mut self.ps[p as usize];
        if !inherits {
            processor.tick = processor.tick.wrapping_add(1);
            processor.slice_from_ns = now_ns;
        }
        processor.executed += 1;
        if self.report.counts.finished >= self.config.warm_up {
            self.report.waits.record(now_ns - self.gs[g as usize].readied_ns.min(now_ns));
        }
        self.spend(Spent::Schedule, self.config.costs.switch());
        self.ms[m as usize].g = Some(g);
        self.then(m, Todo::Run)
    }

    /// Notes where a goroutine runs. If it ran elsewhere before, its lines come from there.
    fn settle(&mut self, p: u32, g: u32) {
        let node = self.ps[p as usize].node;
        let last_p = self.gs[g as usize].last_p.replace(p);
        if let Some(last_p) = last_p.filter(|&last_p| last_p != p) {
            self.report.counts.migrations += 1;
            let near = self.same_node(p, last_p);
            let ns = self.config.topology.far(self.config.costs.migrate(), near);
            self.spend(Spent::Schedule, ns);
        }
        let home = *self.gs[g as usize].home.get_or_insert(node);
        self.report.counts.away += u64::from(home != node);
    }
}

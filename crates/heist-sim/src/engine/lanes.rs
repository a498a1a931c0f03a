//! The latency class, as `sched/run/lanes.rs` serves it, and a controller that could help.

use super::wake::Start;
use super::{After, Sim};
use crate::events::{Event, Kind};
use crate::machines::Todo;
use crate::stats::Spent;
use crate::tuning::Control;
use crate::workload::Class;
use heist_core::global_queue::Lane;

impl Sim<'_> {
    pub(super) fn is_classed(&self, g: u32) -> bool {
        self.gs[g as usize].task.class == Class::Latency
    }

    /// Queues a goroutine in the lane of its class, and wakes an M for it.
    pub(super) fn push_by_class(&mut self, g: u32) {
        let latency = self.is_classed(g);
        let lane = if latency { Lane::Latency } else { Lane::Normal };
        self.lock(0);
        self.queues.push_global(0, lane, g);
        if latency && self.config.tuning.control != Control::Off {
            self.latency_since_ns.push_back(self.now_ns);
        }
        self.report.counts.global_put += 1;
        let reserved = if latency { self.idle_ps.take_reserved(&self.idle) } else { None };
        if let Some(p) = reserved {
            self.report.counts.wake_ups += 1;
            return self.start_m(p, Start::Working);
        }
        if self.config.tuning.balance.searches() {
            self.wake_p();
        } else {
            self.start_idle(self.idle.count().min(1));
        }
    }

    pub(super) fn next_latency(&mut self) -> Option<u32> {
        if self.queues.global(0).latency() == 0 {
            return None;
        }
        self.lock(0);
        let g = self.queues.pop_latency(0);
        self.report.counts.global_taken += u64::from(g.is_some());
        g
    }

    /// The controller: if a goroutine of the latency class has waited too long, one of another
    /// class is preempted for it.
    pub(super) fn control(&mut self) {
        let Control::Delay { period_ns, bound_ns } = self.config.tuning.control else { return };
        if self.queues.global(0).latency() != 0 && self.oldest_latency_ns() >= bound_ns {
            self.preempt_one();
        }
        if self.n_live() != 0 || self.arriving.is_some() {
            self.calendar.plan(self.now_ns + period_ns, Event::new(Kind::Control, 0, 0));
        }
    }

    /// How long the goroutine of the latency class that waits longest has waited. The lane is a
    /// queue, so the latest times are those of the goroutines that are in it.
    fn oldest_latency_ns(&mut self) -> u64 {
        let len = self.queues.global(0).latency() as usize;
        let gone = self.latency_since_ns.len() - len;
        self.latency_since_ns.drain(..gone);
        self.latency_since_ns.front().map_or(0, |since_ns| self.now_ns - since_ns)
    }

    /// Preempts a goroutine of another class that computes.
    fn preempt_one(&mut self) {
        let computes = |m: &u32| {
            let machine = &self.ms[*m as usize];
            let normal = machine.g.is_some_and(|g| !self.is_classed(g));
            normal && machine.on_cpu && matches!(machine.todo, Todo::Computed(_))
        };
        let holders = self.busy.iter().filter_map(|&p| self.ps[p as usize].m);
        let Some(m) = holders.filter(computes).min_by_key(|&m| {
            (std::cmp::Reverse(self.now_ns - self.ms[m as usize].step_from_ns), m)
        }) else {
            return;
        };
        let p = self.p_of(m);
        let machine = &mut self.ms[m as usize];
        let (Some(g), Todo::Computed(work_ns)) = (machine.g, &machine.todo) else { return };
        let (work_ns, wall_ns) = (*work_ns, self.now_ns - machine.step_from_ns);
        let percent = self.percent_at(p, g);
        let done_ns = (wall_ns * 100 / percent).min(work_ns);
        self.gs[g as usize].left_ns -= done_ns;
        // The rest of the step, which was counted as spent, does not happen.
        self.report.cpu_ns[Spent::Work as usize] -= (work_ns - done_ns) * percent / 100;
        self.report.counts.preemptions += 1;
        self.step_ns = self.config.costs.signal();
        self.report.cpu_ns[Spent::Kernel as usize] += self.step_ns;
        self.ms[m as usize].left_ns = 0;
        self.start_thread(m, 0, Todo::Preempted);
    }

    pub(super) fn preempted(&mut self, m: u32) -> After {
        let g = self.ms[m as usize].g.expect("a goroutine was preempted");
        if self.gs[g as usize].left_ns == 0 { self.then(m, Todo::Run) } else { self.yields(m) }
    }
}

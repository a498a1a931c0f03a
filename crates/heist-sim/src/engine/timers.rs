//! Sleeping goroutines, as `sched/outside/timers.rs` wakes them.
//!
//! The timers of a P are in its heap. Its own M runs them when it looks for work, thieves in their
//! last pass, and the M that waits in the poller if a P is idle. sysmon, which helps when every P
//! computes, is left out: then a timer waits for the end of a slice.

use super::{After, Sim};
use crate::events::{Event, Kind};
use crate::stats::Spent;
use heist_core::global_queue::Lane;
use heist_core::run_queue::Slot;
use heist_core::timer_heap::Entry;

impl Sim<'_> {
    pub(super) fn sleep(&mut self, m: u32, ns: u64) -> After {
        let p = self.p_of(m);
        let g = self.ms[m as usize].g.expect("a goroutine sleeps");
        let when = self.now_ns + ns;
        let timers = &mut self.ps[p as usize].timers;
        assert!(timers.push(Entry { when, what: u64::from(g) }), "a vector grows");
        self.calendar.plan(when, Event::new(Kind::Timer, p, 0));
        self.spend(Spent::Schedule, self.config.costs.timer());
        self.leave(m)
    }

    pub(super) fn has_due_timer(&self, p: u32) -> bool {
        self.idle.timers.contains(p) && self.ps[p as usize].timers.earliest() <= self.now_ns
    }

    fn pop_due(&mut self, p: u32) -> Option<u32> {
        let entry = self.ps[p as usize].timers.pop_due(self.now_ns)?;
        let g = entry.what as u32;
        let goroutine = &mut self.gs[g as usize];
        goroutine.request_ns = entry.when;
        goroutine.recorded = false;
        goroutine.readied_ns = self.now_ns;
        self.report.counts.readied += 1;
        Some(g)
    }

    /// Runs the timers of the M's own P.
    pub(super) fn run_own_timers(&mut self, m: u32) {
        let p = self.p_of(m);
        if self.ps[p as usize].timers.earliest() <= self.now_ns {
            self.run_timers_of(m, p);
        }
    }

    /// Runs the timers that are due at a P, and queues what they wake at that of the M.
    pub(super) fn run_timers_of(&mut self, m: u32, of: u32) {
        let p = self.p_of(m);
        let mut slot = Slot::Next;
        let mut woke = false;
        while let Some(g) = self.pop_due(of) {
            self.spend(Spent::Schedule, self.config.costs.timer());
            if self.is_classed(g) || self.idle.is_reserved(p) {
                self.push_by_class(g);
                continue;
            }
            self.push_local(p, g, slot);
            slot = Slot::Tail;
            woke = true;
        }
        if woke {
            self.wake_p();
        }
    }

    /// A timer is due. If a P is idle, an M waits for it in the poller, and wakes one for each.
    pub(super) fn timer_due(&mut self, p: u32) {
        if self.idle.count() == 0 {
            // The next M that gives its P back waits in the poller, and looks.
            return self.late_timers.push(p);
        }
        let mut n = 0;
        while let Some(g) = self.pop_due(p) {
            if self.is_classed(g) {
                self.push_by_class(g);
                continue;
            }
            // It is counted as readied already.
            self.report.counts.readied -= 1;
            self.inject(g, Lane::Urgent);
            n += 1;
        }
        let n_idle = self.idle.count();
        if n != 0 && self.start_idle(n.min(n_idle)) == 0 {
            self.wake_p();
        }
    }
}

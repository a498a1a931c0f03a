//! How an M goes to sleep, as `sched/rest/{descend, linger, watch, spin}.rs` do it.

use super::{After, Sim};
use crate::events::{Event, Kind};
use crate::machines::Todo;
use crate::stats::Spent;
use heist_core::policy;

/// The time between two looks of an M that lingers: eight pauses of about 14 ns each. Late in a
/// long linger the model looks less often, which makes it ten times as fast.
const LINGER_LOOK_NS: u64 = 110;
const LINGER_LOOK_MAX_NS: u64 = 2_000;

impl Sim<'_> {
    /// Makes an M a spinner, and counts it.
    pub(super) fn become_spinning(&mut self, m: u32) {
        self.begin_spin(m);
        self.spinning.start();
        self.report.counts.spins += 1;
    }

    /// Makes an M a spinner that is counted already.
    pub(super) fn begin_spin(&mut self, m: u32) {
        let machine = &mut self.ms[m as usize];
        machine.spinning = true;
        machine.readied_before = self.report.counts.readied;
    }

    /// Ends the spinning of an M. False if it did not spin.
    pub(super) fn end_spin(&mut self, m: u32) -> bool {
        let spun = std::mem::take(&mut self.ms[m as usize].spinning);
        if spun {
            self.spinning.stop();
        }
        spun
    }

    /// Looks from time to time whether work appears.
    pub(super) fn linger(&mut self, m: u32, until_ns: u64) -> After {
        if self.has_work_to_take() {
            return self.then(m, Todo::Find);
        }
        if self.now_ns >= until_ns {
            return self.then(m, Todo::Descend);
        }
        let look_ns = ((until_ns - self.now_ns) / 8).clamp(LINGER_LOOK_NS, LINGER_LOOK_MAX_NS);
        self.spend(Spent::Search, look_ns);
        self.then(m, Todo::Linger(until_ns))
    }

    fn has_work_to_take(&self) -> bool {
        self.queues.global_len() != 0 || self.busy.iter().any(|&p| self.can_steal(p))
    }

    fn has_stealable_ring(&self) -> bool {
        self.queues.global_len() != 0 || self.busy.iter().any(|&p| self.can_steal_ring(p))
    }

    /// Gives the P back, unless there is something in the global queue after all.
    pub(super) fn descend(&mut self, m: u32) -> After {
        let p = self.p_of(m);
        self.lock(0);
        self.ms[m as usize].lingered = false;
        if self.idle.is_reserved(p) {
            if self.queues.global(0).latency() != 0 {
                return self.then(m, Todo::Find);
            }
            self.give_p_back(m);
            return self.then(m, Todo::Park);
        }
        if self.queues.global_len() != 0
            && let Some(g) = self.next_global(p)
        {
            return self.execute(m, g, false);
        }
        let searches = self.config.tuning.balance.searches();
        if searches && !self.ms[m as usize].spinning && self.spinning.requested() {
            self.become_spinning(m);
            return self.then(m, Todo::Find);
        }
        self.give_p_back(m);
        let was_spinning = self.end_spin(m);
        if searches && (was_spinning || self.spinning.requested()) {
            return self.then(m, Todo::LastLook);
        }
        self.then(m, Todo::Park)
    }

    fn give_p_back(&mut self, m: u32) {
        let p = self.ms[m as usize].p.take().expect("an M that gives its P back has one");
        assert!(self.queues.is_empty(p), "P{p} is not empty");
        self.ps[p as usize].m = None;
        self.put_idle(p);
    }

    /// Looks through all queues after the P was given back.
    pub(super) fn look_once_more(&mut self, m: u32) -> After {
        let looks = self.busy.len() as u64;
        self.spend(Spent::Search, looks * self.config.costs.look());
        let watches = self.config.tuning.watches;
        if !self.has_stealable_ring() {
            let nothing = !self.busy.iter().any(|&p| self.can_steal(p));
            let readied = self.report.counts.readied - self.ms[m as usize].readied_before;
            let others_are_busy = readied >= policy::BUSY_MIN_READIED;
            if nothing && !(watches && others_are_busy) {
                return self.then(m, Todo::Park);
            }
            if watches {
                if !self.watch.begin() {
                    return self.then(m, Todo::Park);
                }
                return self.watch_nexts(m);
            }
        }
        self.search_again(m)
    }

    /// Takes an idle P, and spins.
    fn search_again(&mut self, m: u32) -> After {
        self.lock(0);
        let Some(p) = self.idle_ps.take(&self.idle) else {
            self.spinning.request();
            return self.then(m, Todo::Park);
        };
        self.no_longer_idle(p);
        self.hold(m, p);
        self.become_spinning(m);
        self.then(m, Todo::Find)
    }

    /// Notes which Ps have a goroutine in `run_next`, and looks again after a moment. The runtime
    /// looks at one after the other.
    fn watch_nexts(&mut self, m: u32) -> After {
        let nexts = self.busy.iter().filter(|&&p| self.queues.has_next(p));
        let nexts: Vec<_> = nexts.map(|&p| (p, self.ps[p as usize].executed)).collect();
        if !nexts.is_empty() {
            self.spend(Spent::Search, policy::RUN_NEXT_BACK_OFF_NS);
        }
        self.then(m, Todo::WatchLook(nexts))
    }

    /// Whether a goroutine has waited in a `run_next` meanwhile. If not, the M naps.
    pub(super) fn look_closer(&mut self, m: u32, nexts: &[(u32, u64)]) -> After {
        let waits = |&(p, executed): &(u32, u64)| {
            !self.idle.idle.contains(p)
                && self.queues.has_next(p)
                && (!self.is_running(p) || self.ps[p as usize].executed == executed)
        };
        if self.has_stealable_ring() || nexts.iter().any(waits) {
            self.watch.end();
            return self.search_again(m);
        }
        let machine = &mut self.ms[m as usize];
        machine.watching = true;
        machine.readied_before = self.report.counts.readied;
        machine.generation = machine.generation.wrapping_add(1);
        let event = Event::new(Kind::Nap, m, machine.generation);
        self.calendar.plan(self.now_ns + policy::WATCH_NS, event);
        self.report.cpu_ns[Spent::Kernel as usize] += self.config.costs.park();
        self.idle_ms.push(m);
        self.leave_cpu(m);
        After::Off
    }

    /// The nap of the watcher is over, unless another thread has woken it.
    pub(super) fn nap_over(&mut self, event: Event) {
        let m = event.id;
        let machine = &self.ms[m as usize];
        let is_current = Event::new(Kind::Nap, m, machine.generation) == event;
        if is_current && machine.watching && self.idle_ms.remove(m) {
            self.start_thread(m, 0, Todo::NapOver);
        }
    }

    pub(super) fn end_nap(&mut self, m: u32) -> After {
        let readied = self.report.counts.readied - self.ms[m as usize].readied_before;
        self.ms[m as usize].watching = false;
        self.watch.end();
        self.spend(Spent::Kernel, self.config.costs.park());
        if readied >= policy::WATCH_MIN_READIED && self.watch.begin() {
            return self.watch_nexts(m);
        }
        self.ms[m as usize].readied_before = self.report.counts.readied;
        self.then(m, Todo::LastLook)
    }

    /// Goes to sleep.
    pub(super) fn park_m(&mut self, m: u32) -> After {
        self.report.cpu_ns[Spent::Kernel as usize] += self.config.costs.park();
        self.report.counts.m_parks += 1;
        self.ms[m as usize].asleep_ns = self.now_ns;
        self.idle_ms.push(m);
        self.leave_cpu(m);
        After::Off
    }

    /// An M was woken with a P.
    pub(super) fn begin(&mut self, m: u32) -> After {
        let machine = &mut self.ms[m as usize];
        machine.lingered = false;
        if std::mem::take(&mut machine.watching) {
            self.watch.end();
            let reserved = self.idle.is_reserved(self.p_of(m));
            if !self.ms[m as usize].spinning && !reserved {
                self.become_spinning(m);
            }
        } else {
            let slept_ns = self.now_ns - self.ms[m as usize].asleep_ns;
            self.linger_ns = policy::next_linger(self.linger_ns, slept_ns);
        }
        self.find(m)
    }
}

//! Blocking calls, as `sched/stall/{blocking, retake}.rs` do them.
//!
//! sysmon is not a thread here: it looks at a call when its nap would be over. A goroutine whose P
//! was taken, and that finds none when it returns, is queued like others; the runtime keeps it with
//! its thread.

use super::wake::Start;
use super::{After, Sim};
use crate::events::{Event, Kind};
use crate::machines::Todo;
use crate::stats::Spent;
use crate::workload::Announced;
use heist_core::global_queue::Lane;
use heist_core::policy::sysmon::{HandOff, Offer, hand_off};
use heist_core::policy::{self, SYSCALL_MAX_NS, SYSMON_NAP_NS, SYSMON_NAP_WANTED_NS};

impl Sim<'_> {
    pub(super) fn enter_blocking(&mut self, m: u32, ns: u64, announced: Announced) -> After {
        let machine = &mut self.ms[m as usize];
        machine.blocked_since_ns = Some(self.now_ns);
        machine.generation = machine.generation.wrapping_add(1);
        let look_ns = match announced {
            Announced::Yes => SYSMON_NAP_NS,
            Announced::No => 2 * SYSMON_NAP_WANTED_NS,
        };
        let retake = Event::new(Kind::Retake, m, machine.generation);
        self.calendar.plan(self.now_ns + look_ns, retake);
        self.calendar.plan(self.now_ns + ns, Event::new(Kind::Unblock, m, 0));
        self.leave_cpu(m);
        After::Off
    }

    /// sysmon looks at an M in a blocking call, and takes its P if that is of use.
    pub(super) fn look_at_blocked(&mut self, event: Event) {
        let m = event.id;
        let machine = &self.ms[m as usize];
        let is_current = Event::new(Kind::Retake, m, machine.generation) == event;
        let (Some(since_ns), Some(p), true) = (machine.blocked_since_ns, machine.p, is_current)
        else {
            return;
        };
        let offer = Offer {
            has_work: self.queues.global_len() != 0 || !self.queues.is_empty(p),
            others_free: self.idle.count() != 0 || self.spinning.n() != 0,
            last_and_unattended: false,
        };
        let keeps = !offer.has_work && offer.others_free;
        if keeps && self.now_ns - since_ns < SYSCALL_MAX_NS {
            self.calendar.plan(self.now_ns + policy::SYSMON_NAP_PROGRESS_NS, event);
            return;
        }
        self.ms[m as usize].p = None;
        self.ps[p as usize].m = None;
        self.report.counts.retaken += 1;
        match hand_off(offer) {
            HandOff::Start => self.start_m(p, Start::Working),
            HandOff::Spin if self.can_spin_first() => self.start_m(p, Start::Spinning),
            HandOff::Spin | HandOff::Rest => self.put_idle(p),
        }
    }

    fn can_spin_first(&self) -> bool {
        self.config.tuning.balance.searches() && self.spinning.try_be_first()
    }

    /// A blocking call returns.
    pub(super) fn unblock(&mut self, m: u32) {
        let machine = &mut self.ms[m as usize];
        machine.blocked_since_ns = None;
        machine.generation = machine.generation.wrapping_add(1);
        if machine.p.is_some() {
            return self.start_thread(m, 0, Todo::Run);
        }
        if let Some(p) = self.idle_ps.take(&self.idle) {
            self.no_longer_idle(p);
            self.hold(m, p);
            return self.start_thread(m, 0, Todo::Run);
        }
        let g = self.ms[m as usize].g.take().expect("a goroutine was in the call");
        if self.is_classed(g) {
            self.gs[g as usize].readied_ns = self.now_ns;
            self.push_by_class(g);
        } else {
            self.inject(g, Lane::Normal);
            self.wake_p();
        }
        self.report.cpu_ns[Spent::Kernel as usize] += self.config.costs.park();
        self.ms[m as usize].asleep_ns = self.now_ns;
        self.idle_ms.push(m);
    }
}

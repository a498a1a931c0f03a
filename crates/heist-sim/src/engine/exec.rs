//! The steps of goroutines, as `sched/run/execute.rs` and `sched/life` do them.

use super::wake::Start;
use super::{After, Goroutine, Sim};
use crate::events::{Event, Kind};
use crate::machines::Todo;
use crate::stats::Spent;
use crate::workload::{Class, Op, Task};
use heist_core::global_queue::Lane;

impl Sim<'_> {
    /// Plans the next arrival from outside.
    pub(super) fn plan_arrival(&mut self) {
        if let Some(arrival) = self.workload.arrival(&mut self.rng) {
            self.arriving = Some(arrival.task);
            let event = Event::new(Kind::Arrival, 0, 0);
            self.calendar.plan(self.now_ns + arrival.after_ns, event);
        }
    }

    /// A goroutine arrives from outside, as `spawn` by a plain thread.
    pub(super) fn arrive(&mut self) {
        let Some(task) = self.arriving.take() else { return };
        let g = self.new_goroutine(task, None);
        if self.is_classed(g) {
            self.gs[g as usize].readied_ns = self.now_ns;
            self.report.counts.readied += 1;
            self.push_by_class(g);
        } else {
            self.inject(g, Lane::Normal);
            if self.config.tuning.balance.searches() {
                self.wake_p();
            } else if let Some(p) = self.idle_ps.take(&self.idle) {
                self.report.counts.wake_ups += 1;
                self.start_m(p, Start::Working);
            }
        }
        self.plan_arrival();
    }

    fn new_goroutine(&mut self, task: Task, parent: Option<(u32, u32)>) -> u32 {
        self.report.counts.started += 1;
        let g = self.free_gs.pop().unwrap_or(self.gs.len() as u32);
        let generation = self.gs.get(g as usize).map_or(0, |old| old.generation.wrapping_add(1));
        let goroutine = Goroutine {
            task,
            live: true,
            generation,
            left_ns: 0,
            parent,
            n_children: 0,
            joins: false,
            readied_ns: self.now_ns,
            request_ns: self.now_ns + self.step_ns,
            recorded: false,
            last_p: None,
            home: task.home,
        };
        if g as usize == self.gs.len() {
            self.queues.admit(g);
            self.gs.push(goroutine);
        } else {
            self.gs[g as usize] = goroutine;
        }
        g
    }

    /// Takes the next step of the goroutine on an M.
    pub(super) fn run_goroutine(&mut self, m: u32) -> After {
        let g = self.ms[m as usize].g.expect("an M that runs has a goroutine");
        let p = self.p_of(m);
        if self.gs[g as usize].left_ns > 0 {
            return self.compute(m, p, g);
        }
        let op = self.workload.next(&mut self.gs[g as usize].task, &mut self.rng);
        match op {
            Op::Compute(ns) => {
                self.gs[g as usize].left_ns = ns;
                if ns == 0 { self.then(m, Todo::Run) } else { self.compute(m, p, g) }
            }
            Op::Spawn(task) => {
                self.spend(Spent::Schedule, self.config.costs.spawn());
                let generation = self.gs[g as usize].generation;
                self.gs[g as usize].n_children += 1;
                let child = self.new_goroutine(task, Some((g, generation)));
                let node = self.ps[p as usize].node;
                self.gs[child as usize].home.get_or_insert(node);
                self.ready(p, child);
                self.then(m, Todo::Run)
            }
            Op::Join if self.gs[g as usize].n_children == 0 => self.then(m, Todo::Run),
            Op::Join => {
                self.gs[g as usize].joins = true;
                self.leave(m)
            }
            Op::Yield => self.yields(m),
            Op::Park(event) => self.park_for(m, event),
            Op::Signal(event) => self.signal(m, event),
            Op::Send(channel) => self.send(m, channel),
            Op::Recv(channel) => self.recv(m, channel),
            Op::Sleep(ns) => self.sleep(m, ns),
            Op::Block(ns, announced) => self.then(m, Todo::Enter(ns, announced)),
            Op::Log(number) => {
                self.report.log.push(number);
                self.then(m, Todo::Run)
            }
            Op::Done => {
                self.record_request(g);
                self.then(m, Todo::Run)
            }
            Op::End => self.end(m, g),
        }
    }

    /// Computes until the computation or the slice is over, whichever is sooner.
    fn compute(&mut self, m: u32, p: u32, g: u32) -> After {
        let from_ns = self.ps[p as usize].slice_from_ns;
        let left_ns = (from_ns + self.config.quantum_ns).saturating_sub(self.now_ns);
        if left_ns == 0 {
            if self.is_wanted(p) {
                self.report.counts.preemptions += 1;
                return self.yields(m);
            }
            self.ps[p as usize].slice_from_ns = self.now_ns;
            return self.compute(m, p, g);
        }
        let goroutine = &self.gs[g as usize];
        let percent = self.percent_at(p, g);
        let work_ns = goroutine.left_ns.min((left_ns * 100 / percent).max(1));
        let wall_ns = work_ns * percent / 100;
        self.spend(Spent::Work, wall_ns);
        self.report.inflation_ns += wall_ns - work_ns;
        self.then(m, Todo::Computed(work_ns))
    }

    /// How long a goroutine computes at a P, in percent of the time where its data is.
    pub(super) fn percent_at(&self, p: u32, g: u32) -> u64 {
        let away = self.gs[g as usize].home.is_some_and(|home| home != self.ps[p as usize].node);
        if away { self.config.topology.inflation_percent } else { 100 }
    }

    /// Whether other goroutines wait for this P.
    fn is_wanted(&self, p: u32) -> bool {
        self.queues.global_len() != 0 || !self.queues.is_empty(p)
    }

    pub(super) fn computed(&mut self, m: u32, work_ns: u64) -> After {
        let g = self.ms[m as usize].g.expect("it has computed");
        self.gs[g as usize].left_ns -= work_ns;
        self.run_goroutine(m)
    }

    /// Puts the goroutine of an M at the end of the part of the global queue that its P holds.
    pub(super) fn yields(&mut self, m: u32) -> After {
        let p = self.p_of(m);
        let g = self.ms[m as usize].g.take().expect("a goroutine yields");
        self.gs[g as usize].readied_ns = self.now_ns + self.step_ns;
        if self.is_classed(g) || self.idle.is_reserved(p) {
            self.push_by_class(g);
        } else {
            self.report.counts.global_put += 1;
            self.queues.push_yielded(p, g);
            self.wake_p();
        }
        self.find_anew(m)
    }

    /// The goroutine of an M waits for something.
    pub(super) fn leave(&mut self, m: u32) -> After {
        self.ms[m as usize].g = None;
        self.find_anew(m)
    }

    fn find_anew(&mut self, m: u32) -> After {
        self.ms[m as usize].lingered = false;
        self.then(m, Todo::Find)
    }

    pub(super) fn record_request(&mut self, g: u32) {
        let goroutine = &mut self.gs[g as usize];
        goroutine.recorded = true;
        if self.report.counts.finished < self.config.warm_up {
            return;
        }
        let ns = (self.now_ns + self.step_ns).saturating_sub(goroutine.request_ns);
        if goroutine.task.class == Class::Latency {
            self.report.latency_class.record(ns);
        } else {
            self.report.requests.record(ns);
        }
    }

    fn end(&mut self, m: u32, g: u32) -> After {
        let p = self.p_of(m);
        if !self.gs[g as usize].recorded {
            self.record_request(g);
        }
        let goroutine = &mut self.gs[g as usize];
        assert!(goroutine.live, "goroutine {g} ends twice");
        goroutine.live = false;
        let parent = goroutine.parent;
        self.free_gs.push(g);
        self.report.counts.finished += 1;
        self.ended_ns = self.now_ns + self.step_ns;
        self.ms[m as usize].g = None;
        if let Some((parent, generation)) = parent {
            let goroutine = &mut self.gs[parent as usize];
            if goroutine.live && goroutine.generation == generation {
                goroutine.n_children -= 1;
                if goroutine.n_children == 0 && std::mem::take(&mut goroutine.joins) {
                    self.spend(Spent::Schedule, self.config.costs.ready());
                    self.ready(p, parent);
                }
            }
        }
        self.find_anew(m)
    }
}

//! The simulation: Ms that take steps, each of which costs simulated time.
//!
//! An M is a small state machine. A step takes effect at the moment it begins; the M is busy for as
//! long as the step costs, and then takes the next one. The steps and their order are those of the
//! runtime (`crates/heist/src/sched`): each file here names the one that it follows.

mod blocking;
mod cpu;
mod exec;
mod find;
mod lanes;
mod rest;
mod steal;
mod timers;
mod waits;
mod wake;

use crate::costs::Costs;
use crate::events::{Calendar, END_OF_TIME, Event, Kind};
use crate::machines::{IdleMachines, Machine, Todo};
use crate::queues::Queues;
use crate::stats::{Report, Spent};
use crate::topology::Topology;
use crate::tuning::{Control, Tuning};
use crate::workload::{Task, Workload};
use cpu::Cpus;
use heist_core::idle::{IdleProcs, IdleView};
use heist_core::policy::{self, UrgentStreak};
use heist_core::rng::Rng;
use heist_core::spinning::Spinning;
use heist_core::steal_order::StealOrder;
use heist_core::timer_heap::{Siblings, TimerHeap};
use heist_core::watch::Watch;
use std::collections::VecDeque;
use waits::Waits;

/// What is simulated, but for the workload.
#[derive(Clone, Debug)]
pub struct Config {
    /// Processors.
    pub procs: u32,
    /// Of these, reserved for the latency class.
    pub reserved: u32,
    /// The machine.
    pub topology: Topology,
    /// What steps cost.
    pub costs: Costs,
    /// The policy.
    pub tuning: Tuning,
    /// The seed of all random numbers.
    pub seed: u64,
    /// When the run ends, if not before.
    pub end_ns: u64,
    /// How long a goroutine runs while others wait.
    pub quantum_ns: u64,
    /// The tick of each P at the beginning.
    pub first_tick: u32,
    /// Latencies are recorded after so many goroutines have ended: by then there are threads.
    pub warm_up: u64,
}

impl Config {
    /// A machine with as many CPUs as processors, the costs measured here, and the runtime's
    /// policy.
    #[must_use]
    pub fn new(procs: u32, seed: u64) -> Self {
        Self {
            procs,
            reserved: 0,
            topology: Topology::flat(procs),
            costs: Costs::default(),
            tuning: Tuning::heist(),
            seed,
            end_ns: END_OF_TIME,
            quantum_ns: policy::QUANTUM_NS,
            first_tick: 0,
            warm_up: 0,
        }
    }
}

/// A processor.
struct Processor {
    /// The M that holds it.
    m: Option<u32>,
    tick: u32,
    slice_from_ns: u64,
    executed: u64,
    rng: Rng,
    streak: UrgentStreak,
    timers: TimerHeap<u64, Vec<Siblings<u64>>>,
    node: u32,
    /// Where it is in the list of busy Ps.
    place: usize,
    /// A thief has touched the words of its ring since it last used them.
    disturbed: bool,
    /// Operations on its ring, for the blocks.
    n_ops: u32,
}

/// A goroutine.
#[derive(Clone, Debug)]
struct Goroutine {
    task: Task,
    live: bool,
    generation: u32,
    /// What is left of its current computation.
    left_ns: u64,
    parent: Option<(u32, u32)>,
    n_children: u32,
    joins: bool,
    readied_ns: u64,
    request_ns: u64,
    recorded: bool,
    last_p: Option<u32>,
    home: Option<u32>,
}

/// A simulation.
pub struct Sim<'a> {
    config: Config,
    workload: &'a mut dyn Workload,
    now_ns: u64,
    /// The cost of the step that is being taken.
    step_ns: u64,
    calendar: Calendar,
    queues: Queues,
    /// Until when the lock of each part of the global queue is held.
    locked_until_ns: Vec<u64>,
    ps: Vec<Processor>,
    ms: Vec<Machine>,
    gs: Vec<Goroutine>,
    free_gs: Vec<u32>,
    /// The Ps that are not idle, in no particular order.
    busy: Vec<u32>,
    idle_ps: IdleProcs,
    idle: IdleView,
    idle_ms: IdleMachines,
    spinning: Spinning,
    watch: Watch,
    order: StealOrder,
    linger_ns: u64,
    cpus: Cpus,
    waits: Waits,
    rng: Rng,
    /// The goroutine that arrives next.
    arriving: Option<Task>,
    /// When the last goroutine ended.
    ended_ns: u64,
    /// When each goroutine in the latency lane was queued, the oldest first; for the controller.
    latency_since_ns: VecDeque<u64>,
    /// Ps with timers that came due while no P was idle.
    late_timers: Vec<u32>,
    report: Report,
}

/// What an M does after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum After {
    /// It takes the next step when this one is over.
    Continue,
    /// It has left its CPU, or will when this step is over.
    Off,
}

impl<'a> Sim<'a> {
    /// A machine on which nothing has happened yet.
    pub fn new(config: Config, workload: &'a mut dyn Workload) -> Self {
        let procs = config.procs.clamp(1, policy::PROCS_MAX);
        let idle = IdleView::with_reserved(procs, config.reserved);
        let mut idle_ps = IdleProcs::new(procs);
        (0..procs).rev().for_each(|p| idle_ps.put(&idle, p, false));
        let ps = (0..procs).map(|p| Processor::new(p, &config)).collect();
        let queues = Queues::new(procs, config.tuning.global_shards);
        let mut sim = Self {
            now_ns: 0,
            step_ns: 0,
            calendar: Calendar::new(),
            locked_until_ns: vec![0; queues.n_shards()],
            queues,
            ps,
            ms: Vec::new(),
            gs: Vec::new(),
            free_gs: Vec::new(),
            busy: Vec::new(),
            idle_ps,
            idle,
            idle_ms: IdleMachines::new(),
            spinning: Spinning::new(),
            watch: Watch::new(),
            order: StealOrder::new(procs),
            linger_ns: policy::LINGER_MIN_NS,
            cpus: Cpus::new(config.topology.cpus),
            waits: Waits::default(),
            rng: Rng::new(config.seed),
            arriving: None,
            ended_ns: 0,
            latency_since_ns: VecDeque::new(),
            late_timers: Vec::new(),
            report: Report::new(config.seed, procs),
            config,
            workload,
        };
        sim.plan_arrival();
        if let Control::Delay { period_ns, .. } = sim.config.tuning.control {
            sim.calendar.plan(period_ns, Event::new(Kind::Control, 0, 0));
        }
        sim
    }

    /// Runs until nothing is left to happen, or until the end that was set.
    #[must_use]
    pub fn run(self) -> Report {
        self.run_with(|_, _| {})
    }

    /// As [`run`](Self::run); `progress` is told the simulated time and the goroutines that have
    /// ended, every few thousand events.
    #[must_use]
    pub fn run_with(mut self, mut progress: impl FnMut(u64, u64)) -> Report {
        while let Some((at_ns, event)) = self.calendar.next() {
            if at_ns > self.config.end_ns {
                self.now_ns = self.config.end_ns;
                break;
            }
            self.now_ns = at_ns;
            self.report.events += 1;
            if self.report.events.is_multiple_of(1 << 16) {
                progress(at_ns, self.report.counts.finished);
            }
            self.happen(event);
        }
        self.report.stuck = self.n_live();
        // Threads that go to sleep after the last goroutine has ended do not make a run longer.
        let all_ended = self.report.stuck == 0 && self.report.counts.finished != 0;
        self.report.elapsed_ns = if all_ended { self.ended_ns } else { self.now_ns };
        self.report.counts.threads = self.ms.len() as u64;
        self.report
    }

    fn happen(&mut self, event: Event) {
        self.step_ns = 0;
        match event.kind {
            Kind::Machine => self.machine_event(event),
            Kind::Arrival => self.arrive(),
            Kind::Timer => self.timer_due(event.id),
            Kind::Retake => self.look_at_blocked(event),
            Kind::Unblock => self.unblock(event.id),
            Kind::Nap => self.nap_over(event),
            Kind::Control => self.control(),
        }
    }

    /// Takes the next step of an M.
    fn step(&mut self, m: u32) {
        self.step_ns = 0;
        let after = match std::mem::replace(&mut self.ms[m as usize].todo, Todo::Nothing) {
            Todo::Nothing => unreachable!("an M that does nothing has no event"),
            Todo::Begin => self.begin(m),
            Todo::Find => self.find(m),
            Todo::Steal(scan) => self.steal_some(m, scan),
            Todo::BackOff(scan, victim, executed) => self.steal_next(m, scan, victim, executed),
            Todo::Linger(until_ns) => self.linger(m, until_ns),
            Todo::Descend => self.descend(m),
            Todo::LastLook => self.look_once_more(m),
            Todo::WatchLook(nexts) => self.look_closer(m, &nexts),
            Todo::NapOver => self.end_nap(m),
            Todo::Park => self.park_m(m),
            Todo::Run => self.run_goroutine(m),
            Todo::Computed(work_ns) => self.computed(m, work_ns),
            Todo::Preempted => self.preempted(m),
            Todo::Enter(ns, announced) => self.enter_blocking(m, ns, announced),
        };
        if after == After::Continue {
            self.go_on(m, self.step_ns);
        }
    }

    /// Plans the next step of an M.
    fn then(&mut self, m: u32, todo: Todo) -> After {
        self.ms[m as usize].todo = todo;
        After::Continue
    }

    /// Adds to the cost of the current step.
    fn spend(&mut self, spent: Spent, ns: u64) {
        self.step_ns += ns;
        self.report.cpu_ns[spent as usize] += ns;
    }

    /// Waits for the lock of a part of the global queue, and holds it for a moment.
    fn lock(&mut self, shard: usize) {
        let here_ns = self.now_ns + self.step_ns;
        let wait_ns = self.locked_until_ns[shard].saturating_sub(here_ns);
        let ns = wait_ns + self.config.costs.lock();
        self.spend(Spent::Schedule, ns);
        self.locked_until_ns[shard] = here_ns + ns;
    }

    /// The P of an M that has one.
    fn p_of(&self, m: u32) -> u32 {
        self.ms[m as usize].p.expect("an M that schedules holds a P")
    }

    fn common_procs(&self) -> u32 {
        self.config.procs - self.config.reserved
    }

    fn same_node(&self, p: u32, q: u32) -> bool {
        self.ps[p as usize].node == self.ps[q as usize].node
    }

    /// How many goroutines have begun and not ended.
    const fn n_live(&self) -> u64 {
        self.report.counts.started - self.report.counts.finished
    }
}

impl Processor {
    fn new(p: u32, config: &Config) -> Self {
        Self {
            m: None,
            tick: config.first_tick,
            slice_from_ns: 0,
            executed: 0,
            rng: Rng::new(config.seed ^ (u64::from(p) + 1) << 32),
            streak: UrgentStreak::default(),
            timers: TimerHeap::new(Vec::new()),
            node: config.topology.node_of(p, config.procs),
            place: usize::MAX,
            disturbed: false,
            n_ops: 0,
        }
    }
}

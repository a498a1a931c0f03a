//! A simulated scheduler that does legal things at random and writes them down.

use super::Buffers;
use heist_trace::record::{Context, Kind, Record};
use std::collections::VecDeque;

#[derive(Clone, Copy, Debug)]
pub struct Options {
    pub seed: u64,
    pub procs: u32,
    pub ms: u32,
    pub n_steps: usize,
    /// Records in a buffer.
    pub buffer: usize,
    /// The clocks of the writers differ by up to so many ticks.
    pub skew: u64,
    /// The trace begins after so many steps: what came before is not known.
    pub warm_up: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Unborn,
    Runnable,
    Running,
    Waiting,
    Dead,
}

#[derive(Clone, Copy, Debug)]
struct G {
    doing: Doing,
    number: u16,
}

#[derive(Clone, Debug, Default)]
struct M {
    p: Option<u32>,
    p_number: u16,
    /// The P that it believes to hold.
    g: u64,
    frozen: u64,
    in_call: bool,
    robbed: bool,
    spinning: bool,
    parked: bool,
    regions: Vec<u64>,
}

#[derive(Clone, Copy, Debug, Default)]
struct P {
    holder: u32,
    number: u16,
}

pub struct Simulation {
    options: Options,
    random: u64,
    ticks: u64,
    recording: bool,
    gs: Vec<G>,
    ms: Vec<M>,
    ps: Vec<P>,
    runnable: VecDeque<u64>,
    waiting: Vec<u64>,
    open: Vec<Option<(Context, Vec<Record>)>>,
    sequences: Vec<u32>,
    finished: Buffers,
    next_task: u64,
}

/// The buffers of a random legal trace.
pub fn simulate(options: Options) -> Buffers {
    let mut simulation = Simulation::new(options);
    for step in 0..options.n_steps + options.warm_up {
        simulation.recording = step >= options.warm_up;
        simulation.step();
    }
    simulation.finish()
}

impl Simulation {
    fn new(options: Options) -> Self {
        let writers = options.ms as usize + 1;
        let mut simulation = Self {
            options,
            random: options.seed | 1,
            ticks: 1 << 40,
            recording: false,
            gs: vec![G { doing: Doing::Dead, number: 0 }],
            ms: vec![M::default(); writers],
            ps: vec![P::default(); options.procs as usize],
            runnable: VecDeque::new(),
            waiting: Vec::new(),
            open: vec![None; writers],
            sequences: vec![0; writers],
            finished: Vec::new(),
            next_task: 1,
        };
        simulation.recording = options.warm_up == 0;
        simulation.create(0);
        simulation
    }

    fn random(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 20) % below
    }

    fn log(&mut self, writer: u32, kind: Kind, detail: u8, subject: u64, number: u16) {
        if !self.recording {
            return;
        }
        let at = writer as usize;
        let skew = (u64::from(writer) * 7919) % (self.options.skew + 1);
        let ticks = self.ticks + skew;
        let attached =
            matches!(kind, Kind::Site | Kind::Name | Kind::Victim | Kind::Arg | Kind::Stack);
        let full = |open: &(Context, Vec<Record>)| open.1.len() >= self.options.buffer;
        if !attached && self.open[at].as_ref().is_some_and(full) {
            self.finished.extend(self.open[at].take());
        }
        if self.open[at].is_none() {
            let context = self.context(writer, ticks);
            self.open[at] = Some((context, Vec::new()));
        }
        let record = Record::new(ticks, kind, detail, subject, number);
        self.open[at].as_mut().unwrap().1.push(record);
    }

    /// It is written down before the state changes.
    fn context(&mut self, writer: u32, ticks: u64) -> Context {
        let sequence = self.sequences[writer as usize];
        self.sequences[writer as usize] += 1;
        let m = &self.ms[writer as usize];
        Context {
            writer,
            sequence,
            ticks,
            p: m.p.map_or(0, |p| p + 1),
            p_number: m.p.map_or(0, |_| m.p_number),
            goroutine: m.g,
            goroutine_number: if m.g == 0 { 0 } else { self.gs[m.g as usize].number },
            in_call: m.in_call,
            spinning: m.spinning,
            dropped: 0,
        }
    }

    fn step(&mut self) {
        self.ticks += 1 + self.random(3_000);
        let writer = self.random(u64::from(self.options.ms) + 1) as u32;
        let m = &self.ms[writer as usize];
        if writer == 0 {
            self.outside();
        } else if m.parked {
            self.log(writer, Kind::MUnpark, 0, 0, 0);
            self.ms[writer as usize].parked = false;
        } else if m.in_call {
            self.back_from_call(writer);
        } else if m.g != 0 {
            if m.p.is_some() && !m.robbed { self.run(writer) } else { self.freeze(writer, 2) }
        } else if m.p.is_none() {
            self.without_p(writer);
        } else {
            self.search(writer);
        }
    }

    fn outside(&mut self) {
        match self.random(8) {
            0 => self.create(0),
            1 => self.wake_one(0),
            2 => {
                let m = 1 + self.random(self.options.ms.into()) as u32;
                self.log(0, Kind::PreemptAsk, 0, u64::from(m) - 1, 0);
            }
            3 | 4 => {
                let victim = 1 + self.random(self.options.ms.into()) as u32;
                self.take(victim);
            }
            _ => {}
        }
    }

    fn take(&mut self, victim: u32) {
        let m = &self.ms[victim as usize];
        let (Some(p), false) = (m.p, m.g == 0 || m.robbed) else {
            return;
        };
        let why = u8::from(!m.in_call);
        self.ms[victim as usize].robbed = true;
        let number = self.change(p, 0);
        self.log(0, Kind::ProcTake, why, p.into(), number);
        self.log(0, Kind::Victim, 0, u64::from(victim) - 1, 0);
    }

    fn change(&mut self, p: u32, holder: u32) -> u16 {
        let p = &mut self.ps[p as usize];
        p.holder = holder;
        p.number = p.number.wrapping_add(1);
        p.number
    }

    fn create(&mut self, writer: u32) {
        let id = self.gs.len() as u64;
        let unborn = self.random(10) == 0;
        self.log(writer, Kind::GoCreate, u8::from(unborn), id, 0);
        let site = 1 + self.random(7);
        self.log(writer, Kind::Site, 0, site, 0);
        if self.random(20) == 0 {
            self.log(writer, Kind::Name, 0, 6, 0);
        }
        let doing = if unborn { Doing::Unborn } else { Doing::Runnable };
        self.gs.push(G { doing, number: 0 });
        if unborn { self.waiting.push(id) } else { self.runnable.push_back(id) }
    }

    fn wake_one(&mut self, writer: u32) {
        if self.waiting.is_empty() {
            return;
        }
        let at = self.random(self.waiting.len() as u64) as usize;
        let id = self.waiting.swap_remove(at);
        let why = self.random(4) as u8;
        self.log(writer, Kind::GoUnblock, why, id, self.gs[id as usize].number);
        self.gs[id as usize].doing = Doing::Runnable;
        self.runnable.push_back(id);
    }

    fn idle_p(&self) -> Option<u32> {
        self.ps.iter().position(|p| p.holder == 0).map(|p| p as u32)
    }

    fn acquire(&mut self, writer: u32, p: u32) {
        let number = self.change(p, writer);
        self.log(writer, Kind::ProcStart, 0, p.into(), number);
        let m = &mut self.ms[writer as usize];
        (m.p, m.p_number, m.robbed) = (Some(p), number, false);
    }

    fn release(&mut self, writer: u32) {
        if let Some(p) = self.ms[writer as usize].p {
            let number = self.change(p, 0);
            self.log(writer, Kind::ProcStop, 0, p.into(), number);
            self.ms[writer as usize].p = None;
        }
    }

    fn without_p(&mut self, writer: u32) {
        let frozen = self.ms[writer as usize].frozen;
        match self.idle_p() {
            Some(p) if frozen != 0 || self.random(4) != 0 => {
                self.acquire(writer, p);
                if frozen != 0 {
                    self.ms[writer as usize].frozen = 0;
                    self.start(writer, frozen, 5);
                }
            }
            _ => {
                if self.ms[writer as usize].spinning {
                    self.log(writer, Kind::SpinStop, 0, 0, 0);
                    self.ms[writer as usize].spinning = false;
                }
                self.log(writer, Kind::MPark, 0, 0, 0);
                self.ms[writer as usize].parked = true;
            }
        }
    }

    fn search(&mut self, writer: u32) {
        let spinning = self.ms[writer as usize].spinning;
        if let Some(id) = self.runnable.pop_front() {
            if spinning {
                let victim = self.random(self.options.procs.into());
                if Some(victim as u32) != self.ms[writer as usize].p {
                    self.log(writer, Kind::Steal, 0, victim, 1);
                }
                self.log(writer, Kind::SpinStop, 0, 0, 0);
                self.ms[writer as usize].spinning = false;
            }
            let found = self.random(4) as u8;
            self.start(writer, id, found);
        } else if !spinning {
            self.log(writer, Kind::SpinStart, 0, 0, 0);
            self.ms[writer as usize].spinning = true;
        } else if self.random(2) == 0 {
            self.log(writer, Kind::Poll, 0, u64::from(!self.waiting.is_empty()), 0);
            self.wake_one(writer);
        } else {
            self.log(writer, Kind::SpinStop, 0, 0, 0);
            self.ms[writer as usize].spinning = false;
            self.release(writer);
        }
    }

    fn start(&mut self, writer: u32, id: u64, found: u8) {
        let number = self.gs[id as usize].number.wrapping_add(1);
        self.log(writer, Kind::GoStart, found, id, number);
        self.gs[id as usize] = G { doing: Doing::Running, number };
        self.ms[writer as usize].g = id;
    }

    fn leave(&mut self, writer: u32) -> u64 {
        // A region would go on elsewhere; this simulation ends them first.
        while let Some(region) = self.ms[writer as usize].regions.pop() {
            self.log(writer, Kind::RegionStop, 0, region, 0);
            self.log(writer, Kind::Arg, 0, 0, 0);
        }
        self.ms[writer as usize].g
    }

    fn freeze(&mut self, writer: u32, why: u8) {
        let id = self.leave(writer);
        self.log(writer, Kind::GoFreeze, why, id, self.gs[id as usize].number);
        self.gs[id as usize].doing = Doing::Runnable;
        let m = &mut self.ms[writer as usize];
        (m.g, m.frozen) = (0, id);
        if m.robbed {
            (m.p, m.robbed) = (None, false);
        } else {
            self.release(writer);
        }
    }

    fn back_from_call(&mut self, writer: u32) {
        if self.random(3) != 0 {
            return;
        }
        let m = &self.ms[writer as usize];
        let (g, lost) = (m.g, m.robbed || m.p.is_none());
        self.log(writer, Kind::CallStop, u8::from(lost), g, 0);
        let m = &mut self.ms[writer as usize];
        m.in_call = false;
        if lost {
            (m.p, m.robbed) = (None, false);
            self.freeze(writer, 2);
        }
    }

    fn run(&mut self, writer: u32) {
        let id = self.ms[writer as usize].g;
        match self.random(16) {
            0..3 => self.create(writer),
            3..6 => self.wake_one(writer),
            6 => {
                self.leave(writer);
                self.log(writer, Kind::GoStop, 0, id, self.gs[id as usize].number);
                self.gs[id as usize].doing = Doing::Runnable;
                self.ms[writer as usize].g = 0;
                self.runnable.push_back(id);
            }
            7..10 => {
                let refused = self.random(8) == 0;
                self.block(writer, id, refused);
            }
            10 => {
                self.leave(writer);
                self.log(writer, Kind::GoEnd, 0, id, self.gs[id as usize].number);
                self.gs[id as usize].doing = Doing::Dead;
                self.ms[writer as usize].g = 0;
            }
            11 => {
                let predicted = self.random(4) == 0;
                self.log(writer, Kind::CallStart, u8::from(predicted), id, 0);
                self.ms[writer as usize].in_call = true;
                if predicted {
                    self.release(writer);
                }
            }
            12 => self.freeze(writer, 0),
            13 => {
                let region = 2 + self.random(2);
                self.log(writer, Kind::RegionStart, 0, region, 0);
                self.log(writer, Kind::Arg, 0, 0, 0);
                self.ms[writer as usize].regions.push(region);
            }
            14 => self.annotate(writer),
            _ => {}
        }
    }

    fn block(&mut self, writer: u32, id: u64, refused: bool) {
        self.leave(writer);
        let number = self.gs[id as usize].number.wrapping_add(1);
        let reason = self.random(5) as u8;
        self.log(writer, Kind::GoBlock, reason, id, number);
        self.gs[id as usize] = G { doing: Doing::Waiting, number };
        self.ms[writer as usize].g = 0;
        if refused {
            self.log(writer, Kind::GoUnblock, 4, id, number);
            self.gs[id as usize].doing = Doing::Runnable;
            self.start(writer, id, 5);
        } else {
            self.waiting.push(id);
        }
    }

    fn annotate(&mut self, writer: u32) {
        let task = self.next_task;
        self.next_task += 1;
        self.log(writer, Kind::TaskStart, 0, task, 0);
        self.log(writer, Kind::Arg, 0, 1, 0);
        self.log(writer, Kind::Arg, 0, 0, 0);
        self.log(writer, Kind::Log, 0, 4, 0);
        self.log(writer, Kind::Arg, 0, 5, 0);
        self.log(writer, Kind::Arg, 0, task, 0);
        self.log(writer, Kind::TaskStop, 0, task, 0);
        self.log(writer, Kind::Queues, 0, self.runnable.len() as u64, 3);
    }

    fn finish(mut self) -> Buffers {
        self.finished.extend(self.open.into_iter().flatten());
        self.finished
    }
}

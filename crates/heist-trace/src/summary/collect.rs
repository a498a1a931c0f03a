//! Adds up what happens.

use super::{LongWait, ProcTimes, SiteTimes, Summary};
use crate::file::Trace;
use crate::model::{Doing, Event, G, Machine, Map, Visitor};
use crate::record::{Freeze, Kind, Stop};
use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// How many of the longest waits are kept.
const LONGEST: usize = 10;

/// How many runs of a P are remembered.
const RUNS_MAX: usize = 256;

/// What a P does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Does {
    Running,
    Searching,
    Between,
    Idle,
}

#[derive(Clone, Copy, Debug)]
struct Proc {
    does: Does,
    since: u64,
}

/// A run of a goroutine on a P.
#[derive(Clone, Copy, Debug)]
struct Run {
    goroutine: u64,
    until: u64,
    ns: u64,
}

/// The runs on a P that are longer than all later ones.
#[derive(Debug, Default)]
struct Runs(VecDeque<Run>);

impl Runs {
    fn add(&mut self, run: Run) {
        while self.0.back().is_some_and(|last| last.ns <= run.ns) {
            self.0.pop_back();
        }
        self.0.push_back(run);
        if self.0.len() > RUNS_MAX {
            self.0.pop_front();
        }
    }

    /// The goroutine that ran longest of those that ran after `since`, and how long.
    fn longest_since(&self, since: u64) -> (u64, u64) {
        let at = self.0.partition_point(|run| run.until <= since);
        self.0.get(at).map_or((0, 0), |run| (run.goroutine, run.ns))
    }
}

/// The sums of one site, with reasons as places in the list of the trace.
#[derive(Clone, Debug, Default)]
struct Sums {
    times: SiteTimes,
    waiting: Map<u32, u64>,
}

pub(super) struct Collector<'a, F> {
    trace: &'a Trace,
    summary: Summary,
    procs: Map<u32, Proc>,
    runs: Map<u32, Runs>,
    sites: Map<u64, Sums>,
    /// Sites of goroutines from before the trace, by the number of the same site.
    old_sites: Map<u64, u64>,
    run_ns: Map<u64, u64>,
    longest: BinaryHeap<Reverse<LongWait>>,
    /// Ms that are awake, and whether they ran something since.
    awake: Map<u32, bool>,
    world_stopped: Option<u64>,
    first: Option<u64>,
    last: u64,
    runnable_ns: f64,
    /// Ps without an M.
    n_idle: usize,
    progress: F,
}

impl<'a, F: FnMut(u64)> Collector<'a, F> {
    pub(super) fn new(trace: &'a Trace, progress: F) -> Self {
        let numbers: std::collections::HashMap<_, _> =
            trace.sites.iter().map(|(&number, site)| (site, number)).collect();
        let old = trace.snapshots.iter().flat_map(|(_, goroutines)| goroutines);
        let old_sites =
            old.filter_map(|g| Some((g.id, *numbers.get(g.site.as_deref()?)?))).collect();
        Self {
            trace,
            summary: Summary { program: trace.header.program.clone(), ..Summary::default() },
            procs: Map::default(),
            runs: Map::default(),
            sites: Map::default(),
            old_sites,
            run_ns: Map::default(),
            longest: BinaryHeap::new(),
            awake: Map::default(),
            world_stopped: None,
            first: None,
            last: 0,
            runnable_ns: 0.0,
            n_idle: 0,
            progress,
        }
    }

    fn site(&mut self, id: u64, g: &G) -> &mut Sums {
        let site = if g.site != 0 { g.site } else { self.old_sites.get(&id).copied().unwrap_or(0) };
        self.sites.entry(site).or_default()
    }

    /// The goroutine did what it did until now.
    fn account(&mut self, id: u64, g: &G, until: u64) {
        let ns = until.saturating_sub(g.since);
        let reason = u32::from(g.wait_reason);
        let sums = self.site(id, g);
        match g.doing {
            Doing::Running => {
                add(&mut sums.times.running, ns);
                add(self.run_ns.entry(id).or_default(), ns);
            }
            Doing::Runnable | Doing::Frozen => add(&mut sums.times.runnable, ns),
            Doing::InCall => add(&mut sums.times.in_call, ns),
            Doing::Waiting => add(sums.waiting.entry(reason).or_default(), ns),
            Doing::Unknown | Doing::Unborn => {}
        }
    }

    fn wait_ended(&mut self, event: &Event, g: &G, machine: &Machine) {
        let ns = event.time.saturating_sub(g.since);
        let shortest = self.longest.peek().map_or(0, |Reverse(wait)| wait.ns);
        if self.longest.len() >= LONGEST && ns <= shortest {
            return;
        }
        let p = machine.m(event.writer).and_then(|m| m.p);
        let (in_the_way, in_the_way_ns) =
            p.and_then(|p| self.runs.get(&p)).map_or((0, 0), |runs| runs.longest_since(g.since));
        let (until, goroutine) = (event.time, event.subject);
        let wait = LongWait { ns, until, goroutine, p, in_the_way, in_the_way_ns };
        self.longest.push(Reverse(wait));
        if self.longest.len() > LONGEST {
            self.longest.pop();
        }
    }

    fn leaves(&mut self, event: &Event, id: u64, g: &G, machine: &Machine) {
        let ran = event.time.saturating_sub(g.since);
        let p = machine.m(event.writer).and_then(|m| m.p);
        if let Some(p) = p {
            let run = Run { goroutine: id, until: event.time, ns: ran };
            self.runs.entry(p).or_default().add(run);
        }
        if event.kind == Kind::GoEnd {
            let ran = self.run_ns.remove(&id).unwrap_or(0);
            self.summary.busiest = self.summary.busiest.max((ran, id));
        }
    }

    /// Counts what needs no state.
    fn count(&mut self, event: &Event, machine: &Machine) {
        let summary = &mut self.summary;
        match event.kind {
            Kind::Stuck if event.detail == 0 => summary.n_hogs += 1,
            Kind::Stuck => summary.n_unannounced += 1,
            Kind::GoStop if event.detail == Stop::Preempted as u8 => summary.n_preempted += 1,
            Kind::GoFreeze if event.detail == Freeze::Signal as u8 => summary.n_forced += 1,
            Kind::Steal => {
                if let Some(p) = machine.m(event.writer).and_then(|m| m.p) {
                    let sum = summary.steals.entry((p, event.subject as u32)).or_default();
                    sum.0 += 1;
                    sum.1 += u64::from(event.number);
                }
            }
            Kind::MUnpark => {
                summary.n_wake_ups += 1;
                self.awake.insert(event.writer, false);
            }
            Kind::GoStart => {
                if let Some(ran) = self.awake.get_mut(&event.writer) {
                    *ran = true;
                }
            }
            Kind::MPark => {
                summary.n_futile += u64::from(self.awake.remove(&event.writer) == Some(false));
            }
            Kind::WorldStop => self.world_stopped = Some(event.time),
            Kind::WorldStart => {
                if let Some(since) = self.world_stopped.take() {
                    let (ns, sums) = (event.time - since, &mut summary.world_stops);
                    *sums = (sums.0 + 1, sums.1.saturating_add(ns), sums.2.max(ns));
                }
            }
            _ => {}
        }
    }

    fn update_proc(&mut self, p: u32, time: u64, machine: &Machine) {
        let Some(holder) = machine.p(p).and_then(|p| p.holder) else {
            return;
        };
        let does = match machine.m(holder) {
            None => Does::Idle,
            Some(m) if m.g != 0 => Does::Running,
            Some(m) if m.spinning => Does::Searching,
            Some(_) => Does::Between,
        };
        let fresh = Proc { does, since: time };
        if !self.procs.contains_key(&p) {
            self.n_idle += usize::from(does == Does::Idle);
        }
        let proc = self.procs.entry(p).or_insert(fresh);
        if proc.does != does {
            self.n_idle -= usize::from(proc.does == Does::Idle);
            self.n_idle += usize::from(does == Does::Idle);
            let old = std::mem::replace(proc, fresh);
            self.add_proc(p, old, time);
        }
    }

    fn add_proc(&mut self, p: u32, proc: Proc, until: u64) {
        let times: &mut ProcTimes = self.summary.procs.entry(p).or_default();
        let ns = until.saturating_sub(proc.since);
        match proc.does {
            Does::Running => add(&mut times.running, ns),
            Does::Searching => add(&mut times.searching, ns),
            Does::Between => add(&mut times.between, ns),
            Does::Idle => add(&mut times.idle, ns),
        }
    }

    pub(super) fn finish(mut self) -> Summary {
        let first = self.first.unwrap_or(0);
        for (p, proc) in std::mem::take(&mut self.procs) {
            self.add_proc(p, proc, self.last);
        }
        for (id, ran) in std::mem::take(&mut self.run_ns) {
            self.summary.busiest = self.summary.busiest.max((ran, id));
        }
        let mut summary = self.summary;
        summary.span_ns = self.last - first;
        summary.mean_runnable = self.runnable_ns / summary.span_ns.max(1) as f64;
        summary.is_incomplete |= self.trace.truncated.is_some();
        for (site, mut sums) in self.sites {
            let name = self.trace.sites.get(&site);
            let name = name.map_or("(before the trace)".to_owned(), ToString::to_string);
            for (reason, ns) in sums.waiting {
                let text = self.trace.header.wait_reasons.get(reason as usize);
                let text = text.map_or_else(|| format!("reason {reason}"), Clone::clone);
                add(sums.times.waiting.entry(text).or_default(), ns);
            }
            summary.sites.insert(name, sums.times);
        }
        summary.long_waits = self.longest.into_iter().map(|Reverse(wait)| wait).collect();
        summary.long_waits.sort_unstable_by(|a, b| b.cmp(a));
        summary
    }
}

/// Adds up times, which a damaged file can make as long as it likes.
fn add(sum: &mut u64, ns: u64) {
    *sum = sum.saturating_add(ns);
}

impl<F: FnMut(u64)> Visitor for Collector<'_, F> {
    fn before(&mut self, event: &Event, machine: &Machine) {
        let first = *self.first.get_or_insert(event.time);
        let step = event.time - self.last.max(first);
        self.runnable_ns += machine.n_runnable() as f64 * step as f64;
        if machine.n_runnable() > 0 && self.n_idle > 0 {
            add(&mut self.summary.idle_beside_runnable, step);
        }
        self.count(event, machine);
        let changes = matches!(
            event.kind,
            Kind::GoStart
                | Kind::GoStop
                | Kind::GoFreeze
                | Kind::GoBlock
                | Kind::GoEnd
                | Kind::GoUnblock
                | Kind::CallStart
                | Kind::CallStop
        );
        let id = machine.goroutine_of(event);
        let Some(g) = machine.g(id).copied().filter(|_| changes) else {
            return;
        };
        self.account(id, &g, event.time);
        if event.kind == Kind::GoStart && matches!(g.doing, Doing::Runnable | Doing::Frozen) {
            self.wait_ended(event, &g, machine);
        } else if g.doing == Doing::Running {
            self.leaves(event, id, &g, machine);
        }
    }

    fn after(&mut self, event: &Event, machine: &Machine) {
        self.last = event.time;
        self.summary.n_events += 1;
        if event.kind == Kind::GoCreate
            && let Some(&g) = machine.g(event.subject)
        {
            self.site(event.subject, &g).times.n_goroutines += 1;
        }
        let victim = machine.m(event.extra.victim).and_then(|m| m.p);
        let own = machine.m(event.writer).and_then(|m| m.p);
        let named = matches!(event.kind, Kind::ProcStart | Kind::ProcStop | Kind::ProcTake)
            .then_some(event.subject as u32);
        for p in [victim, own, named].into_iter().flatten() {
            self.update_proc(p, event.time, machine);
        }
        if self.summary.n_events.is_multiple_of(1 << 16) {
            (self.progress)(self.summary.n_events);
        }
    }

    fn gap(&mut self, _writer: u32, _time: u64) {
        self.summary.is_incomplete = true;
    }

    fn end(&mut self, machine: &Machine) {
        let mut open: Vec<_> = machine.goroutines().map(|(id, g)| (id, *g)).collect();
        open.sort_unstable_by_key(|&(id, _)| id);
        for (id, g) in open {
            self.account(id, &g, self.last);
        }
        let old = self.trace.snapshots.first().map_or(&[][..], |(_, goroutines)| goroutines);
        for goroutine in old {
            let site = self.old_sites.get(&goroutine.id).copied().unwrap_or(0);
            self.sites.entry(site).or_default().times.n_goroutines += 1;
        }
    }
}

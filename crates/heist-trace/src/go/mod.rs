//! Converts a trace to Go's format, for `go tool trace` and gotraceui.
//!
//! Goroutines that were spawned at one place form one group: Go groups by the function in which a
//! goroutine starts, so the place of the spawn stands in for it.

mod order;
mod wire;

use crate::file::{Site, State, Trace};
use crate::model::{Event, Machine, Map, Timeline, Visitor, replay};
use crate::record::{Context, Kind, Stop};
use order::{Order, PREEMPTED, Status, YIELDED};
use std::io::{self, Write};
use wire::{Ev, Frame, Wire};

/// How long a generation is. Go's own are as long.
const GENERATION_NS: u64 = 1_000_000_000;

/// What was written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Written {
    /// Events of Go.
    pub n_events: u64,
    /// Annotations that Go does not allow where they are: inside of blocking calls, and outside
    /// of goroutines.
    pub n_left_out: u64,
}

/// Writes a trace in Go's format. `progress` is told from time to time how many events of heist
/// were converted.
///
/// # Errors
/// Those of `out`.
pub fn convert<W: Write>(
    trace: &Trace,
    out: W,
    progress: impl FnMut(u64),
) -> io::Result<(W, Written)> {
    convert_in_generations(trace, GENERATION_NS, out, progress)
}

/// Writes a trace in Go's format, in generations of another length than a second. A reader holds
/// one in memory.
///
/// # Errors
/// Those of `out`.
pub fn convert_in_generations<W: Write>(
    trace: &Trace,
    generation_ns: u64,
    out: W,
    progress: impl FnMut(u64),
) -> io::Result<(W, Written)> {
    let timeline = Timeline::new(trace);
    let mut converter = Converter {
        trace,
        timeline,
        order: Order::new(Wire::new(out, timeline, generation_ns)?),
        sites: Map::default(),
        stacks: Map::default(),
        reasons: Map::default(),
        regions: Map::default(),
        tasks: Map::default(),
        stopped_by: 0,
        n_events: 0,
        n_left_out: 0,
        outcome: Ok(()),
        progress,
    };
    converter.learn_sites();
    replay(trace, &mut converter);
    converter.outcome?;
    let (out, n_events) = converter.order.wire.finish()?;
    Ok((out, Written { n_events, n_left_out: converter.n_left_out }))
}

struct Converter<'a, W: Write, F> {
    trace: &'a Trace,
    timeline: Timeline,
    order: Order<W>,
    /// The sites of goroutines from before the trace.
    sites: Map<u64, &'a Site>,
    /// Stacks by the stack of a site and by the key of what happens.
    stacks: Map<u64, u64>,
    /// Texts of reasons by the key of what happens.
    reasons: Map<u64, u64>,
    /// Task and name of the regions that a goroutine is in.
    regions: Map<u64, Vec<(u64, u64)>>,
    tasks: Map<u64, ()>,
    /// The goroutine that stopped the world, or 0.
    stopped_by: u64,
    n_events: u64,
    n_left_out: u64,
    outcome: io::Result<()>,
    progress: F,
}

/// Keys of what goroutines do; those of waits are their numbers, which are smaller.
const YIELD: u64 = 256;
const PREEMPTION: u64 = 257;
const FREEZE: u64 = 258;
const WAKE: u64 = 259;
const CALL: u64 = 260;

/// What Go calls a wait: its network and synchronisation profiles select by these texts.
fn go_reason(reason: &str) -> &str {
    match reason {
        "IO wait" => "network",
        "sync.Cond.Wait" => "sync.(*Cond).Wait",
        "chan receive (nil chan)" | "chan send (nil chan)" | "select (no cases)" => "forever",
        "goroutine join" | "barrier wait" | "once wait" | "scope wait" | "semacquire" => "sync",
        _ if reason.starts_with("sync.") => "sync",
        _ => reason,
    }
}

fn frame(site: &Site) -> Frame {
    (format!("{}:{}", site.file, site.line), site.file.clone(), site.line)
}

impl<'a, W: Write, F: FnMut(u64)> Converter<'a, W, F> {
    fn learn_sites(&mut self) {
        for goroutine in self.trace.snapshots.iter().flat_map(|(_, goroutines)| goroutines) {
            if let Some(site) = &goroutine.site {
                self.sites.insert(goroutine.id, site);
            }
        }
    }

    fn site_stack(&mut self, site: Option<&Site>) -> u64 {
        site.map_or(0, |site| self.order.wire.stack(vec![frame(site)]))
    }

    fn text(&mut self, number: u64) -> u64 {
        match self.trace.strings.get(&number) {
            Some(text) => self.order.wire.string(text),
            None => 0,
        }
    }

    /// Introduces a goroutine from before the trace, with its site.
    fn introduce(&mut self, writer: u32, g: u64, status: Status) -> io::Result<()> {
        if g == 0 || self.order.knows(g) {
            return Ok(());
        }
        let stack = self.site_stack(self.sites.get(&g).copied());
        self.order.status(writer, g, status, stack)
    }

    /// A stack that says what the goroutine does, above its site. `key` stands for `what`.
    fn doing(&mut self, g: u64, key: u64, what: &str) -> u64 {
        let site = self.order.stack_of(g);
        let known = site << 16 | key;
        if let Some(&stack) = self.stacks.get(&known) {
            return stack;
        }
        let mut frames = vec![(what.to_owned(), String::new(), 0)];
        frames.extend(self.order.wire.frames(site));
        let stack = self.order.wire.stack(frames);
        self.stacks.insert(known, stack);
        stack
    }

    fn event(&mut self, event: &Event, machine: &Machine) -> io::Result<()> {
        self.order.wire.set_time(event.time);
        // Go does not end a generation while the world is stopped.
        if self.stopped_by == 0 && self.order.is_generation_full() {
            if !self.order.wire.is_first_over() {
                self.introduce_quiet(machine, event.time)?;
            }
            self.order.next_generation()?;
        }
        let (writer, g) = (event.writer, machine.goroutine_of(event));
        match event.kind {
            Kind::GoCreate => {
                let stack = self.site_stack(self.trace.sites.get(&event.extra.site));
                self.order.go_create(writer, g, event.detail == 1, stack)?;
            }
            Kind::GoStart => {
                self.introduce(writer, g, Status::Runnable)?;
                self.order.go_start(writer, g)?;
            }
            Kind::GoStop => {
                let yielded = event.detail != Stop::Preempted as u8;
                let (key, reason) =
                    if yielded { (YIELD, YIELDED) } else { (PREEMPTION, PREEMPTED) };
                self.leave(event, g, Ev::GoStop, (key, reason, reason))?;
            }
            Kind::GoBlock => {
                let reasons = &self.trace.header.wait_reasons;
                let reason = reasons.get(usize::from(event.detail)).map_or("unspecified", |r| r);
                let key = event.detail.into();
                self.leave(event, g, Ev::GoBlock, (key, go_reason(reason), reason))?;
            }
            Kind::GoFreeze => {
                let stack = self.doing(g, FREEZE, "frozen");
                self.order.freeze(writer, g, stack)?;
            }
            Kind::GoEnd if g != 0 => {
                self.introduce(writer, g, Status::Runnable)?;
                self.order.go_end(writer, g)?;
                self.regions.remove(&g);
            }
            Kind::GoUnblock => {
                self.introduce(writer, g, Status::Waiting)?;
                let waker = self.order.running(writer);
                let stack = self.doing(waker, WAKE, "wake");
                self.order.go_unblock(writer, g, stack)?;
            }
            Kind::ProcStart => self.order.proc_start(writer, event.subject)?,
            Kind::ProcStop => self.order.proc_stop(writer)?,
            Kind::ProcTake => self.order.proc_take(writer, event.subject)?,
            Kind::CallStart => {
                let stack = self.doing(g, CALL, "blocking call");
                self.order.call_start(writer, stack)?;
            }
            Kind::CallStop => self.order.call_stop(writer, event.detail == 1)?,
            _ => self.annotation(event)?,
        }
        Ok(())
    }

    /// The goroutine leaves its M: a key, the reason as Go calls it, and as heist calls it.
    fn leave(&mut self, event: &Event, g: u64, ev: Ev, why: (u64, &str, &str)) -> io::Result<()> {
        if g == 0 {
            return Ok(());
        }
        self.introduce(event.writer, g, Status::Runnable)?;
        let (key, reason, what) = why;
        let stack = self.doing(g, key, what);
        let wire = &mut self.order.wire;
        let reason = *self.reasons.entry(key).or_insert_with(|| wire.string(reason));
        self.order.leave(event.writer, g, ev, reason, stack)
    }

    fn annotation(&mut self, event: &Event) -> io::Result<()> {
        let writer = event.writer;
        let g = self.order.running(writer);
        let stack = self.order.stack_of(g);
        let [first, second] = event.extra.args;
        let written = match event.kind {
            Kind::WorldStop if g != 0 && self.stopped_by == 0 => {
                self.stopped_by = g;
                let cause = ["GOMAXPROCS", "start trace", "unknown"];
                let cause = cause[usize::from(event.detail).min(2)];
                let cause = self.order.wire.string(cause);
                self.order.annotate(writer, Ev::StwBegin, &[cause, stack])?
            }
            Kind::WorldStart if g != 0 && self.stopped_by == g => {
                self.stopped_by = 0;
                self.order.annotate(writer, Ev::StwEnd, &[])?
            }
            Kind::Procs => self.order.annotate(writer, Ev::ProcsChange, &[event.subject, stack])?,
            Kind::TaskStart if g != 0 && self.tasks.insert(event.subject, ()).is_none() => {
                let name = self.text(first);
                let args = [event.subject, second, name, stack];
                self.order.annotate(writer, Ev::UserTaskBegin, &args)?
            }
            Kind::TaskStop => {
                self.tasks.remove(&event.subject);
                self.order.annotate(writer, Ev::UserTaskEnd, &[event.subject, stack])?
            }
            Kind::RegionStart if g != 0 => {
                let name = self.text(event.subject);
                self.regions.entry(g).or_default().push((first, name));
                self.order.annotate(writer, Ev::UserRegionBegin, &[first, name, stack])?
            }
            Kind::RegionStop if g != 0 => {
                // Go wants the names of the innermost region.
                match self.regions.get_mut(&g).and_then(Vec::pop) {
                    Some((task, name)) => {
                        self.order.annotate(writer, Ev::UserRegionEnd, &[task, name, stack])?
                    }
                    None => true,
                }
            }
            Kind::Log => {
                let (value, key) = (self.text(event.subject), self.text(first));
                self.order.annotate(writer, Ev::UserLog, &[second, key, value, stack])?
            }
            Kind::TaskStart | Kind::RegionStart | Kind::RegionStop => false,
            _ => true,
        };
        self.n_left_out += u64::from(!written);
        Ok(())
    }

    /// Goroutines that are in a list from before `until` and have done nothing yet.
    fn introduce_quiet(&mut self, machine: &Machine, until: u64) -> io::Result<()> {
        let (trace, timeline) = (self.trace, self.timeline);
        let lists = trace.snapshots.iter().filter(|(ticks, _)| timeline.ns(*ticks) <= until);
        for goroutine in lists.flat_map(|(_, goroutines)| goroutines) {
            if self.order.knows(goroutine.id) || machine.is_dead(goroutine.id) {
                continue;
            }
            let status = match goroutine.state {
                State::Runnable | State::Frozen => Status::Runnable,
                // Nobody knows on which thread it is.
                State::Running | State::InCall | State::Waiting | State::Unborn => Status::Waiting,
            };
            self.introduce(0, goroutine.id, status)?;
        }
        Ok(())
    }
}

impl<W: Write, F: FnMut(u64)> Visitor for Converter<'_, W, F> {
    fn begin(&mut self, context: &Context, time: u64) {
        if self.outcome.is_err() {
            return;
        }
        self.order.wire.set_time(time);
        let g = context.goroutine;
        let stack = self.site_stack(self.sites.get(&g).copied());
        let p = context.p.checked_sub(1);
        self.outcome = self.order.begin(context.writer, p, g, context.in_call, stack);
    }

    fn before(&mut self, event: &Event, machine: &Machine) {
        if self.outcome.is_ok() {
            self.outcome = self.event(event, machine);
        }
        self.n_events += 1;
        if self.n_events.is_multiple_of(1 << 16) {
            (self.progress)(self.n_events);
        }
    }

    fn end(&mut self, machine: &Machine) {
        if self.outcome.is_ok() {
            self.outcome = self.introduce_quiet(machine, u64::MAX);
        }
    }
}

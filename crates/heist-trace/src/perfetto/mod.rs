//! Converts a trace to Perfetto's format.
//!
//! There is a track for each P, with the goroutines that ran on it, and one for each M, with what
//! the thread did. Arrows lead from the end of a wait to the run that follows, and from the P that
//! lost goroutines to the thief. Counters show runnable goroutines, idle Ps, searching Ms and the
//! lengths of queues.

mod proto;
mod tracks;

use crate::file::Trace;
use crate::model::{Event, Machine, Map, Timeline, Visitor, replay};
use crate::record::{Context, Kind};
use proto::Type;
use std::io::{self, Write};
use tracks::{Details, Track, Tracks};

/// Writes a trace in Perfetto's format, and answers how many packets it has. `progress` is told
/// from time to time how many events of heist were converted.
///
/// # Errors
/// Those of `out`.
pub fn convert<W: Write>(trace: &Trace, out: W, progress: impl FnMut(u64)) -> io::Result<(W, u64)> {
    let timeline = Timeline::new(trace);
    let mut converter = Converter {
        trace,
        tracks: Tracks::new(out, &trace.header, timeline.start_monotonic_ns)?,
        names: Map::default(),
        running: Map::default(),
        on_p: Map::default(),
        doing: Map::default(),
        flows: Map::default(),
        next_flow: 1,
        counters: [None; 3],
        last_time: 0,
        n_events: 0,
        outcome: Ok(()),
        progress,
    };
    converter.learn_old_names();
    replay(trace, &mut converter);
    converter.outcome?;
    converter.tracks.finish()
}

/// What an M does, as its track shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    Asleep,
    Searching,
    InCall,
    Holding(u32),
}

struct Converter<'a, W: Write, F> {
    trace: &'a Trace,
    tracks: Tracks<W>,
    /// Names of goroutines that are alive.
    names: Map<u64, String>,
    /// The slice that is open on the P of a writer: P and goroutine.
    running: Map<u32, (u32, u64)>,
    /// The writer that has the open slice of a P.
    on_p: Map<u32, u32>,
    doing: Map<u32, Doing>,
    /// Arrows to the next run of a goroutine.
    flows: Map<u64, u64>,
    next_flow: u64,
    /// What was written last: runnable, idle, spinning.
    counters: [Option<u64>; 3],
    last_time: u64,
    n_events: u64,
    outcome: io::Result<()>,
    progress: F,
}

impl<W: Write, F: FnMut(u64)> Converter<'_, W, F> {
    /// Names of goroutines from before the trace.
    fn learn_old_names(&mut self) {
        for goroutine in self.trace.snapshots.iter().flat_map(|(_, goroutines)| goroutines) {
            let site = goroutine.site.as_ref().map(|site| format!("{}:{}", site.file, site.line));
            let name = Some(goroutine.name.clone()).filter(|name| !name.is_empty());
            if let Some(name) = name.or(site) {
                self.names.insert(goroutine.id, name);
            }
        }
    }

    fn name(&self, g: u64) -> String {
        self.names.get(&g).cloned().unwrap_or_else(|| "goroutine".to_owned())
    }

    fn learn_name(&mut self, event: &Event) {
        let name = self.trace.strings.get(&event.extra.name).cloned();
        let site = self.trace.sites.get(&event.extra.site);
        let site = site.map(|site| format!("{}:{}", site.file, site.line));
        self.names.insert(event.subject, name.or(site).unwrap_or_else(|| "goroutine".to_owned()));
    }

    /// The track on which something that happens now is shown.
    fn here(&self, writer: u32, machine: &Machine) -> Track {
        machine.m(writer).and_then(|m| m.p).map_or(Track::M(writer), Track::P)
    }

    fn flow(&mut self) -> u64 {
        self.next_flow += 1;
        self.next_flow
    }

    fn event(&mut self, event: &Event, machine: &Machine) -> io::Result<()> {
        let time = event.time;
        match event.kind {
            Kind::GoCreate | Kind::GoUnblock => {
                if event.kind == Kind::GoCreate {
                    self.learn_name(event);
                }
                let flow = self.flow();
                self.flows.insert(event.subject, flow);
                let name = if event.kind == Kind::GoCreate { "spawn" } else { "wake" };
                let details = Details { name, goroutine: event.subject, flow, flow_end: 0 };
                let on = self.here(event.writer, machine);
                self.tracks.event(time, on, Type::Instant, details)?;
            }
            Kind::Steal => {
                let flow = self.flow();
                let victim = Track::P(event.subject as u32);
                let robbed = Details { name: "robbed", flow, ..Details::default() };
                self.tracks.event(time, victim, Type::Instant, robbed)?;
                let steals = Details { name: "steal", flow_end: flow, ..Details::default() };
                let on = self.here(event.writer, machine);
                self.tracks.event(time, on, Type::Instant, steals)?;
            }
            Kind::PreemptAsk | Kind::PreemptForce | Kind::WorldStop | Kind::WorldStart => {
                let details = Details { name: event.kind.name(), ..Details::default() };
                let on = self.here(event.writer, machine);
                self.tracks.event(time, on, Type::Instant, details)?;
            }
            Kind::Queues => {
                if let Some(p) = machine.m(event.writer).and_then(|m| m.p) {
                    self.tracks.counter(time, Track::Queue(p), event.subject)?;
                }
                self.tracks.counter(time, Track::GlobalQueue, event.number.into())?;
            }
            Kind::GoEnd => {
                self.names.remove(&machine.goroutine_of(event));
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends and begins the slices of a writer so that they show what it does now.
    fn update(&mut self, writer: u32, time: u64, machine: &Machine) -> io::Result<()> {
        let Some(&m) = machine.m(writer) else {
            return Ok(());
        };
        let runs = m.p.filter(|_| m.g != 0).map(|p| (p, m.g));
        if self.running.get(&writer).copied() != runs {
            self.end_run(writer, time)?;
            if let Some((p, g)) = runs {
                if let Some(&other) = self.on_p.get(&p) {
                    self.end_run(other, time)?;
                }
                let name = self.name(g);
                let flow_end = self.flows.remove(&g).unwrap_or(0);
                let details = Details { name: &name, goroutine: g, flow: 0, flow_end };
                self.tracks.event(time, Track::P(p), Type::SliceBegin, details)?;
                self.running.insert(writer, (p, g));
                self.on_p.insert(p, writer);
            }
        }
        let doing = match m.p {
            _ if m.parked => Doing::Asleep,
            _ if m.spinning => Doing::Searching,
            Some(p) => Doing::Holding(p),
            None if m.g != 0 => Doing::InCall,
            None => Doing::Nothing,
        };
        self.show(writer, doing, time)
    }

    fn end_run(&mut self, writer: u32, time: u64) -> io::Result<()> {
        if let Some((p, _)) = self.running.remove(&writer) {
            self.on_p.remove(&p);
            self.tracks.event(time, Track::P(p), Type::SliceEnd, Details::default())?;
        }
        Ok(())
    }

    fn show(&mut self, writer: u32, doing: Doing, time: u64) -> io::Result<()> {
        let old = self.doing.insert(writer, doing).unwrap_or(Doing::Nothing);
        if old == doing {
            return Ok(());
        }
        if old != Doing::Nothing {
            self.tracks.event(time, Track::M(writer), Type::SliceEnd, Details::default())?;
        }
        let name = match doing {
            Doing::Nothing => return Ok(()),
            Doing::Asleep => "asleep".to_owned(),
            Doing::Searching => "searching".to_owned(),
            Doing::InCall => "blocking call".to_owned(),
            Doing::Holding(p) => format!("P {p}"),
        };
        let details = Details { name: &name, ..Details::default() };
        self.tracks.event(time, Track::M(writer), Type::SliceBegin, details)
    }

    fn count(&mut self, time: u64, machine: &Machine) -> io::Result<()> {
        let procs = machine.n_procs().unwrap_or(0) as usize;
        let values = [
            (Track::Runnable, machine.n_runnable()),
            (Track::IdlePs, procs.saturating_sub(machine.n_held())),
            (Track::Spinning, machine.n_spinning()),
        ];
        for (at, (track, value)) in values.into_iter().enumerate() {
            let value = value as u64;
            if self.counters[at] != Some(value) {
                self.counters[at] = Some(value);
                self.tracks.counter(time, track, value)?;
            }
        }
        Ok(())
    }

    fn after_event(&mut self, event: &Event, machine: &Machine) -> io::Result<()> {
        let time = event.time;
        if event.extra.victim != 0 {
            self.update(event.extra.victim, time, machine)?;
        }
        self.update(event.writer, time, machine)?;
        self.count(time, machine)
    }

    fn end_all(&mut self, machine: &Machine) -> io::Result<()> {
        let mut writers: Vec<_> = self.doing.keys().copied().collect();
        writers.sort_unstable();
        for writer in writers {
            self.end_run(writer, self.last_time)?;
            self.show(writer, Doing::Nothing, self.last_time)?;
        }
        self.count(self.last_time, machine)
    }
}

impl<W: Write, F: FnMut(u64)> Visitor for Converter<'_, W, F> {
    fn begin(&mut self, context: &Context, time: u64) {
        // Its first event shows what it does; until then only that it is there.
        if self.outcome.is_ok() && context.writer != 0 {
            self.outcome = self.show(context.writer, Doing::Nothing, time);
        }
    }

    fn before(&mut self, event: &Event, machine: &Machine) {
        if self.outcome.is_ok() {
            self.outcome = self.event(event, machine);
        }
    }

    fn after(&mut self, event: &Event, machine: &Machine) {
        if self.outcome.is_ok() {
            self.outcome = self.after_event(event, machine);
        }
        self.last_time = event.time;
        self.n_events += 1;
        if self.n_events.is_multiple_of(1 << 16) {
            (self.progress)(self.n_events);
        }
    }

    fn end(&mut self, machine: &Machine) {
        if self.outcome.is_ok() {
            self.outcome = self.end_all(machine);
        }
    }
}

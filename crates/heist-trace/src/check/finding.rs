//! A broken rule, with what led to it.

use crate::model::{Event, Extra, Machine, Rule};
use crate::record::Kind;
use std::fmt;

/// Where a trace breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// Nanoseconds since the beginning of the trace.
    pub time: u64,
    /// The M, unless the thread is none.
    pub m: Option<u32>,
    /// The P that is concerned.
    pub p: Option<u32>,
    /// The goroutine that is concerned, or 0.
    pub g: u64,
    /// What is wrong.
    pub words: String,
    /// The last events of those that are concerned, oldest first.
    pub recent: Vec<String>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", seconds(self.time), self.rule.name())?;
        if let Some(m) = self.m {
            write!(f, ", M {m}")?;
        }
        if let Some(p) = self.p {
            write!(f, ", P {p}")?;
        }
        if self.g != 0 {
            write!(f, ", goroutine {}", self.g)?;
        }
        write!(f, ": {}", self.words)?;
        for line in &self.recent {
            write!(f, "\n    {line}")?;
        }
        Ok(())
    }
}

fn seconds(ns: u64) -> String {
    format!("{}.{:09} s", ns / 1_000_000_000, ns % 1_000_000_000)
}

const KEPT: usize = 4096;
const SHOWN: usize = 8;

/// The last events of the trace.
#[derive(Debug, Default)]
pub(super) struct Recent {
    ring: Vec<(Event, u64, Option<u32>)>,
    next: usize,
}

impl Recent {
    pub(super) fn push(&mut self, event: &Event, machine: &Machine) {
        let entry = (*event, machine.goroutine_of(event), proc_of(event, machine));
        if self.ring.len() < KEPT {
            self.ring.push(entry);
        } else {
            self.ring[self.next] = entry;
        }
        self.next = (self.next + 1) % KEPT;
    }

    /// The finding with the last events of its M, P and goroutine.
    pub(super) fn finding(
        &self,
        rule: Rule,
        event: &Event,
        machine: Option<&Machine>,
        words: String,
    ) -> Finding {
        let newest = self.newest_first().next();
        let (mut g, mut p) = match newest {
            Some((last, g, p)) if last == event => (*g, *p),
            _ => (0, None),
        };
        if let Some(machine) = machine {
            (g, p) = (machine.goroutine_of(event), proc_of(event, machine));
        }
        let concerns = |(other, its_g, its_p): &&(Event, u64, Option<u32>)| {
            let same_m = event.writer != 0 && other.writer == event.writer;
            same_m || g != 0 && *its_g == g || p.is_some() && is_about_proc(other) && *its_p == p
        };
        let mut recent: Vec<_> = self
            .newest_first()
            .filter(concerns)
            .take(SHOWN)
            .map(|(event, ..)| line(event))
            .collect();
        recent.reverse();
        Finding { rule, time: event.time, m: event.m(), p, g, words, recent }
    }

    fn newest_first(&self) -> impl Iterator<Item = &(Event, u64, Option<u32>)> {
        let (newer, older) = self.ring.split_at(self.next.min(self.ring.len()));
        newer.iter().rev().chain(older.iter().rev())
    }

    /// Stands for the end of the trace in a finding about a goroutine.
    pub(super) fn last_event(goroutine: u64, time: u64) -> Event {
        Event {
            time,
            raw_time: time,
            writer: 0,
            kind: Kind::GoStart,
            detail: 0,
            subject: goroutine,
            number: 0,
            extra: Extra::default(),
        }
    }
}

fn is_about_proc(event: &Event) -> bool {
    matches!(event.kind, Kind::ProcStart | Kind::ProcStop | Kind::ProcTake)
}

fn proc_of(event: &Event, machine: &Machine) -> Option<u32> {
    if is_about_proc(event) {
        return Some(event.subject as u32);
    }
    machine.m(event.writer).and_then(|m| m.p)
}

fn line(event: &Event) -> String {
    let by = event.m().map_or("a thread".to_owned(), |m| format!("M {m}"));
    let (time, kind) = (seconds(event.time), event.kind.name());
    let (subject, detail, number) = (event.subject, event.detail, event.number);
    format!("{time}  {by:<9} {kind} {subject} (detail {detail}, number {number})")
}

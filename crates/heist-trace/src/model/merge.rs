//! Merges the buffers of all writers into one order.
//!
//! The next event is the oldest one that is due: its goroutine, its P and its M are in the state
//! that its numbers demand. An event that is not due waits until others have brought that state
//! about. If nothing is due, the oldest event happens anyway; that breaks the rule `Order`, unless
//! events are missing.

use super::event::{Event, Extra};
use super::ids::{IdSet, Map};
use super::machine::{Machine, is_newer};
use super::timeline::Timeline;
use super::{Rule, Visitor};
use crate::file::{Block, Trace};
use crate::record::{Context, Kind};
use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What a writer does next.
enum Head<'a> {
    /// A buffer begins.
    Begin { context: &'a Context, raw_time: u64, gap: bool },
    /// An event.
    Event(Event),
}

/// A writer on its way through its buffers.
struct Cursor<'a> {
    writer: u32,
    blocks: Vec<&'a Block>,
    block: usize,
    /// The next record of the block; None: the block has not begun.
    record: Option<usize>,
    ticks: u64,
    head: Option<Head<'a>>,
}

impl<'a> Cursor<'a> {
    /// Moves to the next head.
    fn advance(&mut self, timeline: &Timeline) {
        self.head = None;
        while let Some(&block) = self.blocks.get(self.block) {
            let Some(at) = self.record else {
                self.record = Some(0);
                self.ticks = block.context.ticks;
                let gap = self.has_gap(self.block);
                let raw_time = timeline.ns(self.ticks);
                self.head = Some(Head::Begin { context: &block.context, raw_time, gap });
                return;
            };
            if let Some((event, next)) = self.read(block, at, timeline) {
                self.record = Some(next);
                self.head = Some(Head::Event(event));
                return;
            }
            self.block += 1;
            self.record = None;
        }
    }

    /// Whether records are missing before this block. What came before the first is not known
    /// anyway.
    fn has_gap(&self, at: usize) -> bool {
        at > 0 && {
            let (before, after) = (&self.blocks[at - 1].context, &self.blocks[at].context);
            after.dropped > 0 || before.sequence.wrapping_add(1) != after.sequence
        }
    }

    /// The event at `at` or after it, with the records that belong to it.
    fn read(
        &mut self,
        block: &Block,
        mut at: usize,
        timeline: &Timeline,
    ) -> Option<(Event, usize)> {
        loop {
            let record = *block.records.get(at)?;
            self.ticks = record.full_time(self.ticks);
            at += 1;
            let mut extra = Extra::default();
            // One that belongs to an event of a lost buffer.
            if extra.take(record) {
                continue;
            }
            let Some(kind) = record.kind() else {
                continue;
            };
            let raw_time = timeline.ns(self.ticks);
            while block.records.get(at).is_some_and(|&next| extra.take(next)) {
                at += 1;
            }
            let event = Event {
                time: raw_time,
                raw_time,
                writer: self.writer,
                kind,
                detail: record.detail(),
                subject: record.subject(),
                number: record.number(),
                extra,
            };
            return Some((event, at));
        }
    }

    /// Whether one of the next records changes the same goroutine or P, and comes before this event
    /// by its number.
    fn has_earlier(&self, event: &Event, n_records: usize) -> bool {
        let rest = self.record.unwrap_or(0);
        let Some((block, later)) = self.blocks.get(self.block..).and_then(<[_]>::split_first)
        else {
            return false;
        };
        let now = block.records.get(rest..).unwrap_or_default().iter();
        let later = later.iter().flat_map(|block| &block.records);
        let earlier = |kind, subject, number| {
            subject == event.subject
                && is_about_proc(kind) == is_about_proc(event.kind)
                && has_number(kind)
                && (is_newer(event.number, number)
                    || number == event.number
                        && kind == Kind::GoBlock
                        && matches!(event.kind, Kind::GoUnblock | Kind::GoDrop))
        };
        let is_next = match &self.head {
            Some(Head::Event(head)) => earlier(head.kind, head.subject, head.number),
            Some(Head::Begin { context, .. }) => {
                earlier(Kind::GoStart, context.goroutine, context.goroutine_number)
            }
            None => false,
        };
        if is_next {
            return true;
        }
        now.chain(later).take(n_records).any(|record| {
            record.kind().is_some_and(|kind| earlier(kind, record.subject(), record.number()))
        })
    }

    fn raw_time(&self) -> Option<u64> {
        match self.head.as_ref()? {
            Head::Begin { raw_time, .. } => Some(*raw_time),
            Head::Event(event) => Some(event.raw_time),
        }
    }
}

const fn is_about_proc(kind: Kind) -> bool {
    matches!(kind, Kind::ProcStart | Kind::ProcStop | Kind::ProcTake)
}

const fn has_number(kind: Kind) -> bool {
    let goroutine = matches!(
        kind,
        Kind::GoStart
            | Kind::GoStop
            | Kind::GoFreeze
            | Kind::GoBlock
            | Kind::GoUnblock
            | Kind::GoEnd
            | Kind::GoDrop
    );
    goroutine || is_about_proc(kind)
}

/// How many records are looked at, of all writers together, in order to place the first event of a
/// goroutine or a P whose number is not known.
const LOOK_AHEAD: usize = 2048;

struct Merge<'a, 'v, V: Visitor> {
    visitor: &'v mut V,
    timeline: Timeline,
    machine: Machine,
    cursors: Vec<Cursor<'a>>,
    /// Heads that were not looked at, by time.
    ready: BinaryHeap<Reverse<(u64, usize)>>,
    /// Heads that are not due, by time.
    held_back: Vec<(u64, usize)>,
    /// Goroutines that will be made.
    unmade: IdSet,
    last_time: u64,
    /// A part of the trace is missing.
    incomplete: bool,
    /// Events are missing that would tell the order.
    uncertain: bool,
    problems: Vec<(Rule, String)>,
}

/// Tells the visitor what happened, in order, and answers the scheduler at the end.
pub fn replay<V: Visitor>(trace: &Trace, visitor: &mut V) -> Machine {
    let timeline = Timeline::new(trace);
    let cursors = cursors(trace);
    let gaps = |cursor: &Cursor<'_>| (0..cursor.blocks.len()).any(|at| cursor.has_gap(at));
    let incomplete = trace.truncated.is_some()
        || trace.drops.iter().any(|drops| drops.records > 0)
        || cursors.iter().any(gaps);
    let mut merge = Merge {
        visitor,
        timeline,
        machine: Machine::new(trace),
        cursors,
        ready: BinaryHeap::new(),
        held_back: Vec::new(),
        unmade: made(trace),
        last_time: 0,
        incomplete,
        uncertain: false,
        problems: Vec::new(),
    };
    for at in 0..merge.cursors.len() {
        merge.proceed(at);
    }
    while merge.step() {}
    merge.visitor.end(&merge.machine);
    merge.machine
}

fn cursors(trace: &Trace) -> Vec<Cursor<'_>> {
    let mut writers: Map<u32, Vec<&Block>> = Map::default();
    for block in &trace.blocks {
        writers.entry(block.context.writer).or_default().push(block);
    }
    let mut writers: Vec<_> = writers.into_iter().collect();
    writers.sort_unstable_by_key(|&(writer, _)| writer);
    let cursor = |(writer, mut blocks): (u32, Vec<_>)| {
        blocks.sort_by_key(|block: &&Block| block.context.sequence);
        Cursor { writer, blocks, block: 0, record: None, ticks: 0, head: None }
    };
    writers.into_iter().map(cursor).collect()
}

/// The goroutines that are made in this trace.
fn made(trace: &Trace) -> IdSet {
    let mut made = IdSet::default();
    for record in trace.blocks.iter().flat_map(|block| &block.records) {
        if record.kind() == Some(Kind::GoCreate) {
            made.insert(record.subject());
        }
    }
    made
}

impl<V: Visitor> Merge<'_, '_, V> {
    /// Lets the next thing happen; false at the end.
    fn step(&mut self) -> bool {
        for at in 0..self.held_back.len() {
            let (_, cursor) = self.held_back[at];
            if self.is_due(cursor) {
                self.held_back.remove(at);
                self.happen(cursor, false);
                return true;
            }
        }
        while let Some(Reverse((time, cursor))) = self.ready.pop() {
            if self.is_due(cursor) {
                self.happen(cursor, false);
                return true;
            }
            let at = self.held_back.partition_point(|&other| other < (time, cursor));
            self.held_back.insert(at, (time, cursor));
        }
        if self.held_back.is_empty() {
            return false;
        }
        let (_, cursor) = self.held_back.remove(0);
        self.happen(cursor, true);
        true
    }

    fn is_due(&self, cursor: usize) -> bool {
        match &self.cursors[cursor].head {
            Some(Head::Event(event)) => {
                let not_made = matches!(event.kind, Kind::GoStart | Kind::GoUnblock | Kind::GoDrop)
                    && self.unmade.contains(event.subject);
                !not_made
                    && self.machine.is_due(event)
                    && (self.machine.knows_number(event) || !self.has_earlier(cursor, event))
            }
            _ => true,
        }
    }

    /// Whether another writer has an event that comes before this one. The clocks of two writers
    /// differ, and the numbers decide only if one is known.
    fn has_earlier(&self, cursor: usize, event: &Event) -> bool {
        let n_records = LOOK_AHEAD / self.cursors.len();
        let others = self.cursors.iter().enumerate().filter(|&(at, _)| at != cursor);
        has_number(event.kind)
            && others.into_iter().any(|(_, other)| other.has_earlier(event, n_records))
    }

    /// Lets the head of a writer happen.
    fn happen(&mut self, at: usize, forced: bool) {
        match self.cursors[at].head.take() {
            Some(Head::Event(event)) => self.event(event, forced),
            Some(Head::Begin { context, raw_time, gap }) => self.begin(context, raw_time, gap),
            None => {}
        }
        self.proceed(at);
    }

    fn proceed(&mut self, at: usize) {
        let cursor = &mut self.cursors[at];
        cursor.advance(&self.timeline);
        if let Some(time) = cursor.raw_time() {
            self.ready.push(Reverse((time, at)));
        }
    }

    fn begin(&mut self, context: &Context, raw_time: u64, gap: bool) {
        let time = raw_time.max(self.last_time);
        self.last_time = time;
        if gap {
            self.machine.forget();
            self.visitor.gap(context.writer, time);
            self.become_uncertain(time);
        }
        if context.writer == 0 {
            return;
        }
        let is_first = self.machine.m(context.writer).is_none();
        if is_first || gap {
            self.visitor.begin(context, time);
            self.machine.adopt(context, time, raw_time);
        } else if V::CHECKS
            && !self.uncertain
            && let Some(words) = self.machine.differs(context)
        {
            let event = Event {
                time,
                raw_time,
                writer: context.writer,
                kind: Kind::ProcStart,
                detail: 0,
                subject: 0,
                number: 0,
                extra: Extra::default(),
            };
            self.visitor.problem(Rule::Contexts, &event, words);
        }
    }

    fn become_uncertain(&mut self, time: u64) {
        if !self.uncertain {
            self.uncertain = true;
            self.visitor.uncertain(time);
        }
    }

    fn event(&mut self, mut event: Event, forced: bool) {
        event.time = event.time.max(self.last_time);
        self.last_time = event.time;
        if event.kind == Kind::GoCreate {
            self.unmade.remove(event.subject);
        }
        self.visitor.before(&event, &self.machine);
        if V::CHECKS {
            self.machine.check(&event, &mut self.problems);
            if forced && self.incomplete {
                // What it waits for is lost.
                self.become_uncertain(event.time);
            }
            if self.uncertain {
                self.problems.retain(|(rule, _)| rule.is_local());
            } else if forced && self.problems.is_empty() {
                let words = "what must come before this event is not in the trace".to_owned();
                self.problems.push((Rule::Order, words));
            }
            for (rule, words) in self.problems.drain(..) {
                self.visitor.problem(rule, &event, words);
            }
        }
        if forced && self.incomplete {
            self.machine.forget();
        }
        self.machine.apply(&event);
        self.visitor.after(&event, &self.machine);
    }
}

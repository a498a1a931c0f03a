//! What goroutines do, while the trace is still being written.
//!
//! [`replay`](crate::model::replay) needs a whole trace. A [`Follower`] takes the sections of one
//! as they come and tells what happened to each goroutine: in exact order for one goroutine, and in
//! no particular order for different ones. It remembers what each living goroutine does, and
//! nothing of those that ended.
//!
//! # Order
//! Buffers of different threads come in any order, so the end of a wait may come before its
//! beginning. Each event has the number of its goroutine, and of two events with the same number
//! one must be first: so the events of a goroutine form a chain. An event that is not the next one
//! of its chain is held back.
//!
//! # Marks
//! A clock section is a mark: what happened before the clock section before it has been written.
//! A recorder that is followed writes one from time to time. An event that was held back over two
//! marks waits for something that was lost, and happens anyway. Nothing is told before the second
//! mark, because the length of a tick is not known.

mod chain;
mod clock;

use crate::file::{Block, Goroutine, Header, Section, Site, State};
use crate::model::{IdSet, Map};
use crate::record::{End, Kind, Record, Stop, Wake};
use chain::{Life, Pending, Raw};
use clock::LiveClock;
use std::sync::Arc;

/// Something that a goroutine did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Happening {
    /// The goroutine.
    pub goroutine: u64,
    /// Nanoseconds on the monotonic clock of the program.
    pub time_ns: u64,
    /// What it did.
    pub step: Step,
}

/// What a goroutine did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// It was made, or is seen for the first time.
    Appears(Appearance),
    /// It runs.
    Starts,
    /// It left its thread, and can run again.
    Stops(Stop),
    /// It waits for a P together with its thread.
    Freezes,
    /// It waits for something: a place in [`Header::wait_reasons`].
    Waits(u8),
    /// Its wait ended, and it can run.
    Wakes {
        /// What ended the wait.
        how: Wake,
        /// The goroutine that did it; 0 if it was a thread, the clock or the network.
        by: u64,
    },
    /// It runs, and begins a blocking call.
    CallStarts,
    /// Its blocking call is over.
    CallStops,
    /// It ended.
    Ends(End),
}

/// A goroutine that is seen for the first time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Appearance {
    /// It was made at this moment; otherwise it existed before.
    pub is_new: bool,
    /// The goroutine that made it, or 0.
    pub parent: u64,
    /// What it does.
    pub state: State,
    /// What it waits for, if it waits.
    pub wait_reason: u8,
    /// Its class: 0 normal, 1 latency, 2 idle.
    pub class: u8,
    /// It polls a future.
    pub is_task: bool,
    /// Where it was spawned, if known.
    pub site: Option<Arc<Site>>,
    /// Its name, or nothing.
    pub name: Arc<str>,
}

/// Follows a trace that is being written.
#[derive(Debug)]
pub struct Follower {
    header: Header,
    clock: LiveClock,
    sites: Map<u64, Arc<Site>>,
    texts: Map<u64, Arc<str>>,
    lives: Map<u64, Life>,
    /// Events that are not due yet, with the mark before them.
    held: Map<u64, Vec<(u64, Pending)>>,
    /// The next buffer of each writer.
    sequences: Map<u32, u32>,
    n_marks: u64,
    n_lost: u64,
    /// What is kept until the second mark.
    early: Option<Box<Early>>,
}

#[derive(Debug, Default)]
struct Early {
    events: Vec<(u64, Pending)>,
    snapshot: Vec<(u64, Goroutine, u64)>,
    ended: IdSet,
}

impl Follower {
    /// Follows a trace that begins with this header.
    #[must_use]
    pub fn new(header: Header) -> Self {
        Self {
            clock: LiveClock::new(header.ticks_clock),
            header,
            sites: Map::default(),
            texts: Map::default(),
            lives: Map::default(),
            held: Map::default(),
            sequences: Map::default(),
            n_marks: 0,
            n_lost: 0,
            early: Some(Box::default()),
        }
    }

    /// The text of a wait reason.
    #[must_use]
    pub fn wait_reason(&self, reason: u8) -> &str {
        self.header.wait_reasons.get(usize::from(reason)).map_or("unknown", |text| text)
    }

    /// Whether all goroutines that existed when the trace began have appeared.
    #[must_use]
    pub fn is_settled(&self) -> bool {
        self.early.is_none()
    }

    /// How many events are known to be missing. A goroutine whose end is among them stays.
    #[must_use]
    pub fn n_lost(&self) -> u64 {
        self.n_lost
    }

    /// How many texts it remembers. Every name that differs from all others is one, and so is every
    /// message; a trace cannot say that one is not needed any more.
    #[must_use]
    pub fn n_texts(&self) -> usize {
        self.texts.len()
    }

    /// How many marks it has seen.
    #[must_use]
    pub fn n_marks(&self) -> u64 {
        self.n_marks
    }

    /// Nanoseconds since 1970 of a time. Later changes of the wall clock do not count.
    #[must_use]
    pub fn unix_ns(&self, time_ns: u64) -> u64 {
        self.clock.unix_ns(time_ns)
    }

    /// Takes the next section of the trace, and calls `tell` with what can be told now.
    pub fn take(&mut self, section: Section, tell: &mut impl FnMut(Happening)) {
        match section {
            Section::Clock(clock) => {
                self.clock.set(&clock);
                self.n_marks += 1;
                self.mark(tell);
            }
            Section::String(number, text) => _ = self.texts.insert(number, text.into()),
            Section::Site(number, site) => _ = self.sites.insert(number, Arc::new(site)),
            Section::Block(block) => self.block(&block, tell),
            Section::Snapshot(ticks, goroutines) => {
                if let Some(early) = &mut self.early {
                    let seen = goroutines.into_iter().map(|(seen, site)| (ticks, seen, site));
                    early.snapshot.extend(seen);
                }
            }
            Section::Drops(drops) => self.n_lost += drops.records,
            Section::Stack(..) => {}
        }
    }

    fn block(&mut self, block: &Block, tell: &mut impl FnMut(Happening)) {
        let context = &block.context;
        let sequence = context.sequence;
        let expected = self.sequences.insert(context.writer, sequence.wrapping_add(1));
        if context.dropped > 0 || expected.is_some_and(|expected| expected != sequence) {
            self.n_lost += context.dropped.max(1);
        }
        // What runs on this thread.
        let mut current = (context.goroutine, context.goroutine_number);
        let mut records = block.events().peekable();
        while let Some((ticks, record)) = records.next() {
            let Some(kind) = record.kind() else { continue };
            let mut raw = chain::raw(kind, record, current.0);
            if let Some(Raw::Create(made)) = &mut raw {
                while let Some((_, next)) = records.next_if(|(_, next)| belongs_to_create(*next)) {
                    match next.kind() {
                        Some(Kind::Site) => {
                            (made.site, made.class) = (next.subject(), next.detail());
                        }
                        _ => made.name = next.subject(),
                    }
                }
            }
            let Some(raw) = raw else { continue };
            let (goroutine, number) = match raw {
                Raw::CallStart | Raw::CallStop => current,
                _ => (record.subject(), record.number()),
            };
            match raw {
                Raw::Start => current = (goroutine, number),
                Raw::Stop(_) | Raw::Freeze | Raw::Block(_) | Raw::End(_) => current = (0, 0),
                _ => {}
            }
            if goroutine != 0 {
                self.receive(goroutine, Pending { number, ticks, raw }, tell);
            }
        }
    }

    fn receive(&mut self, id: u64, event: Pending, tell: &mut impl FnMut(Happening)) {
        if let Some(early) = &mut self.early {
            early.events.push((id, event));
            return;
        }
        self.place(id, event, tell);
    }

    /// Lets an event happen if it is due, and what waited for it; otherwise holds it back.
    fn place(&mut self, id: u64, event: Pending, tell: &mut impl FnMut(Happening)) {
        let life = self.lives.get(&id);
        if chain::is_due(life, &event) {
            self.happen(id, event, tell);
            self.retry(id, tell);
        } else if life.is_none_or(|life| !life.is_past(&event)) {
            self.held.entry(id).or_default().push((self.n_marks, event));
        }
    }

    /// Lets the events of a goroutine happen that are due now.
    fn retry(&mut self, id: u64, tell: &mut impl FnMut(Happening)) {
        while let Some(held) = self.held.get_mut(&id) {
            let life = self.lives.get(&id);
            held.retain(|(_, event)| life.is_none_or(|life| !life.is_past(event)));
            let next = held.iter().position(|(_, event)| chain::is_due(life, event));
            let event = next.map(|at| held.remove(at).1);
            if held.is_empty() {
                self.held.remove(&id);
            }
            let Some(event) = event else { return };
            self.happen(id, event, tell);
        }
    }

    fn happen(&mut self, id: u64, event: Pending, tell: &mut impl FnMut(Happening)) {
        let is_unknown = !self.lives.contains_key(&id);
        let step = match event.raw {
            Raw::Create(made) => Step::Appears(Appearance {
                is_new: true,
                parent: made.parent,
                state: if made.is_unborn { State::Unborn } else { State::Runnable },
                wait_reason: 0,
                class: made.class,
                is_task: made.is_task,
                site: self.sites.get(&made.site).cloned(),
                name: self.texts.get(&made.name).cloned().unwrap_or_default(),
            }),
            Raw::Start => Step::Starts,
            Raw::Stop(why) => Step::Stops(why),
            Raw::Freeze => Step::Freezes,
            Raw::Block(reason) => Step::Waits(reason),
            Raw::Unblock { how, by } => Step::Wakes { how, by },
            Raw::CallStart => Step::CallStarts,
            Raw::CallStop => Step::CallStops,
            Raw::End(how) => Step::Ends(how),
        };
        let time_ns = self.clock.ns(event.ticks);
        if is_unknown && !matches!(step, Step::Appears(_) | Step::Ends(_)) {
            let appears = Step::Appears(Appearance::default());
            tell(Happening { goroutine: id, time_ns, step: appears });
        }
        if matches!(step, Step::Ends(_)) {
            self.lives.remove(&id);
            if let Some(early) = &mut self.early {
                early.ended.insert(id);
            }
        } else {
            self.lives.entry(id).or_default().apply(&event);
        }
        tell(Happening { goroutine: id, time_ns, step });
    }

    fn mark(&mut self, tell: &mut impl FnMut(Happening)) {
        if self.n_marks < 2 {
            return;
        }
        if let Some(early) = &mut self.early {
            let events = std::mem::take(&mut early.events);
            for (id, event) in events {
                self.place(id, event, tell);
            }
            if let Some(early) = self.early.take() {
                self.adopt(*early, tell);
            }
        }
        let overdue = |&(mark, _): &(u64, Pending)| mark + 2 <= self.n_marks;
        let held = self.held.iter().filter(|(_, events)| events.iter().any(overdue));
        let ids: Vec<u64> = held.map(|(&id, _)| id).collect();
        for id in ids {
            self.force(id, tell);
        }
    }

    /// Lets the goroutines appear that existed before the trace.
    fn adopt(&mut self, early: Early, tell: &mut impl FnMut(Happening)) {
        for (ticks, seen, site) in early.snapshot {
            if self.lives.contains_key(&seen.id) || early.ended.contains(seen.id) {
                continue;
            }
            self.lives.insert(seen.id, Life::seen(&seen));
            let appearance = Appearance {
                is_new: false,
                parent: seen.parent,
                state: seen.state,
                wait_reason: seen.wait_reason,
                class: seen.class,
                is_task: seen.is_task,
                site: self.sites.get(&site).cloned(),
                name: seen.name.into(),
            };
            let (time_ns, step) = (self.clock.ns(ticks), Step::Appears(appearance));
            tell(Happening { goroutine: seen.id, time_ns, step });
            self.retry(seen.id, tell);
        }
    }

    /// What the events of a goroutine wait for is lost: lets the first of them happen.
    fn force(&mut self, id: u64, tell: &mut impl FnMut(Happening)) {
        let is_unknown = !self.lives.contains_key(&id);
        let Some(held) = self.held.get_mut(&id) else { return };
        if is_unknown && held.iter().any(|(_, event)| matches!(event.raw, Raw::End(_))) {
            // It ended after the trace began, and before the snapshot was taken.
            self.held.remove(&id);
            return;
        }
        self.n_lost += 1;
        let first = (0..held.len())
            .reduce(|first, at| if held[first].1.is_after(&held[at].1) { at } else { first });
        if let Some(first) = first {
            let (_, event) = held.remove(first);
            self.happen(id, event, tell);
        }
        self.retry(id, tell);
    }
}

fn belongs_to_create(record: Record) -> bool {
    matches!(record.kind(), Some(Kind::Site | Kind::Name))
}

//! What an event does to the emulated scheduler.
//!
//! An event is always applied, also if it breaks a rule: the writer knows what it did, and what is
//! known otherwise gives way.

use super::event::Event;
use super::machine::{Doing, Machine, is_newer};
use crate::record::{Freeze, Kind};

impl Machine {
    /// The goroutine that an event is about, or 0: its subject, or the one that runs here.
    #[must_use]
    pub fn goroutine_of(&self, event: &Event) -> u64 {
        match event.kind {
            Kind::GoCreate | Kind::GoStart | Kind::GoUnblock | Kind::GoDrop | Kind::Stuck => {
                event.subject
            }
            Kind::GoStop | Kind::GoFreeze | Kind::GoBlock | Kind::GoEnd if event.subject != 0 => {
                event.subject
            }
            _ => self.m(event.writer).map_or(0, |m| m.g),
        }
    }

    /// Whether everything that must come before the event has happened. An event that can never
    /// happen any more is not held back.
    pub(super) fn is_due(&self, event: &Event) -> bool {
        let number = event.number;
        match event.kind {
            Kind::GoStart => match self.number(event.subject) {
                _ if self.is_dead(event.subject) => true,
                Some(known) if number == known.wrapping_add(1) => match self.doing(event.subject) {
                    Doing::Runnable | Doing::Unknown => true,
                    Doing::Frozen => self.gs[&event.subject].writer == event.writer,
                    _ => false,
                },
                Some(known) => !is_newer(number, known),
                None => true,
            },
            Kind::GoUnblock | Kind::GoDrop => match self.number(event.subject) {
                _ if self.is_dead(event.subject) => true,
                Some(known) if number == known => matches!(
                    self.doing(event.subject),
                    Doing::Waiting | Doing::Unborn | Doing::Unknown
                ),
                Some(known) => !is_newer(number, known),
                None => true,
            },
            Kind::ProcStart | Kind::ProcStop | Kind::ProcTake => {
                let in_turn = match self.p_number(event.subject as u32) {
                    Some(known) => !is_newer(number, known.wrapping_add(1)),
                    None => true,
                };
                // An M that was robbed takes another P before it knows.
                in_turn && (event.kind != Kind::ProcStart || self.is_free(event.writer))
            }
            // The thread that took the P may have written it down later.
            Kind::CallStop if event.detail == 1 => self.is_free(event.writer),
            Kind::GoFreeze if event.detail == Freeze::NoP as u8 => self.is_free(event.writer),
            _ => true,
        }
    }

    /// Whether the order of this event is known from the number of its goroutine or its P.
    pub(super) fn knows_number(&self, event: &Event) -> bool {
        match event.kind {
            Kind::GoStart | Kind::GoUnblock | Kind::GoDrop => self.number(event.subject).is_some(),
            Kind::ProcStart | Kind::ProcStop | Kind::ProcTake => {
                self.p_number(event.subject as u32).is_some()
            }
            _ => true,
        }
    }

    fn is_free(&self, writer: u32) -> bool {
        self.m(writer).is_none_or(|m| self.sure_p(m).is_none())
    }

    pub(super) fn apply(&mut self, event: &Event) {
        let g = self.goroutine_of(event);
        let lost_p = match event.kind {
            Kind::CallStop => event.detail == 1,
            Kind::GoFreeze => event.detail == Freeze::NoP as u8,
            Kind::ProcStart => true,
            _ => false,
        };
        if lost_p && let Some(p) = self.m(event.writer).and_then(|m| m.p) {
            self.lose(p);
        }
        match event.kind {
            Kind::GoCreate => self.create(event),
            Kind::GoStart => self.start(event),
            Kind::GoStop => self.leave(event, g, Doing::Runnable),
            Kind::GoFreeze => self.leave(event, g, Doing::Frozen),
            Kind::GoBlock => self.leave(event, g, Doing::Waiting),
            Kind::GoEnd | Kind::GoDrop => self.end_of(event, g),
            Kind::GoUnblock if !self.is_dead(g) => {
                self.release(g);
                self.set(g, Doing::Runnable, 0, event.time).number = Some(event.number);
            }
            Kind::ProcStart | Kind::ProcStop | Kind::ProcTake => self.apply_to_p(event),
            Kind::CallStart | Kind::CallStop if g != 0 => {
                let started = event.kind == Kind::CallStart;
                let doing = if started { Doing::InCall } else { Doing::Running };
                self.set(g, doing, event.writer, event.time);
            }
            Kind::WorldStop | Kind::WorldStart => {
                self.world_stopped = (event.kind == Kind::WorldStop).then_some(event.time);
                self.world_known = true;
            }
            Kind::Procs => self.procs = Some(event.subject as u32),
            Kind::RegionStart if g != 0 => self.regions.entry(g).or_default().push(event.subject),
            Kind::RegionStop => {
                if let Some(regions) = self.regions.get_mut(&g) {
                    regions.pop();
                }
            }
            _ => {}
        }
        if g != 0
            && let Some(g) = self.gs.get_mut(&g)
        {
            g.last_raw = event.raw_time;
        }
        self.apply_to_m(event);
    }

    fn apply_to_p(&mut self, event: &Event) {
        let id = event.subject as u32;
        let known = self.p(id).and_then(|p| p.number);
        if known.is_some_and(|known| is_newer(known, event.number)) {
            // Its place in the order is lost, and somebody else has the P by now.
            if let Some(m) = self.ms.get_mut(&event.writer) {
                m.robbed = true;
            }
            return;
        }
        let holder = if event.kind == Kind::ProcStart { event.writer } else { 0 };
        self.hold(id, holder, event.number, event.time);
        let robbed = event.kind == Kind::ProcTake;
        let m = if robbed { event.extra.victim } else { event.writer };
        if let Some(m) = self.ms.get_mut(&m) {
            m.robbed = robbed;
        }
    }

    fn apply_to_m(&mut self, event: &Event) {
        let Some(m) = self.ms.get_mut(&event.writer) else {
            return;
        };
        m.last_raw = event.raw_time;
        m.fresh = false;
        match event.kind {
            Kind::MPark | Kind::MUnpark => {
                m.parked = event.kind == Kind::MPark;
                m.since = event.time;
            }
            Kind::SpinStart | Kind::SpinStop => {
                self.n_spinning -= usize::from(m.spinning);
                m.spinning = event.kind == Kind::SpinStart;
                self.n_spinning += usize::from(m.spinning);
                m.since = event.time;
            }
            Kind::GoFreeze if event.detail == Freeze::NoP as u8 => m.robbed = false,
            _ => {}
        }
    }

    fn create(&mut self, event: &Event) {
        let unborn = event.detail == 1;
        let doing = if unborn { Doing::Unborn } else { Doing::Runnable };
        let parent = self.m(event.writer).map_or(0, |m| m.g);
        self.dead.remove(event.subject);
        let g = self.set(event.subject, doing, 0, event.time);
        g.number = Some(event.number);
        (g.parent, g.class) = (parent, event.extra.class);
        (g.site, g.name) = (event.extra.site, event.extra.name);
    }

    fn start(&mut self, event: &Event) {
        let id = event.subject;
        self.dead.remove(id);
        self.release(id);
        let other = self.m(event.writer).map_or(0, |m| m.g);
        if other != 0 && other != id {
            // Something is missing; the goroutine that was here is somewhere else.
            self.set(other, Doing::Unknown, 0, event.time).number = None;
        }
        self.set(id, Doing::Running, event.writer, event.time).number = Some(event.number);
        if let Some(p) = self.m(event.writer).and_then(|m| m.p) {
            self.ps.entry(p).or_default().sure = true;
        }
        let m = self.ms.entry(event.writer).or_default();
        m.g = id;
        if m.frozen == id {
            m.frozen = 0;
        }
    }

    fn leave(&mut self, event: &Event, id: u64, doing: Doing) {
        if id == 0 {
            return;
        }
        self.release(id);
        let stays = doing == Doing::Frozen;
        let writer = if stays { event.writer } else { 0 };
        let g = self.set(id, doing, writer, event.time);
        g.number = Some(event.number);
        if doing == Doing::Waiting {
            g.wait_reason = event.detail;
        }
        if let Some(m) = self.ms.get_mut(&event.writer) {
            m.g = 0;
            if stays {
                m.frozen = id;
            }
        }
    }

    fn end_of(&mut self, event: &Event, id: u64) {
        if id == 0 {
            return;
        }
        self.release(id);
        self.set(id, Doing::Unknown, 0, event.time);
        self.gs.remove(&id);
        self.regions.remove(&id);
        self.dead.insert(id);
    }

    /// The goroutine is not on its M any more.
    fn release(&mut self, id: u64) {
        let writer = self.gs.get(&id).map_or(0, |g| g.writer);
        if let Some(m) = self.ms.get_mut(&writer) {
            if m.g == id {
                m.g = 0;
            }
            if m.frozen == id {
                m.frozen = 0;
            }
        }
    }
}

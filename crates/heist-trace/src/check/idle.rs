//! Work conservation: runnable goroutines beside idle Ps.

use crate::model::{Doing, Event, G, Machine};
use crate::record::Kind;
use std::collections::{HashMap, HashSet, VecDeque};

/// Idle times that were long enough to matter; older ones are forgotten.
const KEPT: usize = 4096;

/// A time without any event that is longer than this does not count: nothing of the process ran.
const STALL_NS: u64 = 2_000_000;

/// Remembers which Ps were idle for long.
#[derive(Debug)]
pub(super) struct Idleness {
    bound_ns: u64,
    /// When each P was handed to an M that sleeps. What comes then is up to the kernel.
    handed: HashMap<u32, u64>,
    /// The Ms that search.
    searching: HashSet<u32>,
    /// Since when an M searches, or was woken to search.
    searched_since: Option<u64>,
    /// From, to: times in which an M searched, or was woken to search and had not begun. No further
    /// M is woken meanwhile: that is the rule of the scheduler, and how long it takes is up to the
    /// kernel.
    searches: VecDeque<(u64, u64)>,
    /// P, from, to.
    long: VecDeque<(u32, u64, u64)>,
    /// From, to: times without events.
    stalls: VecDeque<(u64, u64)>,
    last_time: u64,
    /// P and beginning of the idle times that were reported: one finding is enough.
    reported: HashSet<(u32, u64)>,
    /// Before this, events are missing or the world was stopped.
    valid_from: u64,
}

impl Idleness {
    pub(super) fn new(bound_ns: u64) -> Self {
        Self {
            bound_ns,
            handed: HashMap::new(),
            searching: HashSet::new(),
            searched_since: None,
            searches: VecDeque::new(),
            long: VecDeque::new(),
            stalls: VecDeque::new(),
            last_time: 0,
            reported: HashSet::new(),
            valid_from: 0,
        }
    }

    /// Time has passed. This comes before all other questions about an event.
    pub(super) fn pass(&mut self, time: u64) {
        if time.saturating_sub(self.last_time) >= STALL_NS {
            if self.stalls.len() == KEPT {
                self.stalls.pop_front();
            }
            self.stalls.push_back((self.last_time, time));
        }
        self.last_time = time;
    }

    pub(super) fn before(&mut self, event: &Event, machine: &Machine) {
        match event.kind {
            Kind::ProcHand => {
                self.handed.insert(event.subject as u32, event.time);
            }
            Kind::ProcStart => {
                let id = event.subject as u32;
                if let Some(p) = machine.p(id)
                    && p.holder == Some(0)
                {
                    let end = self.idle_end(id, p.since, event.time);
                    if end - p.since >= self.bound_ns {
                        if self.long.len() == KEPT {
                            self.long.pop_front();
                        }
                        self.long.push_back((id, p.since, end));
                    }
                }
                self.handed.remove(&id);
            }
            Kind::SpinStart => drop(self.searching.insert(event.writer)),
            Kind::SpinStop | Kind::MPark => drop(self.searching.remove(&event.writer)),
            Kind::WorldStart | Kind::Procs => self.forget(event.time),
            _ => {}
        }
        let is_searched = !self.searching.is_empty() || !self.handed.is_empty();
        match self.searched_since {
            None if is_searched => self.searched_since = Some(event.time),
            Some(since) if !is_searched => {
                self.searched_since = None;
                if self.searches.len() == KEPT {
                    self.searches.pop_front();
                }
                self.searches.push_back((since, event.time));
            }
            _ => {}
        }
    }

    /// For how long, from `start` to `end`, nothing ran or an M searched.
    fn excused_ns(&self, start: u64, end: u64) -> u64 {
        let now = self.searched_since.map(|since| (since, end));
        let all = self.stalls.iter().chain(&self.searches).copied().chain(now);
        let mut parts: Vec<_> = all
            .map(|(from, to)| (from.max(start), to.min(end)))
            .filter(|(from, to)| from < to)
            .collect();
        parts.sort_unstable();
        let (mut excused, mut at) = (0, start);
        for (from, to) in parts {
            excused += to.saturating_sub(from.max(at));
            at = at.max(to);
        }
        excused
    }

    /// Until when a P was idle that was free from `from` to `to`.
    fn idle_end(&self, p: u32, from: u64, to: u64) -> u64 {
        self.handed.get(&p).map_or(to, |&handed| handed.clamp(from, to))
    }

    /// Nothing before this time counts.
    pub(super) fn forget(&mut self, time: u64) {
        self.valid_from = self.valid_from.max(time);
    }

    /// What is wrong with the wait of the goroutine that starts.
    pub(super) fn check_start(&mut self, event: &Event, machine: &Machine) -> Option<String> {
        self.check(event.subject, machine.g(event.subject)?, event.time, machine)
    }

    /// Goroutines that still wait at the end of the trace although they should not.
    pub(super) fn check_end(&mut self, time: u64, machine: &Machine) -> Vec<(u64, String)> {
        let mut waiting: Vec<_> = machine.goroutines().collect();
        waiting.sort_unstable_by_key(|&(id, _)| id);
        let late = |(id, g): (u64, &G)| Some((id, self.check(id, g, time, machine)?));
        waiting.into_iter().filter_map(late).collect()
    }

    fn check(&mut self, id: u64, g: &G, until: u64, machine: &Machine) -> Option<String> {
        let from = g.since.max(self.valid_from);
        let waits = matches!(g.doing, Doing::Runnable | Doing::Frozen) && g.class == 0;
        if !waits || until.saturating_sub(from) < self.bound_ns || machine.world_stopped().is_some()
        {
            return None;
        }
        let idle_now = machine
            .procs()
            .filter(|(id, p)| p.holder == Some(0) && machine.n_procs().is_none_or(|n| *id < n))
            .map(|(id, p)| (id, p.since, self.idle_end(id, p.since, until)));
        let overlap = |(p, idle_from, idle_to): (u32, u64, u64)| {
            let (start, end) = (idle_from.max(from), idle_to.min(until));
            let time = end.saturating_sub(start);
            // Most times are short: the list of excuses is not read for them.
            let excused = if time < self.bound_ns { 0 } else { self.excused_ns(start, end) };
            let ns = time.saturating_sub(excused);
            (ns >= self.bound_ns).then_some((ns, p, idle_from))
        };
        let long = self.long.iter().copied().chain(idle_now).filter_map(overlap).max();
        let (shared, p, idle_from) = long?;
        if !self.reported.insert((p, idle_from)) {
            return None;
        }
        let (waited, shared) = ((until - g.since) / 1_000, shared / 1_000);
        Some(format!(
            "goroutine {id} was runnable for {waited} µs, and P {p} was idle for {shared} µs of it"
        ))
    }
}

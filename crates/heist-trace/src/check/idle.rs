//! Work conservation: runnable goroutines beside idle Ps.

use crate::model::{Doing, Event, G, Machine};
use crate::record::Kind;
use std::collections::VecDeque;

/// Idle times that were long enough to matter; older ones are forgotten.
const KEPT: usize = 4096;

/// Remembers which Ps were idle for long.
#[derive(Debug)]
pub(super) struct Idleness {
    bound_ns: u64,
    /// P, from, to.
    long: VecDeque<(u32, u64, u64)>,
    /// Before this, events are missing or the world was stopped.
    valid_from: u64,
}

impl Idleness {
    pub(super) fn new(bound_ns: u64) -> Self {
        Self { bound_ns, long: VecDeque::new(), valid_from: 0 }
    }

    pub(super) fn before(&mut self, event: &Event, machine: &Machine) {
        match event.kind {
            Kind::ProcStart => {
                let id = event.subject as u32;
                if let Some(p) = machine.p(id)
                    && p.holder == Some(0)
                    && event.time - p.since >= self.bound_ns
                {
                    if self.long.len() == KEPT {
                        self.long.pop_front();
                    }
                    self.long.push_back((id, p.since, event.time));
                }
            }
            Kind::WorldStart | Kind::Procs => self.forget(event.time),
            _ => {}
        }
    }

    /// Nothing before this time counts.
    pub(super) fn forget(&mut self, time: u64) {
        self.valid_from = self.valid_from.max(time);
    }

    /// What is wrong with the wait of the goroutine that starts.
    pub(super) fn check_start(&self, event: &Event, machine: &Machine) -> Option<String> {
        self.check(event.subject, machine.g(event.subject)?, event.time, machine)
    }

    /// Goroutines that still wait at the end of the trace although they should not.
    pub(super) fn check_end(&self, time: u64, machine: &Machine) -> Vec<(u64, String)> {
        let late = |(id, g): (u64, &G)| Some((id, self.check(id, g, time, machine)?));
        let mut late: Vec<_> = machine.goroutines().filter_map(late).collect();
        late.sort_unstable();
        late
    }

    fn check(&self, id: u64, g: &G, until: u64, machine: &Machine) -> Option<String> {
        let from = g.since.max(self.valid_from);
        let waits = matches!(g.doing, Doing::Runnable | Doing::Frozen) && g.class == 0;
        if !waits || until.saturating_sub(from) < self.bound_ns || machine.world_stopped().is_some()
        {
            return None;
        }
        let idle_now = machine
            .procs()
            .filter(|(id, p)| p.holder == Some(0) && machine.n_procs().is_none_or(|n| *id < n))
            .map(|(id, p)| (id, p.since, until));
        let overlap = |(p, idle_from, idle_to): (u32, u64, u64)| {
            let shared = idle_to.min(until).saturating_sub(idle_from.max(from));
            (shared >= self.bound_ns).then_some((shared, p))
        };
        let (shared, p) = self.long.iter().copied().chain(idle_now).filter_map(overlap).max()?;
        let (waited, shared) = ((until - g.since) / 1_000, shared / 1_000);
        Some(format!(
            "goroutine {id} was runnable for {waited} µs, and P {p} was idle for {shared} µs of it"
        ))
    }
}

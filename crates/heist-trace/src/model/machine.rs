//! The emulated scheduler: what each goroutine, P and M does.

use super::ids::{IdSet, Map};
use crate::file::{State, Trace};
use crate::record::Context;

/// What a goroutine does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Doing {
    /// It was not seen yet, or events are missing.
    #[default]
    Unknown,
    /// It waits for the clock before it begins.
    Unborn,
    /// It waits for a P.
    Runnable,
    /// It runs.
    Running,
    /// It waits for something.
    Waiting,
    /// It is in a blocking call.
    InCall,
    /// It waits for a P together with its thread.
    Frozen,
}

/// A goroutine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct G {
    /// What it does.
    pub doing: Doing,
    /// How often it began to run or to wait, the low bits; None if that is not known.
    pub number: Option<u16>,
    /// The writer that it runs on or is frozen on, or 0.
    pub writer: u32,
    /// When it began to do this.
    pub since: u64,
    /// The time of its last event, on the clock of its writer.
    pub last_raw: u64,
    /// What it waits for, if it waits: a place in the list of reasons.
    pub wait_reason: u8,
    /// Its class: 0 normal, 1 latency, 2 idle.
    pub class: u8,
    /// The number of its site, or 0.
    pub site: u64,
    /// The string with its name, or 0.
    pub name: u64,
    /// The goroutine that made it, or 0.
    pub parent: u64,
    pub(super) epoch: u32,
}

/// A P.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct P {
    /// The writer that holds it; 0 if it is idle; None if not known.
    pub holder: Option<u32>,
    /// How often its holder changed, the low bits; None if that is not known.
    pub number: Option<u16>,
    /// Since when it has this holder.
    pub since: u64,
    /// The holder is not only what the beginning of a buffer says: an M may not know yet that its P
    /// was taken.
    pub(super) sure: bool,
}

/// An M.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct M {
    /// The P it holds.
    pub p: Option<u32>,
    /// The goroutine that it runs, or that is in a call on it; 0 if none.
    pub g: u64,
    /// The goroutine that is frozen on it, or 0.
    pub frozen: u64,
    /// It searches for work.
    pub spinning: bool,
    /// It sleeps.
    pub parked: bool,
    /// Since when it sleeps, searches, or does neither.
    pub since: u64,
    /// Nothing of it was seen but the beginning of its buffer, so it may have slept.
    pub fresh: bool,
    /// Its P was taken, and it does not know yet.
    pub robbed: bool,
    /// The time of its last event, on its clock.
    pub last_raw: u64,
}

/// The whole scheduler.
#[derive(Clone, Debug, Default)]
pub struct Machine {
    pub(super) gs: Map<u64, G>,
    pub(super) ps: Map<u32, P>,
    pub(super) ms: Map<u32, M>,
    pub(super) dead: IdSet,
    pub(super) regions: Map<u64, Vec<u64>>,
    pub(super) n_spinning: usize,
    pub(super) n_runnable: usize,
    pub(super) n_held: usize,
    pub(super) procs: Option<u32>,
    pub(super) world_stopped: Option<u64>,
    /// Whether the world was seen to stop or to run again: a trace can begin while it is stopped.
    pub(super) world_known: bool,
    /// Grows when events are missing: what was known before is not known any more.
    pub(super) epoch: u32,
}

impl Machine {
    pub(super) fn new(trace: &Trace) -> Self {
        let procs = trace.header.procs;
        let mut machine = Self { procs: (procs != 0).then_some(procs), ..Self::default() };
        for (_, goroutines) in &trace.snapshots {
            for goroutine in goroutines {
                // The first event decides what it did, because the snapshot may be later.
                let g = machine.gs.entry(goroutine.id).or_default();
                g.class = goroutine.class;
                g.parent = goroutine.parent;
                if goroutine.state == State::Waiting {
                    g.wait_reason = goroutine.wait_reason;
                }
            }
        }
        machine
    }

    /// A goroutine that is alive and was seen.
    #[must_use]
    pub fn g(&self, id: u64) -> Option<&G> {
        self.gs.get(&id)
    }

    /// A P that was seen.
    #[must_use]
    pub fn p(&self, id: u32) -> Option<&P> {
        self.ps.get(&id)
    }

    /// The M of a writer.
    #[must_use]
    pub fn m(&self, writer: u32) -> Option<&M> {
        self.ms.get(&writer)
    }

    /// The goroutines that are alive and were seen, in no order.
    pub fn goroutines(&self) -> impl Iterator<Item = (u64, &G)> {
        self.gs.iter().map(|(&id, g)| (id, g))
    }

    /// The Ps that were seen, in no order.
    pub fn procs(&self) -> impl Iterator<Item = (u32, &P)> {
        self.ps.iter().map(|(&id, p)| (id, p))
    }

    /// How many Ps there are, if known.
    #[must_use]
    pub fn n_procs(&self) -> Option<u32> {
        self.procs
    }

    /// How many goroutines are known to wait for a P.
    #[must_use]
    pub fn n_runnable(&self) -> usize {
        self.n_runnable
    }

    /// How many Ms search for work.
    #[must_use]
    pub fn n_spinning(&self) -> usize {
        self.n_spinning
    }

    /// How many Ps are known to have a holder.
    #[must_use]
    pub fn n_held(&self) -> usize {
        self.n_held
    }

    /// Since when the world is stopped, if it is.
    #[must_use]
    pub fn world_stopped(&self) -> Option<u64> {
        self.world_stopped
    }

    /// Whether a goroutine has ended.
    #[must_use]
    pub fn is_dead(&self, id: u64) -> bool {
        self.dead.contains(id)
    }

    /// What a goroutine is known to do: nothing, if events are missing since.
    pub(super) fn doing(&self, id: u64) -> Doing {
        self.gs.get(&id).map_or(Doing::Unknown, |g| self.current(g))
    }

    fn current(&self, g: &G) -> Doing {
        // A goroutine with an M is known as well as its M.
        if g.epoch == self.epoch || g.writer != 0 { g.doing } else { Doing::Unknown }
    }

    pub(super) fn number(&self, id: u64) -> Option<u16> {
        let g = self.gs.get(&id)?;
        if g.epoch == self.epoch || g.writer != 0 { g.number } else { None }
    }

    pub(super) fn holder(&self, id: u32) -> Option<u32> {
        self.ps.get(&id).filter(|p| p.sure)?.holder
    }

    pub(super) fn p_number(&self, id: u32) -> Option<u16> {
        self.ps.get(&id).filter(|p| p.sure)?.number
    }

    /// The P that an M is known to hold.
    pub(super) fn sure_p(&self, m: &M) -> Option<u32> {
        m.p.filter(|p| self.ps.get(p).is_some_and(|p| p.sure))
    }

    /// Moves a goroutine to another state.
    pub(super) fn set(&mut self, id: u64, doing: Doing, writer: u32, time: u64) -> &mut G {
        let epoch = self.epoch;
        let g = self.gs.entry(id).or_default();
        let waits = |doing| matches!(doing, Doing::Runnable | Doing::Frozen);
        self.n_runnable += usize::from(waits(doing));
        self.n_runnable -= usize::from(waits(g.doing));
        (g.doing, g.writer, g.since, g.epoch) = (doing, writer, time, epoch);
        g
    }

    /// Gives a P to a holder, or to nobody (0).
    pub(super) fn hold(&mut self, id: u32, holder: u32, number: u16, time: u64) {
        let p = self.ps.entry(id).or_default();
        let was_held = p.holder.is_some_and(|holder| holder != 0);
        self.n_held += usize::from(holder != 0);
        self.n_held -= usize::from(was_held);
        if let Some(old) = p.holder.filter(|&old| old != holder)
            && let Some(m) = self.ms.get_mut(&old)
            && m.p == Some(id)
        {
            m.p = None;
            // Unless it gave the P up itself.
            m.robbed = holder != 0;
        }
        *p = P { holder: Some(holder), number: Some(number), since: time, sure: true };
        if holder != 0 {
            self.ms.entry(holder).or_default().p = Some(id);
        }
    }

    /// Nobody knows who holds the P.
    pub(super) fn lose(&mut self, id: u32) {
        let p = self.ps.entry(id).or_default();
        self.n_held -= usize::from(p.holder.is_some_and(|holder| holder != 0));
        if let Some(m) = p.holder.and_then(|holder| self.ms.get_mut(&holder))
            && m.p == Some(id)
        {
            m.p = None;
        }
        (p.holder, p.number, p.sure) = (None, None, false);
    }

    /// Events are missing: what is known about things that no M holds is not known any more.
    pub(super) fn forget(&mut self) {
        self.epoch += 1;
        for p in self.ps.values_mut() {
            p.sure = false;
        }
    }

    /// Sets an M to what its buffer says about its beginning. Newer knowledge stays.
    pub(super) fn adopt(&mut self, context: &Context, time: u64, raw: u64) {
        let writer = context.writer;
        let old = self.ms.remove(&writer).unwrap_or_default();
        self.n_spinning -= usize::from(old.spinning);
        if let Some(p) = old.p.filter(|&p| context.p != p.wrapping_add(1))
            && self.ps.get(&p).is_some_and(|p| p.holder == Some(writer))
        {
            self.lose(p);
        }
        for left in [old.g, old.frozen] {
            if left != 0 && left != context.goroutine && self.gs.contains_key(&left) {
                self.set(left, Doing::Unknown, 0, time).number = None;
            }
        }
        let m = M {
            fresh: true,
            since: time,
            last_raw: raw,
            spinning: context.spinning,
            ..M::default()
        };
        self.ms.insert(writer, m);
        self.n_spinning += usize::from(context.spinning);
        if let Some(p) = context.p.checked_sub(1) {
            let known = self.ps.get(&p).and_then(|p| p.number);
            let newer = known.is_some_and(|known| is_newer(known, context.p_number));
            if newer {
                self.ms.entry(writer).or_default().robbed = true;
            } else {
                self.hold(p, writer, context.p_number, time);
                self.ps.entry(p).or_default().sure = false;
            }
        }
        let g = context.goroutine;
        if g != 0 && !self.dead.contains(g) {
            let newer = self.number(g).is_some_and(|n| is_newer(n, context.goroutine_number));
            if !newer {
                let doing = if context.in_call { Doing::InCall } else { Doing::Running };
                self.set(g, doing, writer, time).number = Some(context.goroutine_number);
                self.ms.entry(writer).or_default().g = g;
            }
        }
    }
}

/// Whether the number `a` comes after `b`; both are the low bits of larger numbers.
pub(super) const fn is_newer(a: u16, b: u16) -> bool {
    (a.wrapping_sub(b) as i16) > 0
}

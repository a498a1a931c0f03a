//! All goroutines of a runtime with their stacks.

use super::{Absent, Looked, Stack, look, on_large_stack, own, running};
use crate::current;
use crate::gmp::G;
use crate::gmp::described::Described;
use crate::gmp::flags::Flag;
use crate::gmp::pool;
use crate::sched::Sched;
use crate::sys::modules::{self, Modules};
use crate::sys::walk::{Frames, Registers, Walker};
use std::collections::{HashMap, HashSet};
use std::panic::Location;
use std::sync::Arc;

/// How often a goroutine is looked at that runs each time.
const LOOKS_MAX: u32 = 4;

/// A goroutine and its stack at one moment.
pub(crate) struct Entry {
    pub(crate) id: u64,
    /// Its record, which may serve another goroutine by now.
    pub(crate) gp: &'static G,
    /// The header line, as it was when the stack was read.
    pub(crate) header: String,
    /// Its state, as the header names it.
    pub(crate) state: &'static str,
    /// Whether the last search for leaks found it.
    pub(crate) is_leaked: bool,
    /// Where it was spawned.
    pub(crate) spawn_site: Option<&'static Location<'static>>,
    /// Goroutines with the same frames share them.
    pub(crate) stack: Result<Arc<Frames>, Absent>,
}

/// The goroutines of `sched` that are alive. `here` are the registers of the caller, if it is one
/// of them. What a walk needs is made on the stack, and too large for a small one.
pub(crate) fn entries(sched: &Sched, here: Registers) -> Vec<Entry> {
    on_large_stack(|| entries_here(sched, here))
}

fn entries_here(sched: &Sched, here: Registers) -> Vec<Entry> {
    let mut looker = Looker::new(sched, here);
    let mut entries = Vec::new();
    pool::for_each(|gp| {
        if sched.is_mine(gp) && !gp.flags.has(Flag::UNBORN) {
            // SAFETY: records are never unmapped.
            let gp: &'static G = unsafe { &*std::ptr::from_ref(gp) };
            entries.push(looker.entry(gp));
        }
    });
    entries
}

/// The goroutine of `sched` with this number.
pub(crate) fn entry_of(sched: &Sched, id: u64, here: Registers) -> Option<Entry> {
    on_large_stack(|| {
        let mut found = None;
        pool::for_each(|gp| {
            if sched.is_mine(gp) && gp.id.get() == id {
                // SAFETY: records are never unmapped.
                found = Some(unsafe { &*std::ptr::from_ref(gp) });
            }
        });
        found.map(|gp| Looker::new(sched, here).entry(gp))
    })
}

/// Whether a goroutine computes for long without a call into the runtime.
pub(crate) fn computes(gp: &G) -> bool {
    gp.flags.has(Flag::HOG)
}

/// The stack of one goroutine of `sched`.
pub(crate) fn stack_of(sched: &Sched, gp: &G, here: Registers) -> Stack {
    Looker::new(sched, here).stack(gp)
}

struct Looker<'a> {
    sched: &'a Sched,
    walker: Walker,
    modules: &'static Modules,
    /// The stacks of those that have threads, when they were last asked.
    running: Option<HashMap<u64, Stack>>,
    own: Option<(&'static G, Registers)>,
    minute: u32,
    distinct: HashSet<Arc<Frames>>,
}

impl<'a> Looker<'a> {
    fn new(sched: &'a Sched, here: Registers) -> Self {
        let own = current::goroutine().map(|gp| (gp, here));
        let (walker, modules) = (Walker::new(), modules::current());
        let (minute, distinct) = (sched.life.minute_now(), HashSet::new());
        Self { sched, walker, modules, running: None, own, minute, distinct }
    }

    fn entry(&mut self, gp: &'static G) -> Entry {
        let stack = self.stack(gp).map(|frames| self.share(frames));
        let mut header = String::new();
        // Writing to a String does not fail.
        let _ = Described::at(gp, self.minute).write_header(&mut header);
        let (state, spawn_site) = (Described::state_of(gp), gp.spawn_site());
        let is_leaked = Described::is_leaked(gp);
        Entry { id: gp.id.get(), gp, is_leaked, header, state, spawn_site, stack }
    }

    fn share(&mut self, frames: Frames) -> Arc<Frames> {
        if let Some(known) = self.distinct.get(&frames) {
            return Arc::clone(known);
        }
        let new = Arc::new(frames);
        self.distinct.insert(Arc::clone(&new));
        new
    }

    fn stack(&mut self, gp: &G) -> Stack {
        let (walker, modules) = (&mut self.walker, self.modules);
        if let Some((_, here)) = self.own.filter(|(own, _)| std::ptr::eq(*own, gp)) {
            return own(gp, here, walker, modules);
        }
        for round in 0..LOOKS_MAX {
            match look(self.sched, gp, walker, modules) {
                Looked::At(stack) => return stack,
                Looked::Disturbed => {}
                Looked::Runs => {
                    // Those that began to run since they were asked for are asked for once more.
                    let known = self.running.as_mut().and_then(|all| all.remove(&gp.id.get()));
                    if let Some(stack) = known {
                        return stack;
                    }
                    if self.running.is_none() || round != 0 {
                        self.running = Some(running::stacks(self.sched, walker, modules));
                    }
                }
            }
        }
        Err(Absent::Moving)
    }
}

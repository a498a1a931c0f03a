//! The Ms: what each does, and which of them sleep.

use crate::workload::Announced;
use heist_core::idle_ms::IdleMs;
use heist_core::list::{DoubleLink, DoublyLinked};
use heist_core::steal_order::Walk;
use std::ptr::NonNull;

/// A search over the Ps, as far as it has come.
#[derive(Clone, Debug)]
pub(crate) struct Scan {
    /// The number of the pass, from one.
    pub(crate) attempt: u32,
    /// The Ps that this pass has still to visit.
    pub(crate) walk: Walk,
    /// Whether this pass visits the own node; only if that comes first.
    pub(crate) near: bool,
    /// Whether a timer of another P ran.
    pub(crate) timer_ran: bool,
}

/// The next step of an M.
#[derive(Clone, Debug)]
pub(crate) enum Todo {
    /// None: it sleeps, or it blocks.
    Nothing,
    /// It was woken with a P.
    Begin,
    /// It looks into its own queue and the global one.
    Find,
    /// It visits other Ps.
    Steal(Scan),
    /// It has waited before it takes the `run_next` of a P that had run this many goroutines.
    BackOff(Scan, u32, u64),
    /// It lingers until then.
    Linger(u64),
    /// It gives its P back.
    Descend,
    /// It has given its P back and looks again.
    LastLook,
    /// It has watched these Ps for a moment; with the number of goroutines that each had run.
    WatchLook(Vec<(u32, u64)>),
    /// Its nap as the watcher is over.
    NapOver,
    /// It goes to sleep.
    Park,
    /// Its goroutine takes its next step.
    Run,
    /// Its goroutine has computed for this long.
    Computed(u64),
    /// Its goroutine was preempted.
    Preempted,
    /// Its goroutine begins a blocking call.
    Enter(u64, Announced),
}

/// A thread.
#[derive(Debug)]
pub(crate) struct Machine {
    pub(crate) p: Option<u32>,
    pub(crate) g: Option<u32>,
    pub(crate) todo: Todo,
    pub(crate) spinning: bool,
    pub(crate) lingered: bool,
    pub(crate) watching: bool,
    pub(crate) blocked_since_ns: Option<u64>,
    /// Goroutines readied before it began to spin, or to nap.
    pub(crate) readied_before: u64,
    pub(crate) asleep_ns: u64,
    /// Events of an older generation are void.
    pub(crate) generation: u32,
    pub(crate) on_cpu: bool,
    /// What is left of the step after its turn on the CPU.
    pub(crate) left_ns: u64,
    pub(crate) step_from_ns: u64,
    pub(crate) turn_until_ns: u64,
}

impl Machine {
    pub(crate) const fn new() -> Self {
        Self {
            p: None,
            g: None,
            todo: Todo::Nothing,
            spinning: false,
            lingered: false,
            watching: false,
            blocked_since_ns: None,
            readied_before: 0,
            asleep_ns: 0,
            generation: 0,
            on_cpu: false,
            left_ns: 0,
            step_from_ns: 0,
            turn_until_ns: 0,
        }
    }
}

/// What the list of idle Ms holds of an M.
#[derive(Debug)]
struct Token {
    link: DoubleLink<Self>,
    id: u32,
}

// SAFETY: `double_link` returns the same field at every call, only the list uses it, and tokens are
// boxed and freed only with the list.
unsafe impl DoublyLinked for Token {
    fn double_link(&self) -> &DoubleLink<Self> {
        &self.link
    }
}

/// The Ms that sleep: heist-core's list, behind numbers in place of pointers.
#[derive(Debug)]
pub(crate) struct IdleMachines {
    list: IdleMs<Token>,
    tokens: Vec<NonNull<Token>>,
}

impl IdleMachines {
    pub(crate) const fn new() -> Self {
        Self { list: IdleMs::new(), tokens: Vec::new() }
    }

    /// Makes the token of a new M. Numbers are used one after another.
    pub(crate) fn admit(&mut self, id: u32) {
        assert_eq!(id as usize, self.tokens.len(), "Ms are numbered one after another");
        let token = Box::new(Token { link: DoubleLink::new(), id });
        self.tokens.push(NonNull::from(Box::leak(token)));
    }

    pub(crate) fn push(&mut self, id: u32) {
        // SAFETY: tokens live as long as the list, and an M that goes to sleep is in no list.
        unsafe { self.list.push(self.tokens[id as usize]) };
    }

    pub(crate) fn pop(&mut self) -> Option<u32> {
        let token = self.list.pop()?;
        // SAFETY: tokens live as long as the list.
        Some(unsafe { token.as_ref() }.id)
    }

    /// Takes an M out, if it is there.
    pub(crate) fn remove(&mut self, id: u32) -> bool {
        // SAFETY: it is in this list or in none.
        unsafe { self.list.remove(self.tokens[id as usize]) }
    }
}

impl Drop for IdleMachines {
    fn drop(&mut self) {
        for &token in &self.tokens {
            // SAFETY: it came from a box, and the list that holds it is dropped with this.
            drop(unsafe { Box::from_raw(token.as_ptr()) });
        }
    }
}

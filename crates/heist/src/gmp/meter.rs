//! The meter of a strand of a fork-join computation that is measured.
//!
//! A meter is in the frame of the function that runs a half (`goroutine::measured`), and the deque
//! of its goroutine points to it. It divides the time of that goroutine: what runs is work and
//! span, what waits for an event is span alone, what waits for a processor is neither. The time
//! that the measurement itself takes is kept apart.
//!
//! # Access to the fields
//! The goroutine changes them, in the runtime, so that it cannot be preempted in the middle of a
//! change. While it does not run, its owner in the sense of `status` does: the M that it left, the
//! claimer, the M that runs it. The hooks at the end are called by these. They find the goroutine
//! by the hooks of the trace, which are on while something is measured.

use super::G;
use super::fork::Deque;
use crate::sys::clock;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use heist_core::work_span::Tally;
use std::cell::Cell;

/// How often the clock is read to find what a read costs.
const CLOCK_READS: u32 = 64;

/// What all strands of one measurement share.
#[derive(Debug)]
pub(crate) struct Totals {
    /// The time between two reads of the clock with nothing in between.
    clock_ns: u64,
    open: Level,
    suspended: Level,
}

impl Totals {
    pub(crate) fn new() -> Self {
        let between = |_| {
            let before = clock::now_ns();
            clock::now_ns() - before
        };
        let clock_ns = (0..CLOCK_READS).map(between).min().unwrap_or(0);
        Self { clock_ns, open: Level::new(), suspended: Level::new() }
    }

    /// The forks that are open now.
    pub(crate) const fn open(&self) -> &Level {
        &self.open
    }

    /// The strands that wait for an event now.
    pub(crate) const fn suspended(&self) -> &Level {
        &self.suspended
    }
}

/// A number that rises and falls, and its greatest value.
#[derive(Debug)]
pub(crate) struct Level {
    now: AtomicU32,
    greatest: AtomicU32,
}

impl Level {
    fn new() -> Self {
        Self { now: AtomicU32::new(0), greatest: AtomicU32::new(0) }
    }

    pub(crate) fn rise(&self) {
        self.reach(self.now.fetch_add(1, Ordering::Relaxed) + 1);
    }

    pub(crate) fn fall(&self) {
        self.now.fetch_sub(1, Ordering::Relaxed);
    }

    /// The number was as high as this for a while.
    fn reach(&self, level: u32) {
        if level > self.greatest() {
            self.greatest.fetch_max(level, Ordering::Relaxed);
        }
    }

    /// Another level, which rose above this one, was as high as `other`.
    pub(crate) fn reach_above(&self, other: u32) {
        self.reach(self.now.load(Ordering::Relaxed).saturating_add(other));
    }

    pub(crate) fn greatest(&self) -> u32 {
        self.greatest.load(Ordering::Relaxed)
    }
}

/// What the time of a goroutine is spent on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The computation.
    Strand,
    /// Forks, joins, and the measurement.
    Books,
}

/// The meter of a strand.
#[derive(Debug)]
pub(crate) struct Meter<'t> {
    totals: &'t Totals,
    tally: Cell<Tally>,
    part: Cell<Part>,
    /// Up to when its time has been counted.
    since_ns: Cell<u64>,
    /// It has left its M in order to wait for an event.
    waits: Cell<bool>,
    /// When that event happened; zero before.
    ready_ns: AtomicU64,
}

impl<'t> Meter<'t> {
    pub(crate) fn new(totals: &'t Totals) -> Self {
        Self {
            totals,
            tally: Cell::new(Tally::default()),
            part: Cell::new(Part::Strand),
            since_ns: Cell::new(0),
            waits: Cell::new(false),
            ready_ns: AtomicU64::new(0),
        }
    }

    /// They outlive every strand of the measurement.
    pub(crate) const fn totals(&self) -> &'t Totals {
        self.totals
    }

    pub(crate) const fn tally(&self) -> Tally {
        self.tally.get()
    }

    /// Begins to count, or continues.
    pub(crate) fn begin(&self, now_ns: u64) {
        self.since_ns.set(now_ns);
    }

    /// Counts the time until now, without what it takes to read the clock.
    pub(crate) fn pause(&self, now_ns: u64) {
        self.charge(now_ns.saturating_sub(self.totals.clock_ns));
        self.since_ns.set(now_ns);
    }

    /// Counts the time until now, and what follows as `part`.
    pub(crate) fn turn_to(&self, part: Part) {
        self.pause(clock::now_ns());
        self.part.set(part);
    }

    /// Adds what came after the part that has been counted.
    pub(crate) fn add(&self, next: Tally) {
        self.tally.set(self.tally.get().then(next));
    }

    fn charge(&self, until_ns: u64) {
        let ns = until_ns.saturating_sub(self.since_ns.get());
        self.add(match self.part.get() {
            Part::Strand => Tally { work_ns: ns, span_ns: ns, ..Tally::default() },
            Part::Books => Tally { books_ns: ns, ..Tally::default() },
        });
    }

    /// The goroutine has left its M, or is about to lose its P.
    fn stop(&self, parks: bool) {
        let now_ns = clock::now_ns();
        self.charge(now_ns);
        self.since_ns.set(now_ns);
        // A wait in the books is that for a half, whose own span counts.
        if parks && self.part.get() == Part::Strand {
            self.ready_ns.store(0, Ordering::Relaxed);
            self.waits.set(true);
            self.totals.suspended.rise();
        }
    }

    /// The event that the goroutine waited for has happened.
    fn ready(&self) {
        if self.waits.get() {
            self.ready_ns.store(clock::now_ns(), Ordering::Relaxed);
            self.totals.suspended.fall();
        }
    }

    /// The goroutine runs again.
    fn start(&self) {
        if self.waits.replace(false) {
            let ready_ns = self.ready_ns.load(Ordering::Relaxed);
            if ready_ns == 0 {
                // The wait was refused.
                self.totals.suspended.fall();
            }
            let ns = ready_ns.saturating_sub(self.since_ns.get());
            self.add(Tally { span_ns: ns, latency_ns: ns, ..Tally::default() });
        }
        self.since_ns.set(clock::now_ns());
    }
}

/// The deque and the meter of a goroutine that is measured. For its owner.
fn of(gp: &G) -> Option<(&'static Deque, &'static Meter<'static>)> {
    if !gp.has_started() || gp.coro.stack_top() == 0 {
        return None;
    }
    // Before its first run this is the stack of the goroutine that had the record before, and so
    // the deque of any goroutine or of none.
    // SAFETY: the caller owns the goroutine, and stacks are never unmapped.
    let deque = unsafe { gp.coro.deque() }.filter(|deque| deque.is_of(gp))?;
    // SAFETY: it is the goroutine's own: the frame with the meter is on its stack.
    Some((deque, unsafe { deque.meter() }?))
}

/// A goroutine has left its M. For that M.
pub(crate) fn left(gp: &G, parks: bool) {
    if let Some((deque, meter)) = of(gp) {
        meter.stop(parks);
        deque.deactivate(parks);
    }
}

/// A goroutine is about to wait for a P, on its thread. For that thread.
pub(crate) fn frozen(gp: &G) {
    if let Some((_, meter)) = of(gp) {
        meter.stop(false);
    }
}

/// The wait of a goroutine is over. For the claimer.
pub(crate) fn readied(gp: &G) {
    if let Some((_, meter)) = of(gp) {
        meter.ready();
    }
}

/// A goroutine is about to run, or runs again. For its M.
pub(crate) fn runs(gp: &G) {
    if let Some((_, meter)) = of(gp) {
        meter.start();
    }
}

//! Running a computation while its work and span are measured.
//!
//! A strand runs with a meter of its own (`gmp::meter`), on the goroutine that runs it. A fork adds
//! what its two strands have counted to the meter of the one that forked. A strand that unwinds has
//! counted until then.

use super::fork::join_measured;
use crate::current;
use crate::gmp::meter::{Meter, Part, Totals};
use crate::sched::forks::measured::{measure, unmeasure, with_meter};
use crate::sys::clock;
use crate::trace::recorder::Listening;
use heist_core::work_span::Tally;
use std::panic::Location;
use std::sync::OnceLock;

/// What was measured.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Measured {
    /// None on a plain thread, and if there was no memory.
    pub(crate) tally: Option<Tally>,
    pub(crate) elapsed_ns: u64,
    /// How many Ps there were at the end; one on a plain thread.
    pub(crate) procs: u32,
    /// The greatest number of forks that were open at the same time.
    pub(crate) n_open: u32,
    /// The greatest number of strands that waited for an event at the same time.
    pub(crate) n_suspended: u32,
}

/// Runs `f` and measures it.
pub(crate) fn run<T>(f: impl FnOnce() -> T) -> (T, Measured) {
    let _listening = Listening::begin();
    let whole = Whole { totals: Totals::new(), tally: OnceLock::new() };
    let began_ns = clock::now_ns();
    let value = strand(&whole.totals, &whole.tally, f);
    let measured = Measured {
        elapsed_ns: clock::now_ns() - began_ns,
        tally: whole.tally.get().copied(),
        procs: current::with_sched(|sched| sched.procs()).unwrap_or(1),
        n_open: whole.totals.open().greatest(),
        n_suspended: whole.totals.suspended().greatest(),
    };
    (value, measured)
}

/// A measurement. When it ends, it is added to the one that it is a part of, if any.
struct Whole {
    totals: Totals,
    tally: OnceLock<Tally>,
}

impl Drop for Whole {
    fn drop(&mut self) {
        let Some(&tally) = self.tally.get() else { return };
        with_meter(|outer| {
            outer.add(tally);
            outer.totals().open().reach_above(self.totals.open().greatest());
            outer.totals().suspended().reach_above(self.totals.suspended().greatest());
        });
    }
}

/// Runs `f`, and puts what it counted into `place`, also if it unwinds.
fn strand<R>(totals: &Totals, place: &OnceLock<Tally>, f: impl FnOnce() -> R) -> R {
    let meter = Meter::new(totals);
    // SAFETY: `Strand` takes the meter out again before this frame is left.
    let Some(before) = (unsafe { measure(&meter) }) else { return f() };
    let _strand = Strand { meter: &meter, before, place };
    f()
}

struct Strand<'a> {
    meter: &'a Meter<'a>,
    before: *const Meter<'static>,
    place: &'a OnceLock<Tally>,
}

impl Drop for Strand<'_> {
    fn drop(&mut self) {
        unmeasure(self.meter, self.before);
        // Each strand has a place of its own.
        let _ = self.place.set(self.meter.tally());
    }
}

/// A fork of a strand that is measured.
struct Fork<'t> {
    totals: &'t Totals,
    /// The goroutine that forked.
    forker: usize,
    left: OnceLock<Tally>,
    right: OnceLock<Tally>,
}

impl Drop for Fork<'_> {
    fn drop(&mut self) {
        let tally = |half: &OnceLock<Tally>| half.get().copied().unwrap_or_default();
        let both = tally(&self.left).beside(tally(&self.right));
        self.totals.open().fall();
        with_meter(|meter| {
            meter.add(both);
            meter.turn_to(Part::Strand);
        });
    }
}

impl Fork<'_> {
    /// Runs the second half, wherever it is.
    fn run_right(&self, b: &mut (dyn FnMut() + Send)) {
        strand(self.totals, &self.right, || {
            if here() != self.forker {
                with_meter(|meter| meter.add(Tally { n_taken: 1, ..Tally::default() }));
            }
            b();
        });
    }
}

/// The goroutine that calls.
fn here() -> usize {
    current::goroutine().map_or(0, |gp| std::ptr::from_ref(gp).addr())
}

/// The two halves of a fork of the calling goroutine, which is measured.
pub(super) fn join(
    a: &mut dyn FnMut(),
    b: &mut (dyn FnMut() + Send),
    site: &'static Location<'static>,
) {
    let totals = with_meter(|meter| {
        meter.turn_to(Part::Books);
        meter.totals().open().rise();
        meter.totals()
    });
    let Some(totals) = totals else { heist_core::throw!("join: the forker is not measured") };
    let fork = Fork { totals, forker: here(), left: OnceLock::new(), right: OnceLock::new() };
    join_measured(|| strand(totals, &fork.left, a), || fork.run_right(b), site);
}

//! Whether the holder of a P keeps it for too long.
//!
//! - An M in an announced blocking call loses its P after one full round, if others can use the P,
//!   and after 10 ms in any case.
//! - An M in user code that has not entered the runtime since the last look, used no CPU time and
//!   sleeps in the kernel is in a blocking call that was not announced. It loses its P too.
//! - A goroutine that has run for a whole slice while others wait is asked to yield, then forced.
//! - For goroutines of the idle class, or in the queue of another P, no goroutine is asked to
//!   yield. A thread that sleeps loses its P to them after 10 ms.

use super::Round;
use crate::gmp::flags::Flag;
use crate::gmp::{G, M, P};
use crate::sched::stall::{preempt, retake};
use crate::sched::{Sched, run};
use crate::sys::thread;
use crate::sys::thread_state::State;
use crate::trace::emit;
use heist_core::m_word::{Place, Stamp};
use heist_core::policy::sysmon::{self as rules, Demand, Look, Verdict};
use heist_core::policy::{FORCE_PERIOD_NS, PROCS_MAX};

/// The state that sysmon keeps for each P between two looks.
#[derive(Clone, Copy)]
struct Watch {
    slice: rules::Watch,
    /// The CPU time of the thread at the last look, if it was read.
    cpu_ns: Option<u64>,
    /// When the thread was last interrupted.
    forced_ns: u64,
    /// Whether the P runs a known hog whose slice is half over.
    half_over: bool,
}

impl Watch {
    const NEW: Self =
        Self { slice: rules::Watch::NEW, cpu_ns: None, forced_ns: 0, half_over: false };
}

/// The slices of all Ps.
pub(super) struct Slices {
    watches: Vec<Watch>,
    /// Whether a slice that others wait for was over in this round.
    any_ended: bool,
    /// Whether goroutines wait that a P without work of its own could run.
    work_to_spread: bool,
}

/// A P that is held, at the moment of a look.
struct Held<'a> {
    id: u32,
    pp: &'a P,
    m: &'a M,
    stamp: Stamp,
    slice_ns: u64,
    /// The goroutine on it, if that computed for its whole last slice.
    hog: Option<&'a G>,
}

impl Slices {
    pub(super) fn new() -> Self {
        // ALLOC: when the thread starts, for all Ps that there can be.
        let watches = Vec::with_capacity(PROCS_MAX as usize);
        Self { watches, any_ended: false, work_to_spread: false }
    }

    /// Looks at every P. True if one was taken.
    pub(super) fn look_at_all(&mut self, round: &mut Round<'_>, now: u64) -> bool {
        let mut acted = false;
        let procs = round.sched.procs();
        if procs as usize > self.watches.len() {
            self.watches.resize(procs as usize, Watch::NEW);
        }
        self.any_ended = false;
        self.work_to_spread = has_work_to_spread(round.sched);
        for id in 0..procs {
            acted |= self.look_at(round, id, now);
        }
        if self.any_ended {
            self.end_together(round, procs, now);
        }
        acted
    }

    /// Ends the slices of known hogs that have run for more than half of theirs, because another
    /// slice is over. From then on their slices end together, and one wake-up of sysmon, which
    /// takes a CPU from a hog, serves them all.
    fn end_together(&mut self, round: &mut Round<'_>, procs: u32, now: u64) {
        for id in 0..procs {
            let half_over = self.watches[id as usize].half_over;
            // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
            if half_over && let Some(m) = unsafe { round.sched.p(id).m().as_ref() } {
                self.end_slice(round, id, m, now, true);
            }
        }
    }

    /// Asks or forces the goroutine on `m`, which holds the P `id` and has run for long enough, to
    /// yield. If it is a known hog and will be interrupted, another one follows, or the bell rings
    /// (`bell::expect_no_hog`), so sysmon need not look before the next slice is over.
    fn end_slice(&mut self, round: &mut Round<'_>, id: u32, m: &M, now: u64, known: bool) {
        let watch = &mut self.watches[id as usize];
        let forced_ns = &mut watch.forced_ns;
        let yields = preempt::request(round.sched, m, now, forced_ns, &mut round.states) && known;
        if !yields && watch.cpu_ns.is_none() {
            // The thread may sleep. The next look shows it.
            watch.cpu_ns = thread::cpu_ns(m.tid());
        }
        if !yields {
            round.agenda.suspect();
        }
        let pause_ns = if yields { round.sched.config.quantum_ns } else { FORCE_PERIOD_NS };
        round.agenda.look_at(now.saturating_add(pause_ns));
    }

    /// Looks at one P. True if it was taken.
    fn look_at(&mut self, round: &mut Round<'_>, id: u32, now: u64) -> bool {
        let sched = round.sched;
        let pp = sched.p(id);
        let watch = &mut self.watches[id as usize];
        // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
        let Some(m) = (unsafe { pp.m().as_ref() }) else {
            *watch = Watch::NEW;
            return false;
        };
        let stamp = m.word.stamp();
        // A goroutine of the idle class yields at once.
        let idle = m.current().is_some_and(|gp| gp.flags.has(Flag::IDLE));
        let slice_ns = if idle { 0 } else { sched.config.quantum_ns };
        // A goroutine that computed for its whole last slice most likely does so again. Until the
        // end of this slice it is not suspected of blocking, and sysmon sleeps: each look takes a
        // CPU from a hog.
        let hog = m.current().filter(|gp| gp.flags.has(Flag::HOG));
        let (began_ns, began) = (pp.began_ns(), m.word.marked());
        let look = Look { now_ns: now, tick: pp.tick(), began_ns, began, stamp, slice_ns };
        if watch.slice.is_new(look.tick) {
            (watch.cpu_ns, watch.forced_ns) = (None, 0);
        }
        let elsewhere = self.work_to_spread && !pp.is_reserved;
        let demand = Demand { elsewhere, ..demand_for(sched, pp) };
        if !pp.is_reserved && watch.slice.makes_progress(now, look.tick) {
            round.progress_ns = now;
        }
        watch.half_over = false;
        match watch.slice.look(look, demand) {
            Verdict::Leave => false,
            Verdict::Take => retake::take_p(sched, m, pp, stamp),
            Verdict::New { ends_ns } => {
                if demand.anywhere {
                    if hog.is_none() {
                        // The next look shows whether the thread sleeps.
                        watch.cpu_ns = thread::cpu_ns(m.tid());
                        if !round.makes_progress(now) {
                            round.agenda.suspect();
                        }
                    }
                    round.agenda.look_at(ends_ns);
                }
                false
            }
            Verdict::Busy { unmoved, ends_ns } => {
                let held = Held { id, pp, m, stamp, slice_ns, hog };
                self.look_at_busy(round, &held, unmoved, ends_ns, now)
            }
            Verdict::Unhurried { unmoved } => {
                let held = Held { id, pp, m, stamp, slice_ns, hog };
                self.look_at_unhurried(round, &held, unmoved)
            }
        }
    }

    /// Looks at a P whose goroutine was there before. `unmoved`: it has not entered the runtime
    /// since. True if the P was taken.
    fn look_at_busy(
        &mut self,
        round: &mut Round<'_>,
        held: &Held<'_>,
        unmoved: bool,
        ends_ns: u64,
        now: u64,
    ) -> bool {
        let Held { id, m, slice_ns, hog, .. } = *held;
        let watch = &mut self.watches[id as usize];
        let before = watch.cpu_ns.take();
        if !unmoved && let Some(hog) = hog {
            hog.flags.clear(Flag::HOG);
        }
        let known = unmoved && hog.is_some();
        // The slice of a known hog began a little after sysmon had ended the one before, so it
        // counts as over a little early.
        let over = now >= ends_ns || known && now.saturating_add(slice_ns / 32) >= ends_ns;
        if !known && !round.makes_progress(now) {
            round.agenda.suspect();
        }
        if unmoved && (before.is_some() || !known) {
            watch.cpu_ns = thread::cpu_ns(m.tid());
            let slept = before.is_some() && before == watch.cpu_ns;
            if slept && take_from_sleeper(round, held) {
                return true;
            }
        }
        if over {
            if unmoved && let Some(gp) = m.current() {
                if !gp.flags.has(Flag::HOG) {
                    emit::stuck(&round.sched.recorder, gp, 0, slice_ns);
                }
                gp.flags.set(Flag::HOG);
            }
            self.any_ended = true;
            self.end_slice(round, id, m, now, known);
        } else {
            watch.half_over = known && watch.slice.is_half_over(now, slice_ns);
            round.agenda.look_at(ends_ns);
        }
        // A preemption does not make the next round come sooner: when that is needed is known in
        // advance.
        false
    }

    /// Looks at a P for which no goroutine waits, while others wait elsewhere. The goroutine on
    /// this P may sleep until one of those has run: a goroutine of the idle class may have been
    /// preempted while it held a lock.
    fn look_at_unhurried(&mut self, round: &mut Round<'_>, held: &Held<'_>, unmoved: bool) -> bool {
        let watch = &mut self.watches[held.id as usize];
        let before = watch.cpu_ns.take();
        if unmoved {
            watch.cpu_ns = thread::cpu_ns(held.m.tid());
        }
        before.is_some() && before == watch.cpu_ns && take_from_sleeper(round, held)
    }

    /// Preempts the goroutine that has run longest. One that was interrupted lately comes last: the
    /// kernel does not let its thread run, so it cannot yield.
    pub(super) fn preempt_longest(&mut self, round: &mut Round<'_>, now: u64) {
        let sched = round.sched;
        let in_user = |id: &u32| {
            if sched.rest.idle().is_reserved(*id) {
                return false;
            }
            // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
            unsafe { sched.p(*id).m().as_ref() }
                .is_some_and(|m| m.word.stamp().place() == Place::User)
        };
        let known = sched.procs().min(self.watches.len() as u32);
        let lately = now.saturating_sub(2 * FORCE_PERIOD_NS);
        let oldest = (0..known).filter(in_user).min_by_key(|&id| {
            let watch = &self.watches[id as usize];
            (watch.forced_ns > lately, watch.slice.since_ns())
        });
        let Some(id) = oldest else { return };
        // SAFETY: as above.
        if let Some(m) = unsafe { sched.p(id).m().as_ref() } {
            sched.stats.gave_way.add_shared(1);
            let forced_ns = &mut self.watches[id as usize].forced_ns;
            preempt::request(sched, m, now, forced_ns, &mut round.states);
        }
    }
}

/// Takes the P of a thread that has used no CPU time since the last look, if it sleeps in the
/// kernel: then it blocks without having announced it. False if it does not sleep, or has moved on.
fn take_from_sleeper(round: &mut Round<'_>, held: &Held<'_>) -> bool {
    let Held { pp, m, stamp, .. } = *held;
    let gp = m.current();
    if round.states.of_sleeper(m.tid()) != State::Asleep
        || !retake::take_p(round.sched, m, pp, stamp)
    {
        return false;
    }
    round.sched.stats.unannounced.add_shared(1);
    if let Some(gp) = gp {
        gp.flags.set(Flag::BLOCKS);
        round.sched.stall.predictor.blocked(gp.kind());
    }
    true
}

/// Whether goroutines wait that a P without work of its own could run.
fn has_work_to_spread(sched: &Sched) -> bool {
    sched.global_len().idle() != 0 || sched.all_ps().any(|pp| !pp.is_empty())
}

/// The use that others would have for this P, except those that wait elsewhere.
pub(in crate::sched::stall) fn demand_for(sched: &Sched, pp: &P) -> Demand {
    let reserved = pp.is_reserved;
    Demand {
        here: if reserved { run::has_work_for(sched, pp) } else { !pp.is_empty() },
        anywhere: run::has_work_for(sched, pp),
        others_free: reserved || retake::has_others_free(sched),
        elsewhere: false,
    }
}

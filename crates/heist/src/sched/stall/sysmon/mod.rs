//! sysmon: the thread that watches the others.
//!
//! It has no P and takes no lock that user code can hold. In each round it asks:
//! - does the holder of a P keep it for too long (`slices`)? An M in a blocking call loses its P. A
//!   goroutine that has run for a whole slice while others wait is asked to yield, then forced;
//! - is a timer or the network overdue, because no M looks at them (`overdue`)?
//! - does a goroutine compute that lost its P in a blocking call (`without_p`)? It is frozen until
//!   it gets one.
//!
//! Rounds are 20 us apart while there is something to do, and up to 10 ms apart otherwise. When
//! every P is idle, sysmon sleeps until one is not.
//!
//! GO: proc.go sysmon, retake.

pub(super) mod bell;
pub(crate) mod overdue;
mod slices;
pub(crate) mod without_p;

pub(super) use slices::demand_for;

use crate::current::NoAllocation;
use crate::sched::{Detail, Phase, Sched, forks, life, rest, threads};
use crate::sys::thread_state::ThreadStates;
use crate::sys::{clock, stopwatch, thread};
use heist_core::policy::sysmon::{self as rules, Agenda, Mood, Naps};
use heist_core::policy::{OVERSLEPT_NS, PROCS_CHECK_NS, SYSMON_REST_NS};
use heist_core::timer_heap::NEVER;
use overdue::Overdue;
use slices::Slices;
use without_p::WithoutP;

/// How a trace of the scheduler is printed. The reader layer passes it in.
pub(crate) type Print = fn(&Sched, Detail);

/// The state that all questions of a round share.
struct Round<'a> {
    sched: &'a Sched,
    states: ThreadStates,
    /// The moments at which this round found that sysmon must look again.
    agenda: Agenda,
    /// When some P was last seen to make progress.
    progress_ns: u64,
    /// When a P was last taken from a blocking call.
    taken_ns: u64,
}

impl Round<'_> {
    /// Whether some P makes progress.
    fn makes_progress(&self, now: u64) -> bool {
        rules::makes_progress(now, self.progress_ns, self.taken_ns)
    }
}

/// The state of the sysmon thread.
pub(crate) struct Sysmon<'a> {
    round: Round<'a>,
    slices: Slices,
    overdue: Overdue,
    without_p: WithoutP,
    naps: Naps,
    /// When all Ps were first seen idle, or the world stopped.
    idle_since_ns: Option<u64>,
    /// Whether all Ps were seen idle in the last round.
    all_idle: bool,
    /// Whether all Ps were idle in the round before, and are not any more.
    left_idle: bool,
    /// When the default number of Ps is looked at again.
    next_procs_ns: u64,
    /// Prints the trace of the scheduler.
    print: Print,
    /// When the trace is printed next.
    next_trace_ns: u64,
}

impl<'a> Sysmon<'a> {
    pub(crate) fn new(sched: &'a Sched, states: ThreadStates, print: Print) -> Self {
        let period = sched.config.trace.map(|(period_ns, _)| period_ns);
        let agenda = Agenda::new();
        Self {
            round: Round { sched, states, agenda, progress_ns: 0, taken_ns: 0 },
            slices: Slices::new(),
            overdue: Overdue::new(),
            without_p: WithoutP::new(),
            naps: Naps::new(),
            idle_since_ns: None,
            all_idle: false,
            left_idle: false,
            next_procs_ns: clock::now_ns() + PROCS_CHECK_NS,
            print,
            next_trace_ns: period
                .map_or(NEVER, |period_ns| clock::now_ns().saturating_add(period_ns)),
        }
    }

    /// Watches until the runtime has stopped.
    pub(crate) fn run(mut self) {
        let sched = self.round.sched;
        thread::precise_naps();
        thread::short_turns();
        let _strict = NoAllocation::begin();
        while sched.phase() != Phase::Stopped {
            self.nap();
            let now = clock::now_ns();
            sched.life.advance_minute();
            stopwatch::learn();
            self.trace(now);
            if self.is_all_idle(now) {
                continue;
            }
            self.follow_procs(now);
            let acted = self.slices.look_at_all(&mut self.round, now);
            if acted {
                self.round.taken_ns = now;
            }
            if self.left_idle && !self.round.makes_progress(now) {
                self.naps = Naps::new();
            }
            self.overdue.look(&mut self.round, &mut self.slices, now);
            self.without_p.look(sched, &mut self.round.states, now);
            threads::press_for_held_back(sched);
            forks::end_patience(sched);
            self.naps.after_round(acted);
        }
    }

    /// Sleeps until the next round.
    fn nap(&mut self) {
        let all_idle = self.all_idle;
        let now = clock::now_ns();
        let mood = Mood { idle: all_idle, makes_progress: self.round.makes_progress(now) };
        let agenda = &mut self.round.agenda;
        let until = agenda.nap_until(&mut self.naps, now, mood).min(self.next_trace_ns);
        let sched = self.round.sched;
        sched.stall.bell.nap(until, all_idle, || {
            if all_idle && !is_idle(sched) { 0 } else { overdue::next_overdue(sched) }
        });
        let now = clock::now_ns();
        let overslept = now >= until.saturating_add(OVERSLEPT_NS);
        if overslept && without_p::any_runs(sched) {
            threads::note_crowd(sched, now);
        }
    }

    /// Once a second asks the helper to look at the default number of Ps, because that allocates.
    fn follow_procs(&mut self, now: u64) {
        let sched = self.round.sched;
        if now >= self.next_procs_ns && sched.config.procs_default.follow {
            self.next_procs_ns = now + PROCS_CHECK_NS;
            sched.threads.helper().ask_about_procs();
        }
    }

    /// Prints the trace of the scheduler, if it is time.
    fn trace(&mut self, now: u64) {
        if let Some((period_ns, detail)) = self.round.sched.config.trace
            && now >= self.next_trace_ns
        {
            (self.print)(self.round.sched, detail);
            // Two lines are never closer together than the period, even if this one came late.
            self.next_trace_ns = clock::now_ns().saturating_add(period_ns);
        }
    }

    /// Sleeps if every P has been idle for a while, until one is not; or if the world has been
    /// stopped for as long, until it starts again. True if there is nothing to look at.
    fn is_all_idle(&mut self, now: u64) -> bool {
        let sched = self.round.sched;
        let idle = is_idle(sched);
        self.left_idle = std::mem::replace(&mut self.all_idle, idle) && !idle;
        if !idle && !sched.world.is_stopping() {
            self.idle_since_ns = None;
            return false;
        }
        let since = *self.idle_since_ns.get_or_insert(now);
        if now - since < SYSMON_REST_NS {
            return idle;
        }
        self.idle_since_ns = None;
        if idle && overdue::is_unattended(sched) {
            // The P that had the timers became idle without an M, because the system refused a
            // thread.
            rest::wake_p(sched);
            return idle;
        }
        let undisturbed = !idle || life::check_dead(sched);
        if !undisturbed || self.next_trace_ns != NEVER {
            // Either the search for a deadlock was disturbed and is repeated later, or the trace is
            // on, which is printed even of a program that does nothing.
            return idle;
        }
        self.all_idle = false;
        sched
            .stall
            .bell
            .sleep(|| is_idle(sched) && !overdue::is_unattended(sched) || is_stopped(sched));
        sched.life.advance_minute();
        self.naps = Naps::new();
        true
    }
}

/// Whether every P is idle.
fn is_idle(sched: &Sched) -> bool {
    sched.rest.idle().count_all() == sched.procs() && sched.phase() != Phase::Stopped
}

/// Whether the world stops or has stopped. It is read under the lock: the thread that starts the
/// world again has held the lock before it rings.
fn is_stopped(sched: &Sched) -> bool {
    let _locked = sched.lock.lock();
    sched.world.is_stopping()
}

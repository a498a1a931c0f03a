//! sysmon: the thread that watches the others.
//!
//! It has no P and takes no lock that user code can hold. It looks at every P that is held:
//! - an M in an announced blocking call loses its P after one full round, if somebody can use it;
//! - an M in user code that has not moved since the last look, used no CPU time and sleeps in the
//!   kernel, is in a blocking call that nobody announced: it loses its P too;
//! - a goroutine that has run for a whole slice while others wait is asked to yield, then forced;
//! - a goroutine that lost its P in a blocking call, and computes since it came back, is stopped until
//!   it gets one.
//!
//! Rounds are 20 us apart while there is something to do, up to 10 ms when not; when every P rests
//! it sleeps until one does not.
//!
//! GO: proc.go sysmon, retake.

use super::pless::{self, Pless};
use super::{Detail, Phase, Sched};
use crate::current::NoAllocation;
use crate::gmp::{M, P, g};
use crate::preempt;
use crate::sys::thread_state::{State, ThreadStates};
use crate::sys::{clock, stopwatch, thread};
use heist_core::list::List;
use heist_core::m_word::{Place, Stamp};
use heist_core::policy::sysmon::{self as rules, Agenda, Demand, Look, Mood, Naps, Verdict};
use heist_core::policy::{
    FORCE_PERIOD_NS, NETWORK_LATE_NS, OVERSLEPT_NS, PROCS_CHECK_NS, PROCS_MAX,
    SYSMON_NAP_WANTED_NS, SYSMON_REST_NS,
};
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;

/// What sysmon remembers of a P since its last look.
#[derive(Clone, Copy)]
struct Watch {
    slice: rules::Watch,
    /// The thread's CPU time at the last look, if it was asked.
    cpu_ns: Option<u64>,
    /// When it was last forced.
    forced_ns: u64,
    /// It runs a known hog whose slice is half over.
    half_over: bool,
}

impl Watch {
    const NEW: Self =
        Self { slice: rules::Watch::NEW, cpu_ns: None, forced_ns: 0, half_over: false };
}

/// The state of the watching thread.
pub(crate) struct Sysmon<'a> {
    sched: &'a Sched,
    watches: Vec<Watch>,
    naps: Naps,
    states: ThreadStates,
    /// When all Ps were first seen at rest, or the world stopped.
    rest_since_ns: Option<u64>,
    /// Whether all Ps were seen at rest in the last round.
    at_rest: bool,
    /// Whether that has just ended.
    left_rest: bool,
    /// When some P was last seen to get on.
    progress_ns: u64,
    /// When a P was last taken from a blocking call.
    taken_ns: u64,
    /// Somebody was asked to give way for the urgent ones that wait.
    asked_for_urgent: bool,
    /// When urgent goroutines were first seen waiting.
    urgent_since_ns: Option<u64>,
    /// What this round found to be looked at again.
    agenda: Agenda,
    /// A slice that others wait for was over in this round.
    slice_ended: bool,
    /// When the default number of Ps is looked at again.
    next_procs_ns: u64,
    pless: Pless,
    /// Prints the trace of the scheduler.
    print: Print,
    /// When it is printed next.
    next_trace_ns: u64,
}

/// How a trace of the scheduler is printed: given by who knows.
pub(crate) type Print = fn(&Sched, Detail);

impl<'a> Sysmon<'a> {
    pub(crate) fn new(sched: &'a Sched, states: ThreadStates, print: Print) -> Self {
        let period = sched.config.trace.map(|(period_ns, _)| period_ns);
        Self {
            sched,
            print,
            next_procs_ns: clock::now_ns() + PROCS_CHECK_NS,
            next_trace_ns: period
                .map_or(NEVER, |period_ns| clock::now_ns().saturating_add(period_ns)),
            // ALLOC: when the thread starts, for all Ps there can be.
            watches: Vec::with_capacity(PROCS_MAX as usize),
            naps: Naps::new(),
            states,
            rest_since_ns: None,
            at_rest: false,
            left_rest: false,
            progress_ns: 0,
            taken_ns: 0,
            asked_for_urgent: false,
            urgent_since_ns: None,
            agenda: Agenda::new(),
            slice_ended: false,
            pless: Pless::new(),
        }
    }

    /// Watches until the runtime has stopped.
    pub(crate) fn run(mut self) {
        thread::precise_naps();
        thread::short_turns();
        let _strict = NoAllocation::begin();
        while self.sched.phase() != Phase::Stopped {
            self.nap();
            let now = clock::now_ns();
            self.sched.advance_minute();
            stopwatch::learn();
            self.trace(now);
            if self.all_at_rest(now) {
                continue;
            }
            self.follow_procs(now);
            let acted = self.look_at_all(now);
            if acted {
                self.taken_ns = now;
            }
            if self.left_rest && !self.makes_progress(now) {
                self.naps = Naps::new();
            }
            self.serve_the_late(now);
            self.pless.look(self.sched, &mut self.states, now);
            self.sched.press_for_held_back();
            self.naps.after_round(acted);
        }
    }

    /// Sleeps until the next round.
    fn nap(&mut self) {
        let at_rest = self.at_rest;
        let now = clock::now_ns();
        let mood = Mood { idle: at_rest, makes_progress: self.makes_progress(now) };
        let until = self.agenda.nap_until(&mut self.naps, now, mood).min(self.next_trace_ns);
        let sched = self.sched;
        sched.bell.nap(until, at_rest, || {
            if at_rest && !sched.rests() { 0 } else { sched.next_overdue() }
        });
        let now = clock::now_ns();
        let overslept = now >= until.saturating_add(OVERSLEPT_NS);
        if overslept && pless::any_runs(sched) {
            sched.note_crowd(now);
        }
    }

    /// Whether some P gets on.
    fn makes_progress(&self, now: u64) -> bool {
        rules::makes_progress(now, self.progress_ns, self.taken_ns)
    }

    /// Once a second has the default number of Ps looked at: by the helper, because that allocates.
    fn follow_procs(&mut self, now: u64) {
        if now >= self.next_procs_ns && self.sched.config.procs_default.follow {
            self.next_procs_ns = now + PROCS_CHECK_NS;
            self.sched.helper.ask_about_procs();
        }
    }

    /// Prints the trace of the scheduler, if it is time.
    fn trace(&mut self, now: u64) {
        if let Some((period_ns, detail)) = self.sched.config.trace
            && now >= self.next_trace_ns
        {
            (self.print)(self.sched, detail);
            // Two lines are never closer than that, also if this one came late.
            self.next_trace_ns = clock::now_ns().saturating_add(period_ns);
        }
    }

    /// If every P rests, and has for a while, or if the world has stopped for as long, sleeps until
    /// that is over. True if there is nothing to look at.
    fn all_at_rest(&mut self, now: u64) -> bool {
        let sched = self.sched;
        let rests = sched.rests();
        self.left_rest = std::mem::replace(&mut self.at_rest, rests) && !rests;
        if !rests && !sched.stop.pending() {
            self.rest_since_ns = None;
            return false;
        }
        let since = *self.rest_since_ns.get_or_insert(now);
        if now - since < SYSMON_REST_NS {
            return rests;
        }
        let undisturbed = !rests || sched.check_dead();
        self.rest_since_ns = None;
        if !undisturbed || self.next_trace_ns != NEVER {
            // It asks again later. Or somebody reads the trace, also of a program that does nothing.
            return rests;
        }
        self.at_rest = false;
        sched.bell.sleep(|| sched.rests() || sched.is_stopped());
        sched.advance_minute();
        self.naps = Naps::new();
        true
    }

    /// Looks at every P. True if something was done.
    fn look_at_all(&mut self, now: u64) -> bool {
        let mut acted = false;
        let procs = self.sched.procs();
        if procs as usize > self.watches.len() {
            self.watches.resize(procs as usize, Watch::NEW);
        }
        self.slice_ended = false;
        for id in 0..procs {
            acted |= self.look_at(id, now);
        }
        if self.slice_ended {
            self.end_slices_together(procs, now);
        }
        acted
    }

    /// When a slice is over, so are those of known hogs that have run for more than half of theirs.
    /// From then on their slices end together, and one wake-up of sysmon serves them all: each takes a
    /// CPU from a hog.
    fn end_slices_together(&mut self, procs: u32, now: u64) {
        for id in 0..procs {
            let half_over = self.watches[id as usize].half_over;
            // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
            if half_over && let Some(m) = unsafe { self.sched.p(id).m().as_ref() } {
                self.end_slice(id, m, now, true);
            }
        }
    }

    /// The goroutine on `m`, which holds the P `id`, has run for long enough. If it is a known hog that
    /// will be interrupted, another one follows, or somebody rings (`Sched::expect_no_hog`).
    fn end_slice(&mut self, id: u32, m: &M, now: u64, known: bool) {
        let watch = &mut self.watches[id as usize];
        let forced_ns = &mut watch.forced_ns;
        let stops = preempt::request(self.sched, m, now, forced_ns, &mut self.states) && known;
        if !stops && watch.cpu_ns.is_none() {
            // It may sleep: the next look tells.
            watch.cpu_ns = thread::cpu_ns(m.tid());
        }
        if !stops {
            self.agenda.suspect();
        }
        let pause_ns = if stops { self.sched.config.quantum_ns } else { FORCE_PERIOD_NS };
        self.agenda.look_at(now.saturating_add(pause_ns));
    }

    fn look_at(&mut self, id: u32, now: u64) -> bool {
        let sched = self.sched;
        let pp = sched.p(id);
        let watch = &mut self.watches[id as usize];
        // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
        let Some(m) = (unsafe { pp.m().as_ref() }) else {
            *watch = Watch::NEW;
            return false;
        };
        let stamp = m.word.stamp();
        // Who runs because there was nothing else to do gives way at once.
        let idle = m.current().is_some_and(|gp| gp.has_flag(g::IDLE));
        let slice_ns = if idle { 0 } else { sched.config.quantum_ns };
        // One that computed for its whole last slice most likely does so again: until the end of this
        // one it is not suspected of blocking, and sysmon sleeps. Each look takes a CPU from a hog.
        let hog = m.current().filter(|gp| gp.has_flag(g::HOG));
        let began_ns = pp.began_ns();
        let began = m.word.marked();
        let look = Look { now_ns: now, tick: pp.tick(), began_ns, began, stamp, slice_ns };
        if watch.slice.is_new(look.tick) {
            (watch.cpu_ns, watch.forced_ns) = (None, 0);
        }
        let demand = sched.demand_for(pp);
        if !pp.is_reserved && watch.slice.makes_progress(now, look.tick) {
            self.progress_ns = now;
        }
        watch.half_over = false;
        match watch.slice.look(look, demand) {
            Verdict::New { ends_ns } => {
                if demand.anywhere {
                    if hog.is_none() {
                        // The next look tells whether it sleeps.
                        watch.cpu_ns = thread::cpu_ns(m.tid());
                        if !rules::makes_progress(now, self.progress_ns, self.taken_ns) {
                            self.agenda.suspect();
                        }
                    }
                    self.agenda.look_at(ends_ns);
                }
                false
            }
            Verdict::Leave => false,
            Verdict::Take => sched.take_p(m, pp, stamp),
            Verdict::Busy { unmoved, ends_ns } => {
                let before = watch.cpu_ns.take();
                if !unmoved && let Some(hog) = hog {
                    hog.clear_flag(g::HOG);
                }
                let known = unmoved && hog.is_some();
                // Its slice began when the last one's had ended, somewhat after sysmon saw to that.
                let over = now >= ends_ns || known && now.saturating_add(slice_ns / 32) >= ends_ns;
                if !known && !rules::makes_progress(now, self.progress_ns, self.taken_ns) {
                    self.agenda.suspect();
                }
                if unmoved && (before.is_some() || !known) {
                    watch.cpu_ns = thread::cpu_ns(m.tid());
                    let slept = before.is_some() && before == watch.cpu_ns;
                    let gp = m.current();
                    if slept
                        && self.states.of_sleeper(m.tid()) == State::Asleep
                        && sched.take_p(m, pp, stamp)
                    {
                        sched.stats.unannounced.add_shared(1);
                        if let Some(gp) = gp {
                            gp.set_flag(g::BLOCKS);
                            sched.block_predictor.blocked(gp.kind());
                        }
                        return true;
                    }
                }
                if over {
                    if unmoved && let Some(gp) = m.current() {
                        gp.set_flag(g::HOG);
                    }
                    self.slice_ended = true;
                    self.end_slice(id, m, now, known);
                } else {
                    watch.half_over = known && watch.slice.is_half_over(now, slice_ns);
                    self.agenda.look_at(ends_ns);
                }
                // A preemption does not make the next one come sooner: that is known in advance.
                false
            }
        }
    }

    /// Nobody sleeps who would look at the clock and the network: does it, and if that woke somebody,
    /// sees that a P is free for it.
    ///
    /// That some P rests does not mean that somebody looks: the M that waited in the poller may have
    /// left it to run what it found there, while the others slept already.
    ///
    /// A P that gets on looks at the network when its queue is empty, and takes urgent goroutines before
    /// that. It is left in peace: what is brought to it early only waits elsewhere, and nobody has to
    /// give way for it.
    fn serve_the_late(&mut self, now: u64) {
        let sched = self.sched;
        let mut woken = List::new();
        let late = sched.config.wake_up_ns;
        let polled_ns = sched.poll.last_ns();
        let unattended = polled_ns.is_some() || sched.idle.count() == 0;
        let timer_late = sched.timer_late_ns();
        if unattended && sched.earliest_timer_hint().saturating_add(timer_late) <= now {
            sched.run_all_timers(&mut woken);
        }
        let makes_progress = self.makes_progress(now);
        let network_late = if makes_progress { NETWORK_LATE_NS.max(late) } else { late };
        let is_late = polled_ns.is_some_and(|last| now.saturating_sub(last) >= network_late);
        if is_late {
            woken.append(&mut sched.poll_without_waiting());
        }
        if sched.global_len().urgent() == 0 {
            self.asked_for_urgent = false;
        }
        if !woken.is_empty() {
            sched.inject_without_p(woken);
            // They have waited already.
            self.urgent_since_ns =
                Some(now.saturating_sub(if is_late { late } else { timer_late }));
        }
        if sched.idle.count() != 0 {
            self.urgent_since_ns = None;
            if sched.is_unattended() && is_late {
                // Whoever wakes up finds nothing to run, and waits in the poller.
                sched.wake_p();
            }
            return;
        }
        if sched.global_len().urgent() == 0 || makes_progress {
            self.urgent_since_ns = None;
            return;
        }
        let mut since = *self.urgent_since_ns.get_or_insert(now);
        if now - since >= late {
            since = now;
            self.urgent_since_ns = Some(now);
            let in_vain = std::mem::replace(&mut self.asked_for_urgent, true);
            if !(in_vain && sched.is_crowded(now) && self.take_from_the_waiting()) {
                self.preempt_longest(now);
            }
        }
        self.agenda.look_at(since + late);
    }

    /// Takes the P of a goroutine whose thread waits for a CPU, for somebody urgent: threads without a P have the
    /// CPUs, and the goroutine would not notice a signal. When it goes on, it has no P either. False if all of
    /// them run, or nobody is idle who could take the P over at once and run whom it finds.
    fn take_from_the_waiting(&self) -> bool {
        /// A thread that runs uses at least a part of it.
        const LOOK_NS: u64 = 5_000;
        let sched = self.sched;
        if !sched.config.forced_preemption || sched.lock.lock().idle_ms.is_empty() {
            return false;
        }
        (0..sched.procs()).filter(|&id| !sched.idle.is_reserved(id)).any(|id| {
            let pp = sched.p(id);
            // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
            let Some(m) = (unsafe { pp.m().as_ref() }) else { return false };
            let stamp = m.word.stamp();
            if stamp.place() != Place::User {
                return false;
            }
            let cpu_ns = thread::cpu_ns(m.tid());
            let until = clock::now_ns() + LOOK_NS;
            while clock::now_ns() < until {
                std::hint::spin_loop();
            }
            cpu_ns.is_some() && cpu_ns == thread::cpu_ns(m.tid()) && sched.take_p(m, pp, stamp)
        })
    }

    /// The goroutine that has run longest gives way; one that was asked to lately comes last: the kernel
    /// does not let its thread run, so that it cannot.
    fn preempt_longest(&mut self, now: u64) {
        let sched = self.sched;
        let in_user = |id: &u32| {
            if sched.idle.is_reserved(*id) {
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
            preempt::request(sched, m, now, forced_ns, &mut self.states);
        }
    }
}

impl Sched {
    /// Whether there is something to wait for in the poller, and nobody does.
    pub(super) fn is_unattended(&self) -> bool {
        let awaited = self.poll.has_waiters() || self.earliest_timer_hint() != NEVER;
        awaited && self.poll.last_ns().is_some()
    }

    /// When sysmon has to look because nobody else may: at a timer, or whether somebody does.
    fn next_overdue(&self) -> u64 {
        if self.idle.count() == 0 {
            return self.earliest_timer_hint().saturating_add(self.timer_late_ns());
        }
        if self.is_unattended() {
            return clock::now_ns().saturating_add(self.config.wake_up_ns);
        }
        NEVER
    }

    fn timer_late_ns(&self) -> u64 {
        rules::timer_late_ns(self.config.wake_up_ns, self.idle.count_reserved() != 0)
    }

    /// Somebody waits in the poller until then, for a P that is reserved. If it may be woken late, sysmon
    /// is to look soon after. The caller has fenced.
    #[inline]
    pub(super) fn watch_waiter(&self, until_ns: u64) {
        if self.idle.count_reserved() != 0 && self.idle.count() == 0 && until_ns != NEVER {
            self.bell.ring_before(until_ns.saturating_add(self.timer_late_ns()));
        }
    }

    /// A goroutine runs, or goes on, where a known hog was to be followed by another: sysmon, which
    /// relied on that, is to look soon.
    pub(crate) fn expect_no_hog(&self) {
        // ORDERING: as everybody's who rings.
        heist_core::sync::fence(Ordering::SeqCst);
        self.bell.ring_before(clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS));
    }

    /// Whether every P rests.
    fn rests(&self) -> bool {
        self.idle.count_all() == self.procs() && self.phase() != Phase::Stopped
    }

    /// Whether the world stops or has stopped. Under the lock, which who starts it again has held
    /// before he rings.
    fn is_stopped(&self) -> bool {
        let _locked = self.lock.lock();
        self.stop.pending()
    }

    /// What others could do with this P.
    fn demand_for(&self, pp: &P) -> Demand {
        let reserved = pp.is_reserved;
        Demand {
            here: if reserved { self.has_work_for(pp) } else { !pp.is_empty() },
            anywhere: self.has_work_for(pp),
            others_free: reserved || self.has_others_free(),
        }
    }

    /// Whether others would find work that appears.
    pub(super) fn has_others_free(&self) -> bool {
        self.spinning.n() + self.idle.count() != 0
    }

    /// The goroutine on `pp` begins a blocking call. If sysmon takes its rest with the program, and
    /// would not see the call for long, it is woken: at most once for each time that all Ps rested.
    pub(super) fn watch_call(&self, pp: &P) {
        if self.bell.is_at_rest() {
            let Demand { here, others_free, .. } = self.demand_for(pp);
            if here || !others_free {
                self.bell.ring_before(0);
            }
        }
    }

    /// A goroutine came back from a blocking call and found no P. Those who have one may well block in
    /// their turn, and nobody announces that: sysmon is to look, at once if it takes its rest with the
    /// program, else soon.
    pub(super) fn watch_crowd(&self) {
        // ORDERING: as everybody's who rings.
        heist_core::sync::fence(Ordering::SeqCst);
        let at_rest = self.bell.is_at_rest();
        let soon = clock::now_ns().saturating_add(SYSMON_NAP_WANTED_NS);
        self.bell.ring_before(if at_rest { 0 } else { soon });
    }

    /// Takes the P of an M that blocks in the state `seen`, and gives it to somebody else.
    fn take_p(&self, m: &M, pp: &P, seen: Stamp) -> bool {
        let locked = self.lock.lock();
        if !std::ptr::eq(pp.m(), m) || !m.word.take(seen, || self.heavy_fence()) {
            return false;
        }
        m.release_p();
        drop(locked);
        self.pass_on(pp);
        true
    }

    /// Gives the P of a goroutine that blocks to somebody else.
    pub(super) fn pass_on(&self, pp: &P) {
        self.stats.handoffs.add_shared(1);
        self.handoff_p(pp);
        if self.lock.lock().idle_ms.is_empty() {
            // Whoever takes the P over may block as well.
            self.helper.ask_for_spare();
        }
    }
}

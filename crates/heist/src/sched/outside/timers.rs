//! Timers, seen from the scheduler: who runs those that are due, and who watches those that are
//! not.
//!
//! A P runs its own before it looks for other work; thieves run those of others in their last pass.
//! An M that would sleep waits in the poller until the earliest of all. When every P is busy with a
//! goroutine that does not let go, sysmon runs them, a bounded time late, and the goroutines they
//! wake go to the front of the global queue.
//!
//! # Who is told about a new timer
//! An M adds a timer when a goroutine parks, and then looks for other work itself. If there is
//! none, it becomes the one that waits for the timer: nobody has to be told. Only when it has found
//! something to run is it time to see that somebody else will be awake.
//!
//! GO: proc.go checkTimers, time.go wakeNetPoller; findRunnable.

use super::poll;
use crate::gmp::{G, Holder, M, P};
use crate::sched::Sched;
use crate::sched::run::Next;
use crate::sched::{rest, run};
use crate::sys::clock;
use heist_core::list::List;
use heist_core::policy::timers as policy;
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// Runs what is due at the own P.
#[inline]
pub(crate) fn run_own_timers(sched: &Sched, m: Holder<'_>) {
    if m.p().timers.earliest() != NEVER {
        run_timers_of(sched, m, &m.p());
    }
}

/// Runs what is due at some P. True if that woke somebody.
pub(crate) fn run_timers_of(sched: &Sched, m: Holder<'_>, pp: &P) -> bool {
    let mut woken = List::new();
    pp.timers.run_due(clock::now_ns(), sched, &mut woken);
    let any = !woken.is_empty();
    run::queue_woken(sched, m, woken);
    any
}

/// If a goroutine at the own P asked for a tiny sleep that is over soon, waits for that and runs it: an
/// alarm would take longer. Bounded by `policy::timers::TINY_SLEEP_NS`, and over when there is something
/// else to do.
#[inline]
pub(crate) fn await_tiny_sleep(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    let timers = &m.p().timers;
    let when = timers.earliest();
    if when <= timers.tiny_until() { await_near_timer(sched, m, when) } else { None }
}

#[cold]
fn await_near_timer(sched: &Sched, m: Holder<'_>, when: u64) -> Option<Next> {
    let timers = &m.p().timers;
    let mut now = clock::now_ns();
    if !policy::is_near(now, when, timers.tiny_until()) {
        return None;
    }
    while now < when {
        if run::has_work_to_take(sched) {
            return None;
        }
        now = clock::now_ns();
    }
    let mut woken = List::new();
    timers.run_due(now, sched, &mut woken);
    poll::run_woken(sched, m, woken)
}

/// Runs what is due anywhere, for an M that slept until then.
pub(crate) fn run_all_timers(sched: &Sched, woken: &mut List<G>) {
    let now = clock::now_ns();
    for pp in ps_with_timers(sched) {
        pp.timers.run_due(now, sched, woken);
    }
}

/// Adds a timer for a goroutine that parked on this M until `when`.
pub(crate) fn add_timer(sched: &Sched, m: Holder<'_>, when: u64, gp: NonNull<G>) {
    let timers = &m.p().timers;
    let first = when < timers.earliest();
    // Where this tells nobody anything, the clock is not read for it.
    if first || sched.outside.gate.waits_are_short() {
        timers.expect(policy::Sleep::of(clock::now_ns(), when), when);
    }
    if !timers.add(when, gp, sched) {
        heist_core::throw!("add_timer: the system has no memory for another timer");
    }
    m.p().stats.timers.bump();
    if first {
        m.new_timer_ns.set(m.new_timer_ns.get().min(when));
    }
}

/// This M found work: sees that somebody wakes up for the timer it added meanwhile.
#[inline]
pub(crate) fn leave_timers(sched: &Sched, m: &M) {
    if m.new_timer_ns.get() != NEVER {
        // ORDERING: an M on its way to sleep says so, fences and reads the timers; this wrote the
        // timer, fences and looks who sleeps.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        watch_timer(sched, m.new_timer_ns.replace(NEVER));
    }
}

/// Sees that somebody is awake when a timer is due.
#[cold]
pub(crate) fn watch_timer(sched: &Sched, when: u64) {
    if poll::break_poller_after(sched, when) {
        return;
    }
    if sched.rest.idle().count() != 0 {
        // It finds nothing to run and waits for the timer.
        rest::wake_p(sched);
    } else if sched.rest.idle().count_reserved() != 0 {
        run::wake_reserved(sched);
    } else {
        sched.stall.bell().ring_before(when.saturating_add(sched.config.wake_up_ns));
    }
}

/// When the first timer of all Ps is due.
pub(crate) fn earliest_timer(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.earliest_live(sched)).min().unwrap_or(NEVER)
}

/// The same, without a look at whose wait is over.
pub(crate) fn earliest_timer_hint(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.earliest()).min().unwrap_or(NEVER)
}

/// Until when goroutines may sleep who asked for a short time.
pub(super) fn short_sleep_until(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.short_until()).max().unwrap_or(0)
}

fn ps_with_timers(sched: &Sched) -> impl Iterator<Item = &P> {
    sched.all_ps().filter(|pp| sched.rest.idle().timers.contains(pp.id))
}

//! Timers in the scheduler: which thread runs those that are due, and which watches the others.
//!
//! An M runs the timers of its P before it looks for other work. A thief runs those of other Ps in
//! its last pass. An M that would sleep waits in the poller until the earliest of all. When every P
//! is busy with a goroutine that does not yield, sysmon runs the timers, late by a bounded time,
//! and the goroutines that they wake go to the urgent lane of the global queue.
//!
//! # When another M learns about a new timer
//! An M adds a timer when a goroutine parks, and then looks for other work itself. If there is
//! none, this M waits for the timer, and no other has to know. Only if it finds something to run,
//! it makes sure that another thread will be awake for the timer.
//!
//! GO: proc.go checkTimers, time.go wakeNetPoller; findRunnable.

use super::poll;
use crate::gmp::{G, Holder, M, P};
use crate::sched::Sched;
use crate::sched::run::Next;
use crate::sched::{rest, run};
use crate::sys::clock;
use crate::trace::emit;
use heist_core::list::List;
use heist_core::policy::timers as policy;
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// Runs the timers that are due at the own P.
#[inline]
pub(crate) fn run_own_timers(sched: &Sched, m: Holder<'_>) {
    if m.p().timers.earliest() != NEVER {
        run_timers_of(sched, m, &m.p());
    }
}

/// Runs the timers that are due at `pp`, and queues the goroutines at the own P. True if they woke
/// a goroutine.
pub(crate) fn run_timers_of(sched: &Sched, m: Holder<'_>, pp: &P) -> bool {
    let mut woken = List::new();
    pp.timers.run_due(clock::now_ns(), sched, &mut woken);
    emit::timers_ran(&sched.recorder, &woken);
    let any = !woken.is_empty();
    run::queue_woken(sched, m, woken);
    any
}

/// If a goroutine at the own P asked for a tiny sleep that is over soon, watches the clock until
/// then and returns the goroutine: an alarm would take longer. The wait is bounded by
/// `policy::timers::TINY_SLEEP_NS`, and ends when there is something else to do.
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
    emit::timers_ran(&sched.recorder, &woken);
    poll::run_woken(sched, m, woken)
}

/// Runs the timers that are due at any P, for a thread without a P. Appends the goroutines that
/// they wake to `woken`.
pub(crate) fn run_all_timers(sched: &Sched, woken: &mut List<G>) {
    let now = clock::now_ns();
    let n_before = woken.len();
    for pp in ps_with_timers(sched) {
        pp.timers.run_due(now, sched, woken);
    }
    emit::more_timers_ran(&sched.recorder, woken, n_before);
}

/// Adds a timer for a goroutine that parked on this M until `when`.
pub(crate) fn add_timer(sched: &Sched, m: Holder<'_>, when: u64, gp: NonNull<G>) {
    let timers = &m.p().timers;
    let first = when < timers.earliest();
    // The clock is read only where the length of the sleep is of use.
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

/// Makes sure that a thread wakes up for the timers that this M has added, because it found work
/// and does not wait for them itself.
#[inline]
pub(crate) fn leave_timers(sched: &Sched, m: &M) {
    if m.new_timer_ns.get() != NEVER {
        // ORDERING: an M that goes to sleep publishes that, fences and reads the timers. This M has
        // written the timer, fences and looks for Ms that sleep. One of the two sees the other.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        watch_timer(sched, m.new_timer_ns.replace(NEVER));
    }
}

/// Makes sure that a thread is awake when a timer is due at `when`. The caller has fenced after it
/// added the timer.
#[cold]
pub(crate) fn watch_timer(sched: &Sched, when: u64) {
    if poll::break_poller_after(sched, when) {
        return;
    }
    if sched.rest.idle().count() != 0 {
        // The M that wakes up finds nothing to run, and waits for the timer.
        rest::wake_p(sched);
    } else if sched.rest.idle().count_reserved() != 0 {
        run::wake_reserved(sched);
    } else {
        sched.stall.bell().ring_before(when.saturating_add(sched.config.wake_up_ns));
    }
}

/// When the first timer of all Ps is due. Timers whose wait is over do not count.
pub(crate) fn earliest_timer(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.earliest_live(sched)).min().unwrap_or(NEVER)
}

/// A lower bound of [`earliest_timer`] that takes no lock: timers whose wait is over count too.
pub(crate) fn earliest_timer_hint(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.earliest()).min().unwrap_or(NEVER)
}

/// Until when goroutines may sleep that asked for a short time.
pub(super) fn short_sleep_until(sched: &Sched) -> u64 {
    ps_with_timers(sched).map(|pp| pp.timers.short_until()).max().unwrap_or(0)
}

fn ps_with_timers(sched: &Sched) -> impl Iterator<Item = &P> {
    sched.all_ps().filter(|pp| sched.rest.idle().timers.contains(pp.id))
}

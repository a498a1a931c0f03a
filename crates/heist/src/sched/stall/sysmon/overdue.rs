//! Timers and network events that no M looks at in time.
//!
//! An idle P does not mean that an M looks: the M that waited in the poller may have left it to run
//! a goroutine that it found there, while the other Ms were already asleep.
//!
//! A P that makes progress looks at the network when its queue is empty, and takes urgent
//! goroutines before that. It is left alone: a goroutine that is woken for it early only waits in
//! another queue, and no goroutine has to yield for it.

use super::Round;
use super::slices::Slices;
use crate::sched::stall::retake;
use crate::sched::{Sched, outside, rest, run, threads};
use crate::sys::{clock, thread};
use heist_core::list::List;
use heist_core::m_word::Place;
use heist_core::policy::NETWORK_LATE_NS;
use heist_core::policy::sysmon as rules;
use heist_core::timer_heap::NEVER;

/// The state that sysmon keeps about urgent goroutines that wait.
pub(super) struct Overdue {
    /// Whether a goroutine was asked to yield for them.
    asked: bool,
    /// Since when they have been seen waiting without a P being freed.
    since_ns: Option<u64>,
}

impl Overdue {
    pub(super) const fn new() -> Self {
        Self { asked: false, since_ns: None }
    }

    /// Looks at the clock and the network if no M does, and frees a P for the goroutines that this
    /// woke.
    pub(super) fn look(&mut self, round: &mut Round<'_>, slices: &mut Slices, now: u64) {
        let sched = round.sched;
        let mut woken = List::new();
        let late = sched.config.wake_up_ns;
        let polled_ns = sched.outside.last_poll_ns();
        let unattended = polled_ns.is_some() || sched.rest.idle().count() == 0;
        let timer_late = timer_late_ns(sched);
        if unattended && outside::earliest_timer_hint(sched).saturating_add(timer_late) <= now {
            outside::run_all_timers(sched, &mut woken);
        }
        let makes_progress = round.makes_progress(now);
        let network_late = if makes_progress { NETWORK_LATE_NS.max(late) } else { late };
        let is_late = polled_ns.is_some_and(|last| now.saturating_sub(last) >= network_late);
        if is_late {
            woken.append(&mut outside::poll_without_waiting(sched));
        }
        if sched.global_len().urgent() == 0 {
            self.asked = false;
        }
        if !woken.is_empty() {
            run::inject_without_p(sched, woken);
            // The goroutines have waited for that long already.
            self.since_ns = Some(now.saturating_sub(if is_late { late } else { timer_late }));
        }
        if sched.rest.idle().count() != 0 {
            self.since_ns = None;
            if is_unattended(sched) && is_late {
                // The M that is woken finds nothing to run, and waits in the poller.
                rest::wake_p(sched);
            }
            return;
        }
        if sched.global_len().urgent() == 0 || makes_progress {
            self.since_ns = None;
            return;
        }
        self.free_a_p(round, slices, now);
    }

    /// Takes a P, or asks for one, when urgent goroutines have waited for a while and no P is idle.
    fn free_a_p(&mut self, round: &mut Round<'_>, slices: &mut Slices, now: u64) {
        let late = round.sched.config.wake_up_ns;
        let mut since = *self.since_ns.get_or_insert(now);
        if now - since >= late {
            since = now;
            self.since_ns = Some(now);
            let in_vain = std::mem::replace(&mut self.asked, true);
            let crowded = in_vain && threads::is_crowded(round.sched, now);
            if !(crowded && take_from_the_waiting(round.sched)) {
                slices.preempt_longest(round, now);
            }
        }
        round.agenda.look_at(since + late);
    }
}

/// Takes the P of a goroutine whose thread waits for a CPU. Threads without a P use the CPUs, and
/// the thread would not notice a signal. When it continues, it has no P either. False if all
/// threads with a P run, or no M is idle that could take the P over at once and run an urgent
/// goroutine.
fn take_from_the_waiting(sched: &Sched) -> bool {
    /// A thread that runs uses at least a part of this time.
    const LOOK_NS: u64 = 5_000;
    if !sched.config.forced_preemption || sched.lock.lock().idle_ms.is_empty() {
        return false;
    }
    (0..sched.procs()).filter(|&id| !sched.rest.idle().is_reserved(id)).any(|id| {
        let pp = sched.p(id);
        // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
        let Some(m) = (unsafe { pp.m().as_ref() }) else { return false };
        let stamp = m.word.stamp();
        if stamp.place() != Place::User {
            return false;
        }
        let cpu_ns = thread::cpu_ns(m.tid());
        clock::spin_for_ns(LOOK_NS);
        cpu_ns.is_some() && cpu_ns == thread::cpu_ns(m.tid()) && retake::take_p(sched, m, pp, stamp)
    })
}

/// Whether there is something to wait for in the poller, and no M waits there.
pub(in crate::sched) fn is_unattended(sched: &Sched) -> bool {
    let awaited = sched.outside.has_waiters() || outside::earliest_timer_hint(sched) != NEVER;
    awaited && sched.outside.last_poll_ns().is_some()
}

/// When sysmon has to look because no M may do it: at a timer, or whether an M waits in the poller.
pub(super) fn next_overdue(sched: &Sched) -> u64 {
    if sched.rest.idle().count() == 0 {
        return outside::earliest_timer_hint(sched).saturating_add(timer_late_ns(sched));
    }
    if is_unattended(sched) {
        return clock::now_ns().saturating_add(sched.config.wake_up_ns);
    }
    NEVER
}

fn timer_late_ns(sched: &Sched) -> u64 {
    rules::timer_late_ns(sched.config.wake_up_ns, sched.rest.idle().count_reserved() != 0)
}

/// Makes sysmon look soon after `until_ns`, if the M that waits in the poller until then, for a P
/// that is reserved, may be woken late. The caller has fenced.
#[inline]
pub(in crate::sched) fn watch_waiter(sched: &Sched, until_ns: u64) {
    let idle = sched.rest.idle();
    if idle.count_reserved() != 0 && idle.count() == 0 && until_ns != NEVER {
        sched.stall.bell.ring_before(until_ns.saturating_add(timer_late_ns(sched)));
    }
}

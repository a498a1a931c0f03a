//! The states of the goroutines, counted while they run.

use crate::sched::Sched;
use heist_core::m_word::Place;

/// Goroutines by state. The parts are of slightly different moments, but add up.
pub(super) struct States {
    pub(super) running: u64,
    pub(super) runnable: u64,
    pub(super) not_in_go: u64,
    pub(super) waiting: u64,
}

impl States {
    /// The states of `live` goroutines.
    pub(super) fn read(sched: &Sched, live: u64) -> Self {
        let (mut running, mut not_in_go) = (0, 0);
        for m in sched.threads.all_ms().iter().filter(|m| m.current().is_some()) {
            match (m.word.stamp().place(), m.has_p()) {
                (Place::Blocked, _) | (Place::User, false) => not_in_go += 1,
                (Place::User | Place::Runtime, true) => running += 1,
                // The goroutine is frozen: its thread waits with it, in a queue.
                (Place::Runtime, false) => {}
            }
        }
        let running = running.min(live);
        let not_in_go = not_in_go.min(live - running);
        let queued: u64 =
            sched.all_ps().map(|pp| u64::from(pp.queue.len() + pp.yielded.len())).sum();
        let held_back = sched.threads.n_held_back();
        let queued = queued + u64::from(sched.global_len().get() + held_back);
        let runnable = queued.min(live - running - not_in_go);
        Self { running, runnable, not_in_go, waiting: live - running - not_in_go - runnable }
    }
}

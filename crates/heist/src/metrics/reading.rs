//! The sources of the rows of the table, collected once for all of them.

use super::cpu::CpuTime;
use super::locks::LockWaits;
use super::parks;
use super::shard::Totals;
use super::states::States;
use crate::coro::stack_pool;
use crate::current;
use crate::sched::Sched;
use crate::sched::life;

/// The sources of all values. Collecting them does not stop the goroutines, so the parts are of
/// slightly different moments.
pub(super) struct Reading<'a> {
    pub(super) sched: &'a Sched,
    pub(super) totals: Totals,
    pub(super) cpu: CpuTime,
    pub(super) lock_waits: LockWaits,
    pub(super) states: States,
    /// How often goroutines parked, for each reason.
    pub(super) parks: Vec<u64>,
    pub(super) stacks: stack_pool::Usage,
    pub(super) threads: u64,
    pub(super) timers: u64,
    pub(super) live: u64,
    /// Goroutines in the queues of processors.
    pub(super) queued: u64,
}

impl<'a> Reading<'a> {
    pub(super) fn take(sched: &'a Sched) -> Self {
        let totals = crate::sched::report::totals(sched);
        let (stacks, threads, timers) = {
            // These are the runtime's own locks: a thread must not be preempted while it holds one.
            let _rt = current::enter();
            let timers = sched.all_ps().map(|pp| pp.timers.len() as u64).sum();
            (stack_pool::usage(), u64::from(sched.lock.lock().roster.n_ms()), timers)
        };
        let live = life::n_live(sched);
        Self {
            sched,
            totals,
            cpu: CpuTime::read(sched),
            lock_waits: LockWaits::read(),
            states: States::read(sched, live),
            parks: parks::read(sched),
            stacks,
            threads,
            timers,
            live,
            queued: sched.all_ps().map(|pp| u64::from(pp.queue.len() + pp.yielded.len())).sum(),
        }
    }

    pub(super) const fn stacks_in_use(&self) -> u64 {
        self.totals.stacks_attached.saturating_sub(self.totals.stacks_detached)
    }
}

//! The counters of each processor: how much it ran, and how much of that it stole.

use crate::sched::Sched;

/// The counters of one processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ProcStats {
    /// Its number.
    pub id: u32,
    /// Times it ran a goroutine.
    pub executed: u64,
    /// Goroutines it took from others.
    pub stolen: u64,
    /// Looks at the queues of other processors.
    pub steal_attempts: u64,
    /// Goroutines in its queue now.
    pub queued: u32,
    /// Whether it is idle now.
    pub idle: bool,
}

impl ProcStats {
    pub(crate) fn read(sched: &Sched) -> Vec<Self> {
        let of = |pp: &crate::gmp::P| Self {
            id: pp.id,
            executed: pp.stats.executed.get(),
            stolen: pp.stats.stolen.get(),
            steal_attempts: pp.stats.steal_attempts.get(),
            queued: pp.queue.len() + pp.yielded.len(),
            idle: sched.rest.idle().idle.contains(pp.id),
        };
        sched.all_ps().map(of).collect()
    }
}

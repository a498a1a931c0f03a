//! Reports of the scheduler about itself: its counters, and its state when it throws.

use super::Sched;
use crate::metrics::shard::Totals;
use crate::sys::stderr;

/// Adds all counters up.
///
/// The end of a goroutine is counted after its beginning. This reads one shard after another, which
/// keeps that order only roughly, so differences saturate.
pub(crate) fn totals(sched: &Sched) -> Totals {
    let mut totals = Totals::default();
    for pp in sched.world.all_made() {
        totals.add(&pp.stats);
    }
    totals.add(&sched.stats);
    totals
}

/// Writes the state of the Ps and of the queues to standard error, without a lock.
pub(crate) fn state(sched: &Sched) {
    stderr::report(format_args!(
        "\tprocs={} idle={} spinning={} need_spinning={} global={}\n",
        sched.procs(),
        sched.rest.idle().count(),
        sched.rest.n_spinning(),
        sched.rest.wants_spinner(),
        sched.global_len().get(),
    ));
    for pp in sched.all_ps() {
        stderr::report(format_args!(
            "\tP{}: queued={} yielded={} tick={} held={} idle={}\n",
            pp.id,
            pp.queue.len(),
            pp.yielded.len(),
            pp.tick(),
            pp.has_m(),
            sched.rest.idle().idle.contains(pp.id),
        ));
    }
}

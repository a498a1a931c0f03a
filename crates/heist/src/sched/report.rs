//! Reports of the scheduler about itself: its counters, and its state when it throws.

use super::Sched;
use crate::metrics::shard::Totals;
use crate::sys::symbols::{Symbols, own_code};
use crate::sys::unwind::Frames;
use crate::sys::{stderr, unwind};

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

/// Writes the frames of a stack to standard error, without allocating.
pub(crate) fn write_frames(frames: &Frames) {
    let symbols = Symbols::open();
    let show = |address| {
        let Some(code) = own_code().filter(|code| code.contains(address)) else {
            return stderr::report(format_args!("\t{address:#x} in another library\n"));
        };
        let in_file = code.address_in_file(address);
        match symbols.as_ref().and_then(|symbols| symbols.name_of(address)) {
            Some(name) => stderr::report(format_args!("\t{in_file:#x} {name}\n")),
            None => stderr::report(format_args!("\t{in_file:#x}\n")),
        }
    };
    stderr::report(format_args!("frames, the innermost first:\n"));
    frames.innermost().for_each(show);
    if frames.n_between() > 0 {
        stderr::report(format_args!("\t... {} more ...\n", frames.n_between()));
    }
    frames.outermost().for_each(show);
    if !frames.is_complete {
        stderr::report(format_args!("\t(the rest of the stack cannot be walked)\n"));
    }
}

/// Writes the frames of the calling thread to standard error.
pub(crate) fn write_own_frames() {
    write_frames(&unwind::walk_here());
}

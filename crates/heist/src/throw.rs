//! The end of the process when the scheduler finds its own state corrupted.

use crate::current;
use crate::sched::report;
use crate::sys::{last_words, stderr};
use std::fmt;

/// Installs the hook behind `heist_core::throw!`.
pub(crate) fn install() {
    heist_core::throw::set_hook(report_and_abort);
}

/// Reports what is wrong and where, then aborts. Works in any state: it takes no lock and does not
/// allocate.
fn report_and_abort(what: fmt::Arguments<'_>) -> ! {
    stderr::report(format_args!("fatal error: heist: {what}\n"));
    // SAFETY: the M of the calling thread is alive.
    if let Some(m) = unsafe { current::m().as_ref() } {
        stderr::report(format_args!("\ton M{}", m.id));
        if m.has_p() {
            stderr::report(format_args!(", P{} with {} queued", m.p().id, m.p().queue.len()));
        }
        if let Some(gp) = m.current() {
            let id = gp.id.get();
            stderr::report(format_args!(", goroutine {id}"));
        }
        stderr::report(format_args!("\n"));
        report::state(m.sched());
    }
    report::write_own_frames();
    last_words::speak();
    std::process::abort();
}

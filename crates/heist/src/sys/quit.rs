//! SIGQUIT: a report, then the default action.

use super::signal;
use std::ptr::null_mut;
use std::sync::OnceLock;

/// Writes the report.
pub(crate) type Report = fn();

static REPORT: OnceLock<Report> = OnceLock::new();

/// How long the report may take.
const REPORT_MAX_SECONDS: u32 = 10;

/// Lets SIGQUIT make a report before it ends the process, if its action is the default one. Once
/// per process.
pub(crate) fn install(report: Report) {
    if REPORT.set(report).is_err()
        || signal::current_action(libc::SIGQUIT).sa_sigaction != libc::SIG_DFL
    {
        return;
    }
    // SAFETY: all zero is a valid sigaction; every field that matters is set below.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_quit as *const () as usize;
    // Not on the alternate stack, which std makes too small for a report.
    action.sa_flags = libc::SA_RESTART;
    // SAFETY: `action` is complete.
    unsafe { libc::sigaction(libc::SIGQUIT, &raw const action, null_mut()) };
}

extern "C" fn on_quit(_: libc::c_int) {
    // SAFETY: both only return a value.
    let (process, thread) = unsafe { (libc::getpid(), libc::gettid()) };
    // The first thread may block the signal.
    signal::end_process_after(REPORT_MAX_SECONDS, 2);
    if thread != process {
        // SAFETY: the first thread has the same handler. If it has ended, this one reports.
        let sent = unsafe { libc::syscall(libc::SYS_tgkill, process, process, libc::SIGQUIT) };
        if sent == 0 {
            return;
        }
    }
    if let Some(report) = REPORT.get() {
        report();
    }
    // SAFETY: with the default action the signal ends the process when it is unblocked, as it is
    // when this handler returns.
    unsafe {
        libc::signal(libc::SIGQUIT, libc::SIG_DFL);
        libc::raise(libc::SIGQUIT);
    }
}

//! Stacks in reports that nobody asked for in the program: those of the scheduler, and SIGQUIT.
//!
//! SIGQUIT (Ctrl-\\ at a terminal) shows every goroutine of every runtime, as in Go, and then ends
//! the process as it would without heist, with a core file if the system is set up for it. The
//! handler of heist is installed only if the signal has its default action when the first runtime
//! starts, and gives way to any handler that is installed later. `HEIST_DEBUG=sigquit=0` leaves the
//! signal alone.
//!
//! The report is made in the handler, on the first thread of the process: it usually waits in
//! `Runtime::run` and holds no lock. If it does hold one that the report needs, an alarm ends the
//! process.

use super::{collect, text};
use crate::gmp::G;
use crate::gmp::described;
use crate::sched::Sched;
use crate::sys::registers::here;
use crate::sys::{quit, stderr};
use heist_core::sync::{AtomicUsize, Ordering};
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

/// The runtimes of the process.
static RUNTIMES: Mutex<Vec<Weak<Sched>>> = Mutex::new(Vec::new());

/// Set when SIGQUIT is to be left alone.
static LEAVE_QUIT: AtomicUsize = AtomicUsize::new(0);

/// Leaves SIGQUIT alone. Called before the first runtime starts.
pub(crate) fn leave_quit() {
    LEAVE_QUIT.store(1, Ordering::Relaxed);
}

/// Reports of this runtime, and of the process, show stacks.
pub(crate) fn install(sched: &Arc<Sched>) {
    described::show_stacks_with(write_stack);
    let mut runtimes = RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner);
    runtimes.retain(|runtime| runtime.strong_count() != 0);
    runtimes.push(Arc::downgrade(sched));
    if LEAVE_QUIT.load(Ordering::Relaxed) == 0 {
        quit::install(report_all);
    }
}

/// The runtimes of the process.
pub(crate) fn runtimes() -> Vec<Arc<Sched>> {
    let runtimes = RUNTIMES.lock().unwrap_or_else(PoisonError::into_inner);
    runtimes.iter().filter_map(Weak::upgrade).collect()
}

/// Writes the stack of one goroutine of a live runtime.
fn write_stack(sched: &Sched, gp: &G, f: &mut dyn fmt::Write) -> fmt::Result {
    let here = here();
    // A runtime that leaves goroutines behind may be dropped on a small stack.
    text::on_large_stack(|| {
        let stack = collect::stack_of(sched, gp, here);
        text::write_stack(stack.as_ref().map_err(|&absent| absent), f)
    })
}

/// Writes all goroutines of all runtimes to standard error.
fn report_all() {
    // A thread that holds the list may be the one that was interrupted.
    let Ok(runtimes) = RUNTIMES.try_lock() else { return };
    stderr::report(format_args!("SIGQUIT: quit\n"));
    for sched in runtimes.iter().filter_map(Weak::upgrade) {
        stderr::report(format_args!("\n{}", sched.dump(here())));
        // The last share must not be dropped in a handler.
        std::mem::forget(sched);
    }
}

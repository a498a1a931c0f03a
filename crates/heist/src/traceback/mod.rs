//! The stacks of goroutines, read while the program continues.
//!
//! - A goroutine that waits, or is runnable, has left its registers on its stack. They and the
//!   frames are read where they are, and count if the goroutine did not run meanwhile (`status`).
//! - A goroutine that was preempted by a signal has left them in its M, likewise.
//! - A goroutine that runs, or is in a blocking call, is interrupted by a signal, whose handler
//!   walks the stack (`gmp::capture`).
//!
//! GO: traceback.go, mprof.go goroutineProfileWithLabelsConcurrent.

pub(crate) mod collect;
pub(crate) mod reports;
pub(crate) mod running;
pub(crate) mod symbols;
pub(crate) mod text;

use crate::coro::walk::Position;
use crate::gmp::flags::Flag;
use crate::gmp::{G, M};
use crate::sched::Sched;
use crate::sys::modules::Modules;
use crate::sys::walk::{Frames, Registers, Walker};
use heist_core::status::Status;
use std::fmt;

/// Why there are no frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Absent {
    /// It has not run yet.
    NotStarted,
    /// It is on a stack that user code made.
    ForeignStack,
    /// It overflowed its stack, and its thread handles no signals any more.
    Abandoned,
    /// Its thread did not answer: it blocks the signal, or gets no CPU.
    NoAnswer,
    /// It runs, and must not be interrupted.
    NoPreempt,
    /// It began or ended to run each time it was looked at.
    Moving,
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotStarted => "not started yet",
            Self::ForeignStack => "stack not available: it is not one of heist",
            Self::Abandoned => "stack not available: it overflowed",
            Self::NoAnswer => "stack not available: the thread does not answer the signal",
            Self::NoPreempt => "stack not available: it runs and must not be interrupted",
            Self::Moving => "stack not available: it ran each time it was looked at",
        })
    }
}

/// The registers of the caller of a report.
pub(crate) use crate::sys::registers::here;
pub(crate) use text::on_large_stack;

/// The frames of a goroutine, or why there are none.
pub(crate) type Stack = Result<Frames, Absent>;

/// A look at a goroutine that was not alone with it.
#[expect(clippy::large_enum_variant, reason = "it is matched at once, and never stored")]
enum Looked {
    /// Its stack.
    At(Stack),
    /// It runs: only its thread knows where.
    Runs,
    /// It ran meanwhile.
    Disturbed,
}

/// The stack of a goroutine that does not run.
fn look(sched: &Sched, gp: &G, walker: &mut Walker, modules: &Modules) -> Looked {
    let seen = gp.status.see();
    match seen.status() {
        Status::Running if gp.flags.has(Flag::ABANDONED) => Looked::At(Err(Absent::Abandoned)),
        Status::Running => Looked::Runs,
        Status::Dead => Looked::Disturbed,
        Status::Waiting | Status::Runnable if !gp.has_started() => {
            if gp.status.is_still(seen) {
                Looked::At(Err(Absent::NotStarted))
            } else {
                Looked::Disturbed
            }
        }
        Status::Waiting => {
            let stack = suspended(gp, walker, modules);
            if gp.status.is_still(seen) { Looked::At(stack) } else { Looked::Disturbed }
        }
        Status::Runnable if is_frozen(sched, gp) => Looked::Runs,
        Status::Runnable => {
            // It may run and be runnable again between two looks at the word. Then it has most
            // likely left other registers or frames.
            let (before, stack) = (Position::suspended(&gp.coro), suspended(gp, walker, modules));
            let again = suspended(gp, walker, modules);
            let is_same = before == Position::suspended(&gp.coro)
                && stack.as_ref().map(Frames::addresses) == again.as_ref().map(Frames::addresses);
            if is_same && gp.status.is_still(seen) { Looked::At(stack) } else { Looked::Disturbed }
        }
    }
}

/// Whether a runnable goroutine is frozen: it waits together with its thread.
fn is_frozen(sched: &Sched, gp: &G) -> bool {
    let runs_here = |m: &M| m.current().is_some_and(|current| std::ptr::eq(current, gp));
    !gp.bound_m.get().is_null() && sched.threads.all_ms().iter().any(runs_here)
}

fn suspended(gp: &G, walker: &mut Walker, modules: &Modules) -> Stack {
    let position = Position::suspended(&gp.coro).ok_or(Absent::ForeignStack)?;
    Ok(position.walk(walker, modules))
}

/// The stack of the calling goroutine, from these registers on.
pub(crate) fn own(gp: &G, here: Registers, walker: &mut Walker, modules: &Modules) -> Stack {
    let position = Position::running(&gp.coro, here).ok_or(Absent::ForeignStack)?;
    Ok(position.walk(walker, modules))
}

/// The stack of the goroutine on a thread whose handler sleeps, with the goroutine's number.
fn asleep(m: &M, walker: &mut Walker, modules: &Modules) -> Option<(u64, Stack)> {
    let (version, registers) = m.captured.sleeping()?;
    let gp = m.current()?;
    let stack = own(gp, registers, walker, modules);
    m.captured.is_still(version).then(|| (gp.id.get(), stack))
}

//! A goroutine that runs out of stack ends alone.
//!
//! Touching the guard page raises SIGSEGV. The handler runs on the M's alternate stack, sees that
//! the address is in the guard page of the goroutine that runs here, reports it, and makes the
//! goroutine return to the scheduler as if its main function had returned. Its frames are
//! abandoned: no destructor runs, and the stack is not used again, because somebody may hold
//! references into it.

use super::stack;
use crate::current;
use crate::gmp::g::Outcome;
use crate::gmp::m::Request;
use crate::gmp::{G, M};
use crate::sys::signal::{Fault, Redirect};
use crate::sys::stderr;
use corosensei::trap::TrapHandlerRegs;

/// Handles a memory fault if it is a goroutine's stack overflow.
pub(crate) fn on_fault(fault: &mut Fault<'_>) -> bool {
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else {
        return false;
    };
    let Some(gp) = m.current() else { return false };
    // SAFETY: a goroutine that runs on this M has started and not ended.
    let trap = unsafe { gp.coro.trap_handler() };
    // The guard page is the lowest of the stack: one page further down is outside.
    let in_guard = trap.stack_ptr_in_bounds(fault.address)
        && !trap.stack_ptr_in_bounds(fault.address.wrapping_sub(stack::GUARD_BYTES));
    if !in_guard {
        return false;
    }
    report(m, gp);
    if !m.is_in_user() {
        // The scheduler's own state may be half changed.
        stderr::report(format_args!(
            "fatal error: stack overflow inside the runtime\n"
        ));
        stderr::exit_now(2);
    }
    gp.outcome.set(Outcome::Overflowed);
    m.force_runtime();
    m.request.set(Request::Exit);
    // SAFETY: the fault is on the goroutine's stack, whose frames are abandoned for good: the
    // stack is never used again, so what others may know of it stays as it is.
    fault.redirect(convert(unsafe { trap.setup_trap_handler(|| ()) }));
    true
}

fn report(m: &M, gp: &G) {
    let site = gp.spawn_site.get();
    stderr::report(format_args!(
        "heist: goroutine {}{} overflowed its stack of {} bytes; it ends here, the process goes \
         on\n\tspawned at {} by goroutine {}, running on M{}\n\tgive it more with \
         goroutine::Builder::stack_size, or all of them with Builder::stack_size\n",
        gp.id.load(heist_core::sync::Ordering::Relaxed),
        Named(gp.name()),
        m.sched().stack_class(gp).bytes(),
        Site(site),
        gp.parent_id.get(),
        m.id,
    ));
}

struct Named<'a>(Option<&'a str>);

impl std::fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

struct Site(Option<&'static std::panic::Location<'static>>);

impl std::fmt::Display for Site {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            Some(site) => write!(f, "{site}"),
            None => f.write_str("an unknown place"),
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn convert(to: TrapHandlerRegs) -> Redirect {
    Redirect {
        instruction: to.rip,
        stack: to.rsp,
        frame: to.rbp,
        link: 0,
        arg0: to.rdi,
        arg1: to.rsi,
    }
}

#[cfg(target_arch = "aarch64")]
fn convert(to: TrapHandlerRegs) -> Redirect {
    Redirect {
        instruction: to.pc,
        stack: to.sp,
        frame: to.x29,
        link: to.lr,
        arg0: to.x0,
        arg1: to.x1,
    }
}

//! A goroutine that runs out of stack ends alone.
//!
//! Below the usable part of a stack lie the reserve and the guard page, both inaccessible.
//! Touching either raises SIGSEGV. The handler runs on the M's alternate stack, opens the reserve,
//! and decides by where the goroutine is:
//!
//! - **In user code**: the fault becomes a panic. The handler walks up to the innermost call that
//!   can unwind, sets the interrupted registers to that call, and panics from inside the handler.
//!   The unwinder knows signal frames, so the panic goes on in the goroutine and runs its
//!   destructors, which have the reserve to run in. Lost are only the frames further in than that
//!   call: the one that faulted, as a rule in its first instructions.
//! - **In a foreign library**, such as the allocator, which may hold its own locks: it may finish,
//!   in the reserve. The address it returns to is replaced by one at which nothing can be run, so
//!   that the return faults; then the reserve is guarded again and the return goes where it was
//!   meant to. A goroutine that keeps going deeper soon faults in its own code.
//! - **In the runtime**: it may finish too, and panics when it leaves the runtime.
//!
//! If the reserve is not enough for any of these, the process ends with the report.

use super::guard::Guarded;
use crate::current;
use crate::gmp::g::{OVERFLOWED, RESERVE_OPEN};
use crate::gmp::{G, M};
use crate::sys::signal::{Fault, FaultHandler, Verdict};
use crate::sys::stderr;
use crate::sys::unwind::{self, Walk};
use heist_core::m_word;
use std::fmt;

/// The payload of the panic.
#[derive(Debug)]
pub(crate) struct StackOverflow;

/// More than closing the reserve needs of the stack.
const CLOSING_BYTES: usize = 4 << 10;

impl Drop for StackOverflow {
    /// Somebody caught the panic: the goroutine goes on, and may need the reserve again.
    fn drop(&mut self) {
        // SAFETY: the M of the calling thread is alive.
        let Some(m) = (unsafe { current::m().as_ref() }) else { return };
        let Some(gp) = m.current() else { return };
        let here = std::ptr::from_ref(&m).addr();
        let guarded = guarded(m, gp);
        let in_reserve = guarded.contains(here) || guarded.contains(here - CLOSING_BYTES);
        if gp.has_flag(RESERVE_OPEN) && !in_reserve {
            guarded.close_below(here);
            gp.clear_flag(RESERVE_OPEN);
        }
    }
}

/// What the runtime installs for memory faults.
pub(crate) const HANDLER: FaultHandler = FaultHandler { judge, raise };

fn judge(fault: &mut Fault<'_>) -> Verdict {
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else {
        return Verdict::NotOurs;
    };
    let Some(gp) = m.current() else {
        return Verdict::NotOurs;
    };
    let guarded = guarded(m, gp);
    if !guarded.contains(fault.address) {
        return Verdict::NotOurs;
    }
    if fault.instruction() == guarded.no_code() && m.detour.get() != 0 {
        guarded.close_below(fault.stack_pointer());
        gp.clear_flag(RESERVE_OPEN);
        fault.jump_to(m.detour.replace(0));
        return Verdict::Resume;
    }
    if gp.has_flag(RESERVE_OPEN) || !guarded.open() {
        die(m, gp, "the reserve of the stack is used up");
    }
    gp.set_flag(RESERVE_OPEN);
    let hard = guarded.is_hard(fault.address);
    if !m.is_in_user() {
        if hard {
            die(m, gp, "the runtime stepped over the reserve");
        }
        gp.set_flag(OVERFLOWED);
        m.word.call_attention(m_word::OVERFLOW);
        return Verdict::Resume;
    }
    match unwind::find_raise_point(fault.instruction()) {
        // It may come to the end of its panic in the reserve: the hook may print a backtrace, which
        // needs a lot of stack.
        Walk::Raise(_) if std::thread::panicking() && !hard => Verdict::Resume,
        Walk::Raise(_) if std::thread::panicking() => die(m, gp, "it was panicking already"),
        Walk::Raise(point) => {
            report(m, gp);
            fault.move_to(&point);
            Verdict::Raise
        }
        Walk::Foreign { return_slot } if !hard && m.detour.get() == 0 => {
            // SAFETY: the walk found the slot on this goroutine's stack, with a return address that
            // nobody unwinds through before it is used: a foreign function does not park.
            m.detour.set(unsafe { return_slot.replace(guarded.no_code()) });
            Verdict::Resume
        }
        Walk::Foreign { .. } => die(m, gp, "it happened inside a foreign library"),
        Walk::Lost => die(m, gp, "the stack cannot be unwound (panic=abort, or no tables)"),
    }
}

fn raise() -> ! {
    // The box is of a zero-sized type.
    std::panic::resume_unwind(Box::new(StackOverflow))
}

/// The goroutine has left the runtime, in which it ran out of stack.
#[cold]
#[inline(never)]
pub(crate) fn after_runtime() {
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else {
        return;
    };
    m.word.clear_attention(m_word::OVERFLOW);
    let Some(gp) = m.current() else { return };
    if gp.has_flag(OVERFLOWED) && !std::thread::panicking() {
        gp.clear_flag(OVERFLOWED);
        report(m, gp);
        raise();
    }
}

fn guarded(m: &M, gp: &G) -> Guarded {
    m.sched().stack_class(gp).guarded(gp.coro.stack_top())
}

/// Ends the process where the goroutine cannot be ended alone.
fn die(m: &M, gp: &G, why: &str) -> ! {
    report(m, gp);
    stderr::report(format_args!("fatal error: stack overflow: {why}\n"));
    stderr::exit_now(2);
}

fn report(m: &M, gp: &G) {
    stderr::report(format_args!(
        "heist: goroutine {}{} overflowed its stack of {} bytes\n\tspawned at {} by goroutine {}, \
         running on M{}\n\tgive it more with goroutine::Builder::stack_size, or all of them with \
         Builder::stack_size\n",
        gp.id.get(),
        Named(gp.name()),
        m.sched().stack_class(gp).bytes(),
        Site(gp.spawn_site()),
        gp.parent_id.get(),
        m.id,
    ));
}

struct Named<'a>(Option<&'a str>);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |name| write!(f, " ({name})"))
    }
}

struct Site(Option<&'static std::panic::Location<'static>>);

impl fmt::Display for Site {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(site) => write!(f, "{site}"),
            None => f.write_str("an unknown place"),
        }
    }
}

//! The frames of an interrupted stack, walked with the platform's unwinder and without allocating.
//!
//! It runs in the handler of a memory fault. Since glibc 2.35 the unwinder finds its tables without
//! a lock. With an older glibc it takes the loader's lock, and may have to wait for its holder.

use super::symbols::{Code, own_code};
use std::ffi::{c_int, c_void};

#[repr(C)]
pub(super) struct Context {
    _private: [u8; 0],
}

const CONTINUE: c_int = 0;
const STOP: c_int = 4;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        arg: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIPInfo(context: *mut Context, before: *mut c_int) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

/// Frames that are kept at the inner end.
const INNERMOST: usize = 12;
/// Frames that are kept at the outer end: in a debug build about ten of them belong to the runtime.
const OUTERMOST: usize = 24;

/// The frames of one stack, from the fault outwards: those of both ends, and how many there are.
#[derive(Debug)]
pub(crate) struct Frames {
    innermost: [usize; INNERMOST],
    /// A ring: the frame of number `n` is at `n % OUTERMOST`.
    outermost: [usize; OUTERMOST],
    n: usize,
    /// Whether one of them is in another library than this code.
    pub(crate) has_foreign: bool,
    /// Whether the walk reached the base of the stack.
    pub(crate) is_complete: bool,
}

impl Frames {
    const NONE: Self = Self {
        innermost: [0; INNERMOST],
        outermost: [0; OUTERMOST],
        n: 0,
        has_foreign: false,
        is_complete: false,
    };

    fn push(&mut self, address: usize) {
        if self.n < INNERMOST {
            self.innermost[self.n] = address;
        }
        self.outermost[self.n % OUTERMOST] = address;
        self.n += 1;
    }

    /// The innermost ones, the one that faulted first.
    pub(crate) fn innermost(&self) -> impl Iterator<Item = usize> {
        self.innermost.into_iter().take(self.n)
    }

    /// How many lie between both ends.
    pub(crate) const fn n_between(&self) -> usize {
        self.n.saturating_sub(INNERMOST + OUTERMOST)
    }

    /// The outermost ones that are not among the innermost, the base of the stack last.
    pub(crate) fn outermost(&self) -> impl Iterator<Item = usize> {
        let first = self.n.saturating_sub(OUTERMOST).max(INNERMOST.min(self.n));
        (first..self.n).map(|n| self.outermost[n % OUTERMOST])
    }
}

struct Walk<'a> {
    fault_ip: usize,
    past_fault: bool,
    is_on_stack: &'a dyn Fn(usize) -> bool,
    own_code: Option<&'static Code>,
    frames: Frames,
}

/// The frames from a fault at `fault_ip` outwards, as long as their stack pointers are on the stack
/// that faulted. Called in the fault's handler.
pub(crate) fn walk(fault_ip: usize, is_on_stack: &dyn Fn(usize) -> bool) -> Frames {
    walk_from(fault_ip, false, is_on_stack)
}

/// The frames of the calling thread, from the caller outwards.
pub(crate) fn walk_here() -> Frames {
    let mut frames = walk_from(0, true, &|_| true);
    frames.is_complete = true;
    frames
}

fn walk_from(fault_ip: usize, past_fault: bool, is_on_stack: &dyn Fn(usize) -> bool) -> Frames {
    let own_code = own_code();
    let mut walk = Walk { fault_ip, past_fault, is_on_stack, own_code, frames: Frames::NONE };
    // SAFETY: `visit` gets a `Walk` that outlives the call, and only reads.
    unsafe { _Unwind_Backtrace(visit, (&raw mut walk).cast()) };
    walk.frames
}

extern "C" fn visit(context: *mut Context, walk: *mut c_void) -> c_int {
    // SAFETY: see `walk`.
    let walk = unsafe { &mut *walk.cast::<Walk<'_>>() };
    let mut is_exact = 0;
    // SAFETY: the unwinder passes a valid context.
    let (ip, stack) =
        unsafe { (_Unwind_GetIPInfo(context, &raw mut is_exact), _Unwind_GetCFA(context)) };
    if !walk.past_fault {
        // The handler's own frames come first.
        if is_exact == 0 || ip != walk.fault_ip {
            return CONTINUE;
        }
        walk.past_fault = true;
    } else if !(walk.is_on_stack)(stack) {
        walk.frames.is_complete = true;
        return STOP;
    }
    // A return address may already belong to the next function.
    let address = if is_exact == 0 { ip.wrapping_sub(1) } else { ip };
    walk.frames.push(address);
    walk.frames.has_foreign |= !walk.own_code.is_some_and(|code| code.contains(address));
    CONTINUE
}

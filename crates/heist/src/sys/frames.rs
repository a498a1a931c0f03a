//! The frames of the calling thread's stack, from the platform's unwinder.

use super::unwind::Context;
use std::ffi::{c_int, c_void};

const CONTINUE: c_int = 0;

unsafe extern "C" {
    fn _Unwind_Backtrace(
        visit: extern "C" fn(*mut Context, *mut c_void) -> c_int,
        arg: *mut c_void,
    ) -> c_int;
    fn _Unwind_GetIP(context: *mut Context) -> usize;
    fn _Unwind_GetCFA(context: *mut Context) -> usize;
}

/// A frame: its return address, and its lowest address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Frame {
    pub(crate) ip: usize,
    pub(crate) low: usize,
}

/// Calls `look` with each frame, the innermost first.
pub(crate) fn walk(mut look: impl FnMut(Frame)) {
    let mut look: &mut dyn FnMut(Frame) = &mut look;
    // SAFETY: `visit` gets the closure, which outlives the walk, and only asks questions.
    unsafe { _Unwind_Backtrace(visit, (&raw mut look).cast()) };
}

extern "C" fn visit(context: *mut Context, look: *mut c_void) -> c_int {
    // SAFETY: see `walk`; the unwinder passes a valid context.
    unsafe {
        let look = &mut *look.cast::<&mut dyn FnMut(Frame)>();
        look(Frame { ip: _Unwind_GetIP(context), low: _Unwind_GetCFA(context) });
    }
    CONTINUE
}

//! Thread-locals of a goroutine that continues on another thread.
//!
//! The compiler assumes that the address of a thread-local is constant inside a function. It keeps
//! the address, or the thread pointer itself, in a register or on the stack across the call that
//! parks. When the goroutine continues on another thread, its next access would be to the variable
//! of the thread that it has left. So the M that is about to resume it scans the part of its stack
//! that is in use, which also holds its registers while it is suspended, and moves every address in
//! the area of the old thread's variables to the area of its own (`sys::tls`).
//!
//! # Which thread it has left
//! The head of each stack holds the thread pointer of the thread that ran its goroutine last. That
//! thread may have ended. Then its place is unused, or belongs to another thread, which has the
//! same thread pointer and the same variables at the same addresses (`sys::place`).

use super::switch::Coro;
use crate::sys::tls;
use heist_core::sync::Ordering;

impl Coro {
    /// Moves the addresses of thread-locals on the stack of a goroutine to the calling thread,
    /// which has the thread pointer `to`. Calls `found` with the position of each.
    ///
    /// # Safety
    /// The caller owns the goroutine, which has run and is suspended.
    pub(crate) unsafe fn move_to(&self, to: usize, found: impl FnMut(usize)) {
        // SAFETY: the goroutine has run and is suspended, and the caller owns it.
        unsafe {
            let thread = &self.head().thread;
            let from = thread.load(Ordering::Relaxed);
            thread.store(to, Ordering::Relaxed);
            let frames = self.frames();
            tls::relocate(frames.start, frames.end, from, to, found);
        }
    }
}

//! The stack of signal handlers.

use super::memory;
use std::ptr::NonNull;

/// The stack on which signal handlers of this thread run. A goroutine's stack may be exhausted
/// when they are needed. Below it is a guard.
#[derive(Debug)]
pub(crate) struct AltStack {
    base: NonNull<u8>,
    /// The previous stack of the thread, which is restored.
    before: libc::stack_t,
}

/// Room for a handler, for the unwinder and for a report: walking a stack needs more than 64 KiB in
/// a debug build. Only what is touched costs memory.
const ALT_STACK_BYTES: usize = 256 << 10;
/// The guard below it.
const ALT_GUARD_BYTES: usize = memory::PAGE_MAX_BYTES;
const ALT_MAPPED_BYTES: usize = ALT_GUARD_BYTES + ALT_STACK_BYTES;

impl AltStack {
    /// Maps a stack and installs it for the calling thread.
    pub(crate) fn install() -> std::io::Result<Self> {
        let base = memory::map(ALT_MAPPED_BYTES)?;
        // SAFETY: just mapped, not used yet.
        let guarded = unsafe { memory::guard(base, ALT_GUARD_BYTES) };
        let stack =
            libc::stack_t { ss_sp: above_guard(base), ss_flags: 0, ss_size: ALT_STACK_BYTES };
        let mut before = stack;
        // SAFETY: `stack` describes memory that stays mapped until this value is dropped.
        if guarded && unsafe { libc::sigaltstack(&raw const stack, &raw mut before) } == 0 {
            return Ok(Self { base, before });
        }
        let error = std::io::Error::last_os_error();
        // SAFETY: mapped above, and not used.
        unsafe { memory::unmap(base, ALT_MAPPED_BYTES) };
        Err(error)
    }

    const fn stack(&self) -> *mut libc::c_void {
        above_guard(self.base)
    }
}

const fn above_guard(base: NonNull<u8>) -> *mut libc::c_void {
    base.as_ptr().wrapping_add(ALT_GUARD_BYTES).cast()
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let mut now = self.before;
        // SAFETY: it only asks.
        unsafe { libc::sigaltstack(std::ptr::null(), &raw mut now) };
        if now.ss_sp != self.stack() {
            // A stack that was installed later returns to this one when it is dropped. So it stays.
            return;
        }
        // SAFETY: the thread drops its own alternate stack outside any handler, then nothing uses
        // the memory; its previous stack is still its own, or was left mapped as above.
        unsafe {
            libc::sigaltstack(&raw const self.before, std::ptr::null_mut());
            memory::unmap(self.base, ALT_MAPPED_BYTES);
        }
    }
}

//! OS threads.

use super::memory;
use std::ptr::NonNull;

/// The stack of an M: the scheduler and signal handlers are all that runs there.
const M_STACK_BYTES: usize = 256 << 10;

/// Starts a thread. It allocates and may block, so only the helper thread and plain threads call
/// it.
pub(crate) fn spawn(
    name: String,
    main: impl FnOnce() + Send + 'static,
) -> std::io::Result<std::thread::JoinHandle<()>> {
    std::thread::Builder::new().name(name).stack_size(M_STACK_BYTES).spawn(main)
}

/// The kernel's id of the calling thread.
pub(crate) fn id() -> u32 {
    // SAFETY: gettid only answers a question.
    unsafe { libc::gettid() as u32 }
}

/// The stack on which signal handlers of this thread run. A goroutine's stack may be exhausted
/// when they are needed.
#[derive(Debug)]
pub(crate) struct AltStack {
    base: NonNull<u8>,
}

/// Room for a handler, for the unwinder and for a report.
const ALT_STACK_BYTES: usize = 64 << 10;

impl AltStack {
    /// Maps one and makes it the calling thread's.
    pub(crate) fn install() -> std::io::Result<Self> {
        let base = memory::map(ALT_STACK_BYTES)?;
        let stack =
            libc::stack_t { ss_sp: base.as_ptr().cast(), ss_flags: 0, ss_size: ALT_STACK_BYTES };
        // SAFETY: `stack` describes memory that stays mapped until this value is dropped.
        if unsafe { libc::sigaltstack(&raw const stack, std::ptr::null_mut()) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        Ok(Self { base })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let off =
            libc::stack_t { ss_sp: std::ptr::null_mut(), ss_flags: libc::SS_DISABLE, ss_size: 0 };
        // SAFETY: the thread drops its own alternate stack outside of any handler, then nothing
        // uses the memory.
        unsafe {
            libc::sigaltstack(&raw const off, std::ptr::null_mut());
            memory::unmap(self.base, ALT_STACK_BYTES);
        }
    }
}

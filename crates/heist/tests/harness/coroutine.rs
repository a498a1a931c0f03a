//! Coroutines of another library: stacks that it switches, and that it unmaps when they end.

use corosensei::stack::{Stack, StackPointer};
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::ptr::null_mut;

const BYTES: usize = 256 << 10;

/// A computation that suspends itself, on a stack of its own.
pub struct Suspended(Coroutine<(), (), (), Mapped>);

impl Suspended {
    /// Runs `f` until it suspends itself.
    pub fn begin(f: impl FnOnce(&Yielder<(), ()>) + 'static) -> Self {
        let mut coroutine = Coroutine::with_stack(Mapped::new(), |yielder, ()| f(yielder));
        assert!(matches!(coroutine.resume(()), CoroutineResult::Yield(())));
        Self(coroutine)
    }

    /// Runs it to its end, and unmaps its stack.
    pub fn end(mut self) {
        assert!(matches!(self.0.resume(()), CoroutineResult::Return(())));
    }
}

/// The address at which a stack begins.
struct Mapped(usize);

impl Mapped {
    fn new() -> Self {
        let (protection, flags) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: maps new memory.
        let start = unsafe { libc::mmap(null_mut(), BYTES, protection, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        Self(start as usize)
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped by `new`; its coroutine has ended.
        unsafe { libc::munmap(self.0 as *mut libc::c_void, BYTES) };
    }
}

// SAFETY: the memory is mapped until the stack is dropped.
unsafe impl Stack for Mapped {
    fn base(&self) -> StackPointer {
        StackPointer::new(self.0 + BYTES).unwrap()
    }

    fn limit(&self) -> StackPointer {
        StackPointer::new(self.0).unwrap()
    }
}

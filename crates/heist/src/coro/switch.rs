//! Switching between an M's scheduler and a goroutine: the only user of corosensei.

use super::guard::GUARD_BYTES;
use super::stack::Stack;
use crate::gmp::{G, M};
use crate::sys::memory::prefetch_for_write;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null};

/// What is passed in at every resume: the M that does it. A goroutine learns its thread from the
/// switch itself, without a look at a thread-local.
type Input = NonNull<M>;

type Inner = Coroutine<Input, (), (), Stack>;

/// The context of a goroutine, from its first run until it has ended.
pub(crate) struct Coro {
    inner: UnsafeCell<MaybeUninit<Inner>>,
    yielder: Cell<*const Yielder<Input, ()>>,
}

// SAFETY: corosensei's coroutines are not Send because it cannot know what is on their stacks.
// Neither can we: whoever starts a runtime promises, in `unsafe`, that nothing that must stay on
// its thread is on a goroutine's stack when it parks (docs/SAFETY.md). The context itself is
// memory and has one user at a time, the M that runs the goroutine.
unsafe impl Send for Coro {}

/// How a goroutine came back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Switched {
    /// It suspended itself and can be resumed.
    Suspended,
    /// Its main function returned, or its stack was abandoned.
    Returned,
}

/// How many cache lines below its first frame a goroutine waits that does so in a function it was
/// spawned with: the frames of that, of what is around it, and of the wait.
const PREFETCH_LINES: usize = 8;

/// A goroutine's main function, on its own stack.
pub(crate) type Main = fn(NonNull<M>, NonNull<G>);

impl Coro {
    /// No context.
    pub(crate) const fn none() -> Self {
        Self { inner: UnsafeCell::new(MaybeUninit::uninit()), yielder: Cell::new(null()) }
    }

    /// Prepares the first run on `stack`.
    ///
    /// # Safety
    /// The caller owns the goroutine `gp`, of which this is the context, and it has none yet.
    #[inline]
    pub(crate) unsafe fn start(&self, stack: Stack, gp: NonNull<G>, main: Main) {
        let body = move |yielder: &Yielder<Input, ()>, m: Input| {
            // SAFETY: records are never unmapped, and this goroutine is running, so it owns the
            // field.
            unsafe { gp.as_ref() }.coro.yielder.set(yielder);
            main(m, gp);
        };
        // SAFETY: by the caller's promise nobody else uses the field.
        unsafe { (*self.inner.get()).write(Inner::with_stack(stack, body)) };
    }

    /// Runs the goroutine until it suspends or returns.
    ///
    /// # Safety
    /// The caller is the M `m`, owns the goroutine, and the goroutine is not running.
    #[inline]
    pub(crate) unsafe fn resume(&self, m: NonNull<M>) -> Switched {
        // SAFETY: started, by the caller's promise, and used by nobody else.
        let inner = unsafe { (*self.inner.get()).assume_init_mut() };
        match inner.resume(m) {
            CoroutineResult::Yield(()) => Switched::Suspended,
            CoroutineResult::Return(()) => Switched::Returned,
        }
    }

    /// Goes back to the scheduler. Returns when resumed, with the M that did it.
    ///
    /// # Safety
    /// The caller is the goroutine itself, on its own stack.
    #[inline]
    pub(crate) unsafe fn suspend(&self) -> NonNull<M> {
        // SAFETY: set when the goroutine started; it lives at the base of the stack.
        unsafe { (*self.yielder.get()).suspend(()) }
    }

    /// Takes the stack of a goroutine that has returned.
    ///
    /// # Safety
    /// The last resume answered [`Switched::Returned`], and the stack was not taken yet.
    #[inline]
    pub(crate) unsafe fn take_stack(&self) -> Stack {
        // SAFETY: started once and returned, by the caller's promise; not read again.
        unsafe { (*self.inner.get()).assume_init_read() }.into_stack()
    }

    /// Fetches the highest part of the stack of a goroutine that has started: most wait there.
    pub(crate) fn prefetch_stack(&self) {
        let top = self.yielder.get().cast::<u8>();
        for line in 0..PREFETCH_LINES {
            prefetch_for_write(top.wrapping_sub(64 * line));
        }
    }

    /// The highest address of the stack of a goroutine that has started, zero before.
    pub(crate) fn stack_top(&self) -> usize {
        // The yielder is among the first words of the stack, whose top is at a page boundary.
        self.yielder.get().addr().next_multiple_of(GUARD_BYTES)
    }
}

//! Switching between an M's scheduler and a goroutine: the only user of corosensei.

use super::layout;
use super::stack::{Bounds, Head, Stack};
use crate::gmp::shown::ShownPointer;
use crate::gmp::{G, M};
use crate::sys::memory::{PAGE_MIN_BYTES, prefetch_for_write};
use crate::sys::registers::stack_pointer;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use heist_core::sync::Ordering;
use std::cell::UnsafeCell;
use std::mem::MaybeUninit;
use std::ops::Range;
use std::ptr::NonNull;

/// What is passed in at every resume: the M that does it. A goroutine learns its thread from the
/// switch itself, without a look at a thread-local.
type Input = NonNull<M>;

pub(super) type Inner = Coroutine<Input, (), (), Stack>;

/// The context of a goroutine, from its first run until it has ended.
pub(crate) struct Coro {
    inner: UnsafeCell<MaybeUninit<Inner>>,
    /// The link to the scheduler's stack, near the top of the goroutine's.
    yielder: ShownPointer<Yielder<Input, ()>>,
}

/// How far below the head of its stack that link is. corosensei puts it two words below what it was
/// given as the base; a build for a sanitizer has its record of the stack in between, and the same
/// record in the context.
const LINK_BYTES: usize = size_of::<Inner>() - 2 * size_of::<usize>();

/// No stack is smaller than this.
const SHALLOW_BYTES: usize = 16 << 10;

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
        Self { inner: UnsafeCell::new(MaybeUninit::uninit()), yielder: ShownPointer::null() }
    }

    /// Prepares the first run on `stack`, by the thread with this thread pointer.
    ///
    /// # Safety
    /// The caller owns the goroutine `gp`, of which this is the context, and it has none yet.
    #[inline]
    pub(crate) unsafe fn start(&self, stack: Stack, thread: usize, gp: NonNull<G>, main: Main) {
        let body = move |yielder: &Yielder<Input, ()>, m: Input| {
            // SAFETY: records are never unmapped, and this goroutine is running, so it owns the
            // field.
            unsafe { gp.as_ref() }.coro.yielder.set(yielder);
            main(m, gp);
        };
        // SAFETY: the stack is this goroutine's from now on; nobody else uses the fields.
        unsafe {
            (*stack.head()).thread.store(thread, Ordering::Relaxed);
            (*self.inner.get()).write(Inner::with_stack(stack, body));
        }
    }

    /// Whether the goroutine, which has run, ran on another thread than the one with this thread
    /// pointer.
    ///
    /// # Safety
    /// The caller owns the goroutine, which has a stack.
    #[inline(always)]
    pub(crate) unsafe fn is_of_another_thread(&self, thread: usize) -> bool {
        // SAFETY: by the caller's promise. It is in the line that the switch writes to.
        unsafe { self.head() }.thread.load(Ordering::Relaxed) != thread
    }

    /// The highest words of the stack of a goroutine.
    ///
    /// # Safety
    /// It has one, and has run.
    #[inline(always)]
    pub(super) unsafe fn head(&self) -> &Head {
        // SAFETY: stacks are never unmapped.
        unsafe { &*self.yielder.get().wrapping_byte_add(LINK_BYTES).cast::<Head>() }
    }

    /// What is on the stack of a goroutine that has suspended itself: all that its registers held
    /// is there too. Nothing, if it was on another stack then.
    ///
    /// # Safety
    /// It has run.
    pub(super) unsafe fn frames(&self) -> Range<usize> {
        // SAFETY: by the caller's promise.
        let bytes = unsafe { self.head() }.stack_bytes();
        let link = self.yielder.get().addr();
        // SAFETY: the record is there, initialised or not.
        let sp = unsafe { layout::stack_pointer(self.inner.get().cast()) };
        if link.wrapping_sub(sp) <= bytes { sp..link } else { link..link }
    }

    /// Whether the calling goroutine is far down in its stack, or on another one: user code has
    /// switched to it.
    #[inline(always)]
    pub(crate) fn may_be_off_its_stack(&self) -> bool {
        self.depth() > SHALLOW_BYTES
    }

    /// Whether the calling goroutine is on another stack than its own.
    pub(crate) fn is_off_its_stack(&self) -> bool {
        // SAFETY: the goroutine runs.
        self.depth() > unsafe { self.head() }.stack_bytes()
    }

    /// How far down the caller is in the goroutine's stack, if it is there.
    #[inline(always)]
    fn depth(&self) -> usize {
        self.yielder.get().addr().wrapping_sub(stack_pointer())
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
    /// The caller is the goroutine itself.
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
        self.yielder.get().addr().next_multiple_of(PAGE_MIN_BYTES)
    }

    /// Where the stack of a goroutine is that runs.
    pub(crate) fn stack_bounds(&self) -> Option<Bounds> {
        let top = self.stack_top();
        // SAFETY: a goroutine that runs is on a stack of ours.
        (top != 0).then(|| unsafe { Bounds::of_top(top) })
    }
}

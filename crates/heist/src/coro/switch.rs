//! Switching between an M's scheduler and a goroutine: the only user of corosensei.

use super::fiber::Fiber;
use super::stack::{Bounds, Head, Stack};
use super::{layout, slabs};
use crate::gmp::fork::Deque;
use crate::gmp::shown::ShownPointer;
use crate::gmp::{G, M};
use crate::sys::memory::{PAGE_MIN_BYTES, prefetch_for_write};
use crate::sys::registers::stack_pointer;
use corosensei::{Coroutine, CoroutineResult, Yielder};
use heist_core::sync::Ordering;
use std::cell::UnsafeCell;
use std::mem::{MaybeUninit, offset_of};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// The input of every resume: the M that does it. A goroutine learns its thread from the switch
/// itself, without reading a thread-local.
type Input = NonNull<M>;

pub(super) type Inner = Coroutine<Input, (), (), Stack>;

/// The context of a goroutine, from its first run until it has ended.
pub(crate) struct Coro {
    inner: UnsafeCell<MaybeUninit<Inner>>,
    /// The link to the scheduler's stack, near the top of the goroutine's.
    yielder: ShownPointer<Yielder<Input, ()>>,
    fiber: Fiber,
}

/// How far below the head of its stack that link is. corosensei puts it two words below the base
/// that it was given. A build for a sanitizer has its record of the stack in between, and the same
/// record in the context.
const LINK_BYTES: usize = size_of::<Inner>() - 2 * size_of::<usize>();

/// No stack is smaller than this.
const SHALLOW_BYTES: usize = 16 << 10;

// SAFETY: corosensei's coroutines are not Send because it cannot know what is on their stacks.
// Neither can the runtime: code that starts a runtime promises, in `unsafe`, that nothing that must
// stay on its thread is on a goroutine's stack when it parks (docs/SAFETY.md). The context itself
// is memory and has one user at a time, the M that runs the goroutine.
unsafe impl Send for Coro {}

/// How a goroutine switched back to the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub(crate) enum Switched {
    /// It suspended itself and can be resumed.
    Suspended,
    /// Its main function returned, or its stack was abandoned.
    Returned,
}

/// How many cache lines below the top of its stack a goroutine typically waits, if it waits in the
/// closure it was spawned with: the frames of the closure, of its callers, and of the wait.
const PREFETCH_LINES: usize = 8;

impl Coro {
    /// Where corosensei's record is, for debuggers.
    pub(crate) const RECORD_AT: usize = offset_of!(Self, inner);
    /// Where the pointer to the link is, for debuggers.
    pub(crate) const LINK_AT: usize = offset_of!(Self, yielder);
    /// How far above the link the thread that ran the goroutine last is noted, for debuggers.
    pub(crate) const THREAD_ABOVE_LINK: usize = LINK_BYTES + offset_of!(Head, thread);

    /// No context.
    pub(crate) const fn none() -> Self {
        Self {
            inner: UnsafeCell::new(MaybeUninit::uninit()),
            yielder: ShownPointer::null(),
            fiber: Fiber::none(),
        }
    }

    /// Prepares the first run on `stack`, by the thread with this thread pointer. It will be a call
    /// of `main`, whose type names the function: so the call can be inlined.
    ///
    /// # Safety
    /// This is the context of the goroutine `gp`, which the caller owns and which has no context
    /// yet.
    #[inline]
    pub(crate) unsafe fn start(
        &self,
        stack: Stack,
        thread: usize,
        gp: NonNull<G>,
        main: impl FnOnce(NonNull<M>, NonNull<G>) + 'static,
    ) {
        let body = move |yielder: &Yielder<Input, ()>, m: Input| {
            // SAFETY: records are never unmapped, and this goroutine is running, so it owns the
            // field.
            unsafe { gp.as_ref() }.coro.yielder.set(yielder);
            main(m, gp);
        };
        self.fiber.begin();
        // SAFETY: the stack belongs to this goroutine from now on; no other thread uses the fields.
        unsafe {
            (*stack.head()).thread.store(thread, Ordering::Relaxed);
            (*stack.head()).deque.store(null_mut(), Ordering::Relaxed);
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
    /// The goroutine has a stack, and has run.
    #[inline(always)]
    pub(super) unsafe fn head(&self) -> &Head {
        // SAFETY: stacks are never unmapped.
        unsafe { &*self.yielder.get().wrapping_byte_add(LINK_BYTES).cast::<Head>() }
    }

    /// Notes what the goroutine is about to wait for. For the goroutine itself.
    #[inline(always)]
    pub(crate) fn set_waits_on(&self, what: *const ()) {
        // SAFETY: the goroutine runs, so it has a stack.
        unsafe { self.head() }.waits_on.store(what.addr(), Ordering::Relaxed);
    }

    /// What the goroutine waits for, or waited for last.
    ///
    /// # Safety
    /// The goroutine has run, and has not ended.
    pub(crate) unsafe fn waits_on(&self) -> usize {
        // SAFETY: by the caller's promise.
        unsafe { self.head() }.waits_on.load(Ordering::Relaxed)
    }

    /// The stack of a goroutine that has run, and the stack pointer with which it suspended itself
    /// last. None before its first run.
    pub(crate) fn extent(&self) -> Option<(Range<usize>, usize)> {
        let stack = slabs::stack_around(self.link())?;
        Some((stack, self.saved_stack_pointer()))
    }

    /// The deque of the calling goroutine, if it has forked.
    ///
    /// # Safety
    /// The caller is the goroutine itself, or owns it; then it has run, or the caller asks the
    /// deque whose it is.
    #[inline]
    pub(crate) unsafe fn deque(&self) -> Option<&'static Deque> {
        // SAFETY: it runs, so it has a stack; deques are never unmapped.
        unsafe { self.head().deque.load(Ordering::Relaxed).as_ref() }
    }

    /// Sets the deque of the calling goroutine.
    ///
    /// # Safety
    /// The caller is the goroutine itself.
    pub(crate) unsafe fn set_deque(&self, deque: Option<&'static Deque>) {
        let deque = deque.map_or(null_mut(), |deque| std::ptr::from_ref(deque).cast_mut());
        // SAFETY: it runs, so it has a stack.
        unsafe { self.head() }.deque.store(deque, Ordering::Relaxed);
    }

    /// The part of the stack in use of a goroutine that has suspended itself. It includes the
    /// goroutine's registers. Empty if the goroutine was on another stack then.
    ///
    /// # Safety
    /// The goroutine has run.
    pub(super) unsafe fn frames(&self) -> Range<usize> {
        // SAFETY: by the caller's promise.
        let bytes = unsafe { self.head() }.stack_bytes();
        let link = self.yielder.get().addr();
        // SAFETY: the record is mapped, initialised or not.
        let sp = unsafe { layout::stack_pointer(self.inner.get().cast()) };
        if link.wrapping_sub(sp) <= bytes { sp..link } else { link..link }
    }

    /// The address of its link to the scheduler. Zero before its first run.
    pub(super) fn link(&self) -> usize {
        self.yielder.get().addr()
    }

    /// The stack pointer with which it suspended itself last. Meaningless if it did not.
    pub(super) fn saved_stack_pointer(&self) -> usize {
        // SAFETY: the record is mapped, initialised or not.
        unsafe { layout::stack_pointer(self.inner.get().cast()) }
    }

    /// Whether the calling goroutine is deep in its stack, or on another stack to which user code
    /// has switched.
    #[inline(always)]
    pub(crate) fn may_be_off_its_stack(&self) -> bool {
        self.depth() > SHALLOW_BYTES
    }

    /// Whether the calling goroutine is on another stack than its own.
    pub(crate) fn is_off_its_stack(&self) -> bool {
        // SAFETY: the goroutine runs.
        self.depth() > unsafe { self.head() }.stack_bytes()
    }

    /// How deep the caller is in the goroutine's stack, if it is on that stack.
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
        // SAFETY: started, by the caller's promise, and not used by another thread.
        let inner = unsafe { (*self.inner.get()).assume_init_mut() };
        let entered = self.fiber.enter();
        let result = inner.resume(m);
        entered.leave();
        match result {
            CoroutineResult::Yield(()) => Switched::Suspended,
            CoroutineResult::Return(()) => Switched::Returned,
        }
    }

    /// Switches to the scheduler. Returns when the goroutine is resumed, with the M that resumed
    /// it.
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
    /// The last resume returned [`Switched::Returned`], and the stack was not taken yet.
    #[inline]
    pub(crate) unsafe fn take_stack(&self) -> Stack {
        self.fiber.end();
        // SAFETY: started once and returned, by the caller's promise; not read again.
        unsafe { (*self.inner.get()).assume_init_read() }.into_stack()
    }

    /// Prefetches the highest part of the stack of a goroutine that has started: most goroutines
    /// wait there.
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

    /// The bounds of the stack of a running goroutine.
    pub(crate) fn stack_bounds(&self) -> Option<Bounds> {
        let top = self.stack_top();
        // SAFETY: a running goroutine is on a stack of the runtime.
        (top != 0).then(|| unsafe { Bounds::of_top(top) })
    }
}

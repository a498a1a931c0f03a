//! A stack to which running code switches for the duration of one call.
//!
//! Only the stack changes: goroutine, thread, thread-locals and cancellation stay the same. A
//! goroutine is bound to its thread meanwhile, so the stack needs to be known only in that thread,
//! where the fault handler looks for it: in a chain of [`Extra`]s, each in a frame of its caller's
//! stack.

use super::stack::{Bounds, Stack};
use crate::current;
use crate::gmp::G;
use corosensei::stack::{Stack as CoroStack, StackPointer};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr::from_ref;

/// A larger stack in use.
pub(crate) struct Extra<'a> {
    stack: &'a Stack,
    /// The goroutine that uses it, or null for a plain thread.
    owner: *const G,
    /// The `Extra` of the enclosing call.
    outer: Cell<*const Extra<'a>>,
}

impl<'a> Extra<'a> {
    /// Describes the use of `stack` by the caller, which is `owner` and stays on its thread.
    pub(crate) fn new(stack: &'a Stack, owner: Option<&G>) -> Self {
        let owner = owner.map_or(std::ptr::null(), from_ref);
        Self { stack, owner, outer: Cell::new(current::extra().cast()) }
    }

    /// Runs `f` on the stack. A panic is returned as an error, because it cannot unwind through the
    /// switch.
    pub(crate) fn call<R>(&self, f: impl FnOnce() -> R) -> std::thread::Result<R> {
        struct Unlink<'a, 'b>(&'b Extra<'a>);
        impl Drop for Unlink<'_, '_> {
            fn drop(&mut self) {
                self.0.unlink();
            }
        }
        let _unlink = Unlink(self);
        current::set_extra(from_ref(self).cast());
        corosensei::on_stack(Borrowed(self.stack), || catch_unwind(AssertUnwindSafe(f)))
    }

    /// Takes this out of the chain of the thread. It is the first one there, unless a call ends
    /// before one that began later: on stacks that another library switches, calls can do that.
    fn unlink(&self) {
        let own: *const Self = self;
        let first: *const Self = current::extra().cast();
        if std::ptr::eq(first, own) {
            return current::set_extra(self.outer.get().cast());
        }
        let mut inner = first;
        // SAFETY: null, or in a frame that has not ended: a call that ends leaves the chain here.
        while let Some(extra) = unsafe { inner.as_ref() } {
            if std::ptr::eq(extra.outer.get(), own) {
                return extra.outer.set(self.outer.get());
            }
            inner = extra.outer.get();
        }
    }
}

/// The larger stacks that `owner`, or the calling thread if it runs none, is on, the innermost
/// first.
pub(crate) fn stacks_of(owner: Option<&G>) -> impl Iterator<Item = Bounds> {
    let owner = owner.map_or(std::ptr::null(), from_ref);
    // SAFETY: null, or in a frame of this thread that has not ended.
    let first = unsafe { current::extra().as_ref() };
    // SAFETY: as above.
    let chain = std::iter::successors(first, |extra| unsafe { extra.outer.get().as_ref() });
    chain.filter(move |extra| std::ptr::eq(extra.owner, owner)).map(|extra| extra.stack.bounds())
}

/// The addresses of all larger stacks that are in use on the calling thread, by whomever.
pub(crate) fn addresses() -> impl Iterator<Item = std::ops::Range<usize>> {
    // SAFETY: as in `stacks_of`. A handler that interrupts `call` finds a chain that is complete.
    let first = unsafe { current::extra().as_ref() };
    // SAFETY: as above.
    let chain = std::iter::successors(first, |extra| unsafe { extra.outer.get().as_ref() });
    chain.map(|extra| {
        let bounds = extra.stack.bounds();
        let start = bounds.guard().end;
        start..start + bounds.usable_bytes()
    })
}

/// How many bytes the caller, which is `owner`, has left on its current stack. None on a stack that
/// is not the runtime's.
pub(crate) fn room(owner: Option<&G>) -> Option<usize> {
    let here = from_ref(&owner).addr();
    let own = owner.and_then(|gp| gp.coro.stack_bounds());
    let mut stacks = stacks_of(owner).chain(own);
    stacks.find(|stack| stack.contains(here)).map(|stack| here.saturating_sub(stack.guard().end))
}

/// A stack that its owner returns to the pool.
struct Borrowed<'a>(&'a Stack);

// SAFETY: as for `Stack`.
unsafe impl CoroStack for Borrowed<'_> {
    fn base(&self) -> StackPointer {
        self.0.base()
    }

    fn limit(&self) -> StackPointer {
        self.0.limit()
    }
}

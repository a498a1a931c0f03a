//! Which M this thread is: the only thread-local of the runtime.
//!
//! LLVM takes the address of a thread-local to be constant inside a function and would keep it
//! across a park, after which the goroutine may be on another thread. So the getter is made of
//! instructions that LLVM cannot see through (`sys::slot`): each use finds the address anew. The
//! variables of debug builds are behind functions that are never inlined.

use crate::coro::extra::Extra;
use crate::gmp::{G, Holder, M};
use crate::sched::Sched;
use crate::sched::stall;
use crate::sched::stall::leave;
use crate::sys::membarrier::no_fence;
use crate::sys::slot;
use heist_core::m_word::Place;
use std::cell::Cell;
use std::marker::PhantomData;
use std::ptr::NonNull;

thread_local! {
    static EXTRA: Cell<*const Extra<'static>> = const { Cell::new(std::ptr::null()) };
}

/// The innermost larger stack that code of this thread is on, or null. Its user stays on the
/// thread.
#[inline(never)]
pub(crate) fn extra() -> *const Extra<'static> {
    EXTRA.get()
}

/// Sets [`extra`].
#[inline(never)]
pub(crate) fn set_extra(extra: *const Extra<'static>) {
    EXTRA.set(extra);
}

#[cfg(debug_assertions)]
thread_local! {
    static HELD: heist_core::lock_rank::Held = const { heist_core::lock_rank::Held::new() };
    static ALLOCATION: Cell<Allocation> = const { Cell::new(Allocation::ByPlace) };
}

/// Whether a thread may use the allocator.
#[cfg(debug_assertions)]
#[derive(Clone, Copy, PartialEq, Eq)]
enum Allocation {
    /// It may use it, unless it is in the runtime or holds one of the runtime's locks.
    ByPlace,
    /// It must not use it: the thread is sysmon.
    Forbidden,
    /// It may use it everywhere: the thread is about to end the process.
    Allowed,
}

/// The M of this thread, null on a plain thread.
#[inline(always)]
pub(crate) fn m() -> *const M {
    slot::get().cast()
}

/// Makes this thread an M, or with null a plain thread again.
pub(crate) fn set_m(m: *const M) {
    slot::set(m.cast());
}

/// Passes the runtime locks that this thread holds to `with`, which takes or releases one. Throws
/// if the thread is an M in user code, where it could be preempted while it holds the lock.
#[cfg(debug_assertions)]
#[inline(never)]
pub(crate) fn held_locks(with: impl FnOnce(&heist_core::lock_rank::Held)) {
    // SAFETY: the M of the calling thread is alive.
    if let Some(m) = unsafe { m().as_ref() }
        && m.word.stamp().place() == Place::User
        && m.current().is_some()
    {
        heist_core::throw!("Lock: a lock of the runtime is taken or released in user code");
    }
    HELD.with(with);
}

/// Why the calling thread must not use the allocator now; None if it may. For the checker of this
/// rule.
#[cfg(debug_assertions)]
#[inline(never)]
pub(crate) fn allocation_forbidden() -> Option<&'static str> {
    match ALLOCATION.get() {
        Allocation::Allowed => return None,
        Allocation::Forbidden => return Some("on sysmon"),
        Allocation::ByPlace => {}
    }
    if !HELD.with(heist_core::lock_rank::Held::is_empty) {
        return Some("while a lock of the runtime is held");
    }
    // SAFETY: the M of the calling thread is alive.
    let m = unsafe { m().as_ref() }?;
    (m.word.stamp().place() == Place::Runtime).then_some("inside the runtime")
}

/// The calling thread ends the process and may allocate for its report.
#[cfg(debug_assertions)]
pub(crate) fn allow_allocation() {
    ALLOCATION.set(Allocation::Allowed);
}

/// While it lives, the calling thread must not use the allocator. Checked in debug builds.
pub(crate) struct NoAllocation(PhantomData<*mut ()>);

impl NoAllocation {
    pub(crate) fn begin() -> Self {
        #[cfg(debug_assertions)]
        ALLOCATION.set(Allocation::Forbidden);
        Self(PhantomData)
    }
}

impl Drop for NoAllocation {
    fn drop(&mut self) {
        #[cfg(debug_assertions)]
        ALLOCATION.set(Allocation::ByPlace);
    }
}

/// The goroutine that calls, or None on a plain thread.
#[inline]
pub(crate) fn goroutine() -> Option<&'static G> {
    // SAFETY: an M outlives the goroutines it runs, and records are never unmapped.
    unsafe { m().as_ref() }.and_then(|m| {
        // SAFETY: as above.
        unsafe { m.cur.load(heist_core::sync::Ordering::Relaxed).as_ref() }
    })
}

/// Uses the runtime of the calling goroutine. None on a plain thread.
pub(crate) fn with_sched<R>(with: impl FnOnce(&Sched) -> R) -> Option<R> {
    // SAFETY: the calling goroutine's runtime outlives it.
    goroutine().map(|gp| with(unsafe { &*gp.sched.get() }))
}

/// Enters the runtime, if this is a goroutine. The guard leaves it again.
#[inline]
pub(crate) fn enter() -> Option<InRuntime> {
    let m = NonNull::new(m().cast_mut())?;
    // SAFETY: the M of the calling thread is alive.
    let here = unsafe { m.as_ref() };
    if here.word.enter(no_fence) {
        stall::regain_p(here.sched(), here);
    }
    Some(InRuntime { m, _not_send: PhantomData })
}

/// Evidence that the calling goroutine is inside the runtime: it holds a P and cannot be preempted.
///
/// Code that has one must not allocate, free, print, panic or run user code.
pub(crate) struct InRuntime {
    m: NonNull<M>,
    _not_send: PhantomData<*mut ()>,
}

impl InRuntime {
    /// The evidence for a goroutine that was just switched to, on the M that did it.
    ///
    /// # Safety
    /// `m` is the calling thread's M and its word says it is in the runtime.
    #[inline]
    pub(crate) const unsafe fn from_switch(m: NonNull<M>) -> Self {
        Self { m, _not_send: PhantomData }
    }

    /// The thread.
    #[inline]
    pub(crate) const fn m(&self) -> &M {
        // SAFETY: the M of the calling thread is alive, and the guard cannot leave the thread.
        unsafe { self.m.as_ref() }
    }

    /// The thread as the holder of its P.
    #[inline]
    pub(crate) const fn holder(&self) -> Holder<'_> {
        // SAFETY: the M of the calling thread, which is in the runtime while `self` lives.
        unsafe { Holder::new(self.m()) }
    }

    /// The runtime.
    #[inline]
    pub(crate) fn sched(&self) -> &Sched {
        self.m().sched()
    }

    /// The calling goroutine.
    #[inline]
    pub(crate) fn goroutine(&self) -> &'static G {
        let cur = self.m().cur.load(heist_core::sync::Ordering::Relaxed);
        // SAFETY: a goroutine runs here, and records are never unmapped.
        unsafe { &*cur }
    }

    /// Gives the evidence up without leaving: the scheduler takes over.
    #[inline]
    pub(crate) const fn into_m(self) -> NonNull<M> {
        let m = self.m;
        std::mem::forget(self);
        m
    }
}

impl Drop for InRuntime {
    #[inline]
    fn drop(&mut self) {
        if self.m().word.attention() != 0 {
            return leave::with_attention(self.m);
        }
        self.m().word.leave(Place::User);
    }
}

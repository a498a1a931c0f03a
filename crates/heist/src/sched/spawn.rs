//! New goroutines.
//!
//! A spawn takes a record from the P's free list, writes the closure into it and puts it into
//! `run_next`. No stack, no allocation, no lock.
//!
//! GO: proc.go newproc, gfget.

use super::cancel::is_spared;
use super::{Phase, Sched, bound};
use crate::coro::stack::Stack;
use crate::current::{self, InRuntime};
use crate::gmp::g::{self, Extras, Outcome, Vtable};
use crate::gmp::{G, M, pool};
use crate::sched::park;
use crate::sys::membarrier::heavy_fence;
use heist_core::policy;
use heist_core::status::{Status, StatusWord, Ticket};
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use std::panic::Location;
use std::ptr::{NonNull, null};

/// What a new goroutine is made of, besides its closure.
#[derive(Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) vtable: &'static Vtable,
    pub(crate) site: &'static Location<'static>,
    /// A share of an `Arc`, or null. The new goroutine owns it.
    pub(crate) extras: *const Extras,
    /// Flags that it begins with, besides that of its class.
    pub(crate) flags: u32,
}

/// Why a spawn failed, seen from the scheduler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The runtime is shutting down.
    Closing,
    /// No memory for a record, or none for the stacks of goroutines spawned earlier.
    NoMemory,
}

/// Spawns from a goroutine. `write` puts the closure into the record's payload.
#[inline]
#[doc(alias = "newproc")]
pub(crate) fn spawn(
    rt: &InRuntime,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
) -> Result<NonNull<G>, Refused> {
    let m = rt.m();
    let sched = m.sched();
    let flags = sched.may_spawn()? | recipe.flags;
    let recipe = Recipe { flags, ..recipe };
    let pp = m.p();
    // SAFETY: in the runtime, so this M holds its P; the reference ends before the push below.
    let local = unsafe { pp.local() };
    let gp = match local.free_gs.pop_front() {
        Some(gp) => gp,
        None => {
            pool::refill(&mut local.free_gs).map_err(|_| Refused::NoMemory)?;
            local.free_gs.pop_front().ok_or(Refused::NoMemory)?
        }
    };
    if local.next_id == local.end_id {
        local.next_id = sched.reserve_ids(policy::ID_BLOCK);
        local.end_id = local.next_id + policy::ID_BLOCK;
    }
    // The record of the next spawn may have ended on another core: fetch it meanwhile.
    G::prefetch(local.free_gs.front().map_or(null(), |gp| gp.as_ptr()), 3);
    let id = local.next_id;
    local.next_id += 1;
    let parent = rt.goroutine().id.get();
    // SAFETY: the record is free, so nobody else uses it.
    unsafe { fill(gp, sched, recipe, id, parent, write) }.transition(DEAD, RUNNABLE);
    pp.stats.created.bump();
    // SAFETY: runnable, new, in no queue.
    unsafe { park::push_next(m, gp) };
    sched.wake_p_for_next(pp);
    sched.after_spawn(gp);
    Ok(gp)
}

/// Spawns from a thread that is not one of the runtime's; bound to `m`, if it is given.
pub(crate) fn spawn_from_outside(
    sched: &Sched,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
    m: Option<&M>,
) -> Result<NonNull<G>, Refused> {
    // Nothing keeps a runtime that closes from ending before this is counted.
    let (gp, _) = sched.take_unborn(|| match sched.phase() {
        Phase::Running => sched.may_spawn(),
        _ => Err(Refused::Closing),
    })?;
    let id = sched.reserve_ids(1);
    // SAFETY: the record is free, so nobody else uses it.
    unsafe { fill(gp, sched, recipe, id, 0, write) }.transition(DEAD, RUNNABLE);
    // Counted as alive before it is no longer counted as unborn, as in `bear_one`.
    let n = sched.stats.created.add_shared(1);
    // ORDERING: Release pairs with the closer's look.
    sched.unborn.fetch_sub(1, Ordering::Release);
    // SAFETY: records are never unmapped, and this one is still this thread's.
    let g = unsafe { gp.as_ref() };
    sched.maybe_sample_outside(n, g);
    if let Some(m) = m {
        bound::lock(m, g);
    }
    sched.stats.global_put.add_shared(1);
    // SAFETY: runnable, new, in no queue.
    unsafe { sched.push_global(gp) };
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    heist_core::sync::fence(Ordering::SeqCst);
    sched.wake_p();
    sched.after_spawn(gp);
    Ok(gp)
}

/// Makes a goroutine that begins to live at `when`, unless it is claimed before with the ticket.
/// Until then it is not counted.
pub(crate) fn spawn_later(
    rt: &InRuntime,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
    when: u64,
) -> Result<(NonNull<G>, Ticket), Refused> {
    let m = rt.m();
    let sched = m.sched();
    let (gp, _) = sched.take_unborn(|| sched.may_spawn())?;
    let parent = rt.goroutine().id.get();
    // SAFETY: the record is free, so nobody else uses it.
    let status = unsafe { fill(gp, sched, recipe, sched.reserve_ids(1), parent, write) };
    // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
    let g = unsafe { gp.as_ref() };
    g.set_flag(g::UNBORN);
    g.set_wait_reason(g::WaitReason::Sleep);
    g.set_due(when);
    let ticket = status.begin_unborn_wait();
    if when != NEVER {
        sched.add_timer(m, when, gp);
        sched.leave_timers(m);
    }
    if sched.phase() != Phase::Running {
        super::cancel::cancel(Some(rt), g);
    }
    Ok((gp, ticket))
}

const DEAD: Status = Status::Dead;
const RUNNABLE: Status = Status::Runnable;

/// Makes a free record a goroutine, up to its status, which it hands back.
///
/// # Safety
/// The caller took `gp` from a free list.
#[inline]
unsafe fn fill<'a>(
    gp: NonNull<G>,
    sched: &Sched,
    recipe: Recipe,
    id: u64,
    parent: u64,
    write: impl FnOnce(*mut u8),
) -> &'a StatusWord {
    // SAFETY: records are never unmapped, and by the caller's promise nobody else uses this one.
    let g = unsafe { gp.as_ref() };
    g.join.reset();
    // SAFETY: null, or a share that the caller hands over.
    let class = unsafe { recipe.extras.as_ref() }.map_or(0, |extras| extras.class);
    g.flags.store((class | recipe.flags) as u16, Ordering::Relaxed);
    g.outcome.set(Outcome::None);
    g.set_started(false);
    g.id.set(id);
    g.parent_id.set(parent);
    g.sched.set(sched);
    g.bound_m.set(null());
    g.vtable.set(recipe.vtable);
    g.set_spawn_site(recipe.site);
    g.extras.set(recipe.extras);
    write(g.payload.as_ptr());
    &g.status
}

impl Sched {
    /// The flags with which a goroutine that is spawned now begins.
    #[inline]
    fn may_spawn(&self) -> Result<u32, Refused> {
        let flags = if self.phase() == Phase::Running { 0 } else { self.may_spawn_to_the_end()? };
        if self.n_stackless.load(Ordering::Relaxed) != 0 {
            return Err(Refused::NoMemory);
        }
        Ok(flags)
    }

    /// While a runtime closes, destructors run, and those that spawn must not panic: that would end the
    /// process. What they spawn is cancelled before it begins.
    #[cold]
    fn may_spawn_to_the_end(&self) -> Result<u32, Refused> {
        let is_spared = std::thread::panicking() || current::goroutine().is_some_and(is_spared);
        if self.phase() == Phase::Closing && is_spared {
            Ok(g::CANCELLED)
        } else {
            Err(Refused::Closing)
        }
    }

    /// A free record for a goroutine that is counted as unborn, and the flags with which it begins.
    ///
    /// It is counted first: a runtime that closes meanwhile either sees the count and waits for the
    /// goroutine, or is seen to be closing. Nothing else keeps it from closing under a thread of others.
    fn take_unborn(
        &self,
        may_spawn: impl FnOnce() -> Result<u32, Refused>,
    ) -> Result<(NonNull<G>, u32), Refused> {
        self.unborn.fetch_add(1, Ordering::Relaxed);
        // ORDERING: pairs with the closer, which sets the phase, fences and adds the counts up.
        heist_core::sync::fence(Ordering::SeqCst);
        let taken = may_spawn().and_then(|flags| match pool::take_one() {
            Ok(gp) => Ok((gp, flags)),
            Err(_) => Err(Refused::NoMemory),
        });
        if taken.is_err() {
            self.unborn.fetch_sub(1, Ordering::Relaxed);
            self.after_finish();
        }
        taken
    }

    /// The runtime may have begun to close between the check and the push; then its walk over all
    /// goroutines may have missed the new one.
    #[inline]
    fn after_spawn(&self, gp: NonNull<G>) {
        if self.phase() != Phase::Running {
            self.cancel_late(gp);
        }
    }

    /// Cancels a goroutine that may have ended meanwhile. Its record may serve another by now: one of this
    /// runtime, which ends anyway, or one of another, which is left alone.
    #[cold]
    fn cancel_late(&self, gp: NonNull<G>) {
        // SAFETY: records are never unmapped.
        let g = unsafe { gp.as_ref() };
        pool::hold(|| {
            if self.is_mine(g) {
                super::cancel::mark(g);
            }
        });
        heavy_fence();
        super::cancel::wake_marked(None, g, Some(self));
    }

    /// A goroutine is about to begin on `stack`: it is looked at when it ends, unless the size was chosen.
    #[cold]
    pub(super) fn watch_stack(&self, gp: &G, stack: &Stack) {
        // SAFETY: extras live as long as the goroutine.
        let extras = unsafe { gp.extras.get().as_ref() };
        if extras.is_none_or(|extras| extras.stack.is_none()) {
            stack.take_mark();
            gp.set_flag(g::WATCHED);
        }
    }

    /// It has ended. If it came near the end, the next of its kind gets a larger stack.
    #[cold]
    pub(super) fn look_at_stack(&self, gp: &G, stack: &Stack) {
        if stack.take_mark() {
            self.stack_needs.came_near(gp.kind(), stack.class().steps_above(self.config.stack));
        }
    }

    /// Keeps a goroutine that found no memory for a stack until one is free.
    #[cold]
    pub(super) fn wait_for_stack(&self, gp: NonNull<G>) {
        let mut locked = self.lock.lock();
        // SAFETY: runnable and just taken out of a queue.
        unsafe { locked.stackless.push_back(gp) };
        self.n_stackless.store(locked.stackless.len(), Ordering::Relaxed);
        drop(locked);
        // The last stack may have come free before this was in the list, or may lie with a P that
        // rests: the helper looks after it.
        self.helper.ask();
    }

    /// Leaves the stacks of the caller's P to all Ps: not only this one may run who waits for one.
    #[cold]
    pub(crate) fn release_stacks(&self) {
        // SAFETY: the M of the calling thread is alive.
        if let Some(m) = unsafe { current::m().as_ref() }
            && m.has_p()
        {
            // SAFETY: in the runtime, so this M holds its P; the reference ends at once.
            unsafe { m.p().local() }.stacks.spill(0);
        }
    }

    /// A stack is free: one goroutine that waits for one may start.
    #[cold]
    pub(crate) fn retry_stackless(&self) {
        let mut locked = self.lock.lock();
        if let Some(gp) = locked.stackless.pop_front() {
            self.n_stackless.store(locked.stackless.len(), Ordering::Relaxed);
            // SAFETY: runnable and just taken out of its list.
            unsafe { self.push_locked(&mut locked, gp) };
        }
    }

    /// Goroutines wait for stacks: collects those that resting Ps keep for themselves, and lets all
    /// who wait try again. For the helper.
    #[cold]
    pub(crate) fn collect_stacks(&self) {
        for pp in self.all_ps() {
            if self.lock.lock().idle_ps.take_this(&self.idle, pp.id) {
                // SAFETY: off the idle stack and without an M, the P is this thread's.
                unsafe { pp.local() }.stacks.spill(0);
                self.handoff_p(pp);
            }
        }
        for _ in 0..self.n_stackless.load(Ordering::Relaxed) {
            self.retry_stackless();
        }
        // ORDERING: the submitter's fence of `heist_core::spinning`.
        heist_core::sync::fence(Ordering::SeqCst);
        self.wake_p();
    }
}

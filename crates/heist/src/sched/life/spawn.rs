//! Spawning goroutines.
//!
//! A goroutine that spawns takes a record from its P's free list, writes the closure into it and
//! puts it into `run_next`. That needs no stack and, while the free list has a record, no
//! allocation and no lock.
//!
//! GO: proc.go newproc, gfget.

mod forked;

pub(crate) use forked::{may_take_jobs, take_job};

use super::shutdown;
use crate::current::{self, InRuntime};
use crate::gmp::flags::Flag;
use crate::gmp::g::{Extras, INLINE_BYTES, Outcome, Vtable, WaitReason};
use crate::gmp::p::Local;
use crate::gmp::{G, M, pool};
use crate::sched::life::cancel::is_spared;
use crate::sched::threads::bound;
use crate::sched::{Phase, Sched};
use crate::sched::{outside, rest, run};
use crate::sys::membarrier::heavy_fence;
use crate::trace::emit;
use heist_core::list::List;
use heist_core::policy;
use heist_core::status::{Status, StatusWord, Ticket};
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use std::panic::Location;
use std::ptr::{NonNull, null};

/// Everything that a new goroutine is made of, besides its closure.
#[derive(Clone, Copy)]
pub(crate) struct Recipe {
    pub(crate) vtable: &'static Vtable,
    pub(crate) site: &'static Location<'static>,
    /// A share of an `Arc`, or null. The new goroutine owns it.
    pub(crate) extras: *const Extras,
    /// The flags that the goroutine begins with, besides that of its class.
    pub(crate) flags: Flag,
}

/// Why the scheduler refused a spawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The runtime is shutting down.
    Closing,
    /// There is no memory for a record, or none for the stacks of goroutines that were spawned
    /// earlier.
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
    let flags = may_spawn(rt.sched())? | recipe.flags;
    spawn_with(rt, Recipe { flags, ..recipe }, write)
}

/// As [`spawn`], for a goroutine that the runtime needs itself: it is spawned also while the
/// runtime closes, and then is cancelled before it begins.
pub(in crate::sched) fn spawn_internal(
    rt: &InRuntime,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
) -> Result<NonNull<G>, Refused> {
    spawn_with(rt, recipe, write)
}

#[inline(always)]
fn spawn_with(
    rt: &InRuntime,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
) -> Result<NonNull<G>, Refused> {
    let m = rt.holder();
    let sched = rt.sched();
    let pp = m.p();
    let (gp, id) = pp.with_local(|local| take_record(sched, local))?;
    let parent = rt.goroutine().id.get();
    // SAFETY: the record is free, so no other thread uses it.
    unsafe { fill(gp, sched, recipe, id, parent, write) }.transition(DEAD, RUNNABLE);
    pp.stats.created.bump();
    // SAFETY: records are never unmapped, and this one is still this M's.
    emit::go_create(&sched.recorder, unsafe { gp.as_ref() });
    // SAFETY: runnable, new, in no queue.
    unsafe { run::push_next(m, gp) };
    rest::wake_p_for_next(sched, &pp);
    after_spawn(sched, gp);
    Ok(gp)
}

/// Takes a free record and the id of the goroutine that it becomes.
#[inline]
pub(super) fn take_record(sched: &Sched, local: &mut Local) -> Result<(NonNull<G>, u64), Refused> {
    let gp = match local.free_gs.pop_front() {
        Some(gp) => gp,
        None => {
            pool::refill(&mut local.free_gs).map_err(|_| Refused::NoMemory)?;
            local.free_gs.pop_front().ok_or(Refused::NoMemory)?
        }
    };
    if local.next_id == local.end_id {
        local.next_id = sched.life.reserve_ids(policy::ID_BLOCK);
        local.end_id = local.next_id + policy::ID_BLOCK;
    }
    // The record of the next spawn may have been used last on another core, so it is fetched ahead.
    G::prefetch(local.free_gs.front().map_or(null(), |gp| gp.as_ptr()), 3);
    let id = local.next_id;
    local.next_id += 1;
    Ok((gp, id))
}

/// Spawns from a thread that is not the runtime's. If `m` is given, the goroutine is locked to it.
pub(crate) fn spawn_from_outside(
    sched: &Sched,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
    m: Option<&M>,
) -> Result<NonNull<G>, Refused> {
    // Until the goroutine is counted, nothing keeps a runtime that closes from ending.
    let (gp, _) = take_unborn(sched, || match sched.phase() {
        Phase::Running => may_spawn(sched),
        _ => Err(Refused::Closing),
    })?;
    let id = sched.life.reserve_ids(1);
    // SAFETY: the record is free, so no other thread uses it.
    unsafe { fill(gp, sched, recipe, id, 0, write) }.transition(DEAD, RUNNABLE);
    // The goroutine is counted as alive before it stops being counted as unborn, as in
    // `count_one_born`.
    let n = sched.stats.created.add_shared(1);
    // ORDERING: Release pairs with the Acquire in `shutdown::wait_for_the_last`.
    sched.life.unborn.fetch_sub(1, Ordering::Release);
    // SAFETY: records are never unmapped, and this one is still this thread's.
    let g = unsafe { gp.as_ref() };
    run::maybe_sample_outside(sched, n, g);
    emit::go_create(&sched.recorder, g);
    if let Some(m) = m {
        bound::lock(m, g);
    }
    sched.stats.global_put.add_shared(1);
    // SAFETY: runnable, new, in no queue.
    unsafe { run::push_global(sched, gp) };
    rest::announce_work(sched);
    after_spawn(sched, gp);
    Ok(gp)
}

/// Makes an unborn goroutine, which begins at `when` unless it is claimed before with the ticket.
/// Until it begins, it is not counted as alive.
pub(crate) fn spawn_later(
    rt: &InRuntime,
    recipe: Recipe,
    write: impl FnOnce(*mut u8),
    when: u64,
) -> Result<(NonNull<G>, Ticket), Refused> {
    let m = rt.holder();
    let sched = m.sched();
    let (gp, _) = take_unborn(sched, || may_spawn(sched))?;
    let parent = rt.goroutine().id.get();
    // SAFETY: the record is free, so no other thread uses it.
    let status = unsafe { fill(gp, sched, recipe, sched.life.reserve_ids(1), parent, write) };
    // SAFETY: records are never unmapped, and this one is not recycled while its handle lives.
    let g = unsafe { gp.as_ref() };
    g.flags.set(Flag::UNBORN);
    g.set_wait_reason(WaitReason::Sleep);
    g.set_due(when);
    emit::go_create(&sched.recorder, g);
    let ticket = status.begin_unborn_wait();
    if when != NEVER {
        outside::add_timer(sched, m, when, gp);
        outside::leave_timers(sched, &m);
    }
    if sched.phase() != Phase::Running {
        super::cancel::cancel(Some(rt), g);
    }
    Ok((gp, ticket))
}

/// Moves the closure of an unborn goroutine, which the caller has claimed, into another record that
/// begins at `when`. The old record is left with a closure that does nothing; the caller ends it.
pub(crate) fn move_unborn(
    rt: &InRuntime,
    old: &G,
    when: u64,
) -> Result<(NonNull<G>, Ticket), Refused> {
    unsafe fn nothing(_: &G) {}
    static MOVED: Vtable =
        Vtable { is_half: false, run: nothing, drop_closure: nothing, drop_result: nothing };
    // SAFETY: the pointer was made from a `&'static Vtable` when the record was filled.
    let Some(vtable) = (unsafe { old.vtable.get().as_ref() }) else {
        heist_core::throw!("move_unborn: a goroutine without a closure");
    };
    let Some(site) = old.spawn_site() else {
        heist_core::throw!("move_unborn: a goroutine that was spawned nowhere");
    };
    let recipe = Recipe { vtable, site, extras: null(), flags: Flag::NONE };
    let from = old.payload.as_ptr::<u8>();
    // SAFETY: both payloads have this size. The closure is moved: the old record forgets it below.
    let write = |place: *mut u8| unsafe { place.copy_from_nonoverlapping(from, INLINE_BYTES) };
    let moved = spawn_later(rt, recipe, write, when)?;
    old.vtable.set(&MOVED);
    Ok(moved)
}

pub(super) const DEAD: Status = Status::Dead;
pub(super) const RUNNABLE: Status = Status::Runnable;

/// Fills a free record for a new goroutine. The caller sets the status, whose word is returned.
///
/// # Safety
/// The caller took `gp` from a free list.
#[inline]
pub(super) unsafe fn fill<'a>(
    gp: NonNull<G>,
    sched: &Sched,
    recipe: Recipe,
    id: u64,
    parent: u64,
    write: impl FnOnce(*mut u8),
) -> &'a StatusWord {
    // SAFETY: records are never unmapped, and the caller promises that no other thread uses this
    // one.
    let g = unsafe { gp.as_ref() };
    g.join.reset();
    // SAFETY: null, or a share that the caller hands over.
    let class = unsafe { recipe.extras.as_ref() }.map_or(Flag::NONE, |extras| extras.class);
    g.flags.begin(class | recipe.flags | sched.config.born_with);
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

/// Returns the flags with which a goroutine that is spawned now begins, or the reason to refuse it.
#[inline]
pub(super) fn may_spawn(sched: &Sched) -> Result<Flag, Refused> {
    let flags =
        if sched.phase() == Phase::Running { Flag::NONE } else { may_spawn_to_the_end(sched)? };
    if sched.stacks.n_waiting() != 0 {
        return Err(Refused::NoMemory);
    }
    Ok(flags)
}

/// While a runtime closes, destructors run. A destructor that spawns must not panic, because that
/// would end the process. So it may spawn, and its goroutine is cancelled before it begins.
#[cold]
fn may_spawn_to_the_end(sched: &Sched) -> Result<Flag, Refused> {
    let is_spared = std::thread::panicking() || current::goroutine().is_some_and(is_spared);
    if sched.phase() == Phase::Closing && is_spared {
        Ok(Flag::CANCELLED)
    } else {
        Err(Refused::Closing)
    }
}

/// Takes a free record for a goroutine, which is counted as unborn, and the flags with which it
/// begins.
///
/// The goroutine is counted first. A runtime that closes meanwhile either sees the count and waits
/// for the goroutine, or the caller sees that it is closing. Nothing else keeps a runtime from
/// closing under a thread that is not its own.
fn take_unborn(
    sched: &Sched,
    may_spawn: impl FnOnce() -> Result<Flag, Refused>,
) -> Result<(NonNull<G>, Flag), Refused> {
    sched.life.unborn.fetch_add(1, Ordering::Relaxed);
    // ORDERING: pairs with the closer, which sets the phase, fences, and then adds up the counts.
    heist_core::sync::fence(Ordering::SeqCst);
    let taken = may_spawn().and_then(|flags| match pool::take_one() {
        Ok(gp) => Ok((gp, flags)),
        Err(_) => Err(Refused::NoMemory),
    });
    if taken.is_err() {
        sched.life.unborn.fetch_sub(1, Ordering::Relaxed);
        shutdown::after_finish(sched);
    }
    taken
}

/// Follows the push of a new goroutine. The runtime may have begun to close between the check and
/// the push, and its walk over all goroutines may have missed the new one.
#[inline]
pub(super) fn after_spawn(sched: &Sched, gp: NonNull<G>) {
    if sched.phase() != Phase::Running {
        cancel_late(sched, gp);
    }
}

/// Cancels a goroutine that may have ended meanwhile. Its record may by now belong to another
/// goroutine: to one of this runtime, which is cancelled anyway, or to one of another runtime,
/// which is left alone.
#[cold]
fn cancel_late(sched: &Sched, gp: NonNull<G>) {
    // SAFETY: records are never unmapped.
    let g = unsafe { gp.as_ref() };
    pool::hold(|| {
        if sched.is_mine(g) {
            super::cancel::mark(g);
        }
    });
    heavy_fence();
    super::cancel::wake_marked(None, g, Some(sched));
}

/// Counts those of the woken goroutines that are born by this wake-up.
pub(crate) fn count_born(sched: &Sched, woken: &List<G>) {
    for gp in woken.iter() {
        count_one_born(sched, gp);
    }
}

/// Counts a goroutine, which the caller has claimed, if it is born by this wake-up.
pub(crate) fn count_one_born(sched: &Sched, gp: &G) {
    if gp.flags.has(Flag::UNBORN) {
        gp.flags.clear(Flag::UNBORN);
        // The goroutine is counted as alive before it stops being counted as unborn. Otherwise a
        // thread that waits until no goroutine is left could look in between and see none.
        sched.stats.created.add_shared(1);
        // ORDERING: Release pairs with the Acquire in `shutdown::wait_for_the_last`: a closer that
        // sees this goroutine no longer unborn sees that it was created.
        sched.life.unborn.fetch_sub(1, Ordering::Release);
    }
}

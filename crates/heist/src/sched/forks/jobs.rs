//! Latent halves of forks as a source of work.
//!
//! A goroutine that forks pushes the second half onto its deque, in user code and without entering
//! the runtime ([`push`]). It enters the runtime at its first fork after it began to run
//! ([`push_slow`]), which lists the deque at a P. A thief that finds a job makes a goroutine of it.
//!
//! # No job is forgotten
//! An M that goes to sleep makes its P idle, fences, and if a deque is listed anywhere, executes a
//! heavy fence and looks at all deques. A forker pushes, executes a light fence and then reads
//! whether a P is idle. One of the two sees the other. If no deque is listed, the M needs no heavy
//! fence: a forker lists its deque first, and fences. The rest is the protocol of
//! `heist_core::spinning`, in which a forker is a submitter and a deque is a queue.
//!
//! # Patience
//! Waking an M costs the forker microseconds, and a half that is taken costs two threads some more.
//! A computation of a thousand forks may take less than that. So if the halves that were taken last
//! ended at once, a forker does not wake an M before it has forked some thousand times. If it does
//! not fork any more, sysmon wakes one at its next look ([`end_patience`]), and a half that then
//! runs for long ends the patience of all.
//!
//! # Measuring
//! A goroutine that is measured (`gmp::meter`) is not the `forking` one of its M, so each of its
//! forks comes to [`push_slow`], which sends it back: `join` then forks by [`push_measured`]. So a
//! fork that is not measured does not have to ask.
//!
//! # Fairness
//! A job waits in its deque if its forker runs and every P is busy. If the forker is parked, the P
//! where its deque is listed comes to the job in turn with the goroutines of the global queue, and
//! at the latest at a tick that the policy selects.

use super::measured::is_measured;
use crate::current::{self, InRuntime};
use crate::gmp::fork::{Deque, Job, Wanted, take_deque};
use crate::gmp::m::Request;
use crate::gmp::{G, Holder, M, P};
use crate::sched::run::{Next, push_local};
use crate::sched::{Sched, life, rest};
use crate::sys::membarrier::{heavy_fence, light_fence};
use crate::trace::emit;
use heist_core::fork_deque::Seen;
use heist_core::policy;
use heist_core::run_queue::Slot;
use heist_core::sync::{Ordering, fence};
use heist_trace::record::Found as Origin;
use std::ptr::{NonNull, from_ref, null};

/// Pushes a job of the calling goroutine onto its deque, which is returned. None: the job was not
/// pushed, because the caller is a plain thread, or is measured, or there is no memory.
///
/// # Safety
/// The job stays where it is until it was popped from the deque or has ended.
#[inline(always)]
pub(crate) unsafe fn push(job: &Job) -> Option<&'static Deque> {
    // SAFETY: the M of the calling thread is alive.
    let m = unsafe { current::m().as_ref() }?;
    // SAFETY: deques are never unmapped.
    if let Some(deque) = unsafe { m.forking.get().as_ref() }
        // SAFETY: it is the deque of the goroutine that runs here, and active.
        && unsafe { deque.push(job) }.is_ok()
    {
        light_fence();
        if m.sched().rest.idle().count() != 0 {
            wake_thief(m.sched(), deque);
        }
        return Some(deque);
    }
    // SAFETY: passed on.
    unsafe { push_slow(job) }
}

/// A P is idle and there is a job: wakes an M, unless one searches already, or the halves that were
/// taken lately were too short to be worth it.
#[cold]
#[inline(never)]
fn wake_thief(sched: &Sched, deque: &Deque) {
    if sched.rest.n_spinning() != 0 || is_patient(sched, deque) {
        return;
    }
    let Some(rt) = current::enter() else { return };
    rest::wake_p(rt.sched());
    drop(rt);
}

/// Whether the calling goroutine lets this job wait, although a P is idle: the last halves that
/// were taken ended at once, and this goroutine has not forked often since it last woke an M.
fn is_patient(sched: &Sched, deque: &Deque) -> bool {
    let n_short = sched.forks.n_short_halves.load(Ordering::Relaxed);
    let patient = policy::forks::fork_waits(n_short, deque.n_silent());
    deque.count_silent(patient);
    patient
}

/// Wakes an M if a job has been waiting although a P is idle, because its forker was patient. For
/// sysmon, which bounds the patience.
pub(crate) fn end_patience(sched: &Sched) {
    if sched.forks.has_deques()
        && sched.rest.idle().count() != 0
        && sched.rest.n_spinning() == 0
        && has_fork(sched)
    {
        rest::wake_p(sched);
    }
}

/// Learns how long a half ran that was taken. In user code, by its goroutine.
pub(crate) fn half_lasted(gp: &G, ns: u64) {
    // SAFETY: the calling goroutine's runtime outlives it.
    let forks = unsafe { &(*gp.sched.get()).forks };
    let n_short = forks.n_short_halves.load(Ordering::Relaxed);
    forks.n_short_halves.store(policy::forks::short_halves(n_short, ns), Ordering::Relaxed);
}

/// As [`push`], for a goroutine whose deque is not active, or full.
#[cold]
#[inline(never)]
unsafe fn push_slow(job: &Job) -> Option<&'static Deque> {
    let rt = current::enter()?;
    let deque = own_deque(rt.goroutine())?;
    // SAFETY: the caller is the goroutine itself.
    if unsafe { deque.meter() }.is_some() {
        return None;
    }
    activate(&rt, deque);
    rt.m().forking.set(deque);
    // SAFETY: passed on.
    unsafe { push_active(rt, deque, job) }
}

/// As [`push`], for a goroutine that is measured.
///
/// # Safety
/// As for [`push`].
pub(crate) unsafe fn push_measured(job: &Job) -> Option<&'static Deque> {
    let rt = current::enter()?;
    let deque = own_deque(rt.goroutine())?;
    if !deque.is_active() {
        activate(&rt, deque);
    }
    // SAFETY: passed on.
    unsafe { push_active(rt, deque, job) }
}

/// The deque of the calling goroutine. None if it has none and there is no memory.
pub(super) fn own_deque(gp: &G) -> Option<&'static Deque> {
    // SAFETY: the caller is the goroutine itself.
    if let Some(deque) = unsafe { gp.coro.deque() } {
        return Some(deque);
    }
    let deque = take_deque(gp)?;
    // SAFETY: as above.
    unsafe { gp.coro.set_deque(Some(deque)) };
    Some(deque)
}

fn activate(rt: &InRuntime, deque: &Deque) {
    if deque.activate(&rt.holder().p()) {
        rt.sched().forks.deques_listed(1);
    }
}

/// Pushes a job onto the deque of the calling goroutine, which is active, and wakes an M for it.
///
/// # Safety
/// As for [`push`].
unsafe fn push_active(rt: InRuntime, deque: &'static Deque, job: &Job) -> Option<&'static Deque> {
    let (m, sched) = (rt.holder(), rt.sched());
    // SAFETY: it is the goroutine's own, and active while the goroutine does not leave its M.
    while unsafe { deque.push(job) }.is_err() {
        // The oldest fork becomes a goroutine. No fence: this is the thread that pops.
        let oldest = deque.look().and_then(|seen| life::take_job(sched, m, deque, seen));
        match oldest {
            // SAFETY: it is runnable, new, and in no queue.
            Some(oldest) => unsafe { push_local(m, oldest, Slot::Tail) },
            None if deque.look().is_some() => return None,
            None => {}
        }
    }
    // ORDERING: the submitter's fence of `heist_core::spinning`.
    fence(Ordering::SeqCst);
    if sched.rest.idle().count() != 0 && !is_patient(sched, deque) {
        rest::wake_p(sched);
    }
    // This may suspend the goroutine. Then its deque is listed, with the job, but no longer active.
    drop(rt);
    Some(deque)
}

/// Whether the calling goroutine should fork: another processor is idle or searches, and there is
/// nothing that it could take from the caller. If the caller is measured, it is as if a processor
/// were always idle.
pub(crate) fn are_wanted() -> bool {
    // SAFETY: the M of the calling thread is alive.
    let Some(m) = (unsafe { current::m().as_ref() }) else { return false };
    // SAFETY: deques are never unmapped.
    let forking = unsafe { m.forking.get().as_ref() };
    if forking.is_none() && is_measured() {
        return true;
    }
    let has_jobs = forking.is_some_and(|deque| deque.look().is_some());
    let rest = &m.sched().rest;
    !has_jobs && (rest.idle().count() != 0 || rest.n_spinning() != 0)
}

/// Follows the switch of a goroutine back to the scheduler: if it runs again, maybe on another M,
/// it has to make its deque active.
#[inline]
pub(crate) fn suspend(m: &M) {
    // SAFETY: deques are never unmapped.
    if let Some(deque) = unsafe { m.forking.get().as_ref() } {
        deactivate(m, deque);
    }
}

#[cold]
#[inline(never)]
fn deactivate(m: &M, deque: &Deque) {
    m.forking.set(null());
    deque.deactivate(matches!(m.request.get(), Request::Park { .. }));
}

/// Gives the deque of the calling goroutine back, which is about to end. In user code.
#[inline]
pub(crate) fn end(gp: &G) {
    // SAFETY: the caller is the goroutine itself.
    if let Some(deque) = unsafe { gp.coro.deque() } {
        give_back(gp, deque);
    }
}

#[cold]
fn give_back(gp: &G, deque: &'static Deque) {
    let Some(rt) = current::enter() else { return };
    rt.m().forking.set(null());
    // SAFETY: the caller is the goroutine itself.
    unsafe { gp.coro.set_deque(None) };
    if deque.give_back() {
        rt.sched().forks.deques_unlisted(1);
    }
}

/// Takes a job that is listed at the own P, in turn with the goroutines there.
///
/// At every tick that the policy selects, any job: goroutines that keep the P busy cannot starve
/// it. The forker itself may be one of them, if it waits for its half and yields. At every other
/// tick, if the own queue is empty, a job of a goroutine that is parked: such jobs share the P with
/// the goroutines of the global queue. If the forker does not wait for anything, it will come to
/// its jobs itself, or a thief does.
#[cold]
#[inline(never)]
pub(crate) fn next_in_turn(sched: &Sched, m: Holder<'_>) -> Option<NonNull<G>> {
    let pp = m.p();
    let wanted = if policy::forks_first(pp.tick()) {
        Wanted::Any
    } else if pp.tick().is_multiple_of(2) || !pp.queue.is_empty() {
        return None;
    } else {
        Wanted::Parked
    };
    take_from(sched, m, &pp, wanted)
}

/// Takes a job from any P, the own one included, in an order that begins at a random one.
pub(crate) fn steal_fork(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    if !sched.forks.has_deques() {
        return None;
    }
    let procs = sched.procs();
    let first = m.p().with_local(|local| local.rng.next_u32()) % procs;
    let mut ids = (first..procs).chain(0..first);
    let gp = ids.find_map(|id| take_from(sched, m, sched.p(id), Wanted::Any))?;
    Some(Next::fresh(gp, Origin::Stolen))
}

fn take_from(sched: &Sched, m: Holder<'_>, victim: &P, wanted: Wanted) -> Option<NonNull<G>> {
    let (deque, seen) = find(sched, victim, wanted)?;
    if !life::may_take_jobs(sched) {
        return None;
    }
    heavy_fence();
    let gp = life::take_job(sched, m, deque, seen)?;
    if !std::ptr::eq(from_ref(victim), from_ref(m.m().p())) {
        emit::steal(&m, victim.id, 1, false);
    }
    Some(gp)
}

fn find(sched: &Sched, pp: &P, wanted: Wanted) -> Option<(&'static Deque, Seen)> {
    let (found, n_removed) = pp.forks.find(wanted);
    if n_removed != 0 {
        sched.forks.deques_unlisted(n_removed);
    }
    found
}

/// Whether there is a job that an M could take.
pub(crate) fn has_fork(sched: &Sched) -> bool {
    sched.forks.has_deques()
        && life::may_take_jobs(sched)
        && sched.all_ps().any(|pp| find(sched, pp, Wanted::Any).is_some())
}

/// Makes the jobs of all forkers visible to an M that has made its P idle and looks for the last
/// time. True if there may be any.
pub(crate) fn await_pushes(sched: &Sched) -> bool {
    let forks = sched.forks.has_deques();
    if forks {
        // Pairs with the light fence of `push`.
        heavy_fence();
    }
    forks
}

impl super::Forks {
    /// Whether a deque is listed at any P.
    #[inline]
    pub(crate) fn has_deques(&self) -> bool {
        self.n_deques.load(Ordering::Relaxed) != 0
    }

    fn deques_listed(&self, n: u32) {
        self.n_deques.fetch_add(n, Ordering::Relaxed);
        // ORDERING: a forker lists its deque, fences, pushes and reads the number of idle Ps. An M
        // that goes to sleep makes its P idle, fences and reads the number of deques. One of the
        // two sees the other.
        fence(Ordering::SeqCst);
    }

    fn deques_unlisted(&self, n: u32) {
        self.n_deques.fetch_sub(n, Ordering::Relaxed);
    }
}

//! The ways into the queues.
//!
//! # Goroutines that become runnable together
//! Timers and the poller bring work for several Ms at once, so several are woken at once. The chain
//! of spinners, each of which wakes the next, would need one wake-up after another, as many as
//! there are idle Ps.
//!
//! A goroutine that was woken without a P has already waited for an M to look. It goes to the
//! urgent lane of the global queue (docs/design/timers.md), where Go uses the tail.
//!
//! GO: proc.go runqput, runqputslow, globrunqput, goyield_m, injectglist.

use super::{lanes, latency};
use crate::gmp::p::Local;
use crate::gmp::{G, Holder};
use crate::sched::rest::Start;
use crate::sched::{Sched, life, rest};
use crate::trace::emit;
use heist_core::global_queue::Lane;
use heist_core::list::List;
use heist_core::policy;
use heist_core::run_queue::Slot;
use heist_core::status::Status;
use heist_core::sync::{Ordering, fence};
use heist_trace::record::Stop;
use std::ptr::NonNull;

/// Queues the goroutines that timers woke, for an M with a P. The first runs next; those that
/// exceed half a ring go to the global queue.
pub(crate) fn queue_woken(sched: &Sched, m: Holder<'_>, mut woken: List<G>) {
    if woken.is_empty() {
        return;
    }
    life::count_born(sched, &woken);
    m.p().stats.readied.add(woken.len().into());
    let mut slot = Slot::Next;
    for _ in 0..policy::RING_CAPACITY / 2 {
        let Some(gp) = woken.pop_front() else { break };
        // SAFETY: it was just claimed and taken out of its list, so it is valid and in no queue.
        unsafe { push_local(m, gp, slot) };
        slot = Slot::Tail;
    }
    let mut rest = sort_out(sched, woken);
    if !rest.is_empty() {
        m.p().stats.global_put.add(rest.len().into());
        sched.lock.lock().global.append(sched.global_len(), Lane::Normal, &mut rest);
    }
    rest::announce_work(sched);
}

/// Queues goroutines that the poller found: one for each idle P into the global queue, and an M is
/// started on each of these Ps to fetch it; the others at this P.
#[doc(alias = "injectglist")]
pub(crate) fn inject(sched: &Sched, m: Holder<'_>, woken: List<G>) {
    if woken.is_empty() {
        return;
    }
    let pp = m.p();
    if pp.is_reserved {
        return inject_without_p(sched, woken);
    }
    life::count_born(sched, &woken);
    pp.stats.readied.add(woken.len().into());
    woken.iter().for_each(|gp| latency::maybe_sample(m, gp));
    let mut local = sort_out(sched, woken);
    let mut shared = local.split_front(sched.rest.idle().count());
    let n_shared = shared.len();
    if n_shared != 0 {
        pp.stats.global_put.add(n_shared.into());
        sched.lock.lock().global.append(sched.global_len(), Lane::Normal, &mut shared);
        start_idle(sched, n_shared);
    }
    pp.owner().push_batch(&mut local);
    if !local.is_empty() {
        pp.stats.overflows.bump();
        pp.stats.global_put.add(local.len().into());
        sched.lock.lock().global.append(sched.global_len(), Lane::Normal, &mut local);
    }
    // A P may have become idle meanwhile.
    rest::announce_work(sched);
}

/// Queues goroutines that timers or the poller woke, for a caller without a P. They go to the
/// urgent lane of the global queue. An M is started for each of them, as long as there are idle Ps.
pub(crate) fn inject_without_p(sched: &Sched, woken: List<G>) {
    if woken.is_empty() {
        return;
    }
    life::count_born(sched, &woken);
    sched.stats.readied.add_shared(woken.len().into());
    let mut urgent = sort_out(sched, woken);
    let n = urgent.len();
    sched.stats.global_put.add_shared(n.into());
    sched.lock.lock().global.append(sched.global_len(), Lane::Urgent, &mut urgent);
    // ORDERING: the submitter's fence of `heist_core::spinning`: the number of idle Ps is read
    // below, after the goroutines were queued.
    fence(Ordering::SeqCst);
    if start_idle(sched, n.min(sched.rest.idle().count())) == 0 {
        rest::wake_p(sched);
    }
}

/// Starts an M on each of at most `n` idle Ps, and returns their number. These Ms are not counted
/// as spinners: there is work for each.
fn start_idle(sched: &Sched, n: u32) -> u32 {
    for started in 0..n {
        let Some(id) = sched.lock.lock().idle_ps.take(sched.rest.idle()) else { return started };
        sched.stall.bell().ring();
        sched.stats.wake_ups.add_shared(1);
        rest::start_m(sched, sched.p(id), Start::Working);
    }
    n
}

/// Queues the goroutines of the latency and the idle class in their lanes, and returns the others.
fn sort_out(sched: &Sched, mut woken: List<G>) -> List<G> {
    let mut normal = List::new();
    while let Some(gp) = woken.pop_front() {
        // SAFETY: it was just claimed, so it is valid, and it is in no queue.
        unsafe {
            if gp.as_ref().is_classed() {
                lanes::push_by_class(sched, gp);
            } else {
                normal.push_back(gp);
            }
        }
    }
    normal
}

/// Puts a runnable goroutine at the end of its lane of the global queue.
///
/// # Safety
/// `gp` is runnable, in no queue, and the caller's to move.
pub(crate) unsafe fn push_global(sched: &Sched, gp: NonNull<G>) {
    // SAFETY: `gp` is valid, by the caller's promise.
    if unsafe { gp.as_ref() }.is_classed() {
        // SAFETY: passed on.
        return unsafe { lanes::push_by_class(sched, gp) };
    }
    let mut locked = sched.lock.lock();
    // SAFETY: passed on.
    unsafe { locked.global.push(sched.global_len(), Lane::Normal, gp) };
}

/// Puts a goroutine that yielded at the end of the part of the global queue that this P holds.
pub(super) fn requeue(m: Holder<'_>, gp: NonNull<G>, why: Stop) {
    let pp = m.p();
    let sched = m.sched();
    pp.stats.yields.bump();
    // SAFETY: the goroutine has just left this M, which still owns it.
    let g = unsafe { gp.as_ref() };
    emit::go_stop(&m, g, why);
    g.status.transition(Status::Running, Status::Runnable);
    latency::maybe_sample(m, g);
    if g.is_classed() {
        // SAFETY: this M owns it, and it is in no queue.
        return unsafe { lanes::push_by_class(sched, gp) };
    }
    pp.stats.global_put.bump();
    if !g.bound_m.get().is_null() && sched.threads.are_refused() {
        // The thread of a bound goroutine may be the only one that can take a P over. It is found
        // if the goroutine is queued among the frozen ones.
        let mut locked = sched.lock.lock();
        // SAFETY: this M owns it, and it is in no queue.
        return unsafe { lanes::push_frozen(sched, &mut locked, gp) };
    }
    // SAFETY: this M owns it, and it is in no queue.
    unsafe { pp.yielded.push(gp) };
    rest::announce_work(sched);
}

/// Puts a goroutine that gave way behind those that wait in the ring of this P.
#[doc(alias = "goyield_m")]
pub(super) fn requeue_here(m: Holder<'_>, gp: NonNull<G>) {
    m.p().stats.yields.bump();
    // SAFETY: the goroutine has just left this M, which still owns it.
    unsafe {
        emit::go_stop(&m, gp.as_ref(), Stop::GiveWay);
        gp.as_ref().status.transition(Status::Running, Status::Runnable);
        push_local(m, gp, Slot::Tail);
    }
    rest::wake_p(m.sched());
}

/// Puts a runnable goroutine into the queue of this M's P. If the ring is full, half of it goes to
/// the global queue.
///
/// # Safety
/// `gp` is runnable, in no queue, and the caller's to move.
pub(crate) unsafe fn push_local(m: Holder<'_>, gp: NonNull<G>, slot: Slot) {
    // SAFETY: `gp` is valid, by the caller's promise.
    latency::maybe_sample(m, unsafe { gp.as_ref() });
    // SAFETY: passed on.
    unsafe { push_where_due(m, gp, slot) };
}

/// Puts a runnable goroutine into the `run_next` of this M's P: [`push_local`] with `Slot::Next`,
/// with a shorter path for a goroutine of the normal class at a usual P.
///
/// # Safety
/// As for [`push_local`].
#[inline]
pub(crate) unsafe fn push_next(m: Holder<'_>, gp: NonNull<G>) {
    let pp = m.p();
    // SAFETY: `gp` is valid, by the caller's promise.
    let g = unsafe { gp.as_ref() };
    latency::maybe_sample(m, g);
    if pp.is_unusual || g.is_classed() {
        // SAFETY: passed on.
        return unsafe { push_where_due(m, gp, Slot::Next) };
    }
    if let Some(kicked) = pp.owner().swap_next(gp) {
        push_kicked(m, kicked);
    }
}

/// Puts a goroutine that another one displaced from `run_next` at the tail of the ring.
#[inline(never)]
fn push_kicked(m: Holder<'_>, kicked: NonNull<G>) {
    m.p().owner().push_tail(kicked, |batch| overflow(m, batch));
}

/// Puts a runnable goroutine where its class, the kind of this P and chaos mode want it.
///
/// # Safety
/// As for [`push_local`].
#[inline(never)]
unsafe fn push_where_due(m: Holder<'_>, gp: NonNull<G>, slot: Slot) {
    let pp = m.p();
    // SAFETY: `gp` is valid, by the caller's promise.
    if unsafe { gp.as_ref() }.is_classed() || pp.is_reserved {
        // SAFETY: passed on.
        return unsafe { lanes::push_by_class(m.sched(), gp) };
    }
    let misplace =
        |local: &mut Local| local.chaos.as_mut().is_some_and(|chaos| chaos.next_u32() & 1 == 0);
    let slot = if slot == Slot::Next && pp.with_local(misplace) { Slot::Tail } else { slot };
    pp.owner().push(gp, slot, |batch| overflow(m, batch));
    if slot == Slot::Tail {
        // ORDERING: the submitter's protocol of `heist_core::spinning` needs a full fence. A push
        // into `run_next` is one; a push at the tail is not.
        fence(Ordering::SeqCst);
    }
}

#[cold]
fn overflow(m: Holder<'_>, batch: &mut [NonNull<G>]) {
    let pp = m.p();
    let sched = m.sched();
    pp.stats.overflows.bump();
    pp.stats.global_put.add(batch.len() as u64);
    pp.with_local(|local| {
        if let Some(chaos) = &mut local.chaos {
            chaos.shuffle(batch);
        }
    });
    let mut list = List::new();
    for &gp in &*batch {
        // SAFETY: goroutines taken out of the ring are valid and in no queue.
        unsafe { list.push_back(gp) };
    }
    // The goroutines that yielded here come before those that overflow now.
    let mut yielded = pp.yielded.take(u32::MAX);
    yielded.append(&mut list);
    sched.lock.lock().global.append(sched.global_len(), Lane::Normal, &mut yielded);
}

//! Whom to start while threads are scarce.
//!
//! A goroutine that blocks in a lock heist does not know, or is stopped by force, keeps its thread. Where many
//! contend for one lock, each that is started takes a thread with it. The helper makes more; but if the lock is
//! the allocator's, it has to wait for the lock itself, behind all of them. Without a thread that is free,
//! nobody can run but those that have one: a goroutine that the clock or the network has woken would wait for
//! the helper.
//!
//! So the last free thread is kept for goroutines that have started already, and for new ones of which nobody
//! expects that they keep it. Others are *held back*. They are admitted when there is a thread more, or when a P
//! would have nothing else to run.
//!
//! # A crowd
//! A goroutine that gets a foreign lock after its P was taken runs without one. Many of them make more threads that
//! run than there are CPUs, and sysmon notices by its own naps, which end late. A P that is lent to a goroutine whose
//! thread has to wait for a CPU is of no use to anybody, and what its timers wake waits with it. So in a crowd a P
//! whose next timer is due within a millisecond is not lent: its M sleeps until then and serves the timer itself. It
//! is lent all the same when that has gone on for a tenth of a second.
//!
//! # Why nobody is held back for ever
//! A goroutine is held back only while a stopped one waits. The stopped ones take turns, so the
//! helper, which sysmon
//! asks for a thread in every round, gets the lock that it may have to wait for, and makes threads until two are
//! idle. In each of these rounds it admits as many goroutines as there are idle threads beside the
//! last: while every P is busy no thread may become idle for a long time, so a thread that becomes
//! idle is not the only one to admit some. When no stopped goroutine waits any more, or there can
//! be no more threads, the helper admits all of them. A P that would become idle admits some first,
//! and none is held back while a P is idle, so no P is idle beside them.

use crate::gmp::flags::Flag;
use crate::gmp::{G, Holder};
use crate::sched::{Locked, Sched};
use crate::sys::{clock, thread};
use heist_core::global_queue::Lane;
use heist_core::policy::{ADMITTED_MAX, CROWD_KEEP_NS, CROWD_NEAR_NS, CROWD_NS};
use heist_core::sync::Ordering;
use std::ptr::NonNull;
use std::time::Duration;

/// Whether a bound goroutine runs on a thread that is not the runtime's.
fn is_guests(gp: &G) -> bool {
    // SAFETY: Ms live as long as the runtime.
    unsafe { gp.bound_m.get().as_ref() }.is_some_and(|m| m.stack_end.get() == 0)
}

/// Whether a new goroutine, which most likely keeps its thread, is left for later. Then it is held back.
#[cold]
pub(crate) fn holds_back(sched: &Sched, gp: NonNull<G>) -> bool {
    // SAFETY: the goroutine is the caller's to run.
    let g = unsafe { gp.as_ref() };
    // A bound goroutine brings its own thread. While the queue is empty no stopped goroutine waits.
    if g.is_classed() || !g.bound_m.get().is_null() || sched.global_len().get() == 0 {
        return false;
    }
    let mut locked = sched.lock.lock();
    let scarce = locked.idle_ms.is_empty() && locked.global.has_stopped();
    let refused = sched.threads.refused.load(Ordering::Relaxed) != 0;
    let full = locked.roster.n_ms >= sched.config.max_threads;
    if !scarce || refused || full || sched.rest.idle().count() != 0 {
        return false;
    }
    // SAFETY: it is runnable, and no queue has it.
    unsafe { locked.roster.held_back.push_back(gp) };
    sched.threads.n_held_back.store(locked.roster.held_back.len(), Ordering::Relaxed);
    drop(locked);
    sched.threads.mailbox.ask_for_spare();
    true
}

/// A P would rest: those that were held back can start, some at a time. Whether there were any; then somebody
/// may have to be woken.
pub(crate) fn admit(sched: &Sched, locked: &mut Locked) -> bool {
    admit_some(sched, locked, ADMITTED_MAX)
}

/// The helper was asked for threads. `enough`: it makes none now. Everybody can start if the reason
/// to hold somebody back is gone, else as many as there are idle threads beside the last one.
/// Whether there were any.
pub(super) fn admit_from_helper(sched: &Sched, locked: &mut Locked, enough: bool) -> bool {
    let full = locked.roster.n_ms >= sched.config.max_threads;
    if full || !locked.global.has_stopped() {
        return admit_some(sched, locked, u32::MAX);
    }
    enough && admit_to_idle(sched, locked)
}

/// As many can start as there are idle threads beside the last one. For a thread that has become
/// idle, and for the helper.
pub(crate) fn admit_to_idle(sched: &Sched, locked: &mut Locked) -> bool {
    let n = locked.idle_ms.len().saturating_sub(1);
    n != 0 && admit_some(sched, locked, n)
}

fn admit_some(sched: &Sched, locked: &mut Locked, n: u32) -> bool {
    if locked.roster.held_back.is_empty() {
        return false;
    }
    let mut admitted = locked.roster.held_back.split_front(n);
    sched.threads.n_held_back.store(locked.roster.held_back.len(), Ordering::Relaxed);
    sched.stats.global_put.add_shared(admitted.len().into());
    locked.global.append(sched.global_len(), Lane::Normal, &mut admitted);
    true
}

/// Asks once more for threads for those that are held back: what the helper saw at the last time may not be
/// true any more. For sysmon, in every round.
pub(crate) fn press_for_held_back(sched: &Sched) {
    if sched.threads.n_held_back.load(Ordering::Relaxed) != 0 {
        sched.threads.mailbox.ask_for_spare();
    }
}

/// Says that more threads run than there are CPUs. For sysmon.
pub(crate) fn note_crowd(sched: &Sched, now_ns: u64) {
    sched.threads.crowded_until_ns.store(now_ns.saturating_add(CROWD_NS), Ordering::Relaxed);
}

/// Whether it was so a moment ago.
pub(crate) fn is_crowded(sched: &Sched, now_ns: u64) -> bool {
    now_ns < sched.threads.crowded_until_ns.load(Ordering::Relaxed)
}

/// Whether `m` does not lend its P to the stopped goroutine `gp`, but serves the next timer first. Then it has
/// slept until that is due, and `gp` is first among the stopped.
#[inline(never)]
pub(crate) fn keeps_p(sched: &Sched, m: Holder<'_>, gp: NonNull<G>) -> bool {
    let now = clock::now_ns();
    if !is_crowded(sched, now) {
        return false;
    }
    let pp = m.p();
    // SAFETY: this M has found the goroutine, so it is valid.
    let g = unsafe { gp.as_ref() };
    let next = pp.timers.earliest();
    let is_near = next < now.saturating_add(CROWD_NEAR_NS);
    let lent_ns = pp.with_local(|local| local.lent_ns);
    let mut locked = sched.lock.lock();
    let keeps = (is_near || !pp.is_empty())
        && now.saturating_sub(lent_ns) <= CROWD_KEEP_NS
        && !(pp.is_reserved || g.is_classed() || g.flags.has(Flag::LOCKED) || is_guests(g))
        && !(sched.world.is_stopping() || sched.rest.idle().count() != 0);
    if !keeps {
        pp.with_local(|local| local.lent_ns = now);
        return false;
    }
    // SAFETY: as above; it is in no queue.
    unsafe { locked.global.put_back_stopped(sched.global_len(), gp) };
    drop(locked);
    // Otherwise it might be found again at once: it was the turn of the global queue.
    pp.advance_tick();
    if is_near && pp.is_empty() {
        thread::nap(Duration::from_nanos(next.saturating_sub(now)));
    }
    true
}

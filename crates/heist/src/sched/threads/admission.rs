//! Admission: which goroutines may start while threads are scarce.
//!
//! A goroutine keeps its thread if it blocks in a lock that heist does not know, or is frozen.
//! Where many contend for one lock, each that is started takes a thread with it. The helper makes
//! more. But if the lock is the allocator's, the helper has to wait for the lock itself, behind all
//! of them. Without a free thread, only goroutines that have one can run: a goroutine that the
//! clock or the network has woken would wait for the helper.
//!
//! So the last free thread is kept for goroutines that have started already, and for new ones that
//! are not expected to keep it. Others are *held back*. They are admitted when there is one more
//! thread, or when a P would have nothing else to run.
//!
//! # A crowd
//! A goroutine that gets a foreign lock after its P was taken runs without one. If there are many
//! of them, more threads run than there are CPUs. sysmon notices that because its own naps end
//! late. A P that is lent to a goroutine whose thread has to wait for a CPU is of no use, and the
//! goroutines that its timers wake wait with it. So in a crowd a P is not lent while it has
//! goroutines in its queue, or if its next timer is due within a millisecond: then its M sleeps
//! until that moment and runs the timer itself. The P is lent all the same when that has gone on
//! for a tenth of a second.
//!
//! # Why no goroutine is held back forever
//! A goroutine is held back only while a frozen one waits. The frozen ones take turns, so the
//! helper, which sysmon asks for a thread in every round, gets the lock that it may have to wait
//! for, and makes threads until two are idle. In each of these rounds it admits as many goroutines
//! as there are idle threads beside the last. It has to: while every P is busy, it may be long
//! before a thread becomes idle, so threads that become idle must not be the only ones to admit
//! goroutines. When no frozen goroutine waits any more, or there can be no more threads, the helper
//! admits all of them. A P that would become idle admits some first, and none is held back while a
//! P is idle, so no P is idle beside them.

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

/// Holds back a new goroutine, which most likely keeps its thread, if threads are scarce. False if
/// it may start.
#[cold]
pub(crate) fn holds_back(sched: &Sched, gp: NonNull<G>) -> bool {
    // SAFETY: the goroutine is the caller's to run.
    let g = unsafe { gp.as_ref() };
    // A bound goroutine brings its own thread. While the global queue is empty no frozen goroutine
    // waits.
    if g.is_classed() || !g.bound_m.get().is_null() || sched.global_len().get() == 0 {
        return false;
    }
    let mut locked = sched.lock.lock();
    let scarce = locked.idle_ms.is_empty() && locked.global.has_frozen();
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

/// Admits some of the goroutines that were held back, because a P would become idle. True if there
/// were any: then an M may have to be woken for them.
pub(crate) fn admit(sched: &Sched, locked: &mut Locked) -> bool {
    admit_some(sched, locked, ADMITTED_MAX)
}

/// Admits goroutines when the helper was asked for threads. `enough`: the helper makes no thread
/// now. All of them can start if the reason to hold them back is gone, otherwise as many as there
/// are idle threads beside the last one. True if any were admitted.
pub(super) fn admit_from_helper(sched: &Sched, locked: &mut Locked, enough: bool) -> bool {
    let full = locked.roster.n_ms >= sched.config.max_threads;
    if full || !locked.global.has_frozen() {
        return admit_some(sched, locked, u32::MAX);
    }
    enough && admit_to_idle(sched, locked)
}

/// Admits as many goroutines as there are idle threads beside the last one. For a thread that has
/// become idle, and for the helper.
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

/// Asks once more for threads for the goroutines that are held back: what the helper saw the last
/// time may no longer be true. For sysmon, in every round.
pub(crate) fn press_for_held_back(sched: &Sched) {
    if sched.threads.n_held_back.load(Ordering::Relaxed) != 0 {
        sched.threads.mailbox.ask_for_spare();
    }
}

/// Notes that more threads run than there are CPUs. For sysmon.
pub(crate) fn note_crowd(sched: &Sched, now_ns: u64) {
    sched.threads.crowded_until_ns.store(now_ns.saturating_add(CROWD_NS), Ordering::Relaxed);
}

/// Whether more threads ran than there are CPUs a moment ago.
pub(crate) fn is_crowded(sched: &Sched, now_ns: u64) -> bool {
    now_ns < sched.threads.crowded_until_ns.load(Ordering::Relaxed)
}

/// Decides that `m` does not lend its P to the frozen goroutine `gp`, because it runs its own queue
/// or its next timer first. If true, `gp` is again first among the frozen ones, and `m` has slept
/// until the timer is due, unless its queue had something to run.
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
    unsafe { locked.global.put_back_frozen(sched.global_len(), gp) };
    drop(locked);
    // Without this `gp` might be found again at once, because it was the turn of the global queue.
    pp.advance_tick();
    if is_near && pp.is_empty() {
        thread::nap(Duration::from_nanos(next.saturating_sub(now)));
    }
    true
}

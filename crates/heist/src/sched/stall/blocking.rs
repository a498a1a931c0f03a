//! Blocking calls: announced ones, and coming back when the P is gone.
//!
//! GO: proc.go entersyscall, exitsyscall.

use super::sysmon::bell;
use super::{freeze, retake};
use crate::current;
use crate::gmp::M;
use crate::gmp::flags::Flag;
use crate::sched::rest::Start;
use crate::sched::{Locked, Sched};
use crate::sched::{outside, run, world};
use crate::sys::thread;
use crate::trace::emit;
use heist_core::m_word::{GIVE_P, Place, TAKEN};
use heist_trace::record::{Call, Freeze};

/// Runs `f`, which may block the thread. The other goroutines continue meanwhile.
#[doc(alias = "entersyscall")]
pub(crate) fn blocking<T>(f: impl FnOnce() -> T) -> T {
    let Some(rt) = current::enter() else { return f() };
    let pp = rt.m().p();
    pp.stats.announced.bump();
    bell::watch_call(rt.sched(), pp);
    emit::call_start(rt.m(), Call::Announced);
    // SAFETY: the M of the calling thread is alive; the evidence ends here.
    unsafe { rt.into_m().as_ref() }.word.leave(Place::Blocked);
    /// Takes the P back, or waits for one, as any call into the runtime does; also when a panic
    /// unwinds out of `f`.
    struct Return;
    impl Drop for Return {
        fn drop(&mut self) {
            if let Some(rt) = current::enter() {
                emit::call_stop(rt.m());
            }
        }
    }
    let _return = Return;
    f()
}

/// Gives the P of `m` away ahead, because its goroutine leaves the runtime and most likely blocks
/// without announcing it; sysmon would take the P only after two looks. Keeps it if nothing waits
/// for it and other Ms would find whatever becomes runnable.
#[cold]
pub(super) fn give_p_ahead(sched: &Sched, m: &M) {
    m.word.clear_attention(GIVE_P);
    let pp = m.p();
    if !run::has_work_for(sched, pp) && (pp.is_reserved || retake::has_others_free(sched)) {
        return;
    }
    outside::leave_timers(sched, m);
    m.gave_p_ahead.set(Some(thread::n_blocks()));
    pp.stats.foreseen.bump();
    // The lock is held as by every thread that takes a P. A taker that finds that the M has moved
    // on clears `TAKEN` again, under this lock.
    let locked = sched.lock.lock();
    m.word.call_attention(TAKEN);
    m.release_p_ahead();
    drop(locked);
    retake::pass_on(sched, pp);
}

/// Checks a prediction when the goroutine on `m` is back, after its P was given away because it was
/// expected to block. If it did not block, it is no longer expected to.
#[cold]
fn check_prediction(sched: &Sched, m: &M, blocks_before: u64) {
    if let Some(gp) = m.current()
        && thread::n_blocks() == blocks_before
    {
        gp.flags.clear(Flag::BLOCKS);
        sched.stall.predictor().went_on(gp.kind());
    }
}

/// Gets a P for an M that is back in the runtime and whose P may have been taken. If none is free,
/// the goroutine is frozen until its turn comes.
#[cold]
#[inline(never)]
#[doc(alias = "exitsyscall")]
pub(crate) fn regain_p(sched: &Sched, m: &M) {
    if let Some(blocks_before) = m.gave_p_ahead.take() {
        check_prediction(sched, m, blocks_before);
    }
    let mut locked = sched.lock.lock();
    m.word.clear_attention(TAKEN);
    if m.has_p() {
        // The taker came too late, or the P was given back.
        emit::show_p(m);
        return;
    }
    emit::call_stop_without_p(m);
    if !m.stopped_p.get().is_null() {
        world::await_stopped_p(sched, m, locked);
        m.p().stats.regained.bump();
        return;
    }
    let latency = m.current().is_some_and(|gp| gp.flags.has(Flag::LATENCY));
    if let Some(id) = free_p(sched, &mut locked, latency) {
        m.acquire_p(sched.p(id));
        drop(locked);
        sched.stall.bell.ring();
        m.p().advance_tick();
        m.p().stats.regained.bump();
        return;
    }
    // Every P is busy. The goroutine waits for its turn, and its thread with it.
    emit::go_freeze(m, Freeze::NoP);
    let frozen = freeze::freeze(m);
    frozen.queue(sched, &mut locked);
    drop(locked);
    bell::watch_crowd(sched);
    frozen.wait_for_turn(sched);
    m.p().stats.regained.bump();
}

/// Takes an idle P, or one that waits for the helper to make an M: this M exists already, and the
/// helper may be waiting for a lock that its goroutine holds.
fn free_p(sched: &Sched, locked: &mut Locked, latency: bool) -> Option<u32> {
    let idle_ps = &mut locked.idle_ps;
    let id =
        if latency { idle_ps.take_any(sched.rest.idle()) } else { idle_ps.take(sched.rest.idle()) };
    if id.is_some() {
        return id;
    }
    let (id, start) = locked.roster.orphans().pop()?;
    if !latency && sched.rest.idle().is_reserved(id) {
        locked.roster.orphans().push(id, start);
        return None;
    }
    if start == Start::Spinning {
        sched.rest.withdraw_spinner();
    }
    Some(id)
}

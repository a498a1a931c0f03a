//! Bound goroutines, which must run on one M: one mechanism for all of them.
//!
//! A bound M runs its goroutine and nothing else. While the goroutine waits, the M gives its P away
//! and sleeps. The M that finds the goroutine in a queue lends its own P to the bound M, wakes it,
//! and goes to sleep.
//!
//! There can be several reasons at once: user code locked the goroutine to its thread, perhaps more
//! than once; the goroutine parks while it is panicking; it was preempted, on request or by force;
//! it waits for a P after a blocking call. Each reason counts one, and the goroutine is free when
//! none is left. The count is kept in the M, which a bound goroutine cannot leave.
//!
//! # Invariants
//! - An M is bound to a goroutine if and only if the goroutine is bound to the M, and then
//!   `n_bindings` is at least one.
//! - Only user code's reasons outlast a call into the runtime. So a goroutine that ends bound was
//!   locked by user code, which may have changed its thread. That thread ends too.
//!
//! GO: proc.go stoplockedm, startlockedm, lockOSThread, gdestroy, handoffp.

use crate::gmp::flags::Flag;
use crate::gmp::{G, M};
use crate::sched::Sched;
use crate::sched::rest::Start;
use crate::sched::run::{Found, Next};
use crate::sched::{outside, rest, stall};
use crate::trace::emit;
use heist_core::sync::{AtomicU64, Ordering};
use heist_trace::record::Found as Origin;
use std::ptr::{NonNull, null};

/// Adds a reason for a goroutine to stay on the M it runs on.
#[doc(alias = "dolockOSThread")]
pub(crate) fn bind(m: &M, gp: &G) {
    let n = m.n_bindings.get();
    if n == 0 {
        gp.bound_m.set(m);
        m.bound_g.set(gp);
    }
    check(m, gp);
    let Some(n) = n.checked_add(1) else {
        heist_core::throw!("bind: too many bindings of M{}", m.id);
    };
    m.n_bindings.set(n);
}

/// Takes away one reason for a goroutine to stay on its M.
#[doc(alias = "dounlockOSThread")]
pub(crate) fn unbind(m: &M, gp: &G) {
    check(m, gp);
    let Some(n) = m.n_bindings.get().checked_sub(1) else {
        heist_core::throw!("unbind: M{} is not bound", m.id);
    };
    m.n_bindings.set(n);
    if n == 0 {
        gp.bound_m.set(null());
        m.bound_g.set(null());
    }
}

/// Locks a goroutine to the M it runs on, for user code. A dump names this reason. Returns a number
/// that stands for all locks of the goroutine until the last is taken away. The number is unique in
/// the process: the next lock after that gets a new one.
#[doc(alias = "LockOSThread")]
pub(crate) fn lock(m: &M, gp: &G) -> u64 {
    static N_LOCKED: AtomicU64 = AtomicU64::new(0);
    bind(m, gp);
    if m.n_locks.get() == 0 {
        m.lock_number.set(N_LOCKED.fetch_add(1, Ordering::Relaxed));
    }
    m.n_locks.set(m.n_locks.get() + 1);
    gp.flags.set(Flag::LOCKED);
    m.lock_number.get()
}

/// Whether the lock with this number still holds the goroutine on this M.
pub(crate) fn is_locked(m: &M, number: u64) -> bool {
    m.n_locks.get() != 0 && m.lock_number.get() == number
}

/// Takes away one lock of user code.
#[doc(alias = "UnlockOSThread")]
pub(crate) fn unlock(m: &M, gp: &G) {
    unbind(m, gp);
    let Some(n) = m.n_locks.get().checked_sub(1) else {
        heist_core::throw!("unlock: M{} is not locked", m.id);
    };
    m.n_locks.set(n);
    if n == 0 {
        gp.flags.clear(Flag::LOCKED);
    }
}

/// Notes that the goroutine has ended. If it was bound, its M ends too. The M keeps `bound_g`, so
/// that it comes to [`wait_for_bound`] before it runs anything else.
pub(crate) fn end(m: &M, gp: &G) {
    if !gp.bound_m.get().is_null() {
        check(m, gp);
        gp.bound_m.set(null());
        m.ends.set(true);
    }
}

fn check(m: &M, gp: &G) {
    if !std::ptr::eq(m.bound_g.get(), gp) || !std::ptr::eq(gp.bound_m.get(), m) {
        heist_core::throw!("bound: M{} and its goroutine disagree", m.id);
    }
}

/// Sleeps until another M has found the goroutine of this M and lends a P for it. None: the thread
/// ends, because its goroutine did or because the runtime has stopped.
#[doc(alias = "stoplockedm")]
pub(crate) fn wait_for_bound(sched: &Sched, m: &M) -> Option<Next> {
    if m.has_p() {
        outside::leave_timers(sched, m);
        let pp = m.release_p();
        stall::handoff_p(sched, pp);
    }
    if m.ends.get() {
        return None;
    }
    sched.stats.m_parks.add_shared(1);
    emit::m_park(m);
    m.note.sleep(&m.doorbell);
    emit::m_unpark(m);
    if !matches!(rest::take_over(sched, m), Found::Retry) {
        return None;
    }
    let gp = NonNull::new(m.bound_g.get().cast_mut())?;
    Some(Next::fresh(gp, Origin::Bound))
}

/// Lends this M's P to the M that must run `gp`, and sleeps. False: the thread of this M ends,
/// because the runtime has stopped or because the M was surplus for too long.
#[doc(alias = "startlockedm")]
pub(crate) fn lend_p(sched: &Sched, m: &M, gp: NonNull<G>) -> bool {
    // SAFETY: the goroutine was just found, so it is valid and this M's to move.
    let owner = unsafe { gp.as_ref() }.bound_m.get().cast_mut();
    let Some(owner) = NonNull::new(owner) else {
        heist_core::throw!("lend_p: the goroutine is not bound");
    };
    let pp = m.release_p();
    // SAFETY: a bound M sleeps, or is about to, while its goroutine is in a queue; only the thread
    // that took the goroutine out of the queue wakes it.
    unsafe { rest::hand_over(sched, owner, pp, Start::Working) };
    !matches!(rest::stop_m(sched, m), Found::Leave)
}

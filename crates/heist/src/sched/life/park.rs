//! Parking, waking and yielding, as the rest of the library sees them.
//!
//! # park and ready
//! A waker must be able to find a goroutine that waits, and must not run it before it has left its
//! stack. So parking has two halves. The goroutine first switches to the scheduler. There, off the
//! goroutine's stack, its status becomes `Waiting`, and only then the commit function runs, which
//! releases the lock or publishes the waiter. A waker that finds the waiter therefore finds it
//! ready to run. If the commit function sees that what the goroutine waits for has happened, it
//! refuses, and the goroutine continues at once.
//!
//! GO: proc.go gopark, goready, Gosched.

use crate::current::InRuntime;
use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::{Commit, Request, Seal};
use crate::sched::Sched;
use crate::sched::life::cancel::Shield;
use crate::sched::threads::bound;
use crate::sched::{rest, run};
use crate::trace::emit;
use heist_core::sync::Ordering;
use heist_core::timer_heap::NEVER;
use std::ptr::NonNull;

/// Parks the calling goroutine until it is claimed.
///
/// # Safety
/// `commit` may be called with `arg` on the scheduler's stack. Unless the wait is sealed, a
/// canceller may wake the goroutine while `commit` runs.
#[doc(alias = "gopark")]
pub(crate) unsafe fn park(
    rt: InRuntime,
    reason: WaitReason,
    seal: Seal,
    commit: Commit,
    arg: *mut (),
) -> (InRuntime, Woken) {
    // SAFETY: passed on.
    unsafe { park_until(rt, reason, seal, commit, arg, NEVER) }
}

/// As [`park`], with a deadline in [`clock::now_ns`](crate::sys::clock::now_ns) time, or [`NEVER`].
/// At the deadline the clock claims the goroutine, and the result is [`Woken::TimedOut`].
///
/// This is inlined into every function that waits. After a switch the CPU mispredicts every return,
/// because the calls that belong to them were made before another goroutine ran
/// (docs/design/costs.md). So there should be as few functions as possible between the switch and
/// user code.
///
/// # Safety
/// As for [`park`].
#[inline(always)]
pub(crate) unsafe fn park_until(
    rt: InRuntime,
    reason: WaitReason,
    seal: Seal,
    commit: Commit,
    arg: *mut (),
    deadline_ns: u64,
) -> (InRuntime, Woken) {
    let gp = rt.goroutine();
    gp.set_wait_reason(reason);
    gp.set_waits_since(rt.sched().life.minute());
    gp.woken.set(Woken::Ready);
    gp.coro.set_waits_on(arg);
    rt.m().request.set(Request::Park { commit, arg, seal, deadline_ns });
    let rt = switch_out(rt, gp);
    (rt, gp.woken.get())
}

/// Lets every other runnable goroutine run first, because the slice of the caller is over.
pub(crate) fn yield_preempted(rt: InRuntime) -> InRuntime {
    let gp = rt.goroutine();
    rt.m().request.set(Request::Preempted);
    switch_out(rt, gp)
}

/// Lets every other runnable goroutine run first.
#[doc(alias = "Gosched")]
#[inline]
pub(crate) fn yield_now(rt: InRuntime) -> InRuntime {
    let gp = rt.goroutine();
    rt.m().request.set(Request::Yield);
    switch_out(rt, gp)
}

/// Lets the goroutine that was just readied run at once, on what is left of the slice. The caller
/// goes to the end of this P's queue and not of the global one, because it does not have to be fair
/// to all goroutines.
#[doc(alias = "goyield")]
pub(crate) fn give_way(rt: InRuntime) -> InRuntime {
    let gp = rt.goroutine();
    // A bound goroutine would have to hand its P to another thread for this.
    if std::thread::panicking() || !gp.bound_m.get().is_null() || gp.coro.is_off_its_stack() {
        return rt;
    }
    rt.m().request.set(Request::GiveWay);
    switch_out(rt, gp)
}

/// Leaves the goroutine's stack. Most goroutines may come back on any thread.
#[inline]
fn switch_out(rt: InRuntime, gp: &G) -> InRuntime {
    if std::thread::panicking() || gp.coro.may_be_off_its_stack() {
        return switch_out_rarely(rt, gp);
    }
    suspend(rt, gp)
}

/// Leaves the stack of a goroutine that may have to come back to its thread. Either it is
/// panicking, and std counts panics per thread; or it is on a stack that user code made, which is
/// not searched when a goroutine moves.
#[cold]
#[inline(never)]
fn switch_out_rarely(rt: InRuntime, gp: &G) -> InRuntime {
    let unwinding = std::thread::panicking();
    if !unwinding && !gp.coro.is_off_its_stack() {
        return suspend(rt, gp);
    }
    bound::bind(rt.m(), gp);
    let shield = (unwinding && !gp.flags.has(Flag::GIVES_UP)).then(|| Shield::raise(gp));
    let rt = suspend(rt, gp);
    bound::unbind(rt.m(), gp);
    drop(shield);
    rt
}

#[inline(always)]
fn suspend(rt: InRuntime, gp: &G) -> InRuntime {
    // The evidence does not survive the switch: the goroutine may come back on another M.
    let _ = rt.into_m();
    // SAFETY: the calling goroutine.
    let m = unsafe { gp.coro.suspend() };
    // SAFETY: `m` is the M that resumed this goroutine, and its scheduler runs in the runtime.
    unsafe { InRuntime::from_switch(m) }
}

/// Makes a goroutine that the caller has claimed runnable. It runs next on this P, or, if it
/// belongs to another runtime, goes to the global queue of that one.
///
/// # Safety
/// The caller has claimed `gp`, and no thread has queued it since.
#[inline]
#[doc(alias = "goready")]
pub(crate) unsafe fn ready(rt: &InRuntime, gp: NonNull<G>) {
    let m = rt.holder();
    // SAFETY: claimed goroutines are valid.
    let home = unsafe { gp.as_ref() }.sched.get();
    if !std::ptr::eq(home, m.sched()) {
        // SAFETY: a goroutine's runtime outlives it; the rest is passed on.
        return unsafe { ready_from_outside(&*home, gp) };
    }
    m.p().stats.readied.bump();
    // SAFETY: claimed goroutines are valid.
    emit::go_unblock(&m.sched().recorder, unsafe { gp.as_ref() });
    // SAFETY: passed on.
    unsafe { run::push_next(m, gp) };
    rest::wake_p_for_next(m.sched(), &m.p());
}

/// Makes a claimed goroutine runnable from a thread that has no P of its runtime.
///
/// # Safety
/// As for [`ready`], and `sched` is its runtime.
pub(crate) unsafe fn ready_from_outside(sched: &Sched, gp: NonNull<G>) {
    // Once the goroutine is queued, only this count keeps the runtime from ending under this
    // thread: the goroutine may have been the last.
    // ORDERING: Relaxed: the thread that waits for zero has first seen the end of the goroutine,
    // and that comes after this.
    sched.life.external_wakers.fetch_add(1, Ordering::Relaxed);
    let n = sched.stats.readied.add_shared(1);
    // SAFETY: claimed goroutines are valid.
    run::maybe_sample_outside(sched, n, unsafe { gp.as_ref() });
    sched.stats.global_put.add_shared(1);
    // SAFETY: as above.
    emit::go_unblock(&sched.recorder, unsafe { gp.as_ref() });
    // SAFETY: passed on.
    unsafe { run::push_global(sched, gp) };
    rest::announce_work(sched);
    // ORDERING: Release pairs with `shutdown::wait_for_external_wakers`: this thread does not use
    // the scheduler after this.
    sched.life.external_wakers.fetch_sub(1, Ordering::Release);
}

/// Wakes a claimed goroutine from wherever the caller is.
///
/// # Safety
/// As for [`ready`].
#[inline]
pub(crate) unsafe fn ready_anywhere(rt: Option<&InRuntime>, gp: NonNull<G>) {
    match rt {
        // SAFETY: passed on.
        Some(rt) => unsafe { ready(rt, gp) },
        // SAFETY: passed on; a goroutine's runtime outlives it.
        None => unsafe { ready_from_outside(&*gp.as_ref().sched.get(), gp) },
    }
}

/// In chaos mode, yields at random. For the beginning of operations that may park.
#[inline]
pub(crate) fn chaos_point(rt: InRuntime) -> InRuntime {
    if rt.m().p().is_unusual { disturb(rt) } else { rt }
}

#[cold]
fn disturb(rt: InRuntime) -> InRuntime {
    let now = rt.holder().p().with_local(|local| {
        local.chaos.as_mut().is_some_and(|chaos| chaos.next_u32().is_multiple_of(4))
    });
    if now { yield_now(rt) } else { rt }
}

/// IN-12: a goroutine whose commit function refuses continues at once, on the same slice, before
/// any goroutine that waits.
#[test]
fn a_refused_park_goes_on_at_once() {
    unsafe fn refuse(_: NonNull<G>, _: *mut ()) -> bool {
        false
    }
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { crate::Runtime::builder().procs(1).build() }.expect("the runtime starts");
    rt.run(|| {
        let other = crate::go(|| ());
        let rt = crate::current::enter().expect("a goroutine");
        let (m, tick) = (rt.m().id, rt.m().p().tick());
        // SAFETY: the function uses nothing.
        let (rt, woken) =
            unsafe { park(rt, WaitReason::Sleep, Seal::Open, refuse, std::ptr::null_mut()) };
        let same = (rt.m().id, rt.m().p().tick()) == (m, tick);
        drop(rt);
        assert_eq!((woken, same, other.is_finished()), (Woken::Ready, true, false));
        other.join().expect("it does not panic");
    });
}

/// A goroutine that was cancelled before it parked is not claimed by a waker that finds it in a
/// queue afterwards.
#[test]
fn a_cancelled_goroutine_is_not_served() {
    use std::sync::atomic::AtomicBool;
    /// Does what a waker does that waits for the lock which the commit function releases.
    unsafe fn serve(gp: NonNull<G>, served: *mut ()) -> bool {
        // SAFETY: records are never unmapped.
        let status = &unsafe { gp.as_ref() }.status;
        let claimed = status.waiting().is_some_and(|ticket| status.claim(ticket));
        // SAFETY: the flag outlives the goroutine's wait.
        unsafe { &*served.cast::<AtomicBool>() }.store(claimed, Ordering::Relaxed);
        if claimed {
            // SAFETY: just claimed.
            unsafe { ready_from_outside(&*gp.as_ref().sched.get(), gp) };
        }
        true
    }
    // SAFETY: the goroutines keep nothing across a park that is bound to a thread.
    let rt = unsafe { crate::Runtime::builder().procs(1).build() }.expect("the runtime starts");
    rt.run(|| {
        for cancelled in [false, true] {
            let parked = crate::go(move || {
                let rt = crate::current::enter().expect("a goroutine");
                if cancelled {
                    super::cancel::mark(rt.goroutine());
                }
                let served = AtomicBool::new(false);
                let arg = (&raw const served).cast_mut().cast();
                // SAFETY: the flag stays here.
                let (rt, woken) = unsafe { park(rt, WaitReason::Sleep, Seal::Open, serve, arg) };
                drop(rt);
                (woken, served.load(Ordering::Relaxed))
            });
            let expected = if cancelled { (Woken::Cancelled, false) } else { (Woken::Ready, true) };
            assert_eq!(parked.join().expect("it does not park again"), expected);
        }
    });
}

//! Ending a goroutine early: cancellation from outside, exit from inside.
//!
//! Both unwind the goroutine, so that destructors run. The payload of that unwinding cannot be
//! swallowed: code that catches it and drops it starts the unwinding again, and code that keeps it
//! is unwound at its next park.
//!
//! # Without unwinding
//! A program that is built with `panic = "abort"` cannot unwind: beginning to would end the
//! process. There a goroutine that is cancelled is only marked. The mark is seen by a goroutine
//! that has not begun, which is dropped with its closure, and by code that asks
//! [`goroutine::is_cancelled`](crate::goroutine::is_cancelled). A goroutine that waits goes on
//! waiting, and a shutdown leaves it where it is.

use super::spawn;
use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::g::{WaitReason, Woken};
use crate::gmp::m::Seal;
use crate::sched::life::park;
use crate::sched::{Phase, Sched};
use crate::sys::membarrier::heavy_fence;
use crate::sys::stderr;
use std::ptr::NonNull;
use std::sync::{Arc, Weak};

/// Whether goroutines can be unwound.
pub(crate) const CAN_UNWIND: bool = cfg!(panic = "unwind");

/// Why a goroutine unwinds on purpose.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    Cancelled,
    Exited,
}

/// The payload of an unwinding that ends the goroutine.
#[derive(Debug)]
pub(crate) struct Ending {
    why: Why,
    /// The id of the goroutine that ends, and its runtime. As long as this reference exists, no
    /// other runtime has the same address.
    whose: Option<(u64, Weak<Sched>)>,
    /// Whether dropping this starts the unwinding again.
    armed: bool,
}

impl Ending {
    /// Returns the reason, and makes dropping this harmless. For the catch at the goroutine's base.
    pub(crate) fn disarm(mut self) -> Why {
        self.armed = false;
        self.why
    }

    /// Whether this ends the calling goroutine.
    fn is_of_caller(&self) -> bool {
        match (&self.whose, current::goroutine()) {
            (Some((id, sched)), Some(gp)) => {
                *id == gp.id.get() && std::ptr::eq(sched.as_ptr(), gp.sched.get())
            }
            _ => false,
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        // Another goroutine or thread may have been handed this as the result of a catch. It is not
        // the one that ends.
        if self.armed && !std::thread::panicking() && self.is_of_caller() {
            begin(self.why);
        }
    }
}

fn begin(why: Why) -> ! {
    let whose = current::goroutine().map(|gp| {
        // SAFETY: the calling goroutine's runtime outlives it.
        let sched = unsafe { &*gp.sched.get() };
        (gp.id.get(), Arc::downgrade(&sched.life.share()))
    });
    // ALLOC: in user code, on the goroutine that ends.
    std::panic::resume_unwind(Box::new(Ending { why, whose, armed: true }))
}

/// Unwinds the calling goroutine to its end, in user code.
pub(crate) fn unwind(why: Why) -> ! {
    if !CAN_UNWIND {
        stay(why);
    }
    if let Some(gp) = current::goroutine() {
        gp.flags.set(Flag::EXITING);
    }
    begin(why)
}

/// Stays here forever, because the calling goroutine ends and cannot be unwound.
#[cold]
fn stay(why: Why) -> ! {
    if why == Why::Exited {
        stderr::report(format_args!(
            "fatal error: heist::exit_current: a program that is built with panic = \"abort\" \
             cannot unwind a goroutine\n"
        ));
        stderr::exit_now(2);
    }
    // The runtime shuts down and leaves this goroutine behind.
    loop {
        match current::enter() {
            // SAFETY: there is nothing to commit, and no waker knows of this wait.
            Some(rt) => drop(unsafe {
                park::park(rt, WaitReason::SelectNoCases, Seal::Open, forever, std::ptr::null_mut())
            }),
            None => std::thread::park(),
        }
    }
}

unsafe fn forever(_: NonNull<G>, _: *mut ()) -> bool {
    true
}

/// Whether a goroutine must not begin to wait: it was cancelled, and can be unwound.
#[inline]
pub(crate) fn forbids_waiting(gp: &G) -> bool {
    CAN_UNWIND && gp.is_cancelled() && !gp.flags.has(Flag::UNCANCELLABLE)
}

/// Whether nothing unwinds the calling goroutine, though it may have been cancelled: it runs
/// destructors because it ends, or must not leave what it is doing.
pub(crate) fn is_spared(gp: &G) -> bool {
    std::thread::panicking() || gp.flags.has(Flag::UNCANCELLABLE)
}

/// Protects its goroutine, the caller, from being unwound by cancellation until it is dropped.
pub(crate) struct Shield<'a> {
    me: &'a G,
    was_up: bool,
}

impl<'a> Shield<'a> {
    pub(crate) fn raise(me: &'a G) -> Self {
        let was_up = me.flags.has(Flag::UNCANCELLABLE);
        me.flags.set(Flag::UNCANCELLABLE);
        Self { me, was_up }
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        if !self.was_up {
            self.me.flags.clear(Flag::UNCANCELLABLE);
        }
    }
}

/// While this value lives, a canceller ends the waits of the calling goroutine, which is panicking.
/// The waits then fail, because the goroutine cannot be unwound a second time.
pub(crate) struct GivingUp(&'static G);

impl GivingUp {
    /// None if the caller is not panicking: then cancellation unwinds it.
    pub(crate) fn if_panicking(rt: &InRuntime) -> Option<Self> {
        std::thread::panicking().then(|| {
            rt.goroutine().flags.set(Flag::GIVES_UP);
            Self(rt.goroutine())
        })
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.flags.clear(Flag::GIVES_UP);
    }
}

/// Whether the calling goroutine was cancelled, or will be, because its runtime shuts down.
pub(crate) fn will_be() -> bool {
    current::goroutine().is_some_and(|gp| {
        // SAFETY: the calling goroutine's runtime outlives it.
        gp.is_cancelled() || unsafe { &*gp.sched.get() }.phase() != Phase::Running
    })
}

/// Ends the calling goroutine if it was cancelled, or if it is ending already and caught that.
/// Every park point calls this.
#[inline]
pub(crate) fn check(rt: InRuntime) -> InRuntime {
    let gp = rt.goroutine();
    if CAN_UNWIND && gp.flags.has(Flag::CANCELLED | Flag::EXITING) {
        return check_slow(rt, gp);
    }
    rt
}

#[cold]
fn check_slow(rt: InRuntime, gp: &G) -> InRuntime {
    if is_spared(gp) {
        return rt;
    }
    let why = if gp.is_cancelled() { Why::Cancelled } else { Why::Exited };
    drop(rt);
    unwind(why)
}

/// Asks a goroutine to end, and wakes it if it waits.
///
/// `gp` must be alive, or at least not recycled: the caller holds its handle, or uses a record that
/// it knows to be in use.
pub(crate) fn cancel(rt: Option<&InRuntime>, gp: &G) {
    mark(gp);
    heavy_fence();
    wake_marked(rt, gp, None);
}

/// The first half of [`cancel`]: makes the next park of the goroutine unwind it. There must be a
/// heavy fence before the second half; one is enough for many goroutines.
pub(crate) fn mark(gp: &G) {
    gp.flags.set(Flag::CANCELLED);
}

/// The second half of [`cancel`]: wakes the goroutine if it is marked and waits. If `home` is
/// given, it is woken only if it belongs to that runtime: the record may be another goroutine's by
/// now.
pub(crate) fn wake_marked(rt: Option<&InRuntime>, gp: &G, home: Option<&Sched>) {
    // The goroutine begins to wait before it reads the flag. The canceller set the flag before it
    // reads the status, with the heavy fence between. So one of the two sees the other. The claim
    // succeeds only for the wait during which all the conditions held.
    let is_meant = || {
        gp.is_cancelled()
            && !gp.flags.has(Flag::UNCANCELLABLE)
            // An unborn goroutine and an idle task need no unwinding.
            && (CAN_UNWIND || gp.flags.has(Flag::UNBORN) || gp.is_idle_task())
            && home.is_none_or(|home| std::ptr::eq(gp.sched.get(), home))
    };
    if gp.status.claim_if(is_meant) {
        gp.woken.set(Woken::Cancelled);
        if gp.is_idle_task() {
            // SAFETY: just claimed, so this is still the record of that task.
            unsafe { gp.task_word() }.claimed_by_canceller();
        }
        // SAFETY: a goroutine's runtime outlives it.
        spawn::count_one_born(unsafe { &*gp.sched.get() }, gp);
        // SAFETY: just claimed.
        unsafe { park::ready_anywhere(rt, NonNull::from(gp)) };
    }
}

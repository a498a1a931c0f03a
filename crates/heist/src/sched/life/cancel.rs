//! Ending a goroutine early: cancellation from outside, exit from inside.
//!
//! Both unwind the goroutine, so that destructors run. The payload of that unwinding cannot be
//! swallowed: code that catches it and drops it starts the unwinding again, and code that keeps it
//! is stopped at its next park.
//!
//! # Without unwinding
//! A program that is built with `panic = "abort"` cannot unwind anything: beginning it would end the process.
//! There a mark is only a mark. It is seen by a goroutine that has not begun, which is dropped with its
//! closure, and by who asks [`goroutine::is_cancelled`](crate::goroutine::is_cancelled); a goroutine that
//! waits goes on waiting, and a shutdown leaves it where it is.

use super::spawn;
use crate::current::{self, InRuntime};
use crate::gmp::G;
use crate::gmp::g::{self, WaitReason, Woken};
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
    /// Whose end it is, and in which runtime. As long as this is there, no other runtime has its address.
    whose: Option<(u64, Weak<Sched>)>,
    /// Whether dropping it starts the unwinding again.
    armed: bool,
}

impl Ending {
    /// Why, from who caught it at the goroutine's base. It does no harm any more.
    pub(crate) fn disarm(mut self) -> Why {
        self.armed = false;
        self.why
    }

    /// Whether it is the end of the calling goroutine.
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
        // Whoever was handed it, as the result of a catch, is not the one that ends.
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
        gp.set_flag(g::EXITING);
    }
    begin(why)
}

/// What is left to a goroutine that ends and cannot be unwound.
#[cold]
fn stay(why: Why) -> ! {
    if why == Why::Exited {
        stderr::report(format_args!(
            "fatal error: heist::exit_current: a program that is built with panic = \"abort\" cannot unwind \
             a goroutine\n"
        ));
        stderr::exit_now(2);
    }
    // Its runtime shuts down and leaves it behind.
    loop {
        match current::enter() {
            // SAFETY: there is nothing to commit, and nobody wakes it.
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

/// Whether a goroutine that begins to wait is not to: it was cancelled, and can be unwound.
#[inline]
pub(crate) fn forbids_waiting(gp: &G) -> bool {
    CAN_UNWIND && gp.is_cancelled() && !gp.has_flag(g::UNCANCELLABLE)
}

/// Whether nothing unwinds the calling goroutine, though it may have been cancelled: it runs destructors because
/// it ends, or must not leave what it does.
pub(crate) fn is_spared(gp: &G) -> bool {
    std::thread::panicking() || gp.has_flag(g::UNCANCELLABLE)
}

/// As long as it lives its goroutine, the caller, is not unwound by cancellation.
pub(crate) struct Shield<'a> {
    me: &'a G,
    was_up: bool,
}

impl<'a> Shield<'a> {
    pub(crate) fn raise(me: &'a G) -> Self {
        let was_up = me.has_flag(g::UNCANCELLABLE);
        me.set_flag(g::UNCANCELLABLE);
        Self { me, was_up }
    }
}

impl Drop for Shield<'_> {
    fn drop(&mut self) {
        if !self.was_up {
            self.me.clear_flag(g::UNCANCELLABLE);
        }
    }
}

/// As long as it lives, a canceller ends the waits of its goroutine, the caller, which is
/// panicking: they fail then, because nothing can unwind it a second time.
pub(crate) struct GivingUp(&'static G);

impl GivingUp {
    /// None if the caller is not panicking: then cancellation unwinds it.
    pub(crate) fn if_panicking(rt: &InRuntime) -> Option<Self> {
        std::thread::panicking().then(|| {
            rt.goroutine().set_flag(g::GIVES_UP);
            Self(rt.goroutine())
        })
    }
}

impl Drop for GivingUp {
    fn drop(&mut self) {
        self.0.clear_flag(g::GIVES_UP);
    }
}

/// Whether the calling goroutine was cancelled, or will be because its runtime shuts down.
pub(crate) fn will_be() -> bool {
    current::goroutine().is_some_and(|gp| {
        // SAFETY: the calling goroutine's runtime outlives it.
        gp.is_cancelled() || unsafe { &*gp.sched.get() }.phase() != Phase::Running
    })
}

/// Ends the calling goroutine if somebody cancelled it, or if it is ending already and caught
/// that. The check of every park point.
#[inline]
pub(crate) fn check(rt: InRuntime) -> InRuntime {
    let gp = rt.goroutine();
    if CAN_UNWIND && gp.has_flag(g::CANCELLED | g::EXITING) {
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
/// `gp` must be alive, or at least not recycled: the caller holds its handle, or looks at a record
/// that it knows to be in use.
pub(crate) fn cancel(rt: Option<&InRuntime>, gp: &G) {
    mark(gp);
    heavy_fence();
    wake_marked(rt, gp, None);
}

/// The first half of [`cancel`]: the next park of the goroutine unwinds it. Before the second half
/// there must be a heavy fence; one is enough for many goroutines.
pub(crate) fn mark(gp: &G) {
    gp.set_flag(g::CANCELLED);
}

/// The second half of [`cancel`]: wakes it if it is marked and waits. If `home` is given, only if it is a
/// goroutine of that runtime: the record may be another's by now.
pub(crate) fn wake_marked(rt: Option<&InRuntime>, gp: &G, home: Option<&Sched>) {
    // The goroutine began to wait before it looks at the flag; this set the flag before it looks
    // at the wait, with the heavy fence between. One of the two sees the other. The claim is of the wait in
    // which all of this was so.
    let is_meant = || {
        gp.is_cancelled()
            && !gp.has_flag(g::UNCANCELLABLE)
            // One that has not begun needs no unwinding.
            && (CAN_UNWIND || gp.has_flag(g::UNBORN))
            && home.is_none_or(|home| std::ptr::eq(gp.sched.get(), home))
    };
    if gp.status.claim_if(is_meant) {
        gp.woken.set(Woken::Cancelled);
        // SAFETY: a goroutine's runtime outlives it.
        spawn::count_one_born(unsafe { &*gp.sched.get() }, gp);
        // SAFETY: just claimed.
        unsafe { park::ready_anywhere(rt, NonNull::from(gp)) };
    }
}

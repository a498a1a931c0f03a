//! Which meter measures the calling goroutine.
//!
//! Meters nest, like the strands that they measure: `measure` puts one in front of that of the
//! caller, and `unmeasure` takes it away again, on the same goroutine.

use super::jobs::own_deque;
use crate::current;
use crate::gmp::meter::Meter;
use crate::sys::clock;
use std::ptr::{from_ref, null};

/// Whether the calling goroutine is measured.
pub(crate) fn is_measured() -> bool {
    // SAFETY: the caller is the goroutine itself, in the strand that is measured.
    current::goroutine().and_then(|gp| unsafe { gp.coro.deque()?.meter() }).is_some()
}

/// Calls `f` with what measures the calling goroutine, if anything does. In the runtime: so the
/// goroutine is not preempted meanwhile.
pub(crate) fn with_meter<R>(f: impl FnOnce(&Meter<'static>) -> R) -> Option<R> {
    let rt = current::enter()?;
    // SAFETY: the caller is the goroutine itself, in the strand that is measured.
    unsafe { rt.goroutine().coro.deque()?.meter() }.map(f)
}

/// Lets `meter` measure the calling goroutine from now on. The meter that did so pauses, and is
/// returned, or null. None: there is no memory, or no goroutine.
///
/// # Safety
/// The caller does not leave the frame with the meter before it calls [`unmeasure`].
pub(crate) unsafe fn measure(meter: &Meter<'_>) -> Option<*const Meter<'static>> {
    let rt = current::enter()?;
    let deque = own_deque(rt.goroutine())?;
    rt.m().forking.set(null());
    let before = deque.set_meter(from_ref(meter).cast());
    let now_ns = clock::now_ns();
    // SAFETY: null, or the meter of a strand that calls the one of the caller.
    if let Some(before) = unsafe { before.as_ref() } {
        before.pause(now_ns);
    }
    meter.begin(now_ns);
    drop(rt);
    Some(before)
}

/// Ends what [`measure`] began, on the same goroutine. `before` is what that returned.
pub(crate) fn unmeasure(meter: &Meter<'_>, before: *const Meter<'static>) {
    let Some(rt) = current::enter() else {
        heist_core::throw!("unmeasure: the strand is no goroutine's");
    };
    let now_ns = clock::now_ns();
    meter.pause(now_ns);
    // SAFETY: the caller is the goroutine itself.
    let Some(deque) = (unsafe { rt.goroutine().coro.deque() }) else {
        heist_core::throw!("unmeasure: the goroutine has no deque");
    };
    if !std::ptr::eq(deque.set_meter(before), from_ref(meter).cast()) {
        // On stacks that another library switches, strands can do that.
        heist_core::throw!("unmeasure: a strand ended before one that began after it");
    }
    // SAFETY: as in `measure`.
    if let Some(before) = unsafe { before.as_ref() } {
        before.begin(now_ns);
    } else if deque.is_active() {
        rt.m().forking.set(deque);
    }
}

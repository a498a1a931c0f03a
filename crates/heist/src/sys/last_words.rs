//! What the process does before it ends, however it ends: one function.
//!
//! It is called by `exit`, and by the ways in which the runtime ends the process itself.

use heist_core::sync::{AtomicPtr, AtomicU32, Ordering};
use std::ptr::null_mut;

static HOOK: AtomicPtr<()> = AtomicPtr::new(null_mut());
static SPOKEN: AtomicU32 = AtomicU32::new(0);
/// The process that set the function. A child that it forks has none of its threads.
static OWNER: AtomicU32 = AtomicU32::new(0);

/// Sets the function. It must work in any state: it takes no lock without a bound, and does not
/// allocate. Every caller sets the same one.
pub(crate) fn set(hook: fn()) {
    extern "C" fn at_exit() {
        speak();
    }
    OWNER.store(std::process::id(), Ordering::Relaxed);
    // ORDERING: AcqRel pairs with `speak`, which calls what this stored.
    if HOOK.swap(hook as *mut (), Ordering::AcqRel).is_null() {
        // SAFETY: the function takes no arguments and does not unwind. If there is no memory to
        // register it, it is not called by `exit`.
        unsafe { libc::atexit(at_exit) };
    }
}

/// Calls the function, the first time, in the process that set it.
pub(crate) fn speak() {
    // ORDERING: see `set`.
    let hook = HOOK.load(Ordering::Acquire);
    let is_own = !hook.is_null() && OWNER.load(Ordering::Relaxed) == std::process::id();
    if is_own && SPOKEN.swap(1, Ordering::Relaxed) == 0 {
        // SAFETY: it was stored by `set` from a function of this type.
        unsafe { std::mem::transmute::<*mut (), fn()>(hook)() };
    }
}

//! `throw!`: the scheduler found its own state corrupted.
//!
//! A throw is a bug of heist, never of the user: continuing would lose or duplicate goroutines, so
//! nothing may catch it. The runtime installs a hook that dumps the scheduler and aborts; without a
//! hook (unit tests, models) it is a panic, so that a test can see it.

use std::fmt;
// Not loom's: the hook is set once before any model runs and is not part of a protocol.
use std::sync::OnceLock;

/// The hook that the runtime installs: it reports and aborts, without allocating.
pub type Hook = fn(fmt::Arguments<'_>) -> !;

static HOOK: OnceLock<Hook> = OnceLock::new();

/// Installs the hook that ends the process. The first one stays.
pub fn set_hook(hook: Hook) {
    // A second runtime in the process installs the same hook again.
    let _ = HOOK.set(hook);
}

/// Ends the process (or panics where no hook is installed). Use [`throw!`](crate::throw!).
#[cold]
#[inline(never)]
pub fn throw(what: fmt::Arguments<'_>) -> ! {
    match HOOK.get() {
        Some(hook) => hook(what),
        None => panic!("throw: {what}"),
    }
}

/// Reports an impossible scheduler state and ends the process.
///
/// The text starts with the name of the function that noticed it.
#[macro_export]
macro_rules! throw {
    ($($text:tt)+) => { $crate::throw::throw(::std::format_args!($($text)+)) };
}

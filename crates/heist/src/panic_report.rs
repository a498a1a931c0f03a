//! Panics of goroutines, reported with the goroutine.
//!
//! The first runtime of a process puts a hook in front of the existing one. It adds the number, the
//! name and the spawn site of the goroutine, which the name of a thread does not show.

use crate::current;
use crate::sched::PanicPolicy;
use std::any::Any;
use std::io::{Write, stderr};
use std::panic::PanicHookInfo;
use std::sync::Once;

/// The text of a panic's payload, if it has one.
pub(crate) fn text(payload: &(dyn Any + Send)) -> Option<&str> {
    payload
        .downcast_ref::<&'static str>()
        .copied()
        .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
}

/// The text of a panic's payload, or a substitute.
pub(crate) fn message(payload: &(dyn Any + Send)) -> &str {
    text(payload).unwrap_or("a value that is not text")
}

/// Puts the hook in place, once per process.
pub(crate) fn install() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| report(info, &*before)));
    });
}

fn report(info: &PanicHookInfo<'_>, before: &(dyn Fn(&PanicHookInfo<'_>) + Send + Sync)) {
    let Some(gp) = current::goroutine() else {
        return before(info);
    };
    // SAFETY: a goroutine's runtime outlives it.
    let sched = unsafe { &*gp.sched.get() };
    if sched.config.on_panic == PanicPolicy::Abort {
        // It is reported when it reaches the goroutine's base: until then user code may catch it.
        return;
    }
    before(info);
    let id = gp.id.get();
    let name = gp.name().map(|name| format!(" '{name}'")).unwrap_or_default();
    // A failed write is ignored: a panic in the hook would end the process.
    let _ = match gp.spawn_site() {
        Some(site) => {
            writeln!(stderr(), "note: in goroutine {id}{name}, spawned at {site}")
        }
        None => writeln!(stderr(), "note: in goroutine {id}{name}"),
    };
}

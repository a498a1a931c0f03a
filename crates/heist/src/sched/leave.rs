//! Leaving the runtime when somebody wants something of the goroutine.

use super::park;
use crate::coro::overflow;
use crate::current::InRuntime;
use crate::gmp::M;
use heist_core::m_word::{OVERFLOW, PREEMPT, Place};
use std::ptr::NonNull;

/// Goes back to user code by the long way: lets others run first if that was asked for, and raises
/// the panic of a stack that ran out inside the runtime.
#[cold]
#[inline(never)]
pub(crate) fn with_attention(m: NonNull<M>) {
    // SAFETY: the M of the calling thread is alive, and in the runtime.
    let mut here = unsafe { m.as_ref() };
    if here.word.attention() & PREEMPT != 0 && here.current().is_some() {
        here.word.clear_attention(PREEMPT);
        here.p().stats.preempted.bump();
        // SAFETY: as above.
        let rt = park::yield_now(unsafe { InRuntime::from_switch(m) });
        // SAFETY: the M that resumed this goroutine is alive.
        here = unsafe { rt.into_m().as_ref() };
    }
    let overflowed = here.word.attention() & OVERFLOW != 0;
    here.word.leave(Place::User);
    if overflowed {
        overflow::after_runtime();
    }
}

//! Leaving the runtime when somebody wants something of the goroutine.

use super::{bell, blocking};
use crate::current::InRuntime;
use crate::gmp::M;
use crate::sched::life::park;
use crate::sched::threads::bound;
use crate::sched::world;
use crate::tls_report;
use heist_core::m_word::{GIVE_P, MOVED, PREEMPT, Place, STOP};
use std::ptr::NonNull;

/// Goes back to user code by the long way: lets others run first if that was asked for, waits if the
/// world stops, and gives its P away if it is going to block.
#[cold]
#[inline(never)]
pub(crate) fn with_attention(m: NonNull<M>) {
    // SAFETY: the M of the calling thread is alive, and in the runtime.
    let here = unsafe { m.as_ref() };
    if here.word.attention() & PREEMPT != 0
        && let Some(gp) = here.current()
    {
        here.word.clear_attention(PREEMPT);
        here.p().stats.preempted.bump();
        bell::expect_no_hog(here.sched());
        // Only parks move a goroutine to another thread; this may be any call, made while user code
        // holds a thread-local. So it comes back to this M.
        bound::bind(here, gp);
        // SAFETY: as above.
        let rt = park::yield_now(unsafe { InRuntime::from_switch(m) });
        let _ = rt.into_m();
        bound::unbind(here, gp);
    }
    while here.word.attention() & STOP != 0 && here.current().is_some() {
        world::stop_here(here.sched(), here);
    }
    if here.word.attention() & GIVE_P != 0 {
        blocking::give_p_ahead(here.sched(), here);
    }
    let moved = here.word.attention() & MOVED != 0;
    if moved {
        here.word.clear_attention(MOVED);
    }
    here.word.leave(Place::User);
    if moved {
        tls_report::note();
    }
}

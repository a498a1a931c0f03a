//! Leaving the runtime when something is requested of the goroutine.

use super::blocking;
use super::sysmon::bell;
use crate::current::InRuntime;
use crate::gmp::M;
use crate::sched::life::park;
use crate::sched::threads::bound;
use crate::sched::world;
use crate::tls_report;
use heist_core::m_word::{GIVE_P, MOVED, PREEMPT, Place, STOP};
use std::ptr::NonNull;

/// Returns to user code and serves the requests on the way: lets other goroutines run first if that
/// was asked for, waits if the world stops, and gives the P away if the goroutine is expected to
/// block.
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
        // Only parks move a goroutine to another thread. This may be any call, made while user code
        // holds a reference to a thread-local, so the goroutine comes back to this M.
        bound::bind(here, gp);
        // SAFETY: as above.
        let rt = park::yield_preempted(unsafe { InRuntime::from_switch(m) });
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

//! Preemption: taking the processor from a goroutine that will not give it back.
//!
//! Asking comes first: every call into the runtime looks at the request when it leaves. A
//! goroutine that makes no calls is forced: a signal interrupts its thread, and the handler puts
//! the goroutine into the global queue, bound to this very thread, gives the P away and sleeps.
//! Whoever finds the goroutine lends the thread a P and wakes it; the handler returns and the
//! loop goes on. No thread-local, allocator or lock is ever seen half changed by another
//! goroutine, because the thread itself has stopped. docs/design/preemption.md has the protocol.

use crate::gmp::M;
use crate::sched::Sched;
use crate::sched::rest;
use crate::sys::thread;
use crate::sys::thread_state::{State, ThreadStates};
use heist_core::m_word::PREEMPT;
use heist_core::policy::FORCE_PERIOD_NS;

/// Asks the goroutine on `m` to let others run, and forces it if it does not listen. True if its
/// thread will be interrupted.
#[doc(alias = "preemptone")]
pub(crate) fn request(
    sched: &Sched,
    m: &M,
    now: u64,
    forced_ns: &mut u64,
    states: &mut ThreadStates,
) -> bool {
    m.word.call_attention(PREEMPT);
    if !sched.config.forced_preemption || now - *forced_ns < FORCE_PERIOD_NS {
        return false;
    }
    if !rest::has_taker(sched) {
        // Somebody must be there to take the P; the goroutine may own the allocator's lock, so
        // making a thread may have to wait for it.
        sched.threads.helper().ask_for_spare();
        return false;
    }
    // Not one that sleeps in a system call: it would be interrupted, and it uses no CPU. If that is not
    // known, the goroutine is stopped wherever it is: otherwise one that computes might never be.
    let runs = matches!(states.of_runner(m.tid()), State::Running | State::Unknown);
    if runs {
        *forced_ns = now;
        sched.stats.signals.add_shared(1);
        thread::interrupt(m.tid());
    }
    runs
}

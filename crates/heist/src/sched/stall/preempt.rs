//! Preemption: taking the P from a goroutine that does not give it back.
//!
//! Asking comes first: every call into the runtime checks for the request when it leaves. A
//! goroutine that makes no calls is forced. A signal interrupts its thread. The handler puts the
//! goroutine into the global queue, bound to this very thread, gives the P away and sleeps. The M
//! that finds the goroutine lends the thread a P and wakes it. The handler returns, and the
//! interrupted code continues. No other goroutine ever sees a half-changed thread-local, allocator
//! or lock, because the thread itself sleeps. docs/design/preemption.md has the protocol.

use crate::gmp::M;
use crate::sched::Sched;
use crate::sched::rest;
use crate::sys::thread;
use crate::sys::thread_state::{State, ThreadStates};
use crate::trace::emit;
use heist_core::m_word::PREEMPT;
use heist_core::policy::FORCE_PERIOD_NS;

/// Asks the goroutine on `m` to let others run, and forces it if it does not respond. True if its
/// thread will be interrupted.
#[doc(alias = "preemptone")]
pub(crate) fn request(
    sched: &Sched,
    m: &M,
    now: u64,
    forced_ns: &mut u64,
    states: &mut ThreadStates,
) -> bool {
    emit::preempt_ask(&sched.recorder, m);
    m.word.call_attention(PREEMPT);
    if !sched.config.forced_preemption || now - *forced_ns < FORCE_PERIOD_NS {
        return false;
    }
    if !rest::has_taker(sched) {
        // There must be an M that can take the P at once. The goroutine may own the allocator's
        // lock, so making a thread may have to wait for the goroutine.
        sched.threads.helper().ask_for_spare();
        return false;
    }
    // A thread that sleeps in a system call is not interrupted: the call would be, and the thread
    // uses no CPU. If the state of the thread is not known, the goroutine is preempted wherever it
    // is. Otherwise one that computes might never be preempted.
    let runs = matches!(states.of_runner(m.tid()), State::Running | State::Unknown);
    if runs {
        *forced_ns = now;
        sched.stats.signals.add_shared(1);
        emit::preempt_force(&sched.recorder, m);
        thread::interrupt(m.tid());
    }
    runs
}

//! Threads that are in user code without a P: they lost it in a blocking call, or while they had no
//! CPU.

use crate::gmp::M;
use crate::sched::Sched;
use crate::sys::thread;
use crate::sys::thread_state::{State, ThreadStates};
use crate::trace::emit;
use heist_core::m_word::{PREEMPT, Place};
use heist_core::policy::{WITHOUT_P_CPU_NS, WITHOUT_P_LOOKS, WITHOUT_P_PERIOD_NS};
use std::ptr::null;

/// The walk of sysmon over these threads.
pub(super) struct WithoutP {
    /// When they are looked at next.
    next_ns: u64,
    /// Where the next look begins.
    cursor: *const M,
}

fn is_without_p(m: &M) -> bool {
    m.word.stamp().place() == Place::User && !m.has_p()
}

/// Whether a thread without a P runs: it has used CPU time since this was last asked.
pub(super) fn any_runs(sched: &Sched) -> bool {
    let ran = |m: &M| {
        let (stamp, cpu_ns) = (m.word.stamp(), thread::cpu_ns(m.tid()).unwrap_or(0));
        let (seen, before_ns) = m.ran_without_p.replace((stamp, cpu_ns));
        seen == stamp && before_ns != cpu_ns
    };
    sched.threads.all_ms().iter().filter(|m| is_without_p(m)).fold(false, |any, m| ran(m) | any)
}

impl WithoutP {
    pub(super) const fn new() -> Self {
        Self { next_ns: 0, cursor: null() }
    }

    /// Looks at some of these threads, if it is time. A thread that sleeps in the call during which
    /// it lost its P is left alone. If one computes, more goroutines run than there are Ps, so it
    /// is interrupted, and then waits for a P.
    pub(super) fn look(&mut self, sched: &Sched, states: &mut ThreadStates, now: u64) {
        if now < self.next_ns || !sched.config.forced_preemption {
            return;
        }
        self.next_ns = now + WITHOUT_P_PERIOD_NS;
        let mut ms = sched.threads.all_ms().iter_from(self.cursor);
        for m in ms.by_ref().take(WITHOUT_P_LOOKS as usize).filter(|m| is_without_p(m)) {
            let stamp = m.word.stamp();
            let Some(cpu_ns) = thread::cpu_ns(m.tid()) else { continue };
            let (seen, since_ns) = m.seen_without_p.get();
            if seen != stamp {
                m.seen_without_p.set((stamp, cpu_ns));
            } else if cpu_ns.saturating_sub(since_ns) >= WITHOUT_P_CPU_NS
                && matches!(states.of_runner(m.tid()), State::Running | State::Unknown)
            {
                m.word.call_attention(PREEMPT);
                sched.stats.signals.add_shared(1);
                emit::preempt_force(&sched.recorder, m);
                thread::interrupt(m.tid());
            }
        }
        self.cursor = ms.next().map_or(null(), std::ptr::from_ref);
    }
}

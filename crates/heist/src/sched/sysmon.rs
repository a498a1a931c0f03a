//! sysmon: the thread that watches the others.
//!
//! It has no P and takes no lock that user code can hold. It looks at every P that is held:
//! - an M in an announced blocking call loses its P after one full round, if somebody can use it;
//! - an M in user code that has not moved since the last look, used no CPU time and sleeps in the
//!   kernel, is in a blocking call that nobody announced: it loses its P too;
//! - a goroutine that has run for a whole slice while others wait is asked to yield, then forced.
//!
//! Rounds are 20 us apart while there is something to do, up to 10 ms when not; when every P rests
//! it sleeps until one does not.
//!
//! GO: proc.go sysmon, retake.

use super::{Phase, Sched};
use crate::gmp::{M, P};
use crate::preempt;
use crate::sys::futex::Kernel;
use crate::sys::membarrier::heavy_fence;
use crate::sys::{clock, thread};
use heist_core::m_word::{Place, Stamp};
use heist_core::note::Futex;
use heist_core::policy::{
    SYSCALL_MAX_NS, SYSMON_IDLE_ROUNDS, SYSMON_NAP_MAX_NS, SYSMON_NAP_NS, SYSMON_REST_NS,
};
use heist_core::sync::{AtomicU32, Ordering};
use std::time::Duration;

/// How others reach sysmon when it sleeps for good.
pub(crate) struct Bell {
    asleep: AtomicU32,
}

impl Bell {
    pub(crate) fn new() -> Self {
        Self { asleep: AtomicU32::new(0) }
    }

    /// A P is no longer at rest: somebody must watch it.
    #[inline]
    pub(crate) fn ring(&self) {
        // ORDERING: SeqCst pairs with `sleep`: it says so before it counts the Ps at rest.
        if self.asleep.load(Ordering::SeqCst) != 0 && self.asleep.swap(0, Ordering::SeqCst) != 0 {
            Kernel.wake(&self.asleep);
        }
    }

    /// Sleeps until rung, unless `still` answers false.
    fn sleep(&self, still: impl FnOnce() -> bool) {
        // ORDERING: see `ring`.
        self.asleep.store(1, Ordering::SeqCst);
        if still() {
            // ORDERING: Acquire pairs with `ring`.
            while self.asleep.load(Ordering::Acquire) != 0 {
                Kernel.wait(&self.asleep, 1, None);
            }
        } else {
            self.asleep.store(0, Ordering::Relaxed);
        }
    }
}

/// What sysmon remembers of a P since its last look.
#[derive(Clone, Copy)]
struct Watch {
    tick: u32,
    /// When this tick was first seen.
    since_ns: u64,
    /// The M's word at the last look.
    stamp: Stamp,
    /// The thread's CPU time at the last look, if it was asked.
    cpu_ns: Option<u64>,
    /// When it was last forced.
    forced_ns: u64,
}

impl Watch {
    const NEW: Self =
        Self { tick: u32::MAX, since_ns: 0, stamp: Stamp::NONE, cpu_ns: None, forced_ns: 0 };
}

/// The state of the watching thread.
pub(crate) struct Sysmon<'a> {
    sched: &'a Sched,
    watches: Vec<Watch>,
    /// Rounds in a row that had nothing to do.
    idle_rounds: u32,
    nap_ns: u64,
    /// When all Ps were first seen at rest.
    rest_since_ns: Option<u64>,
}

impl<'a> Sysmon<'a> {
    pub(crate) fn new(sched: &'a Sched) -> Self {
        Self {
            sched,
            // ALLOC: when the thread starts, for all Ps there can be.
            watches: vec![Watch::NEW; sched.procs() as usize],
            idle_rounds: 0,
            nap_ns: SYSMON_NAP_NS,
            rest_since_ns: None,
        }
    }

    /// Watches until the runtime has stopped.
    pub(crate) fn run(mut self) {
        thread::precise_naps();
        let nap = AtomicU32::new(0);
        while self.sched.phase() != Phase::Stopped {
            Kernel.wait(&nap, 0, Some(Duration::from_nanos(self.next_nap())));
            let now = clock::now_ns();
            if self.all_at_rest(now) {
                continue;
            }
            if self.look_at_all(now) {
                self.idle_rounds = 0;
            } else {
                self.idle_rounds = self.idle_rounds.saturating_add(1);
            }
        }
    }

    /// 20 us; after fifty rounds with nothing to do twice as much each time, up to 10 ms.
    fn next_nap(&mut self) -> u64 {
        if self.idle_rounds == 0 {
            self.nap_ns = SYSMON_NAP_NS;
        } else if self.idle_rounds > SYSMON_IDLE_ROUNDS {
            self.nap_ns = (2 * self.nap_ns).min(SYSMON_NAP_MAX_NS);
        }
        self.nap_ns
    }

    /// If every P rests, and has for a while, sleeps until one does not. True if there is nothing
    /// to look at.
    fn all_at_rest(&mut self, now: u64) -> bool {
        let sched = self.sched;
        let resting = || sched.idle.count() == sched.procs() && sched.phase() != Phase::Stopped;
        if !resting() {
            self.rest_since_ns = None;
            return false;
        }
        let since = *self.rest_since_ns.get_or_insert(now);
        if now - since < SYSMON_REST_NS {
            // A short pause of a busy program is not worth a wake-up at its end.
            self.nap_ns = SYSMON_NAP_MAX_NS;
            self.idle_rounds = self.idle_rounds.max(1);
            return true;
        }
        sched.bell.sleep(resting);
        self.rest_since_ns = None;
        self.idle_rounds = 0;
        true
    }

    /// Looks at every P. True if something was done.
    fn look_at_all(&mut self, now: u64) -> bool {
        let mut acted = false;
        for id in 0..self.sched.procs() {
            acted |= self.look_at(id, now);
        }
        acted
    }

    fn look_at(&mut self, id: u32, now: u64) -> bool {
        let sched = self.sched;
        let pp = sched.p(id);
        let watch = &mut self.watches[id as usize];
        // SAFETY: Ms live until the runtime has stopped and sysmon has ended.
        let Some(m) = (unsafe { pp.m().as_ref() }) else {
            *watch = Watch::NEW;
            return false;
        };
        let (tick, stamp) = (pp.tick(), m.word.stamp());
        if tick != watch.tick {
            *watch = Watch { tick, since_ns: now, stamp, ..Watch::NEW };
            return false;
        }
        let unmoved = stamp == watch.stamp;
        watch.stamp = stamp;
        match stamp.place() {
            Place::Runtime => false,
            Place::Blocked => {
                let long = now - watch.since_ns >= SYSCALL_MAX_NS;
                unmoved && (long || sched.wants_p_of(pp)) && sched.take_p(m, pp, stamp)
            }
            Place::User if !sched.somebody_waits(pp) => false,
            Place::User => {
                let before = watch.cpu_ns.take();
                if unmoved {
                    watch.cpu_ns = thread::cpu_ns(m.tid());
                    let slept = before.is_some() && before == watch.cpu_ns;
                    if slept && thread::is_asleep(m.tid()) && sched.take_p(m, pp, stamp) {
                        sched.stats.unannounced.add_shared(1);
                        return true;
                    }
                }
                let old = now - watch.since_ns >= sched.config.quantum_ns;
                old && preempt::request(sched, m, now, &mut watch.forced_ns)
            }
        }
    }
}

impl Sched {
    /// Whether a goroutine is runnable that this P keeps from running.
    fn somebody_waits(&self, pp: &P) -> bool {
        self.global_len().get() != 0 || !pp.is_empty()
    }

    /// Whether the P of an M in a blocking call would be of use to somebody.
    fn wants_p_of(&self, pp: &P) -> bool {
        !pp.queue.is_empty()
            || self.spinning.n() + self.idle.count() == 0
            || self.global_len().get() != 0
    }

    /// Takes the P of an M that blocks in the state `seen`, and gives it to somebody else.
    fn take_p(&self, m: &M, pp: &P, seen: Stamp) -> bool {
        let locked = self.lock.lock();
        if !std::ptr::eq(pp.m(), m) || !m.word.take(seen, heavy_fence) {
            return false;
        }
        m.release_p();
        drop(locked);
        self.stats.handoffs.add_shared(1);
        self.handoff_p(pp);
        true
    }
}

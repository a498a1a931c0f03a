//! Waiting for the outside world: the network and the clock.
//!
//! One M at a time waits in the poller, without a P. It says until when, so that others can see
//! whether it sleeps too long for them. Everybody else polls without waiting, one at a time.
//!
//! # The gate
//! `last_ns` is zero while somebody waits in the poller; who swaps zero in is that one. `busy` says
//! whether anybody is inside, because the poller's events have one place. Who wants to wait may find
//! somebody who looks. That takes a microsecond, unless the kernel has given the CPU to another
//! thread meanwhile: then it takes until that one's turn is over, and whoever is not needed sleeps.
//! Only one wants to wait at a time, so at most one sleeps here.
//!
//! # Why no timer is missed
//! A waiter publishes `until_ns`, fences and computes the earliest timer; if that is earlier than
//! what it published, it starts again. Who adds a timer fences and then reads `until_ns`. One of
//! the two sees the other.
//!
//! GO: proc.go findRunnable (netpoll), time.go wakeNetPoller, netpoll_epoll.go.

use super::find_runnable::{Found, Next, next_local};
use super::{Phase, Sched};
use crate::gmp::{G, M, g};
use crate::netpoll::poller::{Poller, Wait};
use crate::sys::clock;
use crate::sys::futex::Kernel;
use heist_core::list::List;
use heist_core::note::Futex;
use heist_core::policy::timers::{self as rules, Grain};
use heist_core::sync::{AtomicU32, AtomicU64, Ordering, fence};
use heist_core::timer_heap::NEVER;

/// Nobody is inside.
const FREE: u32 = 0;
/// Somebody is.
const INSIDE: u32 = 1;
/// Somebody is, and somebody sleeps until that one leaves.
const AWAITED: u32 = 2;

/// Looks at the gate before sleeping: as long as a look into the poller takes.
const SPINS: u32 = 100;

/// The poller of a runtime, and who is in it.
pub(crate) struct PollGate {
    pub(crate) poller: Poller,
    /// When somebody last polled; zero while somebody waits in the poller.
    last_ns: AtomicU64,
    /// Until when that one waits; zero: nobody waits.
    until_ns: AtomicU64,
    busy: AtomicU32,
    /// Since when that one waits, if timers are dense; else zero.
    dense_since_ns: AtomicU64,
    /// Short waits for a timer in a row. A hint.
    short_waits: AtomicU32,
}

impl PollGate {
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self {
            poller: Poller::new()?,
            last_ns: AtomicU64::new(clock::now_ns()),
            until_ns: AtomicU64::new(0),
            busy: AtomicU32::new(FREE),
            dense_since_ns: AtomicU64::new(0),
            short_waits: AtomicU32::new(0),
        })
    }

    /// When somebody last polled, or None while somebody waits in the poller.
    pub(crate) fn last_ns(&self) -> Option<u64> {
        // ORDERING: Acquire pairs with the end of a wait.
        let last = self.last_ns.load(Ordering::Acquire);
        (last != 0).then_some(last)
    }

    /// Until when somebody waits in the poller; zero if nobody does.
    #[cfg(test)]
    pub(super) fn until_ns(&self) -> u64 {
        // ORDERING: as everybody who looks whether it is too late.
        self.until_ns.load(Ordering::SeqCst)
    }

    /// Whether waits for timers were short lately: somebody may want to know which timers need not be exact.
    #[inline]
    pub(crate) fn waits_are_short(&self) -> bool {
        self.short_waits.load(Ordering::Relaxed) != 0
    }

    /// Whether a goroutine waits for a descriptor.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.poller.waiters() != 0
    }

    pub(super) fn enter(&self) -> bool {
        // ORDERING: Acquire: whoever was inside before has left its events alone.
        self.busy.compare_exchange(FREE, INSIDE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Claims the wait. False if somebody else has.
    pub(super) fn claim(&self) -> bool {
        // ORDERING: SeqCst: it is claimed before the timers are looked at again.
        self.last_ns.swap(0, Ordering::SeqCst) != 0
    }

    /// Somebody has looked, who found `last` in `last_ns` before. A claim that was made meanwhile
    /// stays: otherwise a second one could be made while the first one waits.
    pub(super) fn looked(&self, last: u64) {
        let now = clock::now_ns();
        // Whoever looked before this one left may have been faster; that is as good.
        let _ = self.last_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Enters as soon as whoever looks has left. For who has claimed the wait.
    pub(super) fn enter_to_wait(&self) {
        for _ in 0..SPINS {
            if self.enter() {
                return;
            }
            std::hint::spin_loop();
        }
        // ORDERING: as in `enter`.
        while self.busy.swap(AWAITED, Ordering::Acquire) != FREE {
            Kernel.wait(&self.busy, AWAITED, None);
        }
        // Nobody else sleeps here: there is one claim.
        self.busy.store(INSIDE, Ordering::Relaxed);
    }

    pub(super) fn leave(&self) {
        // ORDERING: Release: see `enter`.
        if self.busy.swap(FREE, Ordering::Release) == AWAITED {
            Kernel.wake(&self.busy);
        }
    }
}

impl Sched {
    /// Looks whether descriptors are ready, if nobody else is looking. The first that waited for one
    /// runs; only if there are more is somebody woken for them.
    pub(crate) fn poll_now(&self, m: &M) -> Option<Next> {
        self.run_woken(m, self.poll_without_waiting())
    }

    /// Runs the first of what an M found that was looking for work, and queues the others.
    pub(super) fn run_woken(&self, m: &M, woken: List<G>) -> Option<Next> {
        if woken.iter().any(G::is_classed) {
            // Who runs first, and where, its class decides.
            self.inject(m, woken);
            return next_local(m);
        }
        self.run_first(m, woken)
    }

    fn run_first(&self, m: &M, mut woken: List<G>) -> Option<Next> {
        let first = woken.pop_front()?;
        // SAFETY: just claimed, so it is valid.
        self.bear_one(unsafe { first.as_ref() });
        m.p().stats.readied.bump();
        self.inject(m, woken);
        Some(Next::fresh(first))
    }

    /// As `poll_now`, but hands back whoever waited.
    pub(crate) fn poll_without_waiting(&self) -> List<G> {
        let gate = &self.poll;
        let mut woken = List::new();
        if !gate.has_waiters() {
            return woken;
        }
        let Some(last) = gate.last_ns().filter(|_| gate.enter()) else { return woken };
        // SAFETY: this thread is through the gate.
        let delta = unsafe { gate.poller.poll(Wait::No, &mut woken) };
        gate.looked(last);
        gate.leave();
        gate.poller.waiters_gone(delta);
        woken
    }

    /// Waits in the poller until a descriptor is ready, a timer is due or the time is over, if nobody
    /// else does.
    /// None: there is nothing to wait for, or somebody else waits for it.
    ///
    /// The caller has no P.
    pub(crate) fn wait_in_poller(&self, m: &M, at_most_until: u64) -> Option<Found> {
        let gate = &self.poll;
        let until = self.earliest_timer();
        if until == NEVER && !gate.has_waiters() {
            return None;
        }
        if !gate.claim() {
            self.break_poller_after(until);
            return None;
        }
        // It is the one to wake up for the latency class.
        self.suit_turns(m, true);
        let woken = self.wait_inside(until, at_most_until);
        if woken.is_empty() && at_most_until != NEVER {
            return Some(Found::Nothing);
        }
        Some(self.come_back(m, woken))
    }

    fn wait_inside(&self, mut until: u64, at_most_until: u64) -> List<G> {
        let gate = &self.poll;
        let mut woken = List::new();
        gate.enter_to_wait();
        self.choose_grain(until);
        until = self.awake_at(until).min(at_most_until);
        loop {
            // ORDERING: SeqCst, and the fence: see "Why no timer is missed".
            gate.until_ns.store(until, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            let again = self.awake_at(self.earliest_timer_hint()).min(at_most_until);
            if again >= until {
                break;
            }
            until = again;
        }
        self.watch_waiter(until);
        let wait = if self.phase() == Phase::Stopped {
            Wait::No
        } else if until == NEVER {
            Wait::Forever
        } else {
            Wait::UntilNs(until)
        };
        self.stats.polls.add_shared(1);
        // SAFETY: this thread is through the gate.
        let delta = unsafe { gate.poller.poll(wait, &mut woken) };
        gate.until_ns.store(0, Ordering::Relaxed);
        gate.leave();
        // ORDERING: Release: the next one to wait finds `until_ns` cleared.
        gate.last_ns.store(clock::now_ns(), Ordering::Release);
        gate.poller.waiters_gone(delta);
        let n_ready = woken.len();
        self.run_all_timers(&mut woken);
        // The next one may wait already. It is a hint.
        let short_waits = gate.short_waits.load(Ordering::Relaxed);
        let short_waits = Grain::short_waits_after(short_waits, woken.len() - n_ready);
        gate.short_waits.store(short_waits, Ordering::Relaxed);
        woken
    }

    /// How exact the wait that begins is. For who is through the gate.
    fn choose_grain(&self, until: u64) {
        let gate = &self.poll;
        let now = clock::now_ns();
        let grain = Grain::of(now, until, gate.short_waits.load(Ordering::Relaxed));
        gate.short_waits.store(grain.short_waits, Ordering::Relaxed);
        gate.dense_since_ns.store(if grain.dense { now } else { 0 }, Ordering::Relaxed);
    }

    /// When the M that waits in the poller is to be awake for a timer.
    fn awake_at(&self, when: u64) -> u64 {
        // ORDERING: Relaxed: it is published with `until_ns`.
        match self.poll.dense_since_ns.load(Ordering::Relaxed) {
            0 => when,
            since => rules::awake_at(since, when, self.short_sleep_until()),
        }
    }

    /// Takes a P for what the poller brought, or leaves it to those who have one.
    fn come_back(&self, m: &M, woken: List<G>) -> Found {
        let mut locked = self.lock.lock();
        if self.phase() == Phase::Stopped {
            drop(locked);
            self.inject_without_p(woken);
            return Found::Leave;
        }
        let latency = woken.iter().any(|gp| gp.has_flag(g::LATENCY));
        let idle_ps = &mut locked.idle_ps;
        let id = if latency { idle_ps.take_any(&self.idle) } else { idle_ps.take(&self.idle) };
        let Some(id) = id else {
            drop(locked);
            self.inject_without_p(woken);
            // Nobody waits for the next timer now.
            self.bell
                .ring_before(self.earliest_timer_hint().saturating_add(self.config.wake_up_ns));
            return Found::Nothing;
        };
        m.acquire_p(self.p(id));
        drop(locked);
        self.suit_turns(m, self.idle.is_reserved(id));
        self.bell.ring();
        if latency {
            // Who runs first, and where, its class decides.
            self.inject(m, woken);
            return Found::Retry;
        }
        self.run_first(m, woken).map_or(Found::Retry, Found::Run)
    }

    /// Breaks the wait of whoever would sleep past `when`. True if somebody waits in the poller.
    pub(crate) fn break_poller_after(&self, when: u64) -> bool {
        // ORDERING: the caller has fenced after it wrote what it wants to be woken for.
        let until = self.poll.until_ns.load(Ordering::SeqCst);
        if until == 0 {
            // Nobody, or somebody who has not looked at the timers yet.
            return self.poll.last_ns.load(Ordering::SeqCst) == 0;
        }
        if self.awake_at(when) < until {
            self.poll.poller.wake();
        }
        true
    }

    /// The runtime stops: whoever waits in the poller leaves.
    pub(crate) fn break_poller(&self) {
        self.poll.poller.wake();
    }
}

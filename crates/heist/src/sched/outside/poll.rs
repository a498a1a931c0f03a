//! Waiting for the outside world: the network and the clock.
//!
//! One M at a time waits in the poller, without a P. It says until when, so that others can see
//! whether it sleeps too long for them. Everybody else polls without waiting, one at a time.
//!
//! # The gate
//! `last_ns` is zero while somebody waits in the poller; who swaps zero in is that one. `busy` says
//! whether anybody is inside, because the poller's events have one place. An M that wants to wait may find
//! somebody who looks. That takes a microsecond, unless the kernel has given the CPU to another
//! thread meanwhile: then it takes until that one's turn is over, and whoever is not needed sleeps.
//! Only one wants to wait at a time, so at most one sleeps here.
//!
//! # Why no timer is missed
//! A waiter publishes `until_ns`, fences and computes the earliest timer; if that is earlier than
//! what it published, it starts again. An M that adds a timer fences and then reads `until_ns`. One of
//! the two sees the other.
//!
//! GO: proc.go findRunnable (netpoll), time.go wakeNetPoller, netpoll_epoll.go.

use super::timers;
use crate::gmp::flags::Flag;
use crate::gmp::{G, Holder, M};
use crate::netpoll::poller::{Poller, Wait};
use crate::sched::run::{Found, Next, next_local};
use crate::sched::{Phase, Sched};
use crate::sched::{life, run, stall};
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
        // An M that looked before this one left may have been faster; that is as good.
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

/// Looks whether descriptors are ready, if nobody else is looking. The first that waited for one
/// runs; only if there are more is somebody woken for them.
pub(crate) fn poll_now(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    run_woken(sched, m, poll_without_waiting(sched))
}

/// Runs the first of what an M found that was looking for work, and queues the others.
pub(super) fn run_woken(sched: &Sched, m: Holder<'_>, woken: List<G>) -> Option<Next> {
    if woken.iter().any(G::is_classed) {
        // The class of a goroutine decides when and where it runs.
        run::inject(sched, m, woken);
        return next_local(m);
    }
    run_first(sched, m, woken)
}

fn run_first(sched: &Sched, m: Holder<'_>, mut woken: List<G>) -> Option<Next> {
    let first = woken.pop_front()?;
    // SAFETY: just claimed, so it is valid.
    life::count_one_born(sched, unsafe { first.as_ref() });
    m.p().stats.readied.bump();
    run::inject(sched, m, woken);
    Some(Next::fresh(first))
}

/// As `poll_now`, but hands back whoever waited.
pub(crate) fn poll_without_waiting(sched: &Sched) -> List<G> {
    let gate = &sched.outside.gate;
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
pub(crate) fn wait_in_poller(sched: &Sched, m: &M, at_most_until: u64) -> Option<Found> {
    let gate = &sched.outside.gate;
    let until = timers::earliest_timer(sched);
    if until == NEVER && !gate.has_waiters() {
        return None;
    }
    if !gate.claim() {
        break_poller_after(sched, until);
        return None;
    }
    // It is the one to wake up for the latency class.
    run::suit_turns(sched, m, true);
    let woken = wait_inside(sched, until, at_most_until);
    if woken.is_empty() && at_most_until != NEVER {
        return Some(Found::Nothing);
    }
    Some(come_back(sched, m, woken))
}

fn wait_inside(sched: &Sched, mut until: u64, at_most_until: u64) -> List<G> {
    let gate = &sched.outside.gate;
    let mut woken = List::new();
    gate.enter_to_wait();
    choose_grain(sched, until);
    until = awake_at(sched, until).min(at_most_until);
    loop {
        // ORDERING: SeqCst, and the fence: see "Why no timer is missed".
        gate.until_ns.store(until, Ordering::SeqCst);
        fence(Ordering::SeqCst);
        let again = awake_at(sched, timers::earliest_timer_hint(sched)).min(at_most_until);
        if again >= until {
            break;
        }
        until = again;
    }
    stall::watch_waiter(sched, until);
    let wait = if sched.phase() == Phase::Stopped {
        Wait::No
    } else if until == NEVER {
        Wait::Forever
    } else {
        Wait::UntilNs(until)
    };
    sched.stats.polls.add_shared(1);
    // SAFETY: this thread is through the gate.
    let delta = unsafe { gate.poller.poll(wait, &mut woken) };
    gate.until_ns.store(0, Ordering::Relaxed);
    gate.leave();
    // ORDERING: Release: the next one to wait finds `until_ns` cleared.
    gate.last_ns.store(clock::now_ns(), Ordering::Release);
    gate.poller.waiters_gone(delta);
    let n_ready = woken.len();
    timers::run_all_timers(sched, &mut woken);
    // The next one may wait already. It is a hint.
    let short_waits = gate.short_waits.load(Ordering::Relaxed);
    let short_waits = Grain::short_waits_after(short_waits, woken.len() - n_ready);
    gate.short_waits.store(short_waits, Ordering::Relaxed);
    woken
}

/// How exact the wait that begins is. For who is through the gate.
fn choose_grain(sched: &Sched, until: u64) {
    let gate = &sched.outside.gate;
    let now = clock::now_ns();
    let grain = Grain::of(now, until, gate.short_waits.load(Ordering::Relaxed));
    gate.short_waits.store(grain.short_waits, Ordering::Relaxed);
    gate.dense_since_ns.store(if grain.dense { now } else { 0 }, Ordering::Relaxed);
}

/// When the M that waits in the poller is to be awake for a timer.
fn awake_at(sched: &Sched, when: u64) -> u64 {
    // ORDERING: Relaxed: it is published with `until_ns`.
    match sched.outside.gate.dense_since_ns.load(Ordering::Relaxed) {
        0 => when,
        since => rules::awake_at(since, when, timers::short_sleep_until(sched)),
    }
}

/// Takes a P for what the poller brought, or leaves it to those who have one.
fn come_back(sched: &Sched, m: &M, woken: List<G>) -> Found {
    let mut locked = sched.lock.lock();
    if sched.phase() == Phase::Stopped {
        drop(locked);
        run::inject_without_p(sched, woken);
        return Found::Leave;
    }
    let latency = woken.iter().any(|gp| gp.flags.has(Flag::LATENCY));
    let idle_ps = &mut locked.idle_ps;
    let id =
        if latency { idle_ps.take_any(sched.rest.idle()) } else { idle_ps.take(sched.rest.idle()) };
    let Some(id) = id else {
        drop(locked);
        run::inject_without_p(sched, woken);
        // Nobody waits for the next timer now.
        sched.stall.bell().ring_before(
            timers::earliest_timer_hint(sched).saturating_add(sched.config.wake_up_ns),
        );
        return Found::Nothing;
    };
    m.acquire_p(sched.p(id));
    drop(locked);
    run::suit_turns(sched, m, sched.rest.idle().is_reserved(id));
    sched.stall.bell().ring();
    // SAFETY: the M of the calling thread, which has just got a P.
    let m = unsafe { Holder::new(m) };
    if latency {
        // The class of a goroutine decides when and where it runs.
        run::inject(sched, m, woken);
        return Found::Retry;
    }
    run_first(sched, m, woken).map_or(Found::Retry, Found::Run)
}

/// Breaks the wait of whoever would sleep past `when`. True if somebody waits in the poller.
pub(super) fn break_poller_after(sched: &Sched, when: u64) -> bool {
    // ORDERING: the caller has fenced after it wrote what it wants to be woken for.
    let until = sched.outside.gate.until_ns.load(Ordering::SeqCst);
    if until == 0 {
        // Nobody, or somebody who has not looked at the timers yet.
        return sched.outside.gate.last_ns.load(Ordering::SeqCst) == 0;
    }
    if awake_at(sched, when) < until {
        sched.outside.gate.poller.wake();
    }
    true
}

/// The runtime stops: whoever waits in the poller leaves.
pub(crate) fn break_poller(sched: &Sched) {
    sched.outside.gate.poller.wake();
}

//! Waits for the network and the clock in the poller.
//!
//! One M at a time waits in the poller, without a P. It publishes until when, so that others can
//! see whether it sleeps too long for them. All other threads poll without waiting, one at a time.
//!
//! # The gate
//! The M that swaps zero into `last_ns` has claimed the wait; `last_ns` stays zero until its wait
//! is over. `busy` says whether a thread is in the poller, because there is only one buffer for the
//! poller's events. An M that has claimed the wait may find another thread in the poller that polls
//! without waiting. That thread leaves after a microsecond, unless the kernel has given its CPU to
//! another thread; then it leaves when the turn of that one is over. So the M spins first, and then
//! sleeps until the thread leaves. Only one M at a time has the claim, so at most one sleeps here.
//!
//! # Why no timer is missed
//! The M that waits publishes `until_ns`, fences and computes the earliest timer; if that is
//! earlier than what it published, it starts again. An M that adds a timer fences and then reads
//! `until_ns`. One of the two sees the other.
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
use crate::trace::emit;
use heist_core::list::List;
use heist_core::note::Futex;
use heist_core::policy::timers::{self as rules, Grain};
use heist_core::sync::{AtomicU32, AtomicU64, Ordering, fence};
use heist_core::timer_heap::NEVER;
use heist_trace::record::Found as Origin;

/// No thread is in the poller.
const FREE: u32 = 0;
/// A thread is in the poller.
const INSIDE: u32 = 1;
/// A thread is in the poller, and an M sleeps until it leaves.
const AWAITED: u32 = 2;

/// How often an M tries to enter before it sleeps: about as long as a poll without waiting takes.
const SPINS: u32 = 100;

/// The poller of a runtime, and the gate that admits one thread at a time.
pub(crate) struct PollGate {
    pub(crate) poller: Poller,
    /// When a thread last polled; zero while an M waits in the poller.
    last_ns: AtomicU64,
    /// Until when that M waits; zero if no M waits, or if it has not looked at the timers yet.
    until_ns: AtomicU64,
    /// Whether a thread is in the poller: `FREE`, `INSIDE` or `AWAITED`.
    busy: AtomicU32,
    /// Since when that M waits, if timers are dense; else zero.
    dense_since_ns: AtomicU64,
    /// How many waits for timers in a row were short. A hint.
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

    /// When a thread last polled, or None while an M waits in the poller.
    pub(crate) fn last_ns(&self) -> Option<u64> {
        // ORDERING: Acquire pairs with the Release store at the end of a wait.
        let last = self.last_ns.load(Ordering::Acquire);
        (last != 0).then_some(last)
    }

    /// Until when an M waits in the poller; zero if none does.
    #[cfg(test)]
    pub(super) fn until_ns(&self) -> u64 {
        // ORDERING: as in `break_poller_after`.
        self.until_ns.load(Ordering::SeqCst)
    }

    /// Whether the last waits for timers were short. If so, timers may become dense, and then the
    /// length of a wait depends on until when goroutines sleep that asked for a short time.
    #[inline]
    pub(crate) fn waits_are_short(&self) -> bool {
        self.short_waits.load(Ordering::Relaxed) != 0
    }

    /// Whether a goroutine waits for a descriptor.
    #[inline]
    pub(crate) fn has_waiters(&self) -> bool {
        self.poller.waiters() != 0
    }

    /// Enters the poller. False if a thread is inside.
    pub(super) fn enter(&self) -> bool {
        // ORDERING: Acquire pairs with the Release in `leave`: the thread that was inside before no
        // longer uses the events.
        self.busy.compare_exchange(FREE, INSIDE, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Claims the wait. False if another M has.
    pub(super) fn claim(&self) -> bool {
        // ORDERING: SeqCst: the wait is claimed before the timers are looked at again. The partner
        // is in `break_poller_after`.
        self.last_ns.swap(0, Ordering::SeqCst) != 0
    }

    /// Records a poll without waiting, by a thread that found `last` in `last_ns` before it. A
    /// claim that was made meanwhile stays: otherwise a second M could claim the wait while the
    /// first one waits.
    pub(super) fn looked(&self, last: u64) {
        let now = clock::now_ns();
        // Another thread may have recorded its poll first; that is as good.
        let _ = self.last_ns.compare_exchange(last, now, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Enters the poller as soon as the thread inside has left. Only the M that has claimed the
    /// wait calls this.
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
        // No other M sleeps here: there is one claim.
        self.busy.store(INSIDE, Ordering::Relaxed);
    }

    /// Leaves the poller, and wakes the M that sleeps in `enter_to_wait`.
    pub(super) fn leave(&self) {
        // ORDERING: Release pairs with the Acquire in `enter` and `enter_to_wait`.
        if self.busy.swap(FREE, Ordering::Release) == AWAITED {
            Kernel.wake(&self.busy);
        }
    }
}

/// Polls without waiting, unless another thread is in the poller. Returns the first goroutine that
/// was woken, and queues the others; only for those is another M woken.
pub(crate) fn poll_now(sched: &Sched, m: Holder<'_>) -> Option<Next> {
    run_woken(sched, m, poll_without_waiting(sched))
}

/// Returns the first of the goroutines that were woken while this M searched for work, and queues
/// the others.
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
    // SAFETY: it was just claimed, so it is valid.
    life::count_one_born(sched, unsafe { first.as_ref() });
    m.p().stats.readied.bump();
    run::inject(sched, m, woken);
    Some(Next::fresh(first, Origin::Outside))
}

/// Polls without waiting, unless another thread is in the poller. Returns the goroutines that were
/// woken.
pub(crate) fn poll_without_waiting(sched: &Sched) -> List<G> {
    let gate = &sched.outside.gate;
    let mut woken = List::new();
    if !gate.has_waiters() {
        return woken;
    }
    let Some(last) = gate.last_ns().filter(|_| gate.enter()) else { return woken };
    // SAFETY: this thread has entered the gate, so no other thread polls.
    let delta = unsafe { gate.poller.poll(Wait::No, &mut woken) };
    emit::polled(&sched.recorder, &woken, false);
    gate.looked(last);
    gate.leave();
    gate.poller.waiters_gone(delta);
    woken
}

/// Waits in the poller until a descriptor is ready, a timer is due or the time is over. None: there
/// is nothing to wait for, or another M waits already.
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
    // This M is the one that wakes up for the latency class.
    run::suit_turns(sched, m, true);
    let woken = wait_inside(sched, m, until, at_most_until);
    if woken.is_empty() && at_most_until != NEVER {
        return Some(Found::Nothing);
    }
    Some(come_back(sched, m, woken))
}

fn wait_inside(sched: &Sched, m: &M, mut until: u64, at_most_until: u64) -> List<G> {
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
    emit::m_park(m);
    // SAFETY: this thread has entered the gate, so no other thread polls.
    let delta = unsafe { gate.poller.poll(wait, &mut woken) };
    emit::m_unpark(m);
    emit::polled(&sched.recorder, &woken, true);
    gate.until_ns.store(0, Ordering::Relaxed);
    gate.leave();
    // ORDERING: Release: the next M that waits finds `until_ns` cleared.
    gate.last_ns.store(clock::now_ns(), Ordering::Release);
    gate.poller.waiters_gone(delta);
    let n_ready = woken.len();
    timers::run_all_timers(sched, &mut woken);
    // The next M may wait already, and change this too. It is a hint.
    let short_waits = gate.short_waits.load(Ordering::Relaxed);
    let short_waits = Grain::short_waits_after(short_waits, woken.len() - n_ready);
    gate.short_waits.store(short_waits, Ordering::Relaxed);
    woken
}

/// Decides how exact the wait that begins is. The caller has entered the gate.
fn choose_grain(sched: &Sched, until: u64) {
    let gate = &sched.outside.gate;
    let now = clock::now_ns();
    let grain = Grain::of(now, until, gate.short_waits.load(Ordering::Relaxed));
    gate.short_waits.store(grain.short_waits, Ordering::Relaxed);
    gate.dense_since_ns.store(if grain.dense { now } else { 0 }, Ordering::Relaxed);
}

/// When the M that waits in the poller is to be awake for a timer that is due at `when`.
fn awake_at(sched: &Sched, when: u64) -> u64 {
    // ORDERING: Relaxed: it is published with `until_ns`.
    match sched.outside.gate.dense_since_ns.load(Ordering::Relaxed) {
        0 => when,
        since => rules::awake_at(since, when, timers::short_sleep_until(sched)),
    }
}

/// Takes an idle P for the goroutines that the poller brought. If there is none, queues them for Ms
/// that have a P.
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
        // No M waits for the next timer now, so sysmon has to.
        sched.stall.bell().ring_before(
            timers::earliest_timer_hint(sched).saturating_add(sched.config.wake_up_ns),
        );
        return Found::Nothing;
    };
    m.acquire_p(sched.p(id));
    drop(locked);
    run::suit_turns(sched, m, sched.rest.idle().is_reserved(id));
    sched.stall.bell().ring();
    // SAFETY: it is the M of the calling thread, and has just acquired a P.
    let m = unsafe { Holder::new(m) };
    if latency {
        // The class of a goroutine decides when and where it runs.
        run::inject(sched, m, woken);
        return Found::Retry;
    }
    run_first(sched, m, woken).map_or(Found::Retry, Found::Run)
}

/// Ends the wait of the M in the poller, if it would sleep past `when`. True if an M waits there.
pub(super) fn break_poller_after(sched: &Sched, when: u64) -> bool {
    // ORDERING: the caller has fenced after it wrote what it wants to be woken for. The waiter
    // publishes `until_ns`, fences and looks for that; see "Why no timer is missed".
    let until = sched.outside.gate.until_ns.load(Ordering::SeqCst);
    if until == 0 {
        // Either no M waits, or one has claimed the wait and has not looked at the timers yet.
        return sched.outside.gate.last_ns.load(Ordering::SeqCst) == 0;
    }
    if awake_at(sched, when) < until {
        sched.outside.gate.poller.wake();
    }
    true
}

/// Ends the wait of the M in the poller, because the runtime ends.
pub(crate) fn break_poller(sched: &Sched) {
    sched.outside.gate.poller.wake();
}

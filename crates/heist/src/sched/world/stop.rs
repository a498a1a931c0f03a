//! Stopping the world: every P out of the hands of every M.
//!
//! While it lasts no goroutine runs but those in a call that blocks the thread, and nobody uses a P
//! but who stopped the world. docs/design/procs.md has the protocol and the argument.
//!
//! # Who counts a P
//! Each of them exactly once, under the scheduler lock:
//! - the stopper's own, at rest, or waiting for a thread: the stopper;
//! - its M is in a blocking call, announced or not, or cannot be stopped: the stopper, who takes it;
//! - a goroutine runs on it: its M, when it leaves the runtime or in the handler of the signal;
//! - its M searches: the M, before it looks any further;
//! - it is given from one M to another: the M that gets it, as above, or who would put it to rest.
//!
//! GO: proc.go stopTheWorldWithSema, startTheWorldWithSema, gcstopm.

use super::resize::ProcsChoice;
use crate::current::{self, InRuntime};
use crate::gmp::p::Stopped;
use crate::gmp::{M, P};
use crate::sched::rest::Start;
use crate::sched::run::Found;
use crate::sched::{Locked, Phase, Sched};
use crate::sched::{outside, rest, stall};
use crate::sys::futex::Kernel;
use crate::sys::lock::Guard;
use crate::sys::{clock, thread};
use heist_core::global_queue::GlobalLen;
use heist_core::m_word::{Place, STOP};
use heist_core::note::Futex;
use heist_core::policy::{STOP_ASK_NS, STOP_FORCE_NS, STOP_PATIENCE_NS};
use heist_core::time_histogram::TimeHistogram;
use heist_core::timer_heap::NEVER;
use std::ptr::{NonNull, null};
use std::time::Duration;

/// What is held across a stop, and by who changes the number of Ps.
#[derive(Debug)]
pub(crate) struct WorldState {
    /// How often the world was stopped.
    pub(crate) n_stops: u64,
    /// Whether the number of Ps was chosen.
    pub(crate) choice: ProcsChoice,
}

impl WorldState {
    pub(crate) const fn new(choice: ProcsChoice) -> Self {
        Self { n_stops: 0, choice }
    }
}

/// How a stop treats a goroutine that has not stopped yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// It is asked.
    Ask,
    /// It is interrupted.
    Force,
    /// Its P is taken.
    Take,
}

/// The world is stopped as long as this lives.
///
/// Until it is dropped, its owner must not allocate, free or wait for anything that a goroutine may
/// hold: a goroutine may have been stopped anywhere.
pub(crate) struct StoppedWorld<'a> {
    sched: &'a Sched,
    caller: Option<&'a M>,
    world_lock: Option<Guard<'a, WorldState>>,
    /// When the stop began.
    asked_ns: u64,
}

/// How long stops took.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// Until the last P had stopped.
    pub(crate) stopping: TimeHistogram,
    /// Until the world ran again.
    pub(crate) total: TimeHistogram,
}

/// Takes the world lock, for a goroutine of this runtime or for a thread that is none of its Ms.
///
/// A goroutine that has to wait for it does so as in an announced blocking call: the holder wants
/// its P. It takes the lock only with a P: it may have to wait for one for as long as other
/// goroutines are busy, and with the lock nobody else could stop the world for all that time.
pub(crate) fn lock_world(
    sched: &Sched,
    rt: Option<InRuntime>,
) -> (Option<InRuntime>, Guard<'_, WorldState>) {
    let Some(mut rt) = rt else { return (None, sched.world.lock.lock()) };
    loop {
        if let Some(world_lock) = sched.world.lock.try_lock() {
            return (Some(rt), world_lock);
        }
        // SAFETY: the M of the calling thread is alive; the evidence ends here.
        unsafe { rt.into_m().as_ref() }.word.leave(Place::Blocked);
        drop(sched.world.lock.lock());
        let Some(entered) = current::enter() else {
            heist_core::throw!("lock_world: the calling thread runs no goroutine");
        };
        rt = entered;
    }
}

/// Stops the world for who has the world lock; `caller` is his M, if it is one of this runtime. None
/// if the runtime has ended.
#[doc(alias = "stopTheWorld")]
pub(crate) fn stop_the_world<'a>(
    sched: &'a Sched,
    mut world_lock: Guard<'a, WorldState>,
    caller: Option<&'a M>,
) -> Option<StoppedWorld<'a>> {
    if sched.phase() == Phase::Stopped {
        return None;
    }
    world_lock.n_stops += 1;
    let asked_ns = clock::now_ns();
    let mut locked = sched.lock.lock();
    sched.world.stop.begin(sched.procs());
    if let Some(m) = caller {
        let pp = m.release_p();
        m.stopped_p.set(pp);
        count_stopped(sched, &mut locked, pp, Stopped::Lost(NonNull::from(m)));
    }
    while let Some(id) = locked.idle_ps.take_any(sched.rest.idle()) {
        count_stopped(sched, &mut locked, sched.p(id), Stopped::Free);
    }
    while let Some((id, start)) = locked.roster.orphans().pop() {
        count_given(sched, &mut locked, sched.p(id), start);
    }
    press_all(sched, &mut locked, Means::Ask);
    drop(locked);
    wait_for_all(sched, asked_ns);
    // Only who has the world lock writes here.
    sched.world.pauses.stopping.record((clock::now_ns() - asked_ns) as i64);
    Some(StoppedWorld { sched, caller, world_lock: Some(world_lock), asked_ns })
}

/// Sleeps until no P is left to stop, and sees to it that this happens.
fn wait_for_all(sched: &Sched, asked_ns: u64) {
    let mut next_ns = asked_ns + STOP_ASK_NS;
    loop {
        let left = sched.world.stop.left();
        if left == 0 {
            break;
        }
        let now = clock::now_ns();
        if now < next_ns {
            Kernel.wait(sched.world.stop.word(), left, Some(Duration::from_nanos(next_ns - now)));
            continue;
        }
        next_ns = now + STOP_FORCE_NS;
        let means = if now - asked_ns < STOP_PATIENCE_NS { Means::Force } else { Means::Take };
        press_all(sched, &mut sched.lock.lock(), means);
    }
    // The lock orders what the last one did before what the stopper does now.
    let locked = sched.lock.lock();
    for pp in sched.all_ps() {
        if pp.stopped.get() == Stopped::No || pp.has_m() {
            heist_core::throw!("wait_for_all: P{} has not stopped", pp.id);
        }
    }
    drop(locked);
}

/// Presses every M that still holds a P to stop.
fn press_all(sched: &Sched, locked: &mut Locked, means: Means) {
    for pp in sched.all_ps() {
        // SAFETY: an M that holds a P is alive, and as long as this thread has the lock it can
        // let go of the P but not end.
        if let Some(m) = unsafe { pp.m().as_ref() } {
            press(sched, locked, pp, m, means);
        }
    }
}

fn press(sched: &Sched, locked: &mut Locked, pp: &P, m: &M, means: Means) {
    let seen = m.word.stamp();
    if !std::ptr::eq(pp.m(), m) {
        return; // It is being given away.
    }
    m.word.call_attention(STOP);
    let take = match seen.place() {
        Place::Runtime => false,
        Place::Blocked => true,
        Place::User if means == Means::Ask => false,
        Place::User => {
            let can_be_forced = sched.config.forced_preemption
                && means == Means::Force
                && m.current().is_some_and(|gp| gp.may_be_forced());
            // A call that sleeps must not be interrupted, and has no use for the P.
            !can_be_forced || thread::is_asleep(m.tid())
        }
    };
    if take && m.word.take(seen, || stall::heavy_fence(sched)) {
        m.release_p();
        m.stopped_p.set(pp);
        count_stopped(sched, locked, pp, Stopped::Lost(NonNull::from(m)));
    } else if seen.place() == Place::User && !take && means == Means::Force {
        sched.stats.signals.add_shared(1);
        thread::interrupt(m.tid());
    }
}

/// Counts a P that nobody holds.
pub(crate) fn count_stopped(sched: &Sched, _locked: &mut Locked, pp: &P, how: Stopped) {
    if pp.has_m() || pp.stopped.get() != Stopped::No {
        heist_core::throw!("count_stopped: P{} is held, or was counted before", pp.id);
    }
    pp.stopped.set(how);
    if sched.world.stop.count() {
        Kernel.wake(sched.world.stop.word());
    }
}

/// Counts a P that was to be given to an M. For who finds that the world stops, under the lock.
pub(crate) fn count_given(sched: &Sched, locked: &mut Locked, pp: &P, start: Start) {
    if start == Start::Spinning {
        sched.rest.discount_spinner();
    }
    count_stopped(sched, locked, pp, Stopped::Free);
}

/// If the world stops, counts a P that this thread would give away. False if it does not.
pub(crate) fn stop_instead(sched: &Sched, pp: &P) -> bool {
    if !sched.world.stop.pending() {
        return false;
    }
    let mut locked = sched.lock.lock();
    let stops = sched.world.stop.pending();
    if stops {
        count_stopped(sched, &mut locked, pp, Stopped::Free);
    }
    stops
}

/// An M that searches stops with its P, and sleeps until it gets that or another one.
#[cold]
#[inline(never)]
#[doc(alias = "gcstopm")]
pub(crate) fn stop_searching(sched: &Sched, m: &M) -> Found {
    let mut locked = sched.lock.lock();
    m.word.clear_attention(STOP);
    if !sched.world.stop.pending() {
        return Found::Retry;
    }
    // Before the P is counted: once the world runs again, nobody may rely on this spinner.
    rest::end_spin(sched, m);
    // Who starts the world again sees to the timers.
    m.new_timer_ns.set(NEVER);
    let pp = m.release_p();
    m.stopped_p.set(pp);
    count_stopped(sched, &mut locked, pp, Stopped::Left(NonNull::from(m)));
    drop(locked);
    let found = rest::sleep_idle(sched, m);
    m.stopped_p.set(null());
    found
}

/// A goroutine that is in the runtime stops where it is, with its thread. It goes on with its P
/// and what is left of its slice, unless the P is gone: then it is the next in the global queue.
#[cold]
#[inline(never)]
pub(crate) fn stop_here(sched: &Sched, m: &M) {
    let mut locked = sched.lock.lock();
    m.word.clear_attention(STOP);
    if !sched.world.stop.pending() {
        return; // A stop that is over.
    }
    let pp = m.release_p();
    m.stopped_p.set(pp);
    let frozen = stall::freeze(m);
    count_stopped(sched, &mut locked, pp, Stopped::Awaited(NonNull::from(m)));
    drop(locked);
    frozen.wait_for_turn(sched);
}

/// The world is stopped, and this M came back from a call during which its P was taken for that:
/// it waits for it.
pub(crate) fn await_stopped_p(sched: &Sched, m: &M, locked: Guard<'_, Locked, GlobalLen>) {
    // SAFETY: null, or a P, which lives as long as the runtime.
    let Some(pp) = (unsafe { m.stopped_p.get().as_ref() }) else {
        heist_core::throw!("await_stopped_p: M{} has lost nothing", m.id);
    };
    if pp.stopped.get() != Stopped::Lost(NonNull::from(m)) {
        heist_core::throw!("await_stopped_p: P{} and M{} disagree", pp.id, m.id);
    }
    let frozen = stall::freeze(m);
    pp.stopped.set(Stopped::Awaited(NonNull::from(m)));
    drop(locked);
    frozen.wait_for_turn(sched);
}

impl<'a> StoppedWorld<'a> {
    /// The scheduler whose world it is.
    pub(super) const fn sched(&self) -> &'a Sched {
        self.sched
    }

    /// The M of who stopped it, if it is one of the runtime's.
    pub(super) const fn caller(&self) -> Option<&'a M> {
        self.caller
    }

    /// Lets the world run, and keeps the world lock.
    pub(super) fn start(mut self) -> Option<Guard<'a, WorldState>> {
        // Taken out, so that it outlives the drop.
        let world_lock = self.world_lock.take();
        drop(self);
        world_lock
    }

    /// Gives every P back to who waits for it, or to rest, and says so.
    fn restart(&self) {
        let sched = self.sched;
        let mut locked = sched.lock.lock();
        sched.world.stop.end();
        for pp in sched.all_ps() {
            let at_rest = match pp.stopped.get() {
                Stopped::No => heist_core::throw!("World: P{} has not stopped", pp.id),
                Stopped::Lost(m) => {
                    // SAFETY: it runs a goroutine, and without a P it cannot end.
                    let m = unsafe { m.as_ref() };
                    m.stopped_p.set(null());
                    m.acquire_p(pp);
                    true
                }
                Stopped::Left(m) if pp.is_empty() => {
                    // SAFETY: it sleeps until it is handed a P, in no list.
                    unsafe { locked.idle_ms.push(m) };
                    rest::put_idle(sched, &mut locked, pp);
                    true
                }
                Stopped::Free if pp.is_empty() => {
                    rest::put_idle(sched, &mut locked, pp);
                    true
                }
                Stopped::Free | Stopped::Left(_) | Stopped::Awaited(_) => false,
            };
            if at_rest {
                pp.stopped.set(Stopped::No);
            }
        }
        drop(locked);
        // What is left is marked, so nobody but this thread uses it; and the next stop needs the
        // world_lock.
        for pp in sched.all_ps() {
            match pp.stopped.replace(Stopped::No) {
                Stopped::Awaited(m) | Stopped::Left(m) => {
                    // SAFETY: it sleeps until it is handed a P, and only this thread knows of it.
                    unsafe { rest::hand_over(sched, m, pp, Start::Working) };
                }
                Stopped::Free => rest::start_m(sched, pp, Start::Working),
                Stopped::No | Stopped::Lost(_) => {}
            }
        }
        // ORDERING: Ps are at rest again; who submitted before that and found none is served here,
        // as in `Sched::sleep`.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        rest::wake_p_if_work(sched);
        let next_timer = outside::earliest_timer_hint(sched);
        if next_timer != NEVER || sched.outside.has_waiters() {
            outside::watch_timer(sched, next_timer);
        }
        sched.stall.bell().ring();
    }
}

impl Drop for StoppedWorld<'_> {
    fn drop(&mut self) {
        self.restart();
        let took_ns = clock::now_ns() - self.asked_ns;
        self.sched.world.pauses.total.record(took_ns as i64);
    }
}

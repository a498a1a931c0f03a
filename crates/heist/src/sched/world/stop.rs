//! Stopping the world: no M holds a P until the world is started again.
//!
//! While the world is stopped, only the stopper uses Ps. A goroutine runs only if its P was taken
//! from it: in a call that blocks the thread, or because it could not be preempted.
//! docs/design/procs.md has the protocol and the argument.
//!
//! # Which thread counts a P
//! Each P is counted exactly once, under the scheduler lock:
//! - the stopper's own P, an idle P, or a P that waits for a thread: by the stopper;
//! - a P whose M is in a blocking call, announced or not, or cannot be preempted: by the stopper,
//!   which takes it;
//! - a P on which a goroutine runs: by its M, when it leaves the runtime or in the signal handler;
//! - a P whose M searches: by that M, before it searches any further;
//! - a P that is given from one M to another: by the M that gets it, as above, or by the thread
//!   that would start an M with it or make it idle.
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
use crate::trace::emit;
use heist_core::global_queue::GlobalLen;
use heist_core::m_word::{Place, STOP};
use heist_core::note::Futex;
use heist_core::policy::{STOP_ASK_NS, STOP_FORCE_NS, STOP_PATIENCE_NS};
use heist_core::time_histogram::TimeHistogram;
use heist_core::timer_heap::NEVER;
use heist_trace::record::{Call, Freeze, Take};
use std::ptr::{NonNull, null};
use std::time::Duration;

/// What the world lock protects. The lock is held across a stop, and by a thread that changes the
/// number of Ps.
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

/// Why the world is stopped, as a trace numbers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The number of Ps changes.
    Procs = 0,
    /// A trace begins or ends.
    Trace = 1,
    /// A test looks at what is stopped.
    Other = 2,
}

/// How a stop treats an M that still holds a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Means {
    /// It is asked, by a flag that it checks when it leaves the runtime.
    Ask,
    /// A signal interrupts it.
    Force,
    /// Its P is taken.
    Take,
}

/// The world is stopped as long as this lives.
///
/// Until it is dropped, its owner must not allocate, free or wait for anything that a goroutine may
/// hold: a goroutine may have been frozen anywhere.
pub(crate) struct StoppedWorld<'a> {
    sched: &'a Sched,
    caller: Option<&'a M>,
    world_lock: Option<Guard<'a, WorldState>>,
    /// When the stop began.
    asked_ns: u64,
}

/// How long stops of the world took.
#[derive(Debug, Default)]
pub(crate) struct Pauses {
    /// From the beginning of a stop until the last P had stopped.
    pub(crate) stopping: TimeHistogram,
    /// From the beginning of a stop until the world ran again.
    pub(crate) total: TimeHistogram,
}

/// Takes the world lock, for a goroutine of this runtime or for a thread that is none of its Ms.
///
/// A goroutine that has to wait for the lock does so as in an announced blocking call, because the
/// holder may want its P. It takes the lock only while it has a P: it may have to wait for a P as
/// long as other goroutines are busy, and if it held the lock meanwhile, no other thread could stop
/// the world for all that time.
pub(crate) fn lock_world(
    sched: &Sched,
    rt: Option<InRuntime>,
) -> (Option<InRuntime>, Guard<'_, WorldState>) {
    let Some(mut rt) = rt else { return (None, sched.world.lock.lock()) };
    loop {
        if let Some(world_lock) = sched.world.lock.try_lock() {
            return (Some(rt), world_lock);
        }
        // SAFETY: the M of the calling thread is alive. The evidence of being in the runtime ends
        // here.
        let m = unsafe { rt.into_m().as_ref() };
        emit::call_start(m, Call::Announced);
        m.word.leave(Place::Blocked);
        drop(sched.world.lock.lock());
        let Some(entered) = current::enter() else {
            heist_core::throw!("lock_world: the calling thread runs no goroutine");
        };
        emit::call_stop(entered.m());
        rt = entered;
    }
}

/// Stops the world. `caller` is the M of the calling thread, if it is one of this runtime. None if
/// the runtime has ended.
#[doc(alias = "stopTheWorld")]
pub(crate) fn stop_the_world<'a>(
    sched: &'a Sched,
    mut world_lock: Guard<'a, WorldState>,
    caller: Option<&'a M>,
    cause: Cause,
) -> Option<StoppedWorld<'a>> {
    if sched.phase() == Phase::Stopped {
        return None;
    }
    world_lock.n_stops += 1;
    let asked_ns = clock::now_ns();
    emit::world_stop(&sched.recorder, cause as u8);
    let mut locked = sched.lock.lock();
    sched.world.stop.begin(sched.procs());
    if let Some(m) = caller {
        let pp = m.set_aside_p();
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
    // Only the holder of the world lock writes here.
    sched.world.pauses.stopping.record((clock::now_ns() - asked_ns) as i64);
    Some(StoppedWorld { sched, caller, world_lock: Some(world_lock), asked_ns })
}

/// Sleeps until every P has stopped. Meanwhile presses the Ms that still hold one, harder and
/// harder.
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
    // The lock orders what the M of the last P did before what the stopper does now.
    let locked = sched.lock.lock();
    for pp in sched.all_ps() {
        if pp.stopped.get() == Stopped::No || pp.has_m() {
            heist_core::throw!("wait_for_all: P{} has not stopped", pp.id);
        }
    }
    drop(locked);
}

/// Presses every M that still holds a P to give it up.
fn press_all(sched: &Sched, locked: &mut Locked, means: Means) {
    for pp in sched.all_ps() {
        // SAFETY: an M that holds a P is alive. While this thread holds the scheduler lock, that M
        // can give up the P but not end.
        if let Some(m) = unsafe { pp.m().as_ref() } {
            press(sched, locked, pp, m, means);
        }
    }
}

fn press(sched: &Sched, locked: &mut Locked, pp: &P, m: &M, means: Means) {
    let seen = m.word.stamp();
    if !std::ptr::eq(pp.m(), m) {
        return; // The M is giving the P away.
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
            // A system call that sleeps must not be interrupted, and does not need the P.
            !can_be_forced || thread::is_asleep(m.tid())
        }
    };
    if take && m.word.take(seen, || stall::heavy_fence(sched)) {
        m.lose_p(Take::World);
        m.stopped_p.set(pp);
        count_stopped(sched, locked, pp, Stopped::Lost(NonNull::from(m)));
    } else if seen.place() == Place::User && !take && means == Means::Force {
        sched.stats.signals.add_shared(1);
        emit::preempt_force(&sched.recorder, m);
        thread::interrupt(m.tid());
    }
}

/// Counts a P that no M holds as stopped, and wakes the stopper after the last one.
pub(crate) fn count_stopped(sched: &Sched, _locked: &mut Locked, pp: &P, how: Stopped) {
    if pp.has_m() || pp.stopped.get() != Stopped::No {
        heist_core::throw!("count_stopped: P{} is held by an M, or was counted before", pp.id);
    }
    pp.stopped.set(how);
    if sched.world.stop.count() {
        Kernel.wake(sched.world.stop.word());
    }
}

/// Counts a P that the caller would have given to an M, if it had not found under the lock that the
/// world stops.
pub(crate) fn count_given(sched: &Sched, locked: &mut Locked, pp: &P, start: Start) {
    if start == Start::Spinning {
        sched.rest.discount_spinner();
    }
    count_stopped(sched, locked, pp, Stopped::Free);
}

/// If the world stops, counts a P that this thread would have given away, and returns true.
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

/// Gives up the P of an M that searches, counts it as stopped, and sleeps until the M gets that P
/// or another one. `Retry` at once if the world does not stop.
#[cold]
#[inline(never)]
#[doc(alias = "gcstopm")]
pub(crate) fn stop_searching(sched: &Sched, m: &M) -> Found {
    let mut locked = sched.lock.lock();
    m.word.clear_attention(STOP);
    if !sched.world.stop.pending() {
        return Found::Retry;
    }
    // The M is discounted as a spinner before its P is counted: once the world runs again, no
    // submitter may rely on this spinner.
    rest::end_spin(sched, m);
    // The thread that starts the world again makes sure that the timers are watched.
    m.new_timer_ns.set(NEVER);
    let pp = m.release_p();
    m.stopped_p.set(pp);
    count_stopped(sched, &mut locked, pp, Stopped::Left(NonNull::from(m)));
    drop(locked);
    let found = rest::sleep_idle(sched, m);
    m.stopped_p.set(null());
    found
}

/// Freezes the goroutine of an M that is in the runtime or in the signal handler, until the world
/// is started again. The goroutine continues with its P and the rest of its slice. If the P was
/// removed, it waits at the front of the global queue.
#[cold]
#[inline(never)]
pub(crate) fn stop_here(sched: &Sched, m: &M) {
    let mut locked = sched.lock.lock();
    m.word.clear_attention(STOP);
    if !sched.world.stop.pending() {
        return; // The flag was from a stop that is over.
    }
    emit::go_freeze(m, Freeze::World);
    let pp = m.release_p();
    m.stopped_p.set(pp);
    let frozen = stall::freeze(m);
    count_stopped(sched, &mut locked, pp, Stopped::Awaited(NonNull::from(m)));
    drop(locked);
    frozen.wait_for_turn(sched);
}

/// Freezes the goroutine of an M that entered the runtime while the world is stopped, and whose P
/// was taken for the stop. It waits until it gets the P back.
pub(crate) fn await_stopped_p(sched: &Sched, m: &M, locked: Guard<'_, Locked, GlobalLen>) {
    // SAFETY: null, or a P, which lives as long as the runtime.
    let Some(pp) = (unsafe { m.stopped_p.get().as_ref() }) else {
        heist_core::throw!("await_stopped_p: M{} has lost no P", m.id);
    };
    if pp.stopped.get() != Stopped::Lost(NonNull::from(m)) {
        heist_core::throw!("await_stopped_p: P{} was not taken from M{}", pp.id, m.id);
    }
    emit::go_freeze(m, Freeze::World);
    let frozen = stall::freeze(m);
    pp.stopped.set(Stopped::Awaited(NonNull::from(m)));
    drop(locked);
    frozen.wait_for_turn(sched);
}

impl<'a> StoppedWorld<'a> {
    /// The scheduler whose Ps are stopped.
    pub(super) const fn sched(&self) -> &'a Sched {
        self.sched
    }

    /// The M of the stopper, if it is one of this runtime.
    pub(super) const fn caller(&self) -> Option<&'a M> {
        self.caller
    }

    /// Starts the world again, and returns the world lock.
    pub(super) fn start(mut self) -> Option<Guard<'a, WorldState>> {
        // The lock is taken out, so that it outlives the drop.
        let world_lock = self.world_lock.take();
        drop(self);
        world_lock
    }

    /// Gives every P back to the M that waits for it, or starts an M with it if it has work, or
    /// makes it idle. Then wakes Ms for work, timers and descriptors, as every submitter does.
    fn restart(&self) {
        let sched = self.sched;
        let mut locked = sched.lock.lock();
        emit::world_start(&sched.recorder);
        sched.world.stop.end();
        for pp in sched.all_ps() {
            let settled = match pp.stopped.get() {
                Stopped::No => heist_core::throw!("restart: P{} has not stopped", pp.id),
                Stopped::Lost(m) => {
                    // SAFETY: the M runs a goroutine, and without a P it cannot end.
                    let m = unsafe { m.as_ref() };
                    m.stopped_p.set(null());
                    if self.caller.is_some_and(|caller| std::ptr::eq(caller, m)) {
                        m.take_back_p(pp);
                    } else {
                        m.receive_p(pp);
                    }
                    true
                }
                Stopped::Left(m) if pp.is_empty() => {
                    // SAFETY: the M is in no list, and sleeps until it is handed a P.
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
            if settled {
                pp.stopped.set(Stopped::No);
            }
        }
        drop(locked);
        // The other Ps are still marked as stopped, so only this thread uses them. The next stop
        // cannot begin: it needs the world lock.
        for pp in sched.all_ps() {
            match pp.stopped.replace(Stopped::No) {
                Stopped::Awaited(m) | Stopped::Left(m) => {
                    // SAFETY: the M sleeps until it is handed a P, and only this thread can hand it
                    // one.
                    unsafe { rest::hand_over(sched, m, pp, Start::Working) };
                }
                Stopped::Free => rest::start_m(sched, pp, Start::Working),
                Stopped::No | Stopped::Lost(_) => {}
            }
        }
        // ORDERING: as in `rest::sleep`: Ps were made idle before this fence. If a submitter found
        // none because it came earlier, its work is seen after the fence, and an M is woken here.
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

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

use super::find_runnable::Found;
use super::procs::Choice;
use super::wake::Start;
use super::{Locked, Phase, Sched, bound};
use crate::current::{self, InRuntime};
use crate::gmp::p::Stopped;
use crate::gmp::{M, P};
use crate::sys::futex::Kernel;
use crate::sys::lock::Guard;
use crate::sys::{clock, thread};
use heist_core::global_queue::GlobalLen;
use heist_core::m_word::{Place, STOP};
use heist_core::note::Futex;
use heist_core::policy::{STOP_ASK_NS, STOP_FORCE_NS, STOP_PATIENCE_NS};
use heist_core::status::Status;
use heist_core::time_histogram::TimeHistogram;
use heist_core::timer_heap::NEVER;
use std::ptr::{NonNull, null};
use std::time::Duration;

/// What is held across a stop, and by who changes the number of Ps.
#[derive(Debug)]
pub(crate) struct Reins {
    /// How often the world was stopped.
    pub(crate) n_stops: u64,
    /// Whether the number of Ps was chosen.
    pub(crate) choice: Choice,
}

impl Reins {
    pub(crate) const fn new(choice: Choice) -> Self {
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
pub(crate) struct World<'a> {
    sched: &'a Sched,
    caller: Option<&'a M>,
    reins: Option<Guard<'a, Reins>>,
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

impl Sched {
    /// Takes the reins, for a goroutine of this runtime or for a thread that is none of its Ms.
    ///
    /// A goroutine that has to wait for them does so as in an announced blocking call: who has them
    /// wants its P.
    pub(crate) fn take_reins(
        &self,
        rt: Option<InRuntime>,
    ) -> (Option<InRuntime>, Guard<'_, Reins>) {
        let Some(rt) = rt else { return (None, self.reins.lock()) };
        if let Some(reins) = self.reins.try_lock() {
            return (Some(rt), reins);
        }
        // SAFETY: the M of the calling thread is alive; the evidence ends here.
        unsafe { rt.into_m().as_ref() }.word.leave(Place::Blocked);
        let reins = self.reins.lock();
        (current::enter(), reins)
    }

    /// Stops the world for who has the reins; `caller` is his M, if it is one of this runtime. None
    /// if the runtime has ended.
    #[doc(alias = "stopTheWorld")]
    pub(crate) fn stop_the_world<'a>(
        &'a self,
        mut reins: Guard<'a, Reins>,
        caller: Option<&'a M>,
    ) -> Option<World<'a>> {
        if self.phase() == Phase::Stopped {
            return None;
        }
        reins.n_stops += 1;
        let asked_ns = clock::now_ns();
        let mut locked = self.lock.lock();
        self.stop.begin(self.procs());
        if let Some(m) = caller {
            let pp = m.release_p();
            m.stopped_p.set(pp);
            self.count_stopped(&mut locked, pp, Stopped::Lost(NonNull::from(m)));
        }
        while let Some(id) = locked.idle_ps.take_any(&self.idle) {
            self.count_stopped(&mut locked, self.p(id), Stopped::Free);
        }
        while let Some((id, start)) = locked.orphans.pop() {
            self.count_given(&mut locked, self.p(id), start);
        }
        self.press_all(&mut locked, Means::Ask);
        drop(locked);
        self.wait_for_all(asked_ns);
        // Only who has the reins writes here.
        self.pauses.stopping.record((clock::now_ns() - asked_ns) as i64);
        Some(World { sched: self, caller, reins: Some(reins), asked_ns })
    }

    /// Sleeps until no P is left to stop, and sees to it that this happens.
    fn wait_for_all(&self, asked_ns: u64) {
        let mut next_ns = asked_ns + STOP_ASK_NS;
        loop {
            let left = self.stop.left();
            if left == 0 {
                break;
            }
            let now = clock::now_ns();
            if now < next_ns {
                Kernel.wait(self.stop.word(), left, Some(Duration::from_nanos(next_ns - now)));
                continue;
            }
            next_ns = now + STOP_FORCE_NS;
            let means = if now - asked_ns < STOP_PATIENCE_NS { Means::Force } else { Means::Take };
            self.press_all(&mut self.lock.lock(), means);
        }
        // The lock orders what the last one did before what the stopper does now.
        let locked = self.lock.lock();
        for pp in self.all_ps() {
            if pp.stopped.get() == Stopped::No || pp.has_m() {
                heist_core::throw!("wait_for_all: P{} has not stopped", pp.id);
            }
        }
        drop(locked);
    }

    /// Presses every M that still holds a P to stop.
    fn press_all(&self, locked: &mut Locked, means: Means) {
        for pp in self.all_ps() {
            // SAFETY: an M that holds a P is alive, and as long as this thread has the lock it can
            // let go of the P but not end.
            if let Some(m) = unsafe { pp.m().as_ref() } {
                self.press(locked, pp, m, means);
            }
        }
    }

    fn press(&self, locked: &mut Locked, pp: &P, m: &M, means: Means) {
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
                let can_be_forced = self.config.forced_preemption
                    && means == Means::Force
                    && m.current().is_some_and(|gp| gp.may_be_forced());
                // A call that sleeps must not be interrupted, and has no use for the P.
                !can_be_forced || thread::is_asleep(m.tid())
            }
        };
        if take && m.word.take(seen, || self.heavy_fence()) {
            m.release_p();
            m.stopped_p.set(pp);
            self.count_stopped(locked, pp, Stopped::Lost(NonNull::from(m)));
        } else if seen.place() == Place::User && !take && means == Means::Force {
            self.stats.signals.add_shared(1);
            thread::interrupt(m.tid());
        }
    }

    /// Counts a P that nobody holds.
    pub(super) fn count_stopped(&self, _locked: &mut Locked, pp: &P, how: Stopped) {
        if pp.has_m() || pp.stopped.get() != Stopped::No {
            heist_core::throw!("count_stopped: P{} is held, or was counted before", pp.id);
        }
        pp.stopped.set(how);
        if self.stop.count() {
            Kernel.wake(self.stop.word());
        }
    }

    /// Counts a P that was to be given to an M. For who finds that the world stops, under the lock.
    pub(super) fn count_given(&self, locked: &mut Locked, pp: &P, start: Start) {
        if start == Start::Spinning {
            self.spinning.stop();
        }
        self.count_stopped(locked, pp, Stopped::Free);
    }

    /// If the world stops, counts a P that this thread would give away. False if it does not.
    pub(super) fn stop_instead(&self, pp: &P) -> bool {
        if !self.stop.pending() {
            return false;
        }
        let mut locked = self.lock.lock();
        let stops = self.stop.pending();
        if stops {
            self.count_stopped(&mut locked, pp, Stopped::Free);
        }
        stops
    }

    /// An M that searches stops with its P, and sleeps until it gets that or another one.
    #[cold]
    #[inline(never)]
    #[doc(alias = "gcstopm")]
    pub(super) fn stop_searching(&self, m: &M) -> Found {
        let mut locked = self.lock.lock();
        m.word.clear_attention(STOP);
        if !self.stop.pending() {
            return Found::Retry;
        }
        // Before the P is counted: once the world runs again, nobody may rely on this spinner.
        self.end_spin(m);
        // Who starts the world again sees to the timers.
        m.new_timer_ns.set(NEVER);
        let pp = m.release_p();
        m.stopped_p.set(pp);
        self.count_stopped(&mut locked, pp, Stopped::Left(NonNull::from(m)));
        drop(locked);
        let found = self.sleep_idle(m);
        m.stopped_p.set(null());
        found
    }

    /// A goroutine that is in the runtime stops where it is, with its thread. It goes on with its P
    /// and what is left of its slice, unless the P is gone: then it is the next in the global queue.
    #[cold]
    #[inline(never)]
    pub(crate) fn stop_here(&self, m: &M) {
        let mut locked = self.lock.lock();
        m.word.clear_attention(STOP);
        if !self.stop.pending() {
            return; // A stop that is over.
        }
        let Some(gp) = m.current() else {
            heist_core::throw!("stop_here: M{} runs nothing", m.id);
        };
        gp.status.transition(Status::Running, Status::Runnable);
        bound::bind(m, gp);
        let pp = m.release_p();
        m.stopped_p.set(pp);
        self.count_stopped(&mut locked, pp, Stopped::Awaited(NonNull::from(m)));
        drop(locked);
        self.wait_for_turn(m);
    }

    /// The world is stopped, and this M came back from a call during which its P was taken for that:
    /// it waits for it.
    pub(super) fn await_stopped_p(&self, m: &M, locked: Guard<'_, Locked, GlobalLen>) {
        // SAFETY: null, or a P, which lives as long as the runtime.
        let stopped_p = unsafe { m.stopped_p.get().as_ref() };
        let Some((pp, gp)) = stopped_p.zip(m.current()) else {
            heist_core::throw!("await_stopped_p: M{} has lost nothing, or runs nothing", m.id);
        };
        if pp.stopped.get() != Stopped::Lost(NonNull::from(m)) {
            heist_core::throw!("await_stopped_p: P{} and M{} disagree", pp.id, m.id);
        }
        gp.status.transition(Status::Running, Status::Runnable);
        bound::bind(m, gp);
        pp.stopped.set(Stopped::Awaited(NonNull::from(m)));
        drop(locked);
        self.wait_for_turn(m);
    }
}

impl<'a> World<'a> {
    /// The scheduler whose world it is.
    pub(super) const fn sched(&self) -> &'a Sched {
        self.sched
    }

    /// The M of who stopped it, if it is one of the runtime's.
    pub(super) const fn caller(&self) -> Option<&'a M> {
        self.caller
    }

    /// Lets the world run, and keeps the reins.
    pub(super) fn start(mut self) -> Option<Guard<'a, Reins>> {
        // Taken out, so that it outlives the drop.
        let reins = self.reins.take();
        drop(self);
        reins
    }

    /// Gives every P back to who waits for it, or to rest, and says so.
    fn restart(&self) {
        let sched = self.sched;
        let mut locked = sched.lock.lock();
        sched.stop.end();
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
                    sched.rest_p(&mut locked, pp);
                    true
                }
                Stopped::Free if pp.is_empty() => {
                    sched.rest_p(&mut locked, pp);
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
        // reins.
        for pp in sched.all_ps() {
            match pp.stopped.replace(Stopped::No) {
                Stopped::Awaited(m) | Stopped::Left(m) => {
                    // SAFETY: it sleeps until it is handed a P, and only this thread knows of it.
                    unsafe { sched.hand_over(m, pp, Start::Working) };
                }
                Stopped::Free => sched.start_m(pp, Start::Working),
                Stopped::No | Stopped::Lost(_) => {}
            }
        }
        // ORDERING: Ps are at rest again; who submitted before that and found none is served here,
        // as in `Sched::sleep`.
        heist_core::sync::fence(heist_core::sync::Ordering::SeqCst);
        sched.wake_p_if_work();
        let next_timer = sched.earliest_timer_hint();
        if next_timer != NEVER || sched.poll.has_waiters() {
            sched.watch_timer(next_timer);
        }
        sched.bell.ring();
    }
}

impl Drop for World<'_> {
    fn drop(&mut self) {
        self.restart();
        let took_ns = clock::now_ns() - self.asked_ns;
        self.sched.pauses.total.record(took_ns as i64);
    }
}

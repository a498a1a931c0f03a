//! Every interleaving of "work arrives" with "the last spinner gives up": `spinning.rs`.
//!
//! M0 runs on P0 forever and submits; it never looks for work. M1 on P1 spins and finds work or
//! not, or is about to drop its P; it parks when it is done. M2 is a thread that does not exist
//! until it is started. When all Ms that were started are parked, P1 is idle; work that has not run
//! by then is a lost wake-up.
//!
//! Mutations it catches, each tried on `spinning.rs`, `run_queue` or on the steps below:
//! - a fence removed: that of `stop`, of `try_be_first`, of the submitter, of a push into
//!   `run_next`, of the request without the lock, or of the check for one,
//! - the last check left out, or made before `stop`,
//! - the P made idle after `stop` instead of before (the submitter finds no idle P),
//! - `requested` not checked before a P is dropped, or not after, or `request` not made,
//! - an M that moves work from one ring to another and wakes no M (the model passes without a fence
//!   before it, because taking the first one out again is a read-modify-write; the code does not
//!   rely on that),
//! - a submitter that finds no P making its request, or lowering `n`, after it released the lock,
//!   or the one before the other (Go's order, which needs a rare delay to lose a wake-up).
#![cfg(loom)]

mod race;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::idle::{IdleProcs, IdleView};
use heist_core::list::{Link, Linked};
use heist_core::policy::{Share, may_spin};
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};
use heist_core::spinning::Spinning;
use heist_core::sync::{Ordering::SeqCst, fence};
use loom::sync::Mutex;
use loom::thread;
use race::{Starts, race};
use std::ptr::NonNull;
// Not loom's: they own the world and count for the check at the end; neither is part of the
// protocol.
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

const N_PROCS: u32 = 2;
const SUBMITTER_PROC: u32 = 0;

#[derive(Default)]
struct Job {
    link: Link<Self>,
}

// SAFETY: the link is one field, and jobs stay where they are in the world's vector.
unsafe impl Linked for Job {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

// SAFETY: only the holder of the job uses the link, as in the runtime.
unsafe impl Send for Job {}
// SAFETY: as above.
unsafe impl Sync for Job {}

struct Sched {
    idle: IdleProcs,
    global: GlobalQueue<Job>,
}

struct World {
    queues: [RunQueue<Job>; N_PROCS as usize],
    /// The ring of a P whose M does not get a CPU, if there is one.
    stalled: Option<RunQueue<Job>>,
    sched: Mutex<Sched>,
    global_len: GlobalLen,
    view: IdleView,
    spinning: Spinning,
    jobs: Vec<Job>,
    n_run: AtomicU32,
    submitter: Submitter,
}

/// How a submitter decides whether to wake an M.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Submitter {
    /// As Go does: `try_be_first`, then look for an idle P under the lock.
    Plain,
    /// It makes its own fence and, while every P is busy, leaves a request without taking the lock.
    ShortCut,
}

/// Where the submitter puts its work.
#[derive(Clone, Copy, Debug)]
enum Where {
    Local(Slot),
    Global,
    /// It takes all goroutines of a stalled P, runs the first and keeps the others.
    Moved,
}

impl World {
    fn new(n_jobs: usize, submitter: Submitter, place: Where) -> Arc<Self> {
        let view = IdleView::new(N_PROCS);
        Arc::new(Self {
            queues: [RunQueue::new(), RunQueue::new()],
            stalled: matches!(place, Where::Moved).then(RunQueue::new),
            sched: Mutex::new(Sched { idle: IdleProcs::new(N_PROCS), global: GlobalQueue::new() }),
            global_len: GlobalLen::new(),
            view,
            spinning: Spinning::new(),
            jobs: (0..n_jobs).map(|_| Job::default()).collect(),
            n_run: AtomicU32::new(0),
            submitter,
        })
    }

    fn submit(self: &Arc<Self>, job: usize, place: Where) -> Option<thread::JoinHandle<()>> {
        let gp = NonNull::from(&self.jobs[job]);
        match place {
            Where::Local(slot) => {
                // SAFETY: only the submitter uses P0.
                let owner = unsafe { self.queues[SUBMITTER_PROC as usize].owner() };
                owner.push(gp, slot, |_| panic!("two jobs do not overflow"));
            }
            Where::Global => {
                let mut sched = self.sched.lock().unwrap();
                // SAFETY: the job is new and in no queue.
                unsafe { sched.global.push(&self.global_len, Lane::Normal, gp) };
            }
            Where::Moved => return self.rob_stalled(),
        }
        // A push into `run_next` is a full fence by itself.
        let fenced = matches!(place, Where::Local(Slot::Next));
        if self.submitter == Submitter::ShortCut && !fenced {
            fence(SeqCst);
        }
        self.wake_p()
    }

    /// The rings that other Ms steal from.
    fn victims(&self) -> impl Iterator<Item = &RunQueue<Job>> {
        std::iter::once(&self.queues[SUBMITTER_PROC as usize]).chain(&self.stalled)
    }

    /// The steps of `steal_from_stalled` in `sched/run/steal.rs` of heist.
    fn rob_stalled(self: &Arc<Self>) -> Option<thread::JoinHandle<()>> {
        // SAFETY: only the submitter uses P0.
        let owner = unsafe { self.queues[SUBMITTER_PROC as usize].owner() };
        let stalled = self.stalled.as_ref()?;
        let steal_one =
            || match stalled.thief().steal_into(&owner, Share::CeilHalf, RunNext::Leave, || true) {
                Stolen::Batch { run, .. } => Some(run),
                _ => None,
            };
        while let Some(gp) = steal_one() {
            owner.push(gp, Slot::Tail, |_| panic!("two jobs do not overflow"));
        }
        if self.submitter == Submitter::ShortCut {
            fence(SeqCst);
        }
        if owner.pop().is_some() {
            self.n_run.fetch_add(1, Ordering::Relaxed);
        }
        if self.queues[SUBMITTER_PROC as usize].ring_is_empty() {
            return None;
        }
        self.wake_p()
    }

    /// IN-15.
    fn wake_p(self: &Arc<Self>) -> Option<thread::JoinHandle<()>> {
        if self.submitter == Submitter::ShortCut && self.nobody_to_wake() {
            return None;
        }
        if !self.spinning.try_be_first() {
            return None;
        }
        let mut sched = self.sched.lock().unwrap();
        let Some(pp) = sched.idle.take(&self.view) else {
            self.spinning.withdraw();
            return None;
        };
        drop(sched);
        let world = self.clone();
        Some(thread::spawn(move || M { world, pp, spins: true }.run()))
    }

    fn nobody_to_wake(&self) -> bool {
        if self.spinning.n() != 0 {
            return true;
        }
        if self.view.count() != 0 {
            return false;
        }
        if !self.spinning.requested() {
            self.spinning.request();
            fence(SeqCst);
        }
        // An M that drops its P raises the count, then reads the request.
        self.view.count() == 0
    }
}

/// A thread with a P that looks for work until it parks.
struct M {
    world: Arc<World>,
    pp: u32,
    spins: bool,
}

impl M {
    fn run(mut self) {
        let mut started = Vec::new();
        while self.find_job() || self.keep_looking() {
            if self.spins {
                continue;
            }
            started.extend(self.world.wake_p());
            self.world.n_run.fetch_add(1, Ordering::Relaxed);
        }
        for other in started {
            other.join().unwrap();
        }
    }

    /// IN-16: an M that finds work does not spin any more.
    fn find_job(&mut self) -> bool {
        if !self.spins && !self.may_start_to_spin() {
            return self.take_global();
        }
        let found = self.take_global() || self.steal();
        if found {
            self.spins = false;
            self.world.spinning.stop();
        }
        found
    }

    /// IN-14.
    fn may_start_to_spin(&mut self) -> bool {
        let world = &self.world;
        let may = may_spin(world.spinning.n(), N_PROCS, world.view.count());
        if may {
            world.spinning.start();
            self.spins = true;
        }
        may
    }

    fn take_global(&self) -> bool {
        if self.world.global_len.get() == 0 {
            return false;
        }
        self.world.sched.lock().unwrap().global.pop(&self.world.global_len).is_some()
    }

    fn steal(&self) -> bool {
        // SAFETY: this M holds the P.
        let home = unsafe { self.world.queues[self.pp as usize].owner() };
        self.world.victims().any(|victim| {
            match victim.thief().steal_into(&home, Share::CeilHalf, RunNext::Take, || true) {
                Stolen::Nothing => false,
                Stolen::Batch { n, .. } => {
                    assert_eq!(n, 1, "a model's M does not look at its own queue");
                    true
                }
                Stolen::RunNext(_) => true,
            }
        })
    }

    /// Nothing found: false if this M parks, true if it has a P again and spins.
    fn keep_looking(&mut self) -> bool {
        let world = &self.world;
        let mut sched = world.sched.lock().unwrap();
        if !self.spins && world.spinning.requested() {
            drop(sched);
            world.spinning.start();
            self.spins = true;
            return true;
        }
        // Step 1: the P becomes idle.
        sched.idle.put(&world.view, self.pp, false);
        drop(sched);
        // Step 2.
        let was_spinning = std::mem::replace(&mut self.spins, false);
        if was_spinning {
            world.spinning.stop();
        }
        let asked = world.submitter == Submitter::ShortCut && {
            fence(SeqCst);
            world.spinning.requested()
        };
        // Step 3: the last check, also for a request that was made without the lock.
        (was_spinning || asked) && self.look_once_more()
    }

    fn look_once_more(&mut self) -> bool {
        let world = &self.world;
        let busy = |id| !world.view.idle.contains(id) && !world.queues[id as usize].is_empty();
        if world.global_len.get() == 0
            && !(0..N_PROCS).any(busy)
            && !world.stalled.iter().any(|ring| !ring.is_empty())
        {
            return false;
        }
        let mut sched = world.sched.lock().unwrap();
        let Some(pp) = sched.idle.take(&world.view) else {
            world.spinning.request();
            return false;
        };
        drop(sched);
        world.spinning.start();
        self.spins = true;
        self.pp = pp;
        true
    }
}

/// What M1 does when the model begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Opening {
    /// It spins.
    Spins,
    /// It did not spin, because enough others did, and is about to drop its P; those others have
    /// found work since.
    DropsItsP,
}

/// M1 on P1, `n_jobs` submissions from P0, then all Ms park.
fn check(opening: Opening, n_jobs: usize, place: Where) {
    for submitter in [Submitter::Plain, Submitter::ShortCut] {
        for starts in [Starts::Left, Starts::Right] {
            loom::model(move || {
                let world = World::new(n_jobs, submitter, place);
                submit_and_park(&world, opening, place, starts);
            });
        }
    }
}

fn submit_and_park(world: &Arc<World>, opening: Opening, place: Where, starts: Starts) {
    let n_jobs = world.jobs.len();
    let submits = world.clone();
    let mut m1 = M { world: world.clone(), pp: 1, spins: opening == Opening::Spins };
    if m1.spins {
        world.spinning.start();
    }
    let n_submits = if world.stalled.is_some() { 1 } else { n_jobs };
    for (ring, job) in
        world.stalled.iter().flat_map(|ring| world.jobs.iter().map(move |j| (ring, j)))
    {
        // SAFETY: no other thread has seen the queue yet.
        let owner = unsafe { ring.owner() };
        owner.push(NonNull::from(job), Slot::Tail, |_| panic!("two jobs do not overflow"));
    }
    race(
        starts,
        move || {
            let started: Vec<_> =
                (0..n_submits).filter_map(|job| submits.submit(job, place)).collect();
            started.into_iter().for_each(|other| other.join().unwrap());
        },
        move || {
            if m1.spins || m1.keep_looking() {
                m1.run();
            }
        },
    );
    assert_eq!(
        world.n_run.load(Ordering::Relaxed),
        n_jobs as u32,
        "a wake-up was lost: all Ms are parked and there is work ({place:?}, {:?})",
        world.submitter
    );
    assert_eq!(world.spinning.n(), 0);
    assert_eq!(world.view.count(), 1);
}

/// IN-17: work at the tail of the submitter's ring.
#[test]
fn work_in_the_ring_is_not_missed() {
    check(Opening::Spins, 1, Where::Local(Slot::Tail));
}

/// IN-17: work in the submitter's `run_next`.
#[test]
fn work_in_run_next_is_not_missed() {
    check(Opening::Spins, 1, Where::Local(Slot::Next));
}

/// IN-17: work in the global queue.
#[test]
fn work_in_the_global_queue_is_not_missed() {
    check(Opening::Spins, 1, Where::Global);
}

/// IN-17, IN-18: the second submission may find every P busy; then an M must be asked to spin
/// before it drops its P.
#[test]
fn work_submitted_while_all_are_busy_is_not_missed() {
    check(Opening::Spins, 2, Where::Local(Slot::Tail));
}

/// IN-17, IN-18: an M that did not spin makes its P idle while work arrives: either the submitter
/// sees the P or the M sees the request.
#[test]
fn work_that_arrives_while_a_p_becomes_idle_is_not_missed() {
    for place in [Where::Local(Slot::Tail), Where::Local(Slot::Next), Where::Global] {
        check(Opening::DropsItsP, 1, place);
    }
}

/// IN-17: while the goroutines taken from a stalled P are being moved, no thread can see them, and
/// no M need be counted as looking for work.
#[test]
fn work_that_moves_between_rings_is_not_missed() {
    for opening in [Opening::Spins, Opening::DropsItsP] {
        check(opening, 2, Where::Moved);
    }
}

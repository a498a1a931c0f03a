//! Every interleaving of the owner of a run queue with thieves and observers, on a ring of four.
//!
//! Mutations it catches, each tried on `run_queue`:
//! - the owner's `tail` stored with Relaxed (the thief reads a goroutine that is not published),
//! - `run_next` swapped or taken with Relaxed (the same, for `run_next`),
//! - a thief or the owner moving `head` by a store instead of a CAS (taken twice),
//! - `push_overflow` without its CAS (taken twice),
//! - a thief that publishes everything it copied, including the one it returns (taken twice), or
//!   that publishes with Relaxed,
//! - `is_empty` without the second read of `tail`, with `run_next` read first, or with Relaxed
//!   loads (IN-06).
#![cfg(loom)]

use heist_core::policy::Share;
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::thread;
use std::ptr::NonNull;

/// A stand-in for a goroutine: loom reports a read of the cell that is not ordered after its write.
struct Job {
    id: UnsafeCell<u32>,
}

const N_JOBS: usize = 7;
/// The indices wrap in every model.
const START: u32 = u32::MAX - 1;

struct World {
    victim: RunQueue<Job>,
    thief_queues: [RunQueue<Job>; 2],
    jobs: Vec<Job>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            victim: RunQueue::starting_at(START),
            thief_queues: [RunQueue::starting_at(START), RunQueue::starting_at(START)],
            jobs: (0..N_JOBS).map(|_| Job { id: UnsafeCell::new(u32::MAX) }).collect(),
        })
    }

    /// The owner writes a goroutine and pushes it. Returns the ones that went to the global queue.
    fn push(&self, id: u32, slot: Slot) -> Vec<u32> {
        let job = &self.jobs[id as usize];
        // SAFETY: no other thread has this job before it is pushed; loom checks.
        job.id.with_mut(|place| unsafe { *place = id });
        let mut overflown = Vec::new();
        // SAFETY: each model calls this from one thread, or before the others start.
        let owner = unsafe { self.victim.owner() };
        owner.push(NonNull::from(job), slot, |batch| {
            overflown.extend(batch.iter().map(|&gp| read(gp)));
        });
        overflown
    }

    fn pop(&self) -> Option<u32> {
        // SAFETY: as for `push`.
        unsafe { self.victim.owner() }.pop().map(|popped| read(popped.goroutine()))
    }

    fn steal(&self, thief: usize, run_next: RunNext) -> Option<u32> {
        self.steal_from(&self.victim, thief, run_next)
    }

    fn steal_from(&self, victim: &RunQueue<Job>, thief: usize, run_next: RunNext) -> Option<u32> {
        // SAFETY: each model gives a thief's queue to one thread.
        let home = unsafe { self.thief_queues[thief].owner() };
        match victim.thief().steal_into(&home, Share::CeilHalf, run_next, || true) {
            Stolen::Nothing => None,
            Stolen::Batch { run, .. } | Stolen::RunNext(run) => Some(read(run)),
        }
    }

    /// The goroutines left in the queues once all threads are done.
    fn rest(&self) -> Vec<u32> {
        let mut rest = Vec::new();
        for queue in [&self.victim, &self.thief_queues[0], &self.thief_queues[1]] {
            // SAFETY: all other threads were joined.
            let owner = unsafe { queue.owner() };
            rest.extend(std::iter::from_fn(|| owner.pop()).map(|popped| read(popped.goroutine())));
            assert!(queue.is_empty());
        }
        rest
    }
}

fn read(gp: NonNull<Job>) -> u32 {
    // SAFETY: the jobs live as long as the world, which the caller borrows.
    let job = unsafe { gp.as_ref() };
    // SAFETY: written once before it was pushed; loom checks.
    job.id.with(|id| unsafe { *id })
}

fn assert_all_once(mut seen: Vec<u32>, n: u32) {
    seen.sort_unstable();
    assert_eq!(seen, (0..n).collect::<Vec<_>>(), "lost or taken twice");
}

/// One thread's part of a model; returns the jobs that it saw.
type Part = Box<dyn FnOnce() -> Vec<u32>>;

/// Runs the parts as threads and returns the jobs that they saw, in the order of the parts.
///
/// Loom begins with the part that stays on the main thread, and goes back only to the last access
/// of an atomic, so a load before a CAS in one thread hides the CAS from the loads of another.
/// With each part on the main thread in turn it finds those orders too.
fn race(main: usize, parts: impl IntoIterator<Item = Part>) -> Vec<Vec<u32>> {
    let mut on_main = None;
    let mut threads = Vec::new();
    for (at, part) in parts.into_iter().enumerate() {
        if at == main {
            on_main = Some(part);
        } else {
            threads.push(thread::spawn(part));
        }
    }
    let seen = on_main.expect("one part is on the main thread")();
    let mut all: Vec<_> = threads.into_iter().map(|part| part.join().unwrap()).collect();
    all.insert(main, seen);
    all
}

/// Runs `model` with each of its parts on the main thread.
fn check(n_parts: usize, model: impl Fn(usize) + Clone + Send + Sync + 'static) {
    for main in 0..n_parts {
        let model = model.clone();
        loom::model(move || model(main));
    }
}

fn part(world: &Arc<World>, act: impl FnOnce(&World) -> Vec<u32> + 'static) -> Part {
    let world = world.clone();
    Box::new(move || act(&world))
}

fn thief(world: &Arc<World>, thief: usize, run_next: RunNext) -> Part {
    part(world, move |world| world.steal(thief, run_next).into_iter().collect())
}

/// Runs the parts, then checks that each of `n_jobs` was seen once or is still in a queue.
fn every_job_once(world: &Arc<World>, main: usize, n_jobs: u32, parts: Vec<Part>) {
    let mut seen = race(main, parts).concat();
    seen.extend(world.rest());
    assert_all_once(seen, n_jobs);
}

/// Fills the ring with the first `n` jobs before the race.
fn filled(n: u32) -> Arc<World> {
    let world = World::new();
    for id in 0..n {
        assert!(world.push(id, Slot::Tail).is_empty());
    }
    world
}

/// IN-01: an owner that pushes and pops against a thief: every goroutine comes out once.
#[test]
fn owner_and_thief_take_every_goroutine_once() {
    check(2, |main| {
        let world = filled(1);
        let owner = part(&world, |world| {
            let mut seen = world.push(1, Slot::Tail);
            seen.extend(world.push(2, Slot::Tail));
            seen.extend(world.pop());
            seen.extend(world.pop());
            seen
        });
        every_job_once(&world, main, 3, vec![owner, thief(&world, 0, RunNext::Leave)]);
    });
}

/// IN-01: two thieves at one ring.
#[test]
fn two_thieves_take_every_goroutine_once() {
    check(3, |main| {
        let world = filled(3);
        let owner = part(&world, |world| world.pop().into_iter().collect());
        let thieves = [0, 1].map(|id| thief(&world, id, RunNext::Leave));
        let parts = [owner].into_iter().chain(thieves).collect();
        every_job_once(&world, main, 3, parts);
    });
}

/// IN-02, IN-04: a full ring overflows while a thief makes room: one of the two happens.
#[test]
fn overflow_and_thief_take_every_goroutine_once() {
    check(2, |main| {
        let world = filled(4);
        let owner = part(&world, |world| {
            let seen = world.push(4, Slot::Tail);
            assert!(
                seen.is_empty() || seen == [0, 1, 4],
                "not the oldest half and the newcomer: {seen:?}"
            );
            seen
        });
        every_job_once(&world, main, 5, vec![owner, thief(&world, 0, RunNext::Leave)]);
    });
}

/// IN-01: the owner reuses slots that a slow thief is still reading; that thief must lose.
#[test]
fn reused_slot_is_not_stolen_twice() {
    check(2, |main| {
        let world = filled(4);
        let owner = part(&world, |world| {
            let mut seen = Vec::new();
            for id in 4..6 {
                seen.extend(world.pop());
                seen.extend(world.push(id, Slot::Tail));
            }
            seen
        });
        every_job_once(&world, main, 6, vec![owner, thief(&world, 0, RunNext::Leave)]);
    });
}

/// IN-03, IN-05, IN-07: the owner replaces and pops `run_next` while a thief wants it.
#[test]
fn run_next_is_taken_once() {
    check(2, |main| {
        let world = World::new();
        assert!(world.push(0, Slot::Next).is_empty());
        let owner = part(&world, |world| {
            let mut seen = world.push(1, Slot::Next);
            seen.extend(world.pop());
            seen
        });
        every_job_once(&world, main, 2, vec![owner, thief(&world, 0, RunNext::Take)]);
    });
}

/// IN-03: `run_next` is kicked into a full ring, which overflows while a thief steals.
#[test]
fn run_next_kicked_into_a_full_ring_is_not_lost() {
    check(2, |main| {
        let world = filled(4);
        assert!(world.push(4, Slot::Next).is_empty());
        let owner = part(&world, |world| world.push(5, Slot::Next));
        every_job_once(&world, main, 6, vec![owner, thief(&world, 0, RunNext::Take)]);
    });
}

/// IN-08: goroutines that a thief keeps in its own ring can be stolen by the next thief.
#[test]
fn stolen_goroutines_reach_a_second_thief() {
    check(3, |main| {
        let world = World::new();
        let owner =
            part(&world, |world| (0..3).flat_map(|id| world.push(id, Slot::Tail)).collect());
        let second = part(&world, |world| {
            let stolen = world.steal_from(&world.thief_queues[0], 1, RunNext::Leave);
            stolen.into_iter().collect()
        });
        let parts = vec![owner, thief(&world, 0, RunNext::Leave), second];
        every_job_once(&world, main, 3, parts);
    });
}

/// Runs `owner` against an observer, which must never find the queue empty.
fn never_looks_empty(world: &Arc<World>, main: usize, owner: Part) {
    let onlooker = part(world, |world| {
        assert!(!world.victim.is_empty(), "there was one all the time");
        Vec::new()
    });
    race(main, [owner, onlooker]);
}

/// RQ-03, IN-06: there is always a goroutine in the queue, so an observer never finds it empty. In
/// the case (Next, Next) it moves from `run_next` into the ring.
#[test]
fn is_empty_sees_what_is_always_there() {
    for first in [Slot::Next, Slot::Tail] {
        for second in [Slot::Next, Slot::Tail] {
            check(2, move |main| {
                let world = World::new();
                assert!(world.push(0, first).is_empty());
                let owner = part(&world, move |world| {
                    assert!(world.push(1, second).is_empty());
                    assert!(world.pop().is_some());
                    Vec::new()
                });
                never_looks_empty(&world, main, owner);
            });
        }
    }
}

/// IN-06: the same while a thief empties the ring and `run_next` is filled.
#[test]
fn is_empty_sees_run_next_when_the_ring_is_emptied() {
    check(2, |main| {
        let world = filled(1);
        let owner = part(&world, |world| {
            assert!(world.push(1, Slot::Next).is_empty());
            assert_eq!(world.steal(0, RunNext::Leave), Some(0));
            Vec::new()
        });
        never_looks_empty(&world, main, owner);
    });
}

//! Every interleaving of a goroutine that forks with thieves: `fork_deque.rs`, on a ring of four.
//!
//! Each job is taken exactly once, by the owner or by a thief, and is seen as it was written. Loom
//! has no asymmetric fences; both sides execute full ones.
//!
//! Mutations it catches, each tried on `fork_deque.rs`:
//! - `pop` without its fence, or a thief without its own (taken twice),
//! - `pop` that skips the compare-exchange for the last job (taken twice),
//! - `bottom` stored with Relaxed by `push` (the thief reads a job that is not written).
//!
//! A `hand_on` that does not move `top` passes: the last job always moves it.
#![cfg(loom)]

use heist_core::fork_deque::ForkDeque;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::{Ordering, fence};
use loom::thread;
use std::ptr::NonNull;
// Not loom's: it counts for the check at the end and is not part of the protocol.
use std::sync::atomic::{AtomicU32, Ordering as Plain};

const N_JOBS: usize = 6;

/// Loom reports a read of the cell that is not ordered after its write.
struct Job {
    id: UnsafeCell<u32>,
    n_taken: AtomicU32,
}

struct World {
    deque: ForkDeque<Job>,
    jobs: Vec<Job>,
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

fn run(job: &Job, id: Option<u32>) {
    // SAFETY: the job was taken, so nobody writes it; loom checks.
    let seen = job.id.with(|place| unsafe { *place });
    assert!(id.is_none_or(|id| id == seen), "another job than expected");
    assert_eq!(job.n_taken.fetch_add(1, Plain::Relaxed), 0, "job {seen} is taken twice");
}

impl World {
    fn new() -> Arc<Self> {
        let job = |_| Job { id: UnsafeCell::new(u32::MAX), n_taken: AtomicU32::new(0) };
        Arc::new(Self { deque: ForkDeque::new(), jobs: (0..N_JOBS).map(job).collect() })
    }

    fn push(&self, id: u32) {
        let job = &self.jobs[id as usize];
        // SAFETY: nobody else has this job before it is pushed; loom checks.
        job.id.with_mut(|place| unsafe { *place = id });
        // SAFETY: each model calls this from one thread, or before the others start.
        unsafe { self.deque.owner() }.push(NonNull::from(job)).expect("there is room");
    }

    /// Pops the job with this id and runs it, if no thief has it.
    fn pop(&self, id: u32) -> bool {
        let job = NonNull::from(&self.jobs[id as usize]);
        // SAFETY: as for `push`.
        let own = unsafe { self.deque.owner() }.pop(job, full_fence);
        if own {
            run(&self.jobs[id as usize], Some(id));
        }
        own
    }

    fn steal(&self) -> bool {
        let Some(seen) = self.deque.thief().look() else { return false };
        full_fence();
        let Some(job) = self.deque.thief().take(seen) else { return false };
        // SAFETY: jobs live as long as the world.
        run(unsafe { job.as_ref() }, None);
        true
    }

    fn check(&self, n: usize) {
        for (id, job) in self.jobs.iter().enumerate() {
            let n_taken = job.n_taken.load(Plain::Relaxed);
            assert_eq!(n_taken, u32::from(id < n), "job {id} was taken {n_taken} times");
        }
    }
}

/// The owner pops two nested forks while one thief takes.
#[test]
fn owner_versus_thief() {
    loom::model(|| {
        let world = World::new();
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || (world.steal(), world.steal()))
        };
        world.push(0);
        world.push(1);
        let inner = world.pop(1);
        let outer = world.pop(0);
        let (first, second) = thief.join().unwrap();
        assert_eq!(u32::from(inner) + u32::from(outer) + u32::from(first) + u32::from(second), 2);
        world.check(2);
    });
}

/// Two thieves and the owner want one job.
#[test]
fn the_last_job_has_one_taker() {
    loom::model(|| {
        let world = World::new();
        world.push(0);
        let thieves = [(); 2].map(|()| {
            let world = Arc::clone(&world);
            thread::spawn(move || world.steal())
        });
        let own = world.pop(0);
        let stolen = thieves.map(|thief| thief.join().unwrap());
        assert_eq!(u32::from(own) + stolen.map(u32::from).iter().sum::<u32>(), 1);
        world.check(1);
    });
}

/// A slot is used again while a thief that looked before is about to take.
#[test]
fn a_popped_slot_is_pushed_again() {
    loom::model(|| {
        let world = World::new();
        world.push(0);
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.steal())
        };
        let mut taken = u32::from(world.pop(0));
        world.push(1);
        taken += u32::from(world.pop(1));
        taken += u32::from(thief.join().unwrap());
        assert_eq!(taken, 2);
        world.check(2);
    });
}

/// A thief that looked at the deque of one owner takes nothing from the next owner by that look.
#[test]
fn a_look_at_the_first_owner_fails_at_the_second() {
    loom::model(|| {
        let world = World::new();
        world.push(0);
        let seen = world.deque.thief().look().expect("there is a job");
        let thief = {
            let world = Arc::clone(&world);
            thread::spawn(move || {
                full_fence();
                // SAFETY: jobs live as long as the world.
                let job = world.deque.thief().take(seen).map(|job| unsafe { job.as_ref() });
                job.inspect(|job| run(job, Some(0))).is_some()
            })
        };
        let own = world.pop(0);
        // SAFETY: this thread is the owner.
        unsafe { world.deque.owner() }.hand_on();
        world.push(1);
        let stolen = thief.join().unwrap();
        assert!(own != stolen, "the first job has one taker");
        assert!(world.pop(1));
        world.check(2);
    });
}

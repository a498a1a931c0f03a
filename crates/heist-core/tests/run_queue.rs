//! Tests of the run queue in one thread: where goroutines go, and in which order they come out.
#![cfg(not(loom))]

mod jobs;

use heist_core::list::List;
use heist_core::policy::{OVERFLOW_BATCH, RING_CAPACITY, Share};
use heist_core::run_queue::{Owner, Popped, RunNext, RunQueue, Slot, Stolen};
use jobs::{Job, id, jobs};
use std::ptr::NonNull;

fn owner(queue: &RunQueue<Job>) -> Owner<'_, Job> {
    // SAFETY: these tests have one thread.
    unsafe { queue.owner() }
}

fn push(queue: &RunQueue<Job>, job: &Job, slot: Slot) -> Vec<u32> {
    let mut overflown = Vec::new();
    owner(queue).push(NonNull::from(job), slot, |batch| {
        overflown.extend(batch.iter().map(|&gp| id(gp)));
    });
    overflown
}

fn fill(queue: &RunQueue<Job>, jobs: &[Job]) {
    for job in jobs {
        assert_eq!(push(queue, job, Slot::Tail), [], "the ring has room");
    }
}

/// Pops from the ring; `run_next` must be empty.
fn pop(queue: &RunQueue<Job>) -> Option<u32> {
    owner(queue).pop().map(|popped| match popped {
        Popped::Fresh(gp) => id(gp),
        Popped::Inherits(gp) => panic!("job {} came from run_next", id(gp)),
    })
}

fn pop_all(queue: &RunQueue<Job>) -> Vec<u32> {
    std::iter::from_fn(|| pop(queue)).collect()
}

fn steal(victim: &RunQueue<Job>, thief: &RunQueue<Job>, run_next: RunNext) -> Stolen<Job> {
    victim.thief().steal_into(&owner(thief), Share::CeilHalf, run_next, || true)
}

/// RQ-01: for every fill level the same entries come out in the same order, round after round, in
/// one queue whose indices grow and wrap.
#[test]
fn ring_is_first_in_first_out_at_every_fill_level() {
    let jobs = jobs(RING_CAPACITY);
    for start in [0, u32::MAX - 100, u32::MAX - 10_000] {
        let queue = RunQueue::starting_at(start);
        for n in 0..=RING_CAPACITY {
            assert_eq!(pop(&queue), None, "not empty at the start of level {n}");
            fill(&queue, &jobs[..n as usize]);
            assert_eq!(queue.len(), n);
            assert_eq!(queue.is_empty(), n == 0);
            assert_eq!(pop_all(&queue), (0..n).collect::<Vec<_>>());
            assert!(queue.is_empty(), "not empty at the end of level {n}");
        }
    }
}

/// RQ-02, IN-07, IN-08: at every fill level a theft takes the larger half, the oldest, each once,
/// and gives the last of them to the thief to run.
#[test]
fn theft_takes_the_older_larger_half() {
    let jobs = jobs(RING_CAPACITY);
    let (victim, thief) = (RunQueue::starting_at(u32::MAX - 100), RunQueue::new());
    for n in 0..=RING_CAPACITY {
        fill(&victim, &jobs[..n as usize]);
        let share = n.div_ceil(2);
        match steal(&victim, &thief, RunNext::Take) {
            Stolen::Nothing => assert_eq!(n, 0),
            Stolen::Batch { run, n: taken } => {
                assert_eq!((id(run), taken), (share - 1, share));
            }
            Stolen::RunNext(_) => panic!("run_next was not filled"),
        }
        let kept = (0..share.saturating_sub(1)).collect::<Vec<_>>();
        assert_eq!(pop_all(&thief), kept, "level {n}");
        assert_eq!(pop_all(&victim), (share..n).collect::<Vec<_>>(), "level {n}");
    }
}

/// IN-07: `run_next` is stolen only with permission and only from an empty ring, after the
/// back-off.
#[test]
fn run_next_is_stolen_last_and_with_permission() {
    let jobs = jobs(2);
    let (victim, thief) = (RunQueue::new(), RunQueue::new());
    push(&victim, &jobs[0], Slot::Tail);
    push(&victim, &jobs[1], Slot::Next);
    let mut n_back_offs = 0;
    let mut steal = |run_next| {
        victim.thief().steal_into(&owner(&thief), Share::CeilHalf, run_next, || {
            n_back_offs += 1;
            true
        })
    };
    assert!(matches!(steal(RunNext::Take), Stolen::Batch { run, n: 1 } if id(run) == 0));
    assert!(matches!(steal(RunNext::Leave), Stolen::Nothing));
    assert!(matches!(steal(RunNext::Take), Stolen::RunNext(gp) if id(gp) == 1));
    assert!(matches!(steal(RunNext::Take), Stolen::Nothing));
    assert_eq!(n_back_offs, 1, "only the theft of run_next waits");
    assert!(victim.is_empty() && thief.is_empty());
}

/// IN-07: if the owner replaces `run_next` during the back-off, the thief starts again: here it
/// finds the goroutine that was kicked into the ring.
#[test]
fn thief_that_loses_run_next_starts_again() {
    let jobs = jobs(2);
    let (victim, thief) = (RunQueue::new(), RunQueue::new());
    push(&victim, &jobs[0], Slot::Next);
    let stolen = victim.thief().steal_into(&owner(&thief), Share::CeilHalf, RunNext::Take, || {
        push(&victim, &jobs[1], Slot::Next);
        true
    });
    assert!(matches!(stolen, Stolen::Batch { run, n: 1 } if id(run) == 0));
    assert!(matches!(owner(&victim).pop(), Some(Popped::Inherits(gp)) if id(gp) == 1));
}

/// A thief that sees during the back-off that the owner makes progress leaves `run_next` to it.
#[test]
fn run_next_is_left_to_an_owner_that_makes_progress() {
    let jobs = jobs(1);
    let (victim, thief) = (RunQueue::new(), RunQueue::new());
    push(&victim, &jobs[0], Slot::Next);
    let steal =
        |takes| victim.thief().steal_into(&owner(&thief), Share::CeilHalf, RunNext::Take, || takes);
    assert!(matches!(steal(false), Stolen::Nothing));
    assert!(victim.has_next() && victim.ring_is_empty());
    assert!(matches!(steal(true), Stolen::RunNext(gp) if id(gp) == 0));
    assert!(!victim.has_next());
}

/// IN-08: a thief with work of its own takes no more than its ring can hold.
#[test]
fn theft_leaves_what_the_thief_cannot_hold() {
    let jobs = jobs(2 * RING_CAPACITY);
    let (theirs, mine) = jobs.split_at(RING_CAPACITY as usize);
    for held in RING_CAPACITY - 3..=RING_CAPACITY {
        let (victim, thief) = (RunQueue::new(), RunQueue::starting_at(u32::MAX - 7));
        fill(&victim, theirs);
        fill(&thief, &mine[..held as usize]);
        let room = RING_CAPACITY - held;
        match steal(&victim, &thief, RunNext::Take) {
            Stolen::Nothing => assert_eq!(room, 0),
            Stolen::Batch { run, n } => assert_eq!((id(run), n), (room - 1, room)),
            Stolen::RunNext(_) => panic!("the ring is not empty"),
        }
        assert_eq!(victim.len() + thief.len() + u32::from(room > 0), RING_CAPACITY + held);
        let first_left = pop(&victim);
        assert_eq!(first_left, Some(room), "the older ones were taken");
    }
}

/// IN-02, IN-04: the 257th entry moves exactly the 128 oldest and then itself, in order.
#[test]
fn overflow_moves_the_older_half_and_the_newcomer() {
    let jobs = jobs(RING_CAPACITY + 1);
    for start in [0, u32::MAX - 100] {
        let queue = RunQueue::starting_at(start);
        fill(&queue, &jobs[..RING_CAPACITY as usize]);
        let overflown = push(&queue, &jobs[RING_CAPACITY as usize], Slot::Tail);
        let expected: Vec<u32> = (0..OVERFLOW_BATCH).chain([RING_CAPACITY]).collect();
        assert_eq!(overflown, expected);
        assert_eq!(pop_all(&queue), (OVERFLOW_BATCH..RING_CAPACITY).collect::<Vec<_>>());
    }
    assert_eq!((RING_CAPACITY, OVERFLOW_BATCH), (256, 128));
}

/// IN-03, IN-04: with a full ring, the goroutine kicked out of `run_next` overflows, not the
/// newcomer.
#[test]
fn overflow_from_run_next_moves_the_kicked_one() {
    let jobs = jobs(RING_CAPACITY + 2);
    let queue = RunQueue::starting_at(u32::MAX - 300);
    fill(&queue, &jobs[..RING_CAPACITY as usize]);
    let (kicked, newcomer) = (RING_CAPACITY, RING_CAPACITY + 1);
    assert_eq!(push(&queue, &jobs[kicked as usize], Slot::Next), []);
    let overflown = push(&queue, &jobs[newcomer as usize], Slot::Next);
    assert_eq!(overflown, (0..OVERFLOW_BATCH).chain([kicked]).collect::<Vec<_>>());
    assert!(matches!(owner(&queue).pop(), Some(Popped::Inherits(gp)) if id(gp) == newcomer));
}

/// IN-04: the batch may be reordered before it is queued, as chaos mode does.
#[test]
fn overflow_batch_can_be_reordered() {
    let jobs = jobs(RING_CAPACITY + 1);
    let queue = RunQueue::new();
    fill(&queue, &jobs[..RING_CAPACITY as usize]);
    let mut first = None;
    owner(&queue).push(NonNull::from(&jobs[RING_CAPACITY as usize]), Slot::Tail, |batch| {
        batch.reverse();
        first = batch.first().map(|&gp| id(gp));
    });
    assert_eq!(first, Some(RING_CAPACITY));
}

/// IN-03, IN-05: `run_next` comes first and inherits the slice; a goroutine that is kicked out of
/// it goes to the end of the ring and does not inherit.
#[test]
fn run_next_comes_first_and_inherits() {
    let jobs = jobs(4);
    let queue = RunQueue::new();
    push(&queue, &jobs[0], Slot::Tail);
    for job in &jobs[1..] {
        push(&queue, job, Slot::Next);
    }
    assert_eq!(queue.len(), 4);
    assert!(matches!(owner(&queue).pop(), Some(Popped::Inherits(gp)) if id(gp) == 3));
    assert_eq!(pop_all(&queue), [0, 1, 2]);
}

/// IN-06: `run_next` alone keeps the queue from being empty.
#[test]
fn queue_with_only_run_next_is_not_empty() {
    let jobs = jobs(1);
    let queue = RunQueue::new();
    assert!(queue.is_empty());
    push(&queue, &jobs[0], Slot::Next);
    assert!(!queue.is_empty());
    assert_eq!(queue.len(), 1);
    assert!(owner(&queue).pop().is_some());
    assert!(queue.is_empty());
}

/// IN-09: a batch fills the ring from the front of the list; the rest stays there, in order.
#[test]
fn batch_fills_the_ring_and_leaves_the_rest() {
    let jobs = jobs(2 * RING_CAPACITY);
    for held in [0, 1, 100, RING_CAPACITY - 1, RING_CAPACITY] {
        let queue = RunQueue::starting_at(u32::MAX - 100);
        fill(&queue, &jobs[..held as usize]);
        let mut list = List::new();
        for job in &jobs[held as usize..(held + RING_CAPACITY) as usize] {
            // SAFETY: the job is in no list and outlives this one.
            unsafe { list.push_back(NonNull::from(job)) };
        }
        owner(&queue).push_batch(&mut list);
        assert_eq!(queue.len(), RING_CAPACITY);
        assert_eq!(list.len(), held);
        assert_eq!(pop_all(&queue), (0..RING_CAPACITY).collect::<Vec<_>>());
        let rest: Vec<u32> = list.map(id).collect();
        assert_eq!(rest, (RING_CAPACITY..RING_CAPACITY + held).collect::<Vec<_>>());
    }
}

/// IN-33: a removed P gives `run_next` first, then its ring in order.
#[test]
fn drain_gives_run_next_then_the_ring() {
    let jobs = jobs(10);
    let queue = RunQueue::starting_at(u32::MAX - 4);
    fill(&queue, &jobs[..9]);
    push(&queue, &jobs[9], Slot::Next);
    let drained: Vec<u32> = owner(&queue).drain().map(id).collect();
    assert_eq!(drained, [9, 0, 1, 2, 3, 4, 5, 6, 7, 8]);
    assert!(queue.is_empty());
}

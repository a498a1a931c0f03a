//! The run queue of a P and the global queue, without a scheduler around them.

use std::hint::black_box;
use std::ptr::NonNull;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::{Link, Linked};
use heist_core::policy::Share;
use heist_core::run_queue::{RunNext, RunQueue, Slot, Stolen};

use crate::Repeat;

/// Stands in for a goroutine.
#[derive(Default)]
struct Node {
    link: Link<Self>,
}

// SAFETY: always the same field, which no other code uses; the nodes are leaked, so they stay
// valid.
unsafe impl Linked for Node {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

fn node() -> NonNull<Node> {
    NonNull::from(Box::leak(Box::new(Node::default())))
}

fn nodes(n: usize) -> Vec<NonNull<Node>> {
    (0..n).map(|_| node()).collect()
}

fn no_overflow(_: &mut [NonNull<Node>]) {
    panic!("the ring overflowed");
}

fn push_and_pop(slot: Slot) -> Repeat {
    let queue = RunQueue::<Node>::new();
    let gp = node();
    Box::new(move |n| {
        // SAFETY: no other thread uses this queue.
        let owner = unsafe { queue.owner() };
        for _ in 0..n {
            owner.push(black_box(gp), slot, no_overflow);
            black_box(owner.pop().expect("it was just pushed"));
        }
    })
}

pub fn tail() -> Repeat {
    push_and_pop(Slot::Tail)
}

pub fn next() -> Repeat {
    push_and_pop(Slot::Next)
}

/// Pushes without a pop: of every 257 goroutines 129 overflow.
pub fn overflow() -> Repeat {
    let queue = RunQueue::<Node>::new();
    let gp = node();
    Box::new(move |n| {
        // SAFETY: no other thread uses this queue.
        let owner = unsafe { queue.owner() };
        for _ in 0..n {
            owner.push(black_box(gp), Slot::Tail, |batch| {
                black_box(batch);
            });
        }
    })
}

pub fn steal_one() -> Repeat {
    let (victim, thief) = (RunQueue::<Node>::new(), RunQueue::<Node>::new());
    let gp = node();
    Box::new(move |n| {
        // SAFETY: no other thread uses these queues.
        let (owner, taker) = unsafe { (victim.owner(), thief.owner()) };
        for _ in 0..n {
            owner.push(black_box(gp), Slot::Tail, no_overflow);
            let stolen =
                victim.thief().steal_into(&taker, Share::CeilHalf, RunNext::Leave, || true);
            assert!(matches!(stolen, Stolen::Batch { n: 1, .. }));
        }
    })
}

/// A ring of 256 loses 128 to a thief, which runs them; the victim refills.
pub fn steal_half() -> Repeat {
    const BATCH: usize = 128;
    let (victim, thief) = (RunQueue::<Node>::new(), RunQueue::<Node>::new());
    let gps = nodes(2 * BATCH);
    // SAFETY: no other thread uses these queues.
    gps.iter().for_each(|gp| unsafe { victim.owner() }.push(*gp, Slot::Tail, no_overflow));
    Box::new(move |n| {
        // SAFETY: no other thread uses these queues.
        let (owner, taker) = unsafe { (victim.owner(), thief.owner()) };
        for _ in 0..n.div_ceil(BATCH) {
            let stolen =
                victim.thief().steal_into(&taker, Share::CeilHalf, RunNext::Leave, || true);
            let Stolen::Batch { run, n: 128 } = stolen else { panic!("not half of the ring") };
            owner.push(run, Slot::Tail, no_overflow);
            while let Some(popped) = taker.pop() {
                owner.push(popped.goroutine(), Slot::Tail, no_overflow);
            }
        }
    })
}

/// A batch goes in as a list, as it comes from an overflow, behind three others, and a P takes its
/// share from the front.
pub fn global_batch() -> Repeat {
    const BATCH: usize = 128;
    let (mut queue, len) = (GlobalQueue::<Node>::new(), GlobalLen::new());
    // SAFETY: fresh nodes, in no queue.
    nodes(4 * BATCH).into_iter().for_each(|gp| unsafe { queue.push(&len, Lane::Normal, gp) });
    Box::new(move |n| {
        for _ in 0..n.div_ceil(BATCH) {
            let mut list = queue.pop_batch(&len, 1);
            assert_eq!(list.len(), BATCH as u32);
            queue.append(&len, Lane::Normal, &mut list);
        }
    })
}

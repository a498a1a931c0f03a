//! Tests of the global queue: first in, first out, one or a share at a time, with a public length.
#![cfg(not(loom))]

mod jobs;

use heist_core::global_queue::{GlobalLen, GlobalQueue, Lane};
use heist_core::list::List;
use heist_core::policy::RING_CAPACITY;
use heist_core::run_queue::{RunQueue, Slot};
use jobs::{Job, id, jobs};
use std::ptr::NonNull;

fn list(jobs: &[Job]) -> List<Job> {
    let mut list = List::new();
    for job in jobs {
        // SAFETY: the job is in no list and outlives this one.
        unsafe { list.push_back(NonNull::from(job)) };
    }
    list
}

fn pop_all(queue: &mut GlobalQueue<Job>, len: &GlobalLen) -> Vec<u32> {
    std::iter::from_fn(|| queue.pop(len)).map(id).collect()
}

/// IN-11: `pop` takes exactly one, from the front, and the public length is updated.
#[test]
fn pop_takes_exactly_one() {
    let jobs = jobs(3);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    for job in &jobs {
        // SAFETY: the job is in no queue.
        unsafe { queue.push(&len, Lane::Normal, NonNull::from(job)) };
    }
    for expected in 0..3 {
        assert_eq!((queue.len(), len.get()), (3 - expected, 3 - expected));
        assert_eq!(queue.pop(&len).map(id), Some(expected));
    }
    assert_eq!(queue.pop(&len), None);
    assert!(queue.is_empty() && len.get() == 0);
}

/// IN-10: a share comes in order, and is as large as the formula says.
#[test]
fn share_comes_in_order() {
    let jobs = jobs(1000);
    for (size, procs, share) in [(0, 1, 0), (1, 4, 1), (10, 4, 3), (10, 1, 10), (1000, 2, 128)] {
        let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
        queue.append(&len, Lane::Normal, &mut list(&jobs[..size]));
        let batch: Vec<u32> = queue.pop_batch(&len, procs).map(id).collect();
        assert_eq!(batch, (0..share).collect::<Vec<_>>(), "{size} among {procs}");
        assert_eq!(len.get(), size as u32 - share);
        assert_eq!(pop_all(&mut queue, &len), (share..size as u32).collect::<Vec<_>>());
    }
}

/// IN-04, IN-33: an overflow is appended; the goroutines of a removed P go in front, in order.
#[test]
fn batches_join_at_either_end() {
    let jobs = jobs(9);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[3..6]));
    queue.append(&len, Lane::Normal, &mut list(&jobs[6..]));
    queue.prepend(&len, &mut list(&jobs[..3]));
    assert_eq!(len.get(), 9);
    assert_eq!(pop_all(&mut queue, &len), (0..9).collect::<Vec<_>>());
}

/// IN-33: the queue of a removed P goes to the front of the global queue, in the same order.
#[test]
fn drained_p_comes_first_and_in_order() {
    let jobs = jobs(6);
    let (mut global, len) = (GlobalQueue::new(), GlobalLen::new());
    global.append(&len, Lane::Normal, &mut list(&jobs[4..]));
    let local = RunQueue::starting_at(u32::MAX - 1);
    // SAFETY: one thread.
    let owner = unsafe { local.owner() };
    for job in &jobs[1..4] {
        owner.push(NonNull::from(job), Slot::Tail, |_| unreachable!("there is room"));
    }
    owner.push(NonNull::from(&jobs[0]), Slot::Next, |_| unreachable!("there is room"));
    global.prepend(&len, &mut owner.drain());
    assert_eq!(pop_all(&mut global, &len), (0..6).collect::<Vec<_>>());
}

/// IN-10: the first of a share is run and the rest fits into the empty ring.
#[test]
fn share_fits_into_an_empty_ring() {
    let jobs = jobs(1000);
    let (mut global, len) = (GlobalQueue::new(), GlobalLen::new());
    global.append(&len, Lane::Normal, &mut list(&jobs));
    let local = RunQueue::new();
    // SAFETY: one thread.
    let owner = unsafe { local.owner() };
    let mut batch = global.pop_batch(&len, 1);
    assert_eq!(batch.pop_front().map(id), Some(0));
    owner.push_batch(&mut batch);
    assert!(batch.is_empty());
    assert_eq!(local.len(), RING_CAPACITY / 2 - 1);
}

/// Callers that ask for the front part get the latency class before the urgent ones; other callers
/// get the remaining goroutines first.
#[test]
fn the_front_part_has_its_own_order() {
    let jobs = jobs(6);
    let (mut global, len) = (GlobalQueue::new(), GlobalLen::new());
    global.append(&len, Lane::Normal, &mut list(&jobs[0..2]));
    global.append(&len, Lane::Urgent, &mut list(&jobs[2..4]));
    for job in &jobs[4..6] {
        // SAFETY: the job is in no list and outlives this one.
        unsafe { global.push(&len, Lane::Latency, NonNull::from(job)) };
    }
    assert_eq!((len.get(), len.urgent(), len.latency()), (6, 4, 2));
    assert_eq!(global.pop_urgent(&len).map(id), Some(4));
    assert_eq!(global.pop(&len).map(id), Some(0));
    assert_eq!(global.pop_lane(&len, Lane::Latency).map(id), Some(5));
    assert_eq!(global.pop_lane(&len, Lane::Latency), None);
    assert_eq!(global.pop_urgent(&len).map(id), Some(2));
    assert_eq!((len.get(), len.urgent(), len.latency()), (2, 1, 0));
    let mut batch = global.pop_batch(&len, 1);
    let order: Vec<_> = std::iter::from_fn(|| batch.pop_front()).map(id).collect();
    assert_eq!(order, [1, 3]);
    assert_eq!((len.get(), len.urgent()), (0, 0));
}

fn stop(queue: &mut GlobalQueue<Job>, len: &GlobalLen, jobs: &[Job]) {
    for job in jobs {
        // SAFETY: the job is in no queue.
        unsafe { queue.push_frozen(len, Lane::Normal, NonNull::from(job)) };
    }
}

/// A stopped goroutine comes after the goroutines that were queued before it and before those that
/// were queued later.
#[test]
fn a_frozen_goroutine_keeps_its_place() {
    let jobs = jobs(7);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[..3]));
    stop(&mut queue, &len, &jobs[3..4]);
    queue.append(&len, Lane::Normal, &mut list(&jobs[4..]));
    assert_eq!((queue.len(), len.get()), (7, 7));
    assert_eq!(pop_all(&mut queue, &len), (0..7).collect::<Vec<_>>());
}

/// Many stopped goroutines and many others take turns, each kind in order.
#[test]
fn frozen_goroutines_take_turns_with_the_others() {
    let jobs = jobs(100);
    for (n, n_stopped) in [(50, 50), (90, 10), (10, 90), (99, 1), (1, 99), (0, 100), (100, 0)] {
        let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
        stop(&mut queue, &len, &jobs[n..n + n_stopped]);
        queue.append(&len, Lane::Normal, &mut list(&jobs[..n]));
        let order = pop_all(&mut queue, &len);
        let (stopped, others): (Vec<u32>, Vec<u32>) = order.iter().partition(|&&id| id >= n as u32);
        assert_eq!(others, (0..n as u32).collect::<Vec<_>>());
        assert_eq!(stopped, (n as u32..100).collect::<Vec<_>>());
        // A stopped goroutine waits for its share of the others; each share waits for one stopped
        // goroutine.
        let share = n.div_ceil(n_stopped.max(1));
        let place = |wanted: u32| order.iter().position(|&id| id == wanted).unwrap();
        for i in 0..n_stopped {
            assert!(place((n + i) as u32) <= (i + 1) * (share + 1), "{n}, {n_stopped}: {order:?}");
        }
        for i in 0..n {
            assert!(place(i as u32) <= 2 * (i + 1), "{n}, {n_stopped}: {order:?}");
        }
    }
}

/// A share with a stopped goroutine contains no other, and no share contains one that comes after
/// it.
#[test]
fn a_frozen_goroutine_comes_alone() {
    let jobs = jobs(10);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[1..4]));
    stop(&mut queue, &len, &jobs[4..5]);
    queue.append(&len, Lane::Normal, &mut list(&jobs[5..]));
    queue.append(&len, Lane::Urgent, &mut list(&jobs[..1]));
    let mut shares: Vec<Vec<u32>> = Vec::new();
    while !queue.is_empty() {
        shares.push(queue.pop_batch(&len, 1).map(id).collect());
    }
    assert_eq!(shares, [vec![1, 2, 3, 0], vec![4], vec![5, 6, 7, 8, 9]]);
    assert_eq!(len.get(), 0);
}

/// An M that needs a thread gets the first stopped goroutine, wherever it is among the others.
#[test]
fn a_frozen_goroutine_is_found_out_of_turn() {
    let jobs = jobs(1000);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[..998]));
    assert!(!queue.has_frozen());
    stop(&mut queue, &len, &jobs[998..]);
    assert!(queue.has_frozen());
    assert_eq!(queue.pop_frozen(&len, Lane::Normal).map(id), Some(998));
    assert_eq!(queue.pop_frozen(&len, Lane::Normal).map(id), Some(999));
    assert_eq!(queue.pop_frozen(&len, Lane::Normal), None);
    assert_eq!(pop_all(&mut queue, &len), (0..998).collect::<Vec<_>>());
}

/// A wanted goroutine is taken out of the middle; the others, including the stopped ones, keep
/// their order.
#[test]
fn a_wanted_goroutine_is_taken_out_of_turn() {
    let jobs = jobs(8);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[..3]));
    stop(&mut queue, &len, &jobs[3..4]);
    queue.append(&len, Lane::Normal, &mut list(&jobs[4..]));
    let mut take = |wanted| queue.take_wanted(&len, |job| id(NonNull::from(job)) == wanted).map(id);
    assert_eq!(take(3), None, "a stopped goroutine is not found this way");
    for wanted in [1, 2, 7, 0] {
        assert_eq!(take(wanted), Some(wanted));
        assert_eq!(take(wanted), None);
    }
    assert_eq!((queue.len(), len.get()), (4, 4));
    let mut rest = pop_all(&mut queue, &len);
    rest.retain(|&id| id != 3);
    assert_eq!(rest, [4, 5, 6]);
}

/// IN-33: a goroutine that was stopped on a removed P is next.
#[test]
fn frozen_goroutines_of_a_removed_p_come_first() {
    let jobs = jobs(6);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    queue.append(&len, Lane::Normal, &mut list(&jobs[1..3]));
    stop(&mut queue, &len, &jobs[3..4]);
    queue.append(&len, Lane::Normal, &mut list(&jobs[4..]));
    queue.prepend_frozen(&len, &mut List::new());
    queue.prepend_frozen(&len, &mut list(&jobs[..1]));
    assert_eq!(len.get(), 6);
    let order = pop_all(&mut queue, &len);
    assert_eq!(order[0], 0);
    assert_eq!(order.len(), 6);
}

/// A stopped goroutine that was taken and put back is the first of the stopped ones, and comes
/// after others.
#[test]
fn a_frozen_goroutine_that_is_put_back_lets_others_go_first() {
    let jobs = jobs(4);
    let (mut queue, len) = (GlobalQueue::new(), GlobalLen::new());
    stop(&mut queue, &len, &jobs[..2]);
    queue.append(&len, Lane::Normal, &mut list(&jobs[2..]));
    let taken = queue.pop_frozen(&len, Lane::Normal).expect("one is there");
    // SAFETY: just taken, so valid and in no queue.
    unsafe { queue.put_back_frozen(&len, taken) };
    assert_eq!(len.get(), 4);
    let order = pop_all(&mut queue, &len);
    assert_eq!(order[0], 2);
    assert!(order.iter().position(|&job| job == 0) < order.iter().position(|&job| job == 1));
    assert_eq!(order.len(), 4);
}

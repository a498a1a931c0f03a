//! Tests of the queue of waits: the order in which entries come out, and the effect of a failed
//! claim.
#![cfg(not(loom))]

use heist_core::wait_queue::{AllClaimed, Claim, Claimed, Entry, WaitQueue};
use std::cell::Cell;
use std::ptr::null_mut;

/// A wait that can be claimed once.
struct Wait {
    name: u32,
    claimed: Cell<bool>,
}

impl Claim for Wait {
    fn claim(&self) -> bool {
        !self.claimed.replace(true)
    }

    fn is_open(&self) -> bool {
        !self.claimed.get()
    }
}

fn waits() -> [Wait; 4] {
    [0, 1, 2, 3].map(|name| Wait { name, claimed: Cell::new(false) })
}

fn entries(waits: &[Wait; 4]) -> [Entry<Wait>; 4] {
    [0, 1, 2, 3].map(|i| Entry::new(&raw const waits[i], null_mut()))
}

fn name(claimed: &Claimed<Wait>) -> u32 {
    // SAFETY: the waits outlive the test's use of them.
    unsafe { claimed.wait().as_ref() }.name
}

fn push_all(queue: &mut WaitQueue<Wait>, entries: &[Entry<Wait>]) {
    for entry in entries {
        // SAFETY: the entries outlive the queue and are in none.
        unsafe { queue.push(entry) };
    }
}

#[test]
fn an_entry_pushed_in_front_comes_out_first_and_can_be_removed() {
    let waits = waits();
    let entries = entries(&waits);
    let mut queue = WaitQueue::new();
    // SAFETY: the entries outlive the queue; each is in none, or in this one.
    unsafe {
        queue.push_front(&entries[1]);
        queue.push(&entries[2]);
        queue.push_front(&entries[0]);
        queue.push_front(&entries[3]);
        queue.remove(&entries[3]);
    }
    assert!(!entries[3].is_listed());
    let names: Vec<u32> = std::iter::from_fn(|| queue.claim_first()).map(|c| name(&c)).collect();
    assert_eq!(names, [0, 1, 2]);
    assert!(queue.is_empty());
}

#[test]
fn an_entry_whose_wait_is_over_comes_out_unclaimed() {
    let waits = waits();
    let entries = entries(&waits);
    let mut queue = WaitQueue::new();
    push_all(&mut queue, &entries[..2]);
    assert!(waits[0].claim());
    assert!(queue.take_first().is_some_and(|first| first.is_none()));
    assert!(!entries[0].is_listed());
    assert_eq!(queue.take_first().flatten().map(|claimed| name(&claimed)), Some(1));
    assert!(queue.take_first().is_none());
}

#[test]
fn the_first_place_is_that_of_the_first_entry() {
    let waits = waits();
    let mut place = 7_u64;
    let entry = Entry::new(&raw const waits[0], (&raw mut place).cast());
    let mut queue = WaitQueue::new();
    assert!(queue.first_place().is_none());
    // SAFETY: the entry outlives the queue and is in none.
    unsafe { queue.push(&entry) };
    assert_eq!(queue.first_place(), Some((&raw mut place).cast()));
    // SAFETY: it is in this queue.
    unsafe { queue.remove(&entry) };
}

#[test]
fn claimed_waits_are_woken_in_either_order() {
    for in_order in [true, false] {
        let waits = waits();
        let entries = entries(&waits);
        let mut queue = WaitQueue::new();
        push_all(&mut queue, &entries);
        assert!(waits[2].claim());
        let all = queue.claim_all();
        assert!(queue.is_empty());
        assert_eq!((all.len(), all.is_empty()), (3, false));
        let mut names = Vec::new();
        let wake = |claimed| names.push(name(&claimed));
        if in_order {
            all.wake_in_order(wake)
        } else {
            all.wake_last_first(wake)
        }
        assert_eq!(names, if in_order { [0, 1, 3] } else { [3, 1, 0] });
    }
    assert!(AllClaimed::<Wait>::new().is_empty());
}

//! The runtime never allocates, and the checker of that rule reports an allocation.

#![cfg(debug_assertions)]

use crate::child;
use crate::matrix;

use heist::testing::{self, Place};

const SIGABRT: i32 = 6;

/// Breaks the rule on a goroutine, in a child that does not survive it.
#[track_caller]
fn caught(place: Place, said: &str) {
    let ended = child::run(|| {
        matrix::plain(1).run(|| {
            drop(Box::new(1));
            break_the_rule(place);
            eprintln!("nobody noticed");
        });
    });
    ended.was_killed_by(SIGABRT);
    ended.said(said);
    // The caller's name.
    ended.said("break_the_rule");
    assert!(!ended.stderr.contains("nobody noticed"));
}

#[inline(never)]
fn break_the_rule(place: Place) {
    testing::allocate_in(place);
}

/// An allocation by a goroutine that has entered the runtime.
#[test]
fn an_allocation_inside_the_runtime_is_caught() {
    caught(Place::Runtime, "an allocation of 4 bytes inside the runtime");
}

/// An allocation by any thread that holds a lock of the runtime.
#[test]
fn an_allocation_under_a_lock_of_the_runtime_is_caught() {
    caught(Place::Lock, "an allocation of 4 bytes while a lock of the runtime is held");
}

/// An allocation by the thread that watches the others.
#[test]
fn an_allocation_on_sysmon_is_caught() {
    caught(Place::Sysmon, "an allocation of 4 bytes on sysmon");
}

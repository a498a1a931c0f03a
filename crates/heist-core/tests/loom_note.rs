//! Every interleaving of one sleeper with one waker: `note.rs` over a futex made of a mutex.
//!
//! A lost wake-up shows as a deadlock, which loom reports.
//!
//! Mutations it catches, each tried on `note.rs`:
//! - the waker's swap with Relaxed, or the sleeper's loads with Relaxed (the handed-over data is
//!   not visible),
//! - no call to the kernel when ASLEEP was seen,
//! - a sleeper that stores ASLEEP instead of the CAS (the wake-up before it is overwritten),
//! - a timeout that stores CLEAR instead of the CAS (the wake-up at that moment is forgotten).
#![cfg(loom)]

mod loom_kernel;
mod race;

use heist_core::note::{Futex, Note, Woken};
use heist_core::sync::AtomicU32;
use loom::cell::UnsafeCell;
use loom::sync::{Arc, mpsc};
use loom_kernel::Kernel;
use race::{check, race};
use std::time::Duration;

struct World {
    note: Note,
    kernel: Kernel,
    /// The P that the waker hands over.
    handed: UnsafeCell<u32>,
}

impl World {
    fn new() -> Arc<Self> {
        Arc::new(Self { note: Note::new(), kernel: Kernel::default(), handed: UnsafeCell::new(0) })
    }

    fn hand_over(&self, what: u32) {
        // SAFETY: the sleeper reads it only after the wake-up below; loom checks.
        self.handed.with_mut(|place| unsafe { *place = what });
        self.note.wake(&self.kernel);
    }

    fn handed(&self) -> u32 {
        // SAFETY: called after the wake-up; loom checks.
        self.handed.with(|place| unsafe { *place })
    }
}

/// IN-19: a wake-up before, during or after falling asleep ends the sleep, and makes earlier writes
/// visible.
#[test]
fn sleeper_wakes_whenever_it_is_woken() {
    check(|starts| {
        let sleeps = World::new();
        let wakes = sleeps.clone();
        race(
            starts,
            move || {
                sleeps.note.sleep(&sleeps.kernel);
                assert_eq!(sleeps.handed(), 7);
                assert!(sleeps.note.is_noted());
            },
            move || wakes.hand_over(7),
        );
    });
}

/// A note that was cleared works a second time: no wake-up is left over, none is lost.
#[test]
fn cleared_note_sleeps_again() {
    check(|starts| {
        let sleeps = World::new();
        let wakes = sleeps.clone();
        let (cleared, go) = mpsc::channel();
        race(
            starts,
            move || {
                sleeps.note.sleep(&sleeps.kernel);
                assert_eq!(sleeps.handed(), 1);
                sleeps.note.clear();
                cleared.send(()).unwrap();
                sleeps.note.sleep(&sleeps.kernel);
                assert_eq!(sleeps.handed(), 2);
            },
            move || {
                wakes.hand_over(1);
                go.recv().unwrap();
                wakes.hand_over(2);
            },
        );
    });
}

/// A wake-up against a timeout: the sleeper either has it or finds it at its next sleep.
#[test]
fn wake_up_that_misses_the_timeout_is_remembered() {
    check(|starts| {
        let world = World::new();
        let [sleeps, wakes] = [world.clone(), world.clone()];
        race(
            starts,
            move || {
                let mut waits_left = 1;
                let woken = sleeps.note.sleep_while(&sleeps.kernel, || {
                    waits_left -= 1;
                    (waits_left >= 0).then_some(Duration::from_nanos(1))
                });
                if woken == Woken::TimedOut {
                    sleeps.note.sleep(&sleeps.kernel);
                }
                assert_eq!(sleeps.handed(), 7);
            },
            move || wakes.hand_over(7),
        );
        assert!(world.note.is_noted());
    });
}

/// A wake-up that comes first makes no call to the kernel, on either side.
#[test]
fn early_wake_up_needs_no_kernel() {
    loom::model(|| {
        struct NoKernel;
        impl Futex for NoKernel {
            fn wait(&self, _: &AtomicU32, _: u32, _: Option<Duration>) {
                panic!("slept though it was woken before");
            }
            fn wake(&self, _: &AtomicU32) {
                panic!("woke a thread that does not sleep");
            }
        }
        let note = Note::new();
        note.wake(&NoKernel);
        note.sleep(&NoKernel);
        assert_eq!(note.sleep_while(&NoKernel, || None), Woken::Noted);
    });
}

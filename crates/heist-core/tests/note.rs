//! The note with real threads over a futex made of a mutex; its races are in `loom_note`.
#![cfg(not(loom))]

use heist_core::note::{Futex, Note, Woken};
use heist_core::sync::{AtomicU32, Ordering};
use std::sync::{Condvar, Mutex, mpsc};
use std::thread;
use std::time::Duration;

#[derive(Default)]
struct Kernel {
    bucket: Mutex<()>,
    sleepers: Condvar,
}

impl Futex for Kernel {
    fn wait(&self, word: &AtomicU32, expected: u32, timeout: Option<Duration>) {
        let bucket = self.bucket.lock().unwrap();
        if word.load(Ordering::Relaxed) != expected {
            return;
        }
        match timeout {
            None => drop(self.sleepers.wait(bucket).unwrap()),
            Some(timeout) => drop(self.sleepers.wait_timeout(bucket, timeout).unwrap()),
        }
    }

    fn wake(&self, _: &AtomicU32) {
        let _bucket = self.bucket.lock().unwrap();
        self.sleepers.notify_all();
    }
}

/// Two threads wake each other in turn; a lost wake-up would hang.
#[test]
fn two_threads_wake_each_other() {
    const ROUNDS: u32 = 5_000;
    let kernel = Kernel::default();
    let (ping, pong) = (Note::new(), Note::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..ROUNDS {
                ping.sleep(&kernel);
                ping.clear();
                pong.wake(&kernel);
            }
        });
        for _ in 0..ROUNDS {
            ping.wake(&kernel);
            pong.sleep(&kernel);
            pong.clear();
        }
    });
    assert!(!ping.is_noted() && !pong.is_noted());
}

/// A sleeper that timed out leaves a note that remembers the next wake-up.
#[test]
fn wake_up_after_a_timeout_is_remembered() {
    let (kernel, note) = (Kernel::default(), Note::new());
    assert_eq!(note.sleep_while(&kernel, || None), Woken::TimedOut);
    assert!(!note.is_noted());
    note.wake(&kernel);
    assert_eq!(note.sleep_while(&kernel, || None), Woken::Noted);
}

/// A wait that ends early is repeated until the time is over or the wake-up comes.
#[test]
fn early_return_from_the_kernel_is_no_wake_up() {
    let (kernel, note) = (Kernel::default(), Note::new());
    let mut n_waits = 3;
    let woken = note.sleep_while(&kernel, || {
        n_waits -= 1;
        (n_waits > 0).then_some(Duration::ZERO)
    });
    assert_eq!((woken, n_waits), (Woken::TimedOut, 0));
    let woken = note.sleep_while(&kernel, || {
        if n_waits == 2 {
            note.wake(&kernel);
        }
        n_waits += 1;
        Some(Duration::ZERO)
    });
    assert_eq!(woken, Woken::Noted);
}

/// Without another `clear` a note can be woken once.
#[test]
#[should_panic(expected = "throw: Note::wake: woken twice")]
fn second_wake_up_throws() {
    let (kernel, note) = (Kernel::default(), Note::new());
    note.wake(&kernel);
    note.wake(&kernel);
}

/// A note has one sleeper.
#[test]
fn second_sleeper_throws() {
    let (kernel, note) = (Kernel::default(), Note::new());
    let (sender, receiver) = mpsc::channel();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Called after the note says that a thread sleeps.
            let woken = note.sleep_while(&kernel, || {
                let _ = sender.send(());
                Some(Duration::from_secs(60))
            });
            assert_eq!(woken, Woken::Noted);
        });
        receiver.recv().unwrap();
        let second = std::panic::AssertUnwindSafe(|| note.sleep(&kernel));
        assert!(std::panic::catch_unwind(second).is_err());
        note.wake(&kernel);
    });
}

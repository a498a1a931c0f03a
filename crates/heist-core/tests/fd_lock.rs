//! The lock of a descriptor, step by step, and with many threads at once.

use heist_core::fd_lock::{FdLock, REFS_MAX, Taken, Unlocked, Way};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};

/// NP-19: uses hold references, and the last release after a close destroys.
#[test]
fn the_last_release_after_close_destroys() {
    let lock = FdLock::new();
    assert_eq!(lock.acquire(), Taken::Yes);
    assert_eq!(lock.release(), Unlocked::Done);
    assert_eq!(lock.acquire(), Taken::Yes);
    assert!(lock.close());
    assert!(!lock.close());
    assert_eq!(lock.acquire(), Taken::Closed);
    assert_eq!(lock.lock(Way::Read), Taken::Closed);
    assert_eq!(lock.queue(Way::Write), Taken::Closed);
    assert_eq!(lock.release(), Unlocked::Done);
    assert_eq!(lock.release(), Unlocked::Last);
}

/// NP-19: reading and writing are independent; a second reader queues and is given the lock.
#[test]
fn each_way_has_one_user() {
    let lock = FdLock::new();
    assert_eq!(lock.lock(Way::Read), Taken::Yes);
    assert_eq!(lock.lock(Way::Write), Taken::Yes);
    assert_eq!(lock.lock(Way::Read), Taken::Busy);
    assert_eq!(lock.queue(Way::Read), Taken::Busy);
    assert_eq!(lock.unlock(Way::Write), Unlocked::Done);
    assert_eq!(lock.unlock(Way::Read), Unlocked::Queued);
    lock.passed_on(Way::Read, false);
    assert_eq!(lock.lock(Way::Read), Taken::Busy);
    assert_eq!(lock.unlock(Way::Read), Unlocked::Done);
    assert_eq!(lock.queue(Way::Read), Taken::Yes);
    assert_eq!(lock.unlock(Way::Read), Unlocked::Done);
    // The queued user has given up.
    assert_eq!(lock.lock(Way::Read), Taken::Yes);
    assert_eq!(lock.queue(Way::Read), Taken::Busy);
    assert_eq!(lock.unlock(Way::Read), Unlocked::Queued);
    assert_eq!(lock.unlock_empty(Way::Read), Unlocked::Done);
    assert_eq!(lock.lock(Way::Read), Taken::Yes);
    assert!(lock.close());
    assert_eq!(lock.release(), Unlocked::Done);
    assert_eq!(lock.unlock(Way::Read), Unlocked::Last);
}

/// NP-19: too many users are refused, and closing still works.
#[test]
fn references_do_not_overflow() {
    let lock = FdLock::new();
    for _ in 0..REFS_MAX {
        assert_eq!(lock.acquire(), Taken::Yes);
    }
    assert_eq!(lock.acquire(), Taken::TooMany);
    assert_eq!(lock.lock(Way::Read), Taken::TooMany);
    assert_eq!(lock.queue(Way::Write), Taken::TooMany);
    assert!(lock.close());
    for _ in 0..REFS_MAX {
        assert_eq!(lock.release(), Unlocked::Done);
    }
    assert_eq!(lock.release(), Unlocked::Last);
}

/// NP-19: threads with random operations exclude each other, and one of them destroys.
#[test]
fn random_operations_keep_exclusion() {
    const THREADS: u64 = 8;
    const ROUNDS: u64 = 100_000;
    let lock = FdLock::new();
    let inside = [AtomicU32::new(0), AtomicU32::new(0)];
    let destroyed = AtomicU32::new(0);
    // A user that finds it busy tries again: the queue belongs to the caller, and here it is always
    // empty.
    let queue = Mutex::new(());
    let end = |ended: Unlocked| {
        if ended == Unlocked::Last {
            destroyed.fetch_add(1, Ordering::Relaxed);
        }
    };
    std::thread::scope(|scope| {
        for seed in 1..=THREADS {
            let (lock, inside, end, queue) = (&lock, &inside, &end, &queue);
            scope.spawn(move || {
                let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
                for _ in 0..ROUNDS {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let way = match random % 3 {
                        0 => {
                            assert_eq!(lock.acquire(), Taken::Yes);
                            end(lock.release());
                            continue;
                        }
                        1 => Way::Read,
                        _ => Way::Write,
                    };
                    let taken = match lock.lock(way) {
                        Taken::Busy => {
                            let _queue = queue.lock().expect("no panic");
                            lock.queue(way)
                        }
                        taken => taken,
                    };
                    if taken != Taken::Yes {
                        assert_eq!(taken, Taken::Busy);
                        continue;
                    }
                    let inside = &inside[way as usize];
                    assert_eq!(inside.fetch_add(1, Ordering::Relaxed), 0, "two users");
                    inside.fetch_sub(1, Ordering::Relaxed);
                    match lock.unlock(way) {
                        Unlocked::Queued => {
                            let _queue = queue.lock().expect("no panic");
                            end(lock.unlock_empty(way));
                        }
                        ended => end(ended),
                    }
                }
            });
        }
    });
    assert_eq!(destroyed.load(Ordering::Relaxed), 0);
    assert!(lock.close());
    end(lock.release());
    assert_eq!(destroyed.load(Ordering::Relaxed), 1);
}

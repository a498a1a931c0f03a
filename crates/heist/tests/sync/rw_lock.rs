//! `RwLock` between goroutines and plain threads.

use crate::matrix;

use heist::sync::{RwLock, RwLockWriteGuard, WaitGroup};
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// SY-09: readers hold the lock at the same time.
#[test]
fn readers_share() {
    for (readers, procs) in [(1, 4), (3, 4), (4, 2)] {
        matrix::each_of(&matrix::cases_with(&[procs]), |_, rt| {
            rt.run(|| {
                let lock = Arc::new(RwLock::new(()));
                let (inside, leave, done) = (WaitGroup::new(), WaitGroup::new(), WaitGroup::new());
                inside.add(readers);
                leave.add(1);
                done.add(readers);
                for _ in 0..readers {
                    let lock = Arc::clone(&lock);
                    let (inside, leave, done) = (inside.clone(), leave.clone(), done.clone());
                    go(move || {
                        let _guard = lock.read();
                        inside.done();
                        leave.wait();
                        done.done();
                    });
                }
                inside.wait();
                leave.done();
                done.wait();
            });
        });
    }
}

/// Checks that a writer is alone and that readers see no writer.
struct Checked {
    lock: RwLock<u64>,
    /// Readers inside, or 10,000 for a writer.
    activity: AtomicI32,
}

impl Checked {
    fn read(&self) {
        let guard = self.lock.read();
        let n = self.activity.fetch_add(1, Ordering::Relaxed) + 1;
        assert!((1..10_000).contains(&n), "a reader sees {n}");
        std::hint::black_box(*guard);
        self.activity.fetch_sub(1, Ordering::Relaxed);
    }

    fn write(&self) {
        let mut guard = self.lock.write();
        let n = self.activity.fetch_add(10_000, Ordering::Relaxed) + 10_000;
        assert_eq!(n, 10_000, "a writer is not alone");
        *guard += 1;
        self.activity.fetch_sub(10_000, Ordering::Relaxed);
    }
}

fn hammer(rt: &heist::Runtime, readers: usize, rounds: usize) {
    let checked = Arc::new(Checked { lock: RwLock::new(0), activity: AtomicI32::new(0) });
    let spawn = |write: bool, n: usize| {
        let checked = Arc::clone(&checked);
        rt.handle().spawn(move || {
            for i in 0..n {
                if write {
                    checked.write()
                } else {
                    checked.read()
                }
                if i % 16 == 0 {
                    yield_now();
                }
            }
        })
    };
    let mut handles = vec![spawn(true, rounds)];
    handles.extend((0..readers / 2).map(|_| spawn(false, rounds)));
    handles.push(spawn(true, rounds));
    handles.extend((readers / 2..readers).map(|_| spawn(false, rounds)));
    // Plain threads take part.
    (0..rounds / 10).for_each(|_| checked.read());
    (0..rounds / 10).for_each(|_| checked.write());
    handles.into_iter().for_each(|handle| handle.join().unwrap());
    let writes = 2 * rounds + rounds / 10;
    assert_eq!(*checked.lock.read(), writes as u64);
    assert!(!checked.lock.is_locked());
}

/// SY-10: a writer never sees others and readers never see a writer, at many sizes.
#[test]
fn writers_exclude_all_others() {
    let sizes =
        [(1, 1), (1, 3), (1, 10), (4, 1), (4, 3), (4, 10), (10, 1), (10, 3), (10, 10), (10, 5)];
    for (procs, readers) in sizes {
        matrix::each_of(&matrix::cases_with(&[procs]), |_, rt| {
            hammer(rt, readers, 300);
        });
    }
}

/// SY-10: the attempts that do not wait.
#[test]
fn attempts_do_not_wait() {
    let attempts = || {
        let lock = RwLock::new(0);
        let writer = lock.write();
        assert!(lock.try_read().is_none() && lock.try_write().is_none());
        drop(writer);
        let reader = lock.try_read().expect("free");
        assert!(lock.try_write().is_none());
        let second = lock.try_read().expect("readers share");
        drop(reader);
        assert!(lock.try_write().is_none());
        drop(second);
        let mut writer = lock.try_write().expect("free again");
        *writer += 1;
        let reader = RwLockWriteGuard::downgrade(writer);
        assert!(lock.try_write().is_none());
        assert_eq!(*lock.try_read().expect("readers share") + *reader, 2);
    };
    attempts();
    matrix::run(attempts);
}

/// Whether a goroutine is parked for this reason.
fn is_parked(handle: &heist::JoinHandle<()>, reason: &str) -> bool {
    heist::dump_goroutines().contains(&format!("goroutine {} [{reason}", handle.id()))
}

/// SY-11: a writer waits for every reader and holds the next ones back; when it leaves, they go in.
#[test]
fn a_waiting_writer_holds_back_readers() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0));
        for round in 0..10 {
            let (one, two) = (lock.read(), lock.read());
            let writer = {
                let lock = Arc::clone(&lock);
                go(move || *lock.write() += 1)
            };
            matrix::yield_until("the writer waits", || is_parked(&writer, "sync.RWMutex.Lock"));
            assert!(lock.try_read().is_none(), "a writer waits");
            let reader = {
                let lock = Arc::clone(&lock);
                go(move || assert_eq!(*lock.read(), round + 1))
            };
            matrix::yield_until("the reader waits", || is_parked(&reader, "sync.RWMutex.RLock"));
            drop(one);
            assert!(!writer.is_finished(), "one reader is still in");
            drop(two);
            writer.join().unwrap();
            reader.join().unwrap();
        }
    });
}

/// SY-12: readers that waited go in before the next writer, and that writer before later readers:
/// they take turns.
#[test]
fn readers_and_writers_take_turns() {
    matrix::run(|| {
        let lock: &'static RwLock<Vec<&str>> = Box::leak(Box::new(RwLock::new(Vec::new())));
        let log = Arc::new(heist::sync::Mutex::new(Vec::new()));
        let first = lock.write();
        let queue = |name: &'static str, write: bool| {
            let log = Arc::clone(&log);
            let handle = go(move || {
                if write {
                    let _guard = lock.write();
                    log.lock().push(name);
                } else {
                    let _guard = lock.read();
                    log.lock().push(name);
                }
            });
            let reason = if write { "sync.RWMutex.Lock" } else { "sync.RWMutex.RLock" };
            matrix::yield_until("queued", || is_parked(&handle, reason));
            handle
        };
        // The writer came first, but the readers waited when the first writer left.
        let handles = [
            queue("writer", true),
            queue("reader", false),
            queue("reader", false),
            queue("reader", false),
        ];
        drop(first);
        handles.into_iter().for_each(|handle| handle.join().unwrap());
        assert_eq!(*log.lock(), ["reader", "reader", "reader", "writer"]);
    });
}

/// SY-12: writers that never pause do not keep readers out, nor readers writers.
#[test]
fn neither_side_starves() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0));
        let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
        let busy: Vec<_> = (0..4)
            .map(|i| {
                let (lock, stop) = (Arc::clone(&lock), Arc::clone(&stop));
                go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        if i % 2 == 0 {
                            *lock.write() += 1;
                        } else {
                            let _guard = lock.read();
                            yield_now();
                        }
                        yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..50 {
            drop(lock.read());
            drop(lock.write());
        }
        stop.store(true, Ordering::Relaxed);
        busy.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

/// A writer that is cancelled while it waits lets the readers behind it in; a reader that is
/// cancelled leaves nothing behind.
#[test]
fn cancelled_waiters_hold_no_other_back() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0));
        let reader = lock.read();
        let spawn = |write: bool| {
            let lock = Arc::clone(&lock);
            go(move || if write { *lock.write() += 1 } else { drop(lock.read()) })
        };
        let writer = spawn(true);
        matrix::yield_until("the writer waits", || is_parked(&writer, "sync.RWMutex.Lock"));
        let (second, third) = (spawn(false), spawn(false));
        for waiting in [&second, &third] {
            matrix::yield_until("a reader waits", || is_parked(waiting, "sync.RWMutex.RLock"));
        }
        third.cancel();
        assert!(third.join().unwrap_err().is_cancelled());
        writer.cancel();
        assert!(writer.join().unwrap_err().is_cancelled());
        second.join().unwrap();
        drop(reader);
        *lock.write() += 1;
        assert_eq!(*lock.read(), 1);
        assert!(!lock.is_locked());
    });
}

/// Timeouts end waits of both sides not before their time, and hold no other back.
#[test]
fn waits_time_out() {
    let wait = || {
        let lock = RwLock::new(0);
        let timeout = Duration::from_millis(2);
        let start = Instant::now();
        let reader = lock.read();
        assert!(lock.try_write_for(timeout).is_none());
        assert!(start.elapsed() >= timeout);
        assert!(lock.try_read_for(timeout).is_some(), "the writer has given up");
        drop(reader);
        let writer = lock.try_write_for(timeout).expect("free");
        let start = Instant::now();
        assert!(lock.try_read_for(timeout).is_none());
        assert!(lock.try_write_for(timeout).is_none());
        assert!(start.elapsed() >= 2 * timeout);
        drop(writer);
        assert!(!lock.is_locked());
    };
    wait();
    matrix::run(wait);
}

/// Timeouts, cancellations and ordinary use mixed: the counts are right and the lock is free in the
/// end.
#[test]
fn giving_up_races_with_being_let_in() {
    matrix::each(|_, rt| {
        let lock = Arc::new(RwLock::new(0usize));
        let written = Arc::new(AtomicUsize::new(0));
        let spawn = |k: u64| {
            let (lock, written) = (Arc::clone(&lock), Arc::clone(&written));
            rt.handle().spawn(move || {
                for i in 0..40 {
                    let timeout = Duration::from_micros((i + k) % 5 * 40);
                    if (i + k).is_multiple_of(3) {
                        if let Some(mut guard) = lock.try_write_for(timeout) {
                            *guard += 1;
                            written.fetch_add(1, Ordering::Relaxed);
                            yield_now();
                        }
                    } else if let Some(_guard) = lock.try_read_for(timeout) {
                        yield_now();
                    }
                }
            })
        };
        let handles: Vec<_> = (0..8).map(spawn).collect();
        handles[3].cancel();
        handles[5].cancel();
        for handle in handles {
            // Two were cancelled, in time or not.
            drop(handle.join());
        }
        assert_eq!(*lock.read(), written.load(Ordering::Relaxed));
        assert!(!lock.is_locked());
    });
}

/// A panic releases the lock and does not poison it.
#[test]
fn a_panic_releases_the_lock() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(1));
        for write in [true, false] {
            let lock = Arc::clone(&lock);
            let panics = go(move || {
                let _guards =
                    if write { (Some(lock.write()), None) } else { (None, Some(lock.read())) };
                panic!("with the guard");
            });
            assert!(panics.join().unwrap_err().is_panic());
        }
        *lock.write() += 1;
        assert_eq!(*lock.read(), 2);
    });
}

/// SY-27: the time that goroutines waited for an `RwLock` is counted: a writer for a writer, a
/// reader for a writer, a writer for a reader.
#[test]
fn waiting_time_is_counted() {
    let rt = matrix::plain(2);
    let waited = || rt.metrics().get("/sync/mutex/wait/total:nanoseconds").expect("the metric");
    let long = Duration::from_millis(10);
    for (held_to_write, write) in [(true, true), (true, false), (false, true)] {
        let before = waited();
        rt.run(move || {
            let lock = Arc::new(RwLock::new(0));
            let shared = Arc::clone(&lock);
            let guards =
                if held_to_write { (Some(lock.write()), None) } else { (None, Some(lock.read())) };
            let waiter = go(move || if write { *shared.write() += 1 } else { drop(shared.read()) });
            let reason = if write { "sync.RWMutex.Lock" } else { "sync.RWMutex.RLock" };
            matrix::yield_until("it waits", || is_parked(&waiter, reason));
            heist::time::sleep(long);
            drop(guards);
            waiter.join().unwrap();
        });
        let ns = u128::from(waited() - before);
        assert!(ns >= long.as_nanos(), "{held_to_write} {write}: {ns}");
    }
}

/// Waits with a deadline last until that moment, and guards format as their value.
#[test]
fn deadlines_hold_and_guards_show_their_value() {
    matrix::run(|| {
        let lock = RwLock::new(7);
        let soon = || Instant::now() + Duration::from_millis(1);
        let reader = lock.try_read_until(soon()).unwrap();
        let deadline = soon();
        assert!(lock.try_write_until(deadline).is_none() && Instant::now() >= deadline);
        assert_eq!(format!("{reader}"), "7");
        drop(reader);
        let writer = lock.try_write_until(soon()).unwrap();
        let deadline = soon();
        assert!(lock.try_read_until(deadline).is_none() && Instant::now() >= deadline);
        assert_eq!(format!("{writer}"), "7");
    });
}

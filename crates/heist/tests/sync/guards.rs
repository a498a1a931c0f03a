//! Guards of parts of values, upgradable readers, and waits with a reference to a guard.

use crate::matrix;

use heist::sync::{
    Condvar, MappedMutexGuard, MappedRwLockReadGuard, Mutex, MutexGuard, Once, OnceLock, RwLock,
    RwLockReadGuard, RwLockUpgradableReadGuard, RwLockWriteGuard,
};
use heist::{go, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);

/// A mapped guard holds the lock until it is dropped, also on another thread.
#[test]
fn mapped_guards_hold_their_lock() {
    matrix::run(|| {
        let mutex = Mutex::new((1, vec![2]));
        let second = MutexGuard::map(mutex.lock(), |pair| &mut pair.1);
        let mut first = MappedMutexGuard::map(second, |list| &mut list[0]);
        *first += 1;
        assert!(mutex.try_lock().is_none());
        std::thread::scope(|s| {
            s.spawn(move || drop(first));
        });
        let whole = MutexGuard::try_map(mutex.lock(), |pair| pair.1.get_mut(1)).unwrap_err();
        assert_eq!(whole.1, [3]);
        drop(whole);

        let lock = RwLock::new((1, vec![2]));
        let reader = RwLockReadGuard::map(lock.read(), |pair| &pair.1);
        let none = MappedRwLockReadGuard::try_map(reader, |list| list.get(1)).unwrap_err();
        assert!(lock.try_write().is_none() && lock.try_read().is_some());
        drop(none);
        let writer = RwLockWriteGuard::map(lock.write(), |pair| &mut pair.0);
        assert!(lock.try_read().is_none() && lock.is_locked_exclusive());
        drop(writer);
        assert!(lock.try_write().is_some() && !lock.is_locked());
    });
}

/// A closure that panics while it maps releases the lock.
#[test]
fn a_panic_while_mapping_releases() {
    let (mutex, lock) = (Mutex::new(1), RwLock::new(1));
    let map = || drop(MutexGuard::map(mutex.lock(), |_| -> &mut u8 { panic!("no part") }));
    assert!(catch_unwind(AssertUnwindSafe(map)).is_err());
    let map = || drop(RwLockReadGuard::map(lock.read(), |_| -> &u8 { panic!("no part") }));
    assert!(catch_unwind(AssertUnwindSafe(map)).is_err());
    let map = || drop(RwLockWriteGuard::map(lock.write(), |_| -> &mut u8 { panic!("no part") }));
    assert!(catch_unwind(AssertUnwindSafe(map)).is_err());
    assert!(mutex.try_lock().is_some() && lock.try_write().is_some());
}

/// A read guard stands for one of a shorter lifetime, as std's does.
#[test]
fn read_guards_are_covariant() {
    fn same<'a>(
        _: &RwLockReadGuard<'_, &'a i32>,
        _: &MappedRwLockReadGuard<'_, &'a i32>,
        _: &'a i32,
    ) {
    }
    let long = 5;
    let (one, other) = (RwLock::new(&long), RwLock::new(&long));
    {
        let short = 6;
        same(&one.read(), &RwLockReadGuard::map(other.read(), |value| value), &short);
    }
    assert_eq!(**one.read(), **other.read());
}

/// A cell may hold a reference to a value that is dropped first.
#[test]
#[allow(clippy::disallowed_names, reason = "the order of the drops is what is tested")]
fn a_once_lock_may_outlive_what_it_refers_to() {
    let cell = OnceLock::new();
    {
        let text = String::from("short");
        cell.set(&text).unwrap();
    }
}

/// An upgradable reader admits readers, excludes writers and its like, and becomes the writer
/// without another in between.
#[test]
fn upgrading_lets_no_writer_in_between() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0usize));
        let n = 20;
        let workers: Vec<_> = (0..n)
            .map(|i| {
                let lock = Arc::clone(&lock);
                go(move || match i % 4 {
                    0 => {
                        *lock.write() += 1;
                    }
                    1 => {
                        let before = lock.upgradable_read();
                        let seen = *before;
                        yield_now();
                        let mut after = RwLockUpgradableReadGuard::upgrade(before);
                        assert_eq!(*after, seen, "a writer came in between");
                        *after += 1;
                        let again = RwLockWriteGuard::downgrade_to_upgradable(after);
                        yield_now();
                        assert_eq!(*RwLockUpgradableReadGuard::downgrade(again), seen + 1);
                    }
                    _ => {
                        let seen = *lock.read();
                        yield_now();
                        assert!(*lock.read() >= seen);
                    }
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        assert_eq!(*lock.read(), n / 2);
        assert!(!lock.is_locked());
    });
}

/// An upgrade that times out leaves the upgradable reader and admits the readers that waited.
#[test]
fn an_upgrade_that_times_out_keeps_the_right() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0));
        let reader = lock.read();
        let upgradable = lock.upgradable_read();
        let start = Instant::now();
        let upgradable =
            RwLockUpgradableReadGuard::try_upgrade_for(upgradable, 2 * MS).unwrap_err();
        assert!(start.elapsed() >= 2 * MS);
        assert!(lock.try_read().is_some() && lock.try_write().is_none());
        assert!(lock.try_upgradable_read().is_none());
        assert!(lock.try_upgradable_read_for(MS).is_none());
        drop(reader);
        let soon = Instant::now() + Duration::from_secs(60);
        *RwLockUpgradableReadGuard::try_upgrade_until(upgradable, soon).unwrap() += 1;
        assert_eq!(*lock.try_upgradable_read_until(soon).unwrap(), 1);
        assert!(lock.try_write().is_some());
    });
}

/// A goroutine that is cancelled while it upgrades unwinds without the lock.
#[test]
fn a_cancelled_upgrade_releases() {
    matrix::run(|| {
        let lock = Arc::new(RwLock::new(0));
        let reader = lock.read();
        let upgrades = {
            let lock = Arc::clone(&lock);
            go(move || *RwLockUpgradableReadGuard::upgrade(lock.upgradable_read()) += 1)
        };
        matrix::until_parked(1, "sync.RWMutex.Lock");
        upgrades.cancel();
        assert!(upgrades.join().unwrap_err().is_cancelled());
        assert!(lock.try_read().is_some());
        drop(reader);
        assert_eq!(*lock.try_write().unwrap(), 0);
    });
}

/// A wait with a reference to the guard returns with the mutex held, whatever ended it; a
/// cancelled waiter holds it while it unwinds.
#[test]
fn a_wait_by_reference_ends_with_the_mutex_held() {
    matrix::run(|| {
        let shared = Arc::new((Mutex::new(0), Condvar::new()));
        let waiter = {
            let shared = Arc::clone(&shared);
            go(move || {
                let (mutex, condvar) = &*shared;
                let mut guard = mutex.lock();
                assert!(condvar.wait_for(&mut guard, MS).timed_out());
                assert!(mutex.try_lock().is_none());
                *guard = -1;
                condvar.wait_while(&mut guard, |n| *n == -1);
                *guard += 1;
                struct Check<'a>(&'a Mutex<i32>);
                impl Drop for Check<'_> {
                    fn drop(&mut self) {
                        assert!(self.0.try_lock().is_none(), "the mutex is not held");
                    }
                }
                let _check = Check(mutex);
                condvar.wait(&mut guard);
                unreachable!("cancelled");
            })
        };
        let (mutex, condvar) = &*shared;
        matrix::yield_until("the time is over", || *mutex.lock() == -1);
        matrix::until_parked(1, "sync.Cond.Wait");
        *mutex.lock() = 1;
        assert!(condvar.notify_one());
        matrix::yield_until("it counts", || *mutex.lock() == 2);
        matrix::until_parked(1, "sync.Cond.Wait");
        // A canceller ends the wait while another has the mutex.
        let guard = mutex.lock();
        waiter.cancel();
        yield_now();
        drop(guard);
        assert!(waiter.join().unwrap_err().is_cancelled());
        assert!(mutex.try_lock().is_some() && !condvar.notify_one());
    });
}

/// Notifications count the waiters that they wake.
#[test]
fn notifications_are_counted() {
    matrix::run(|| {
        let shared = Arc::new((Mutex::new(()), Condvar::new()));
        let waiters: Vec<_> = (0..5)
            .map(|_| {
                let shared = Arc::clone(&shared);
                go(move || shared.1.wait(&mut shared.0.lock()))
            })
            .collect();
        matrix::until_parked(5, "sync.Cond.Wait");
        assert!(shared.1.notify_one());
        assert_eq!(shared.1.notify_all(), 4);
        assert_eq!((shared.1.notify_all(), shared.1.notify_one()), (0, false));
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
    });
}

/// `wait` of a `Once` or a `OnceLock` runs nothing itself, and ends when another has.
#[test]
fn waiting_for_what_happens_once() {
    matrix::run(|| {
        let shared = Arc::new((Once::new(), OnceLock::new(), AtomicUsize::new(0)));
        let waiters: Vec<_> = (0..10)
            .map(|i| {
                let shared = Arc::clone(&shared);
                go(move || {
                    if i % 2 == 0 {
                        shared.0.wait()
                    } else {
                        assert_eq!(*shared.1.wait(), 7)
                    };
                    shared.2.fetch_add(1, Ordering::Relaxed);
                })
            })
            .collect();
        let thread = {
            let shared = Arc::clone(&shared);
            std::thread::spawn(move || *shared.1.wait())
        };
        let gives_up = {
            let shared = Arc::clone(&shared);
            go(move || *shared.1.wait())
        };
        matrix::until_parked(11, "once wait");
        gives_up.cancel();
        assert!(gives_up.join().unwrap_err().is_cancelled());
        assert_eq!(shared.2.load(Ordering::Relaxed), 0);
        assert_eq!(shared.1.get_or_try_init(|| Err("not yet")), Err("not yet"));
        assert!(catch_unwind(AssertUnwindSafe(|| shared.1.get_or_init(|| panic!("no")))).is_err());
        assert_eq!(shared.1.get_or_try_init(|| Ok::<_, ()>(7)), Ok(&7));
        shared.0.call_once(|| ());
        waiters.into_iter().for_each(|waiter| waiter.join().unwrap());
        assert_eq!(heist::blocking(|| thread.join().unwrap()), 7);
        assert_eq!(shared.1.get_or_try_init(|| Err("too late")), Ok(&7));
    });
}

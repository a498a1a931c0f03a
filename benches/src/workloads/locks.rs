//! mutex and rwlock: eight tasks on one lock of the runtime's own.

use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use super::ns_each;
use crate::contract::blocking::{Group as _, Locks, Tasks};
use crate::reading::{Figures, Outcome};

pub const N_TASKS: usize = 8;
pub const N_LOCKS: usize = 200_000;
pub const WRITE_EVERY: usize = 10;

/// How often all tasks together write.
fn n_writes(n_locks: usize) -> usize {
    N_TASKS * n_locks.div_ceil(WRITE_EVERY)
}

fn timed<R: Tasks>(n_locks: usize, work: impl Fn(usize) + Clone + Send + 'static) -> f64 {
    let group = R::Group::new();
    let start = Instant::now();
    group.add(N_TASKS);
    for _ in 0..N_TASKS {
        let (group, work) = (group.clone(), work.clone());
        R::spawn(move || {
            (0..n_locks).for_each(work);
            group.done();
        });
    }
    group.wait();
    ns_each(start.elapsed(), N_TASKS * n_locks)
}

pub fn mutex<R: Tasks, L: Locks>(procs: usize) -> Outcome {
    fn round<R: Tasks, L: Locks>(n_locks: usize) -> f64 {
        let mutex = Arc::new(L::mutex());
        let shared = mutex.clone();
        let ns = timed::<R>(n_locks, move |_| L::lock(&shared, |count| *count += 1));
        L::lock(&mutex, |count| assert_eq!(*count as usize, N_TASKS * n_locks, "mutex: lost"));
        ns
    }
    let ns = R::run(procs, || {
        round::<R, L>(N_LOCKS / 10);
        round::<R, L>(N_LOCKS)
    });
    Ok(Figures::one(ns).with_note(L::NOTE))
}

pub fn rwlock<R: Tasks, L: Locks>(procs: usize) -> Outcome {
    let ns = R::run(procs, || {
        rwlock_round::<R, L>(N_LOCKS / 10);
        rwlock_round::<R, L>(N_LOCKS)
    });
    Ok(Figures::one(ns).with_note(L::NOTE))
}

fn rwlock_round<R: Tasks, L: Locks>(n_locks: usize) -> f64 {
    let lock = Arc::new(L::rwlock());
    let shared = lock.clone();
    let ns = timed::<R>(n_locks, move |i| {
        if i.is_multiple_of(WRITE_EVERY) {
            L::write(&shared, |count| *count += 1);
        } else {
            L::read(&shared, |count| {
                black_box(*count);
            });
        }
    });
    L::read(&lock, |count| assert_eq!(*count as usize, n_writes(n_locks), "rwlock: lost"));
    ns
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{mutex_futures, rwlock_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use std::future::Future;

    use super::*;
    use crate::contract::futures::{Group as _, Locks, Tasks};

    async fn timed<R: Tasks, F: Future<Output = ()> + Send + 'static>(
        n_locks: usize,
        task: impl Fn() -> F,
    ) -> f64 {
        let group = R::Group::new();
        let start = Instant::now();
        group.add(N_TASKS);
        for _ in 0..N_TASKS {
            let (group, task) = (group.clone(), task());
            R::spawn(async move {
                task.await;
                group.done();
            });
        }
        group.wait().await;
        ns_each(start.elapsed(), N_TASKS * n_locks)
    }

    pub fn mutex_futures<R: Tasks, L: Locks>(procs: usize) -> Outcome {
        async fn round<R: Tasks, L: Locks>(n_locks: usize) -> f64 {
            let mutex = Arc::new(L::mutex());
            let ns = timed::<R, _>(n_locks, || {
                let mutex = mutex.clone();
                async move {
                    for _ in 0..n_locks {
                        L::lock(&mutex, |count| *count += 1).await;
                    }
                }
            })
            .await;
            let expected = N_TASKS * n_locks;
            L::lock(&mutex, |n| assert_eq!(*n as usize, expected, "mutex: lost")).await;
            ns
        }
        let ns = R::run(procs, async {
            round::<R, L>(N_LOCKS / 10).await;
            round::<R, L>(N_LOCKS).await
        });
        Ok(Figures::one(ns))
    }

    pub fn rwlock_futures<R: Tasks, L: Locks>(procs: usize) -> Outcome {
        let ns = R::run(procs, async {
            rwlock_round::<R, L>(N_LOCKS / 10).await;
            rwlock_round::<R, L>(N_LOCKS).await
        });
        Ok(Figures::one(ns))
    }

    pub(super) async fn rwlock_round<R: Tasks, L: Locks>(n_locks: usize) -> f64 {
        let lock = Arc::new(L::rwlock());
        let ns = timed::<R, _>(n_locks, || {
            let lock = lock.clone();
            async move {
                for i in 0..n_locks {
                    if i.is_multiple_of(WRITE_EVERY) {
                        L::write(&lock, |count| *count += 1).await;
                    } else {
                        L::read(&lock, |count| {
                            black_box(*count);
                        })
                        .await;
                    }
                }
            }
        })
        .await;
        let expected = n_writes(n_locks);
        L::read(&lock, |n| assert_eq!(*n as usize, expected, "rwlock: lost")).await;
        ns
    }
}

#[cfg(test)]
mod tests {
    use std::sync::RwLock;

    use super::*;
    use crate::peers::threads::Threads;

    /// Not a multiple of `WRITE_EVERY`: the last write counts too.
    const FEW: usize = 25;

    /// Locks that forget what is written.
    struct Forgetful;

    impl Locks for Forgetful {
        type Mutex = ();
        type RwLock = RwLock<u64>;

        fn mutex() {}

        fn lock((): &(), critical: impl FnOnce(&mut u64)) {
            critical(&mut 0);
        }

        fn rwlock() -> RwLock<u64> {
            RwLock::new(0)
        }

        fn read(lock: &RwLock<u64>, critical: impl FnOnce(&u64)) {
            critical(&lock.read().unwrap());
        }

        fn write(_: &RwLock<u64>, critical: impl FnOnce(&mut u64)) {
            critical(&mut 0);
        }
    }

    #[test]
    fn every_write_is_counted() {
        rwlock_round::<Threads, Threads>(FEW);
    }

    #[cfg(feature = "peer-tokio")]
    #[test]
    fn every_write_of_a_future_is_counted() {
        use crate::contract::futures::Tasks as _;
        use crate::peers::tokio::Tokio;
        Tokio::run(2, stackless::rwlock_round::<Tokio, Tokio>(FEW));
    }

    #[test]
    #[should_panic(expected = "rwlock: lost")]
    fn a_lost_write_is_noticed() {
        rwlock_round::<Threads, Forgetful>(FEW);
    }
}

//! Locks, semaphores and groups between tasks, goroutines and threads.

use crate::matrix;

use heist::sync::{Condvar, Mutex, RwLock, Semaphore, WaitGroup};
use heist::{Task, block_on, task};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

/// Polls `future` at most `polls` times, then drops it, and lets others run.
async fn poll_some<F: Future>(future: F, polls: u32) -> Option<F::Output> {
    let polled = poll_and_drop(future, polls).await;
    if polled.is_none() {
        task::yield_now().await;
    }
    polled
}

async fn poll_and_drop<F: Future>(future: F, mut polls: u32) -> Option<F::Output> {
    let mut future = pin!(future);
    poll_fn(|cx| match future.as_mut().poll(cx) {
        Poll::Ready(output) => Poll::Ready(Some(output)),
        Poll::Pending if polls == 0 => Poll::Ready(None),
        Poll::Pending => {
            polls -= 1;
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    })
    .await
}

fn join_all(tasks: Vec<Task<()>>) {
    tasks.into_iter().for_each(|task| task.join().unwrap());
}

/// Tasks, goroutines and a thread, some of which give up, exclude each other.
#[test]
fn a_mutex_excludes_tasks_goroutines_and_threads() {
    matrix::each(|_, rt| {
        let shared = Arc::new((Mutex::new(0_usize), AtomicUsize::new(0)));
        let enter = |shared: &(Mutex<usize>, AtomicUsize), count: &mut usize| {
            assert_eq!(shared.1.fetch_add(1, Ordering::SeqCst), 0, "two inside");
            *count += 1;
            shared.1.fetch_sub(1, Ordering::SeqCst);
        };
        let n = 100;
        let mut tasks = Vec::new();
        for i in 0..6_u32 {
            let shared = Arc::clone(&shared);
            tasks.push(rt.spawn_async(async move {
                let mut done = 0;
                while done < n {
                    let tried = match i % 3 {
                        0 => Some(shared.0.lock_async().await),
                        some => poll_some(shared.0.lock_async(), some).await,
                    };
                    let Some(mut count) = tried else { continue };
                    enter(&shared, &mut count);
                    if done % 4 == 0 {
                        task::yield_now().await;
                    }
                    done += 1;
                }
            }));
        }
        let goroutines: Vec<_> = (0..2)
            .map(|_| {
                let shared = Arc::clone(&shared);
                rt.handle().spawn(move || {
                    for _ in 0..n {
                        let mut count = shared.0.lock();
                        enter(&shared, &mut count);
                        heist::yield_now();
                    }
                })
            })
            .collect();
        for _ in 0..n {
            enter(&shared, &mut shared.0.lock());
        }
        join_all(tasks);
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        assert_eq!(*shared.0.lock(), 9 * n);
    });
}

#[test]
fn a_read_write_lock_serves_tasks_goroutines_and_threads() {
    matrix::each(|_, rt| {
        let lock = Arc::new(RwLock::new((0_usize, 0_usize)));
        let n = 60;
        let mut tasks = Vec::new();
        for i in 0..4_u32 {
            let (reads, writes) = (Arc::clone(&lock), Arc::clone(&lock));
            tasks.push(rt.spawn_async(async move {
                let mut done = 0;
                while done < n {
                    if let Some(both) = poll_some(reads.read_async(), i).await {
                        assert_eq!(both.0, both.1);
                        task::yield_now().await;
                        assert_eq!(both.0, both.1);
                        done += 1;
                    }
                }
            }));
            tasks.push(rt.spawn_async(async move {
                let mut done = 0;
                while done < n {
                    if let Some(mut both) = poll_some(writes.write_async(), i).await {
                        both.0 += 1;
                        task::yield_now().await;
                        both.1 += 1;
                        done += 1;
                    }
                }
            }));
        }
        let goroutine = {
            let lock = Arc::clone(&lock);
            rt.handle().spawn(move || {
                for _ in 0..n {
                    let both = lock.write();
                    assert_eq!(both.0, both.1);
                    drop(both);
                    heist::yield_now();
                }
            })
        };
        goroutine.join().unwrap();
        join_all(tasks);
        assert_eq!(*lock.read(), (4 * n, 4 * n));
    });
}

#[test]
fn a_semaphore_loses_no_permit() {
    matrix::each(|_, rt| {
        let semaphore = Arc::new(Semaphore::new(3));
        let in_use = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::new();
        for i in 0..8_u32 {
            let (semaphore, in_use) = (Arc::clone(&semaphore), Arc::clone(&in_use));
            let needs = 1 + i as usize % 3;
            tasks.push(rt.spawn_async(async move {
                let mut done = 0;
                while done < 60 {
                    let tried = match i % 4 {
                        0 => Some(semaphore.acquire_async(needs).await),
                        some => poll_some(semaphore.acquire_async(needs), some).await,
                    };
                    let Some(_permit) = tried else { continue };
                    assert!(in_use.fetch_add(needs, Ordering::SeqCst) + needs <= 3);
                    task::yield_now().await;
                    in_use.fetch_sub(needs, Ordering::SeqCst);
                    done += 1;
                }
            }));
        }
        for _ in 0..30 {
            drop(semaphore.acquire(2));
        }
        join_all(tasks);
        assert_eq!(semaphore.available(), 3);
        // Futures that were granted permits and are dropped.
        let all = semaphore.acquire(3);
        let mut waits = Box::pin(semaphore.acquire_async(2));
        let polled = block_on(poll_fn(|cx| Poll::Ready(waits.as_mut().poll(cx).is_ready())));
        assert!(!polled);
        drop(all);
        assert_eq!(semaphore.available(), 1);
        drop(waits);
        assert_eq!(semaphore.available(), 3);
    });
}

#[test]
fn a_wait_group_is_awaited() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let group = WaitGroup::new();
            let n = Arc::new(AtomicUsize::new(0));
            for _ in 0..50 {
                let n = Arc::clone(&n);
                group.go(move || {
                    heist::yield_now();
                    n.fetch_add(1, Ordering::SeqCst);
                });
            }
            let waiters: Vec<_> = (0..5)
                .map(|_| {
                    let (group, n) = (group.clone(), Arc::clone(&n));
                    heist::spawn(async move {
                        let _ = poll_some(group.wait_async(), 0).await;
                        group.wait_async().await;
                        assert_eq!(n.load(Ordering::SeqCst), 50);
                    })
                })
                .collect();
            join_all(waiters);
        });
    });
}

#[test]
fn a_condition_is_awaited() {
    matrix::each(|_, rt| {
        let shared = Arc::new((Mutex::new(0_u32), Condvar::new()));
        let n = 40;
        let tasks: Vec<_> = (0..4_u32)
            .map(|i| {
                let shared = Arc::clone(&shared);
                rt.spawn_async(async move {
                    let mut taken = 0;
                    while taken < n {
                        let mut count = shared.0.lock_async().await;
                        while *count == 0 {
                            let waits = shared.1.wait_async(count);
                            count = if i % 2 == 0 {
                                waits.await
                            } else {
                                match poll_some(waits, i).await {
                                    Some(count) => count,
                                    None => shared.0.lock_async().await,
                                }
                            };
                        }
                        *count -= 1;
                        taken += 1;
                    }
                })
            })
            .collect();
        for _ in 0..4 * n {
            *shared.0.lock() += 1;
            shared.1.notify_one();
        }
        join_all(tasks);
        assert_eq!(*shared.0.lock(), 0);
    });
}

#[test]
fn a_context_ends_a_task() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (ctx, canceller) = heist::context::background().with_cancel();
            let (timed, _keep) = ctx.with_timeout(std::time::Duration::from_millis(1));
            let first = heist::spawn(async move { timed.cancelled().await.to_string() });
            assert_eq!(first.join().unwrap(), "context deadline exceeded");
            let second = heist::spawn(async move { ctx.cancelled().await.to_string() });
            canceller.cancel();
            assert_eq!(second.join().unwrap(), "context canceled");
        });
    });
}

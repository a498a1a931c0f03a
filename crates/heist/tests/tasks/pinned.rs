//! A runtime without a promise: nothing on a stack moves to another thread.

use heist::{AsyncRuntime, Runtime, task};
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{ThreadId, current};
use std::time::Duration;

fn each(body: impl Fn(&AsyncRuntime)) {
    for procs in [1, 2, 4] {
        for chaos in [None, Some(1), Some(7)] {
            let builder = Runtime::builder().procs(procs).quantum(Duration::from_micros(500));
            let builder = chaos.map_or(builder.clone(), |seed| builder.chaos(seed));
            body(&builder.build_async().unwrap());
        }
    }
}

/// Calls everything that may switch to another goroutine, and checks that the thread is the same.
fn stay(what: &str, here: ThreadId) {
    assert_eq!(current().id(), here, "{what} moved to another thread");
}

#[test]
fn a_poll_stays_on_its_thread() {
    thread_local! {
        static USES: Cell<u32> = const { Cell::new(0) };
    }
    each(|rt| {
        let (tx, rx) = heist::chan::bounded::<u32>(0);
        let echo = rt.spawn(async move {
            while let Ok(message) = rx.recv_async().await {
                task::yield_now().await;
                assert!(message < 20);
            }
        });
        let tasks: Vec<_> = (0..8)
            .map(|_| {
                let tx = tx.clone();
                rt.spawn(async move {
                    for round in 0..20 {
                        // A poll, with values that are not `Send` on its stack.
                        let poll = || {
                            let here = current().id();
                            let not_send = std::rc::Rc::new(round);
                            USES.with(|uses| {
                                uses.set(uses.get() + 1);
                                let before = uses.get();
                                heist::yield_now();
                                stay("yield_now", here);
                                tx.send(round).unwrap();
                                stay("send", here);
                                heist::time::sleep(Duration::from_micros(50));
                                stay("sleep", here);
                                assert_eq!(
                                    heist::block_on(async { heist::spawn(async { 5 }).await })
                                        .unwrap(),
                                    5
                                );
                                stay("block_on", here);
                                assert_eq!(before, uses.get(), "another poll ran on this thread");
                            });
                            drop(not_send);
                        };
                        poll();
                        task::yield_now().await;
                    }
                })
            })
            .collect();
        drop(tx);
        tasks.into_iter().for_each(|task| task.join().unwrap());
        echo.join().unwrap();
    });
}

#[test]
fn a_goroutine_has_a_thread_of_its_own() {
    each(|rt| {
        let n = Arc::new(AtomicUsize::new(0));
        let counts = Arc::clone(&n);
        let task = rt.spawn(async move {
            for _ in 0..20 {
                let counts = Arc::clone(&counts);
                let goroutine = heist::go(move || {
                    let here = current().id();
                    let not_send = std::rc::Rc::new(1);
                    heist::yield_now();
                    heist::time::sleep(Duration::from_micros(100));
                    stay("a goroutine", here);
                    counts.fetch_add(*not_send, Ordering::SeqCst);
                });
                goroutine.await.unwrap();
            }
        });
        task.join().unwrap();
        assert_eq!(n.load(Ordering::SeqCst), 20);
    });
}

#[test]
fn everything_async_works_without_a_promise() {
    each(|rt| {
        let sum = rt.block_on(async {
            let not_send = std::rc::Rc::new(1_u64);
            let (tx, rx) = heist::chan::bounded(2);
            let mutex = Arc::new(heist::sync::Mutex::new(0_u64));
            let tasks: Vec<_> = (0..50_u64)
                .map(|i| {
                    let (tx, mutex) = (tx.clone(), Arc::clone(&mutex));
                    heist::spawn(async move {
                        heist::time::sleep_async(Duration::from_micros(i)).await;
                        *mutex.lock_async().await += i;
                        tx.send_async(i).await.unwrap();
                    })
                })
                .collect();
            drop(tx);
            let mut sum = *not_send;
            while let Ok(i) = rx.recv_async().await {
                sum += i;
            }
            for task in tasks {
                task.await.unwrap();
            }
            sum + *mutex.lock_async().await
        });
        assert_eq!(sum, 1 + 2 * (0..50).sum::<u64>());
    });
}

//! Channels between tasks, goroutines and threads.

use crate::matrix;

use heist::chan::{self, Receiver, Sender};
use heist::{block_on, spawn, task};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

/// Polls a future once; true if it was ready.
async fn poll_once<F: Future>(future: F) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_ready())).await
}

#[test]
fn tasks_goroutines_and_threads_share_a_channel() {
    matrix::each(|_, rt| {
        for capacity in [Some(0), Some(1), Some(7), None] {
            let (tx, rx): (Sender<u64>, Receiver<u64>) =
                capacity.map_or_else(chan::unbounded, chan::bounded);
            let sum = Arc::new(AtomicU64::new(0));
            let n = 100;
            let mut tasks = Vec::new();
            let mut goroutines = Vec::new();
            for i in 0..4 {
                let (tx, rx, sum) = (tx.clone(), rx.clone(), Arc::clone(&sum));
                tasks.push(rt.spawn_async(async move {
                    for k in 0..n {
                        tx.send_async(4 * k + i).await.unwrap();
                    }
                }));
                tasks.push(rt.spawn_async(async move {
                    while let Ok(message) = rx.recv_async().await {
                        sum.fetch_add(message, Ordering::Relaxed);
                    }
                }));
            }
            for i in 0..2 {
                let (tx, rx, sum) = (tx.clone(), rx.clone(), Arc::clone(&sum));
                goroutines.push(rt.handle().spawn(move || {
                    for k in 0..n {
                        tx.send(2 * k + i).unwrap();
                    }
                }));
                goroutines.push(rt.handle().spawn(move || {
                    for message in rx.iter() {
                        sum.fetch_add(message, Ordering::Relaxed);
                    }
                }));
            }
            let (last, first) = (rx.clone(), tx.clone());
            let thread = std::thread::spawn(move || {
                (0..n).for_each(|k| first.send(k).unwrap());
                drop(first);
                (0..5).filter_map(|_| last.recv().ok()).sum::<u64>()
            });
            drop((tx, rx));
            tasks.into_iter().for_each(|task| task.join().unwrap());
            goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
            let by_thread = thread.join().unwrap();
            let expected = (0..4 * n).sum::<u64>() + (0..2 * n).sum::<u64>() + (0..n).sum::<u64>();
            assert_eq!(sum.load(Ordering::Relaxed) + by_thread, expected, "{capacity:?}");
        }
    });
}

/// Receives that are dropped at random lose no message.
#[test]
fn a_storm_of_cancelled_operations_loses_no_message() {
    matrix::each(|_, rt| {
        for capacity in [Some(0), Some(1), Some(3), None] {
            let (tx, rx): (Sender<u64>, Receiver<u64>) =
                capacity.map_or_else(chan::unbounded, chan::bounded);
            let n = 300_u64;
            let receivers: Vec<_> = (0..4_u64)
                .map(|i| {
                    let rx = rx.clone();
                    rt.spawn_async(async move {
                        let mut sum = 0;
                        let mut step = i;
                        loop {
                            step = step.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                            // Given up after some polls, unless it is ready by then.
                            let mut polls = (step >> 60) % 4;
                            let mut receive = pin!(rx.recv_async());
                            let received = poll_fn(|cx| match receive.as_mut().poll(cx) {
                                Poll::Ready(received) => Poll::Ready(Some(received)),
                                Poll::Pending if polls == 0 => Poll::Ready(None),
                                Poll::Pending => {
                                    polls -= 1;
                                    cx.waker().wake_by_ref();
                                    Poll::Pending
                                }
                            })
                            .await;
                            match received {
                                Some(Ok(message)) => sum += message,
                                Some(Err(_)) => return sum,
                                None => task::yield_now().await,
                            }
                        }
                    })
                })
                .collect();
            let senders: Vec<_> = (0..2_u64)
                .map(|i| {
                    let tx = tx.clone();
                    rt.spawn_async(async move {
                        for k in 0..n {
                            tx.send_async(2 * k + i).await.unwrap();
                        }
                    })
                })
                .collect();
            drop((tx, rx));
            senders.into_iter().for_each(|sender| sender.join().unwrap());
            let sum: u64 = receivers.into_iter().map(|receiver| receiver.join().unwrap()).sum();
            assert_eq!(sum, (0..2 * n).sum(), "{capacity:?}");
        }
    });
}

/// Tasks that receive are aborted while messages come: what was sent is received by the others.
#[test]
fn aborted_receivers_lose_no_message() {
    matrix::each(|_, rt| {
        let (tx, rx) = chan::bounded::<u64>(2);
        let sum = Arc::new(AtomicU64::new(0));
        let receive = || {
            let (rx, sum) = (rx.clone(), Arc::clone(&sum));
            rt.spawn_async(async move {
                while let Ok(message) = rx.recv_async().await {
                    // No await between the two: an abort falls before the receive or after both.
                    sum.fetch_add(message, Ordering::Relaxed);
                }
            })
        };
        let stays = receive();
        let sender = rt.spawn_async(async move {
            for k in 0..500 {
                tx.send_async(k).await.unwrap();
            }
        });
        let aborted: Vec<_> = (0..50)
            .map(|_| {
                let goes = receive();
                std::thread::yield_now();
                goes.abort();
                goes
            })
            .collect();
        sender.join().unwrap();
        stays.join().unwrap();
        // One of them may have received a message and not have added it yet.
        aborted.into_iter().for_each(|goes| _ = goes.join());
        assert_eq!(sum.load(Ordering::Relaxed), (0..500).sum::<u64>());
    });
}

#[test]
fn a_dropped_receive_wakes_the_next() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (tx, rx) = chan::bounded::<u32>(4);
            block_on(async {
                let mut first = Box::pin(rx.recv_async());
                let mut second = Box::pin(rx.recv_async());
                assert!(!poll_once(first.as_mut()).await);
                assert!(!poll_once(second.as_mut()).await);
                // The first is told, and dropped.
                tx.send(1).unwrap();
                drop(first);
                assert_eq!(second.await, Ok(1));
            });
        });
    });
}

#[test]
fn a_dropped_send_keeps_its_place_free() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let (tx, rx) = chan::bounded::<Arc<u32>>(1);
            let message = Arc::new(1);
            block_on(async {
                tx.send_async(Arc::clone(&message)).await.unwrap();
                assert!(!poll_once(tx.send_async(Arc::clone(&message))).await);
                assert_eq!(
                    Arc::strong_count(&message),
                    2,
                    "the message was dropped with the future"
                );
                let mut waits = Box::pin(tx.send_async(Arc::clone(&message)));
                assert!(!poll_once(waits.as_mut()).await);
                assert_eq!(*rx.recv().unwrap(), 1);
                // It was taken by the receive, and the future does not know yet.
                drop(waits);
                assert_eq!(*rx.recv().unwrap(), 1);
                assert_eq!(Arc::strong_count(&message), 1);
            });
        });
    });
}

#[test]
fn a_closed_channel_ends_every_wait() {
    matrix::each(|_, rt| {
        let (tx, rx) = chan::bounded::<u32>(0);
        let tasks: Vec<_> = (0..20)
            .map(|_| {
                let rx = rx.clone();
                rt.spawn_async(async move { rx.recv_async().await.is_err() })
            })
            .collect();
        std::thread::yield_now();
        drop(tx);
        assert!(tasks.into_iter().all(|task| task.join().unwrap()));
        let (tx, rx) = chan::bounded::<u32>(0);
        let task = rt.spawn_async(async move { tx.send_async(5).await.unwrap_err().into_inner() });
        std::thread::yield_now();
        drop(rx);
        assert_eq!(task.join().unwrap(), 5);
    });
}

/// A future with another executor's waker waits in the same queue.
#[test]
fn foreign_executors_use_the_channels() {
    /// Polls on a thread, with a waker that is not heist's.
    fn block_on_foreign<F: Future>(future: F) -> F::Output {
        struct Unpark(std::thread::Thread);
        impl std::task::Wake for Unpark {
            fn wake(self: Arc<Self>) {
                self.0.unpark();
            }
        }
        let waker = Arc::new(Unpark(std::thread::current())).into();
        let mut cx = std::task::Context::from_waker(&waker);
        let mut future = pin!(future);
        loop {
            if let Poll::Ready(output) = future.as_mut().poll(&mut cx) {
                return output;
            }
            std::thread::park();
        }
    }
    matrix::each(|_, rt| {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded::<u32>(capacity);
            let (back, results) = chan::bounded::<u32>(capacity);
            let goroutine = rt.handle().spawn(move || {
                for message in rx.iter() {
                    back.send(message + 1).unwrap();
                }
            });
            let task = rt.spawn_async(async { 5 });
            let sum = block_on_foreign(async {
                let mut sum = task.await.unwrap();
                for i in 0..50 {
                    tx.send_async(i).await.unwrap();
                    sum += results.recv_async().await.unwrap();
                }
                drop(tx);
                sum
            });
            goroutine.join().unwrap();
            assert_eq!(sum, 5 + (1..=50).sum::<u32>());
        }
    });
}

#[test]
fn timer_channels_are_awaited() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let task = spawn(async {
                let ticks = chan::tick(Duration::from_millis(1));
                for _ in 0..3 {
                    ticks.recv_async().await.unwrap();
                }
                chan::after(Duration::from_millis(1)).recv_async().await.unwrap();
                heist::time::sleep_async(Duration::from_millis(1)).await;
            });
            task.join().unwrap();
        });
    });
}

/// 100,000 tasks and 10,000 goroutines, in a debug build a twentieth of them, exchange messages
/// over the same channels.
#[test]
fn a_crowd_of_tasks_and_goroutines_exchanges_messages() {
    let (n_tasks, n_goroutines) =
        if cfg!(debug_assertions) { (5_000_u64, 500_u64) } else { (100_000, 10_000) };
    for (procs, chaos) in [(1, None), (2, Some(3)), (4, None)] {
        let builder = heist::Runtime::builder().procs(procs);
        let rt = matrix::start(match chaos {
            Some(seed) => builder.chaos(seed),
            None => builder,
        });
        let channels: Vec<_> = (0..16).map(|i| chan::bounded::<u64>(i % 4)).collect();
        let channel = |i: u64| channels[i as usize % channels.len()].clone();
        let sum = Arc::new(AtomicU64::new(0));
        // Each pair of tasks, and each pair of goroutines, sends one message and receives one, over
        // channels that both kinds share.
        let tasks: Vec<_> = (0..n_tasks)
            .map(|i| {
                let ((tx, rx), sum) = (channel(i / 2), Arc::clone(&sum));
                rt.spawn_async(async move {
                    if i % 2 == 0 {
                        tx.send_async(i).await.unwrap();
                    } else {
                        sum.fetch_add(rx.recv_async().await.unwrap(), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        let goroutines: Vec<_> = (0..n_goroutines)
            .map(|i| {
                let ((tx, rx), sum) = (channel(i / 2), Arc::clone(&sum));
                rt.handle().spawn(move || {
                    if i % 2 == 0 {
                        tx.send(i).unwrap();
                    } else {
                        sum.fetch_add(rx.recv().unwrap(), Ordering::Relaxed);
                    }
                })
            })
            .collect();
        tasks.into_iter().for_each(|task| task.join().unwrap());
        goroutines.into_iter().for_each(|goroutine| goroutine.join().unwrap());
        let sent = |n: u64| (0..n).step_by(2).sum::<u64>();
        assert_eq!(sum.load(Ordering::Relaxed), sent(n_tasks) + sent(n_goroutines));
    }
}

//! `block_on`, on goroutines, in tasks and on plain threads.

use crate::matrix;

use heist::{block_on, go, spawn, task};
use std::rc::Rc;
use std::time::{Duration, Instant};

#[test]
fn block_on_works_everywhere() {
    // On a plain thread without a runtime.
    assert_eq!(block_on(async { 5 }), 5);
    block_on(task::yield_now());
    matrix::each(|_, rt| {
        let task = rt.spawn_async(async {
            for _ in 0..10 {
                task::yield_now().await;
            }
            7
        });
        assert_eq!(block_on(task).unwrap(), 7);
        rt.run(|| {
            // A future that is not `Send`, on a goroutine.
            let not_send = block_on(async {
                let value = Rc::new(1);
                let more = spawn(async { 2 }).await.unwrap();
                *value + more
            });
            assert_eq!(not_send, 3);
            // In a poll.
            let nested = spawn(async { block_on(async { spawn(async { 4 }).await.unwrap() }) });
            assert_eq!(nested.join().unwrap(), 4);
        });
    });
}

#[test]
fn a_cancelled_goroutine_drops_the_future_it_blocks_on() {
    matrix::each(|_, rt| {
        let drops = crate::life::counter();
        for _ in 0..100 {
            let held = crate::life::Counted(std::sync::Arc::clone(&drops));
            let blocked = rt.handle().spawn(move || {
                block_on(async move {
                    let _held = held;
                    std::future::pending::<()>().await;
                });
            });
            blocked.cancel();
            assert!(blocked.join().unwrap_err().is_cancelled());
        }
        assert_eq!(drops.load(std::sync::atomic::Ordering::SeqCst), 100);
    });
}

#[test]
fn many_goroutines_block_on_each_other() {
    matrix::each(|_, rt| {
        rt.run(|| {
            let mut last = go(|| 0_u32);
            for _ in 0..200 {
                let before = last;
                last = go(move || block_on(async { before.await.unwrap() + 1 }));
            }
            assert_eq!(last.join().unwrap(), 200);
        });
    });
}

#[test]
fn a_thread_that_blocks_sleeps() {
    let start = Instant::now();
    let mut polls = 0;
    block_on(std::future::poll_fn(|cx| {
        polls += 1;
        let waker = cx.waker().clone();
        if polls == 1 {
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(20));
                waker.wake();
            });
            return std::task::Poll::Pending;
        }
        std::task::Poll::Ready(())
    }));
    assert!(start.elapsed() >= Duration::from_millis(20));
    assert_eq!(polls, 2);
}

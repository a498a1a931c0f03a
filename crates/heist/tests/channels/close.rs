//! Closing channels: which waiters are released, and with which results.

use crate::matrix;

use crate::capacities::{CAPACITIES, channels};
use heist::chan::{
    self, RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// CH-03: after a close the buffered values come out in order, and after them only the error.
#[test]
fn messages_sent_before_close_are_received() {
    matrix::run(|| {
        for (tx, rx) in channels() {
            let n = tx.capacity().unwrap_or(100);
            (0..n).for_each(|i| tx.send(i).unwrap());
            assert!(tx.close());
            assert!(tx.is_closed() && rx.is_closed());
            assert!((0..n).all(|i| rx.recv() == Ok(i)));
            for _ in 0..3 {
                assert_eq!(rx.recv(), Err(RecvError));
                assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
            }
        }
    });
}

/// CH-04: close, from either end or by the last drop, releases a receiver that waits.
#[test]
fn close_releases_receivers() {
    matrix::run(|| {
        for way in 0..3 {
            for (tx, rx) in channels::<u8>() {
                let waits = rx.clone();
                let waits = go(move || waits.recv());
                matrix::until_parked(1, "chan receive");
                match way {
                    0 => assert!(tx.close()),
                    1 => assert!(rx.close()),
                    _ => drop(tx),
                }
                assert_eq!(waits.join().unwrap(), Err(RecvError));
            }
        }
    });
}

/// Close, from either end or by the last drop, gives senders that wait their values back.
#[test]
fn close_releases_senders() {
    matrix::run(|| {
        for way in 0..3 {
            for capacity in CAPACITIES {
                let (tx, rx) = chan::bounded(capacity);
                (0..capacity).for_each(|_| tx.send("in".to_owned()).unwrap());
                let waits = tx.clone();
                let waits = go(move || waits.send("back".to_owned()));
                matrix::until_parked(1, "chan send");
                match way {
                    0 => assert!(tx.close()),
                    1 => assert!(rx.close()),
                    _ => drop(rx),
                }
                assert_eq!(waits.join().unwrap(), Err(SendError("back".to_owned())));
            }
        }
    });
}

/// CH-09: 23 workers, 271828 items through queues of 69, some yielding: count and sum match, and
/// the iterations end after close.
#[test]
fn many_consumers_end_with_the_channel() {
    const WORKERS: u64 = 23;
    let n: u64 = if cfg!(debug_assertions) { 27_182 } else { 271_828 };
    let primes = [2, 3, 5, 7, 11];
    matrix::each_of(&matrix::cases_with(&[2, 4]), |_, rt| {
        rt.run(|| {
            let (work, todo) = chan::bounded::<u64>(69);
            let (result, done) = chan::bounded::<u64>(69);
            let group = WaitGroup::new();
            for worker in 0..WORKERS {
                group.add(1);
                let (todo, result, group) = (todo.clone(), result.clone(), group.clone());
                go(move || {
                    for item in todo {
                        if primes.contains(&(item % WORKERS.max(worker + 1))) {
                            yield_now();
                        }
                        result.send(item).unwrap();
                    }
                    group.done();
                });
            }
            drop((todo, result));
            go(move || {
                (0..n).for_each(|i| work.send(i * i % 7).unwrap());
                drop(work);
                group.wait();
            });
            let (count, sum) = done.iter().fold((0, 0), |(n, sum), item| (n + 1, sum + item));
            assert_eq!((count, sum), (n, (0..n).map(|i| i * i % 7).sum()));
        });
    });
}

/// CH-20, SP-20: every operation on a closed channel, with leftovers and without.
#[test]
fn a_closed_channel_answers_everything() {
    let now = Duration::ZERO;
    matrix::run(|| {
        for (tx, rx) in channels::<String>() {
            let n = tx.capacity().unwrap_or(3);
            (0..n).for_each(|i| tx.send(i.to_string()).unwrap());
            assert!(rx.close());
            assert!(!rx.close() && !tx.close(), "closing again does nothing");
            let x = || "x".to_owned();
            assert_eq!(tx.send(x()), Err(SendError(x())));
            assert_eq!(tx.try_send(x()), Err(TrySendError::Disconnected(x())));
            assert_eq!(tx.send_timeout(x(), now), Err(SendTimeoutError::Disconnected(x())));
            assert_eq!(rx.len(), n);
            let mut left = (0..n).map(|i| i.to_string());
            if let Some(first) = left.next() {
                assert_eq!(rx.recv(), Ok(first));
            }
            if let Some(second) = left.next() {
                assert_eq!(rx.try_recv(), Ok(second));
            }
            if let Some(third) = left.next() {
                assert_eq!(rx.recv_timeout(now), Ok(third));
            }
            assert!(left.eq(&rx));
            assert_eq!(rx.recv(), Err(RecvError));
            assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
            assert_eq!(rx.recv_timeout(now), Err(RecvTimeoutError::Disconnected));
            assert_eq!(rx.iter().next(), None);
            assert_eq!(rx.try_iter().next(), None);
        }
    });
}

/// CH-23: on one P close releases receivers in the same order every time, which is Go's.
#[test]
fn close_releases_in_the_order_of_go() {
    for _ in 0..10 {
        let rt = matrix::plain(1);
        let log = rt.run(|| {
            let (tx, rx) = chan::bounded::<()>(0);
            let log = Arc::new(Mutex::new(Vec::new()));
            let group = WaitGroup::new();
            for i in 0..6 {
                group.add(1);
                let (rx, log, group) = (rx.clone(), Arc::clone(&log), group.clone());
                go(move || {
                    rx.recv().unwrap_err();
                    log.lock().unwrap().push(i);
                    group.done();
                });
                matrix::until_parked(i + 1, "chan receive");
            }
            tx.close();
            group.wait();
            log.lock().unwrap().clone()
        });
        assert_eq!(log, [0, 5, 4, 3, 2, 1]);
    }
}

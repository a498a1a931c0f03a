//! `watch` and `broadcast`: channels in which a value goes to many.

use crate::matrix;

use heist::chan::broadcast::{self, TryRecvError};
use heist::chan::{RecvError, watch};
use heist::{go, yield_now};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// Receivers see values in their order, skip those that were replaced, and always see the last.
#[test]
fn watchers_see_the_newest_value() {
    matrix::run(|| {
        let (tx, rx) = watch::channel(0_u32);
        let n = 200;
        let watchers: Vec<_> = (0..4)
            .map(|_| {
                let mut rx = rx.clone();
                go(move || {
                    let mut last = *rx.borrow();
                    while rx.changed().is_ok() {
                        let now = *rx.borrow_and_update();
                        assert!(now >= last, "{now} after {last}");
                        last = now;
                    }
                    last
                })
            })
            .collect();
        let thread = {
            let mut rx = rx.clone();
            std::thread::spawn(move || *rx.wait_for(|value| *value == n).unwrap())
        };
        drop(rx);
        for i in 1..=n {
            tx.send_modify(|value| *value = i);
            if i % 10 == 0 {
                yield_now();
            }
        }
        drop(tx);
        assert!(watchers.into_iter().all(|watcher| watcher.join().unwrap() == n));
        assert_eq!(heist::blocking(|| thread.join().unwrap()), n);
    });
}

/// What was seen and what was not, through every way to look.
#[test]
fn a_watcher_knows_what_it_has_seen() {
    let (tx, mut rx) = watch::channel("a");
    assert_eq!(rx.has_changed(), Ok(false));
    assert!(rx.changed_timeout(Duration::from_millis(1)).unwrap_err().is_timeout());
    tx.send("b").unwrap();
    assert!(rx.borrow().has_changed() && rx.has_changed().unwrap());
    let mut behind = rx.clone();
    assert!(rx.borrow_and_update().has_changed() && !rx.has_changed().unwrap());
    assert!(behind.changed().is_ok() && !tx.subscribe().has_changed().unwrap());
    rx.mark_changed();
    assert!(rx.has_changed().unwrap() && rx.changed().is_ok() && !rx.has_changed().unwrap());
    assert!(!tx.send_if_modified(|_| false) && !rx.has_changed().unwrap());
    let panics = || tx.send_modify(|_| panic!("half done"));
    assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
    assert!(!rx.has_changed().unwrap());
    tx.send("c").unwrap();
    drop(tx);
    assert_eq!((rx.changed(), *rx.borrow()), (Ok(()), "c"));
    assert_eq!((rx.changed(), rx.has_changed()), (Err(RecvError), Err(RecvError)));
    assert!(
        rx.wait_for(|value| *value == "d").is_err() && rx.wait_for(|value| *value == "c").is_ok()
    );
}

/// A sender learns that nobody watches any more; a waiter can be cancelled.
#[test]
fn watch_ends() {
    matrix::run(|| {
        let (tx, rx) = watch::channel(());
        let mut waits = rx.clone();
        let waiter = go(move || waits.changed());
        let closed = {
            let tx = tx.clone();
            go(move || tx.closed())
        };
        matrix::until_parked(2, "sync.Cond.Wait");
        waiter.cancel();
        assert!(waiter.join().unwrap_err().is_cancelled());
        assert_eq!((tx.receiver_count(), tx.is_closed()), (1, false));
        drop(rx);
        closed.join().unwrap();
        assert!(tx.send(()).is_err() && tx.is_closed());
        assert!(tx.subscribe().same_channel(&tx.subscribe()));
    });
}

/// Every receiver gets every message in order, if none lags.
#[test]
fn a_broadcast_reaches_all() {
    matrix::run(|| {
        let (tx, rx) = broadcast::channel(1000);
        let n = 100;
        let receivers: Vec<_> = (0..4)
            .map(|_| {
                let mut rx = rx.resubscribe();
                go(move || {
                    let mut next = [0; 2];
                    while let Ok((sender, i)) = rx.recv() {
                        assert_eq!(next[sender], i);
                        next[sender] += 1;
                    }
                    next
                })
            })
            .collect();
        drop(rx);
        for sender in 0..2 {
            let tx = tx.clone();
            go(move || {
                for i in 0..n {
                    tx.send((sender, i)).unwrap();
                }
            });
        }
        drop(tx);
        assert!(receivers.into_iter().all(|receiver| receiver.join().unwrap() == [n; 2]));
    });
}

/// A receiver that lags loses the oldest messages, and is told how many: together with those that
/// it receives, they are all.
#[test]
fn a_slow_receiver_is_told_what_it_lost() {
    matrix::run(|| {
        let (tx, mut rx) = broadcast::channel(4);
        let n = 300_u64;
        let sender = go(move || {
            for i in 0..n {
                tx.send(i).unwrap();
                if i % 7 == 0 {
                    yield_now();
                }
            }
        });
        let mut next = 0;
        loop {
            match rx.recv() {
                Ok(i) => {
                    assert_eq!(i, next);
                    next += 1;
                }
                Err(broadcast::RecvError::Lagged(lost)) => next += lost,
                Err(broadcast::RecvError::Closed) => break,
            }
        }
        assert_eq!(next, n);
        sender.join().unwrap();
    });
}

/// Messages are dropped once: when the last receiver has them, when they are replaced, and with the
/// receivers. The last receiver gets the message itself.
#[test]
fn broadcast_messages_are_dropped_once() {
    struct Message(Arc<[AtomicUsize; 2]>);
    impl Clone for Message {
        fn clone(&self) -> Self {
            self.0[0].fetch_add(1, Ordering::Relaxed);
            Self(Arc::clone(&self.0))
        }
    }
    impl Drop for Message {
        fn drop(&mut self) {
            self.0[1].fetch_add(1, Ordering::Relaxed);
        }
    }
    let counts = Arc::new([AtomicUsize::new(0), AtomicUsize::new(0)]);
    let now = || (counts[0].load(Ordering::Relaxed), counts[1].load(Ordering::Relaxed));
    let message = || Message(Arc::clone(&counts));
    let (tx, mut one) = broadcast::channel(2);
    let mut other = tx.subscribe();
    assert_eq!(tx.send(message()).ok(), Some(2));
    assert!(one.recv().is_ok());
    assert_eq!(now(), (1, 1));
    assert!(other.recv().is_ok() && tx.is_empty());
    assert_eq!(now(), (1, 2), "the last one takes it");
    for _ in 0..3 {
        assert!(tx.send(message()).is_ok());
    }
    assert_eq!((now(), tx.len(), one.len()), ((1, 3), 2, 3));
    drop(one);
    assert_eq!(now(), (1, 3));
    assert!(matches!(other.try_recv(), Err(TryRecvError::Lagged(1))));
    assert!(other.try_recv().is_ok());
    drop(other);
    assert_eq!((now(), tx.receiver_count()), ((1, 5), 0));
    assert!(tx.send(message()).is_err());
    let mut late = tx.subscribe();
    assert!(matches!(late.try_recv(), Err(TryRecvError::Empty)));
    drop(tx);
    assert!(matches!(late.try_recv(), Err(TryRecvError::Closed)));
    assert_eq!(now(), (1, 6));
}

/// A receiver that waits can be cancelled, and misses nothing for the others.
#[test]
fn a_cancelled_receiver_takes_nothing() {
    matrix::run(|| {
        let (tx, mut rx) = broadcast::channel::<u8>(1);
        let mut gone = rx.resubscribe();
        let waiter = go(move || gone.recv());
        matrix::until_parked(1, "sync.Cond.Wait");
        waiter.cancel();
        assert!(waiter.join().unwrap_err().is_cancelled());
        assert_eq!((tx.send(1), rx.recv()), (Ok(1), Ok(1)));
        assert_eq!(rx.recv_timeout(Duration::from_millis(1)), Err(TryRecvError::Empty));
    });
}

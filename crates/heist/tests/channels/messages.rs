//! Ownership of messages: none is lost, doubled or leaked.

use crate::matrix;

use crate::capacities::channels;
use heist::chan::{self};
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

/// CH-05: four senders of a thousand values each, four receivers: every value is seen four times.
#[test]
fn many_to_many_loses_and_doubles_nothing() {
    const N: usize = 1000;
    matrix::run(|| {
        for (tx, rx) in channels() {
            for _ in 0..4 {
                let tx = tx.clone();
                go(move || (0..N).for_each(|i| tx.send(i).unwrap()));
            }
            drop(tx);
            let receivers: Vec<_> = (0..4)
                .map(|_| {
                    let rx = rx.clone();
                    go(move || rx.iter().collect::<Vec<_>>())
                })
                .collect();
            let mut seen = [0; N];
            for receiver in receivers {
                receiver.join().unwrap().into_iter().for_each(|i| seen[i] += 1);
            }
            assert_eq!(seen, [4; N]);
        }
    });
}

/// A cancelled receiver leaves no entry behind; a cancelled sender drops its message.
#[test]
fn cancelled_waits_leave_nothing() {
    matrix::run(|| {
        for capacity in [0, 1, 4] {
            let (tx, rx) = chan::bounded(capacity);
            let waits = rx.clone();
            let waits = go(move || waits.recv());
            matrix::until_parked(1, "chan receive");
            waits.cancel();
            assert!(waits.join().unwrap_err().is_cancelled());
            let message = Arc::new(());
            assert_eq!(tx.try_send(Arc::clone(&message)).is_ok(), capacity > 0);
            drop(rx.try_recv());

            (0..capacity).for_each(|_| tx.send(Arc::clone(&message)).unwrap());
            let (waits, mine) = (tx.clone(), Arc::clone(&message));
            let waits = go(move || waits.send(mine));
            matrix::until_parked(1, "chan send");
            waits.cancel();
            assert!(waits.join().unwrap_err().is_cancelled());
            assert_eq!(Arc::strong_count(&message), 1 + capacity);
            assert_eq!(rx.try_iter().count(), capacity);
            assert_eq!(Arc::strong_count(&message), 1);
        }
    });
}

/// Counts the live values.
#[derive(Clone)]
struct Alive(Arc<AtomicUsize>);

impl Alive {
    fn another(&self) -> Self {
        self.0.fetch_add(1, Ordering::Relaxed);
        Self(Arc::clone(&self.0))
    }
}

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Messages against deadlines, cancellations and a close: each is dropped exactly once.
#[test]
fn every_message_is_dropped_once() {
    matrix::run(|| {
        for (tx, rx) in channels() {
            let alive = Alive(Arc::new(AtomicUsize::new(1)));
            let received = Arc::new(AtomicUsize::new(0));
            let handles: Vec<_> = (0..8)
                .flat_map(|i| {
                    let (tx, alive) = (tx.clone(), alive.another());
                    let (rx, received) = (rx.clone(), Arc::clone(&received));
                    let patience = Duration::from_micros(20 * i);
                    let sends = go(move || {
                        for n in 0..50 {
                            let message = alive.another();
                            match n % 3 {
                                0 => drop(tx.send_timeout(message, patience)),
                                1 => drop(tx.try_send(message)),
                                _ => drop(tx.send(message)),
                            }
                        }
                    });
                    let receives = go(move || {
                        loop {
                            let got = rx.recv_timeout(patience).map_err(|e| e.is_timeout());
                            received.fetch_add(usize::from(got.is_ok()), Ordering::Relaxed);
                            match got {
                                Err(true) => yield_now(),
                                Err(false) => return,
                                Ok(_) => {}
                            }
                        }
                    });
                    [sends, receives]
                })
                .collect();
            matrix::yield_until("a few messages", || received.load(Ordering::Relaxed) > 20);
            handles[2].cancel();
            handles[5].cancel();
            tx.close();
            drop((tx, rx));
            for handle in handles {
                if let Err(error) = handle.join() {
                    assert!(error.is_cancelled());
                }
            }
            assert_eq!(alive.0.load(Ordering::Relaxed), 1);
        }
    });
}

/// Dropping the last receiver drops the messages in the buffer at once, while there are still
/// senders.
#[test]
fn messages_are_dropped_with_the_last_receiver() {
    for (tx, rx) in channels() {
        let message = Arc::new(());
        let n = tx.capacity().unwrap_or(100);
        (0..n).for_each(|_| tx.send(Arc::clone(&message)).unwrap());
        let other = rx.clone();
        drop(rx);
        assert_eq!(Arc::strong_count(&message), 1 + n);
        drop(other);
        assert_eq!(Arc::strong_count(&message), 1);
        assert!(tx.send(message).is_err());
    }
}

/// A block of an unbounded channel is made where it stays: a stack that has room for some copies of
/// a message is large enough, though a block is larger.
#[test]
fn large_messages_in_an_unbounded_channel_need_little_stack() {
    const SIZE: usize = 32 << 10;
    matrix::start(heist::Runtime::builder().procs(1).stack_size(1 << 20)).run(|| {
        let (tx, rx) = chan::unbounded::<[u8; SIZE]>();
        // More than one block.
        for i in 0..40 {
            send_large(&tx, i);
        }
        for i in 0..40 {
            assert!(receive_large(&rx) == [i, i], "message {i}");
        }
    });

    #[inline(never)]
    fn send_large(tx: &chan::Sender<[u8; SIZE]>, i: u8) {
        assert!(tx.send([i; SIZE]).is_ok());
    }

    #[inline(never)]
    fn receive_large(rx: &chan::Receiver<[u8; SIZE]>) -> [u8; 2] {
        let message = rx.recv().unwrap();
        [message[0], message[SIZE - 1]]
    }
}

/// If the destructor of a message panics, the receiver's drop does, once; the messages behind it
/// leak.
#[test]
fn a_message_that_panics_when_dropped_panics_once() {
    struct Bad(Arc<AtomicUsize>);
    impl Drop for Bad {
        fn drop(&mut self) {
            let n = self.0.fetch_add(1, Ordering::Relaxed);
            panic!("drop {n}");
        }
    }
    matrix::run(|| {
        for capacity in [None, Some(2), Some(3)] {
            let dropped = Arc::new(AtomicUsize::new(0));
            let count = Arc::clone(&dropped);
            let ended = go(move || {
                let (tx, rx) = capacity.map_or_else(chan::unbounded, chan::bounded);
                tx.send(Bad(Arc::clone(&count))).ok();
                tx.send(Bad(count)).ok();
                drop(tx);
                drop(rx);
            });
            assert!(ended.join().unwrap_err().to_string().contains("drop 0"));
            assert_eq!(dropped.load(Ordering::Relaxed), 1);
        }
    });
}

/// Messages of 32 KiB pass through the stack of a goroutine of the default size, in debug builds
/// too.
#[heist::test(unsafe, procs = 2)]
fn large_messages_fit_on_a_stack() {
    type Large = [u8; 32 << 10];
    fn large(i: u8) -> Large {
        [i; 32 << 10]
    }
    for capacity in [None, Some(1), Some(0)] {
        let (tx, rx) = capacity.map_or_else(chan::unbounded::<Large>, chan::bounded);
        let sends = go(move || {
            for i in 0..40 {
                if tx.send(large(i)).is_err() {
                    panic!("closed");
                }
            }
        });
        let receives = go(move || {
            let mut sum = 0;
            rx.iter().for_each(|message| sum += u32::from(message[99]));
            sum
        });
        sends.join().unwrap();
        assert_eq!(receives.join().unwrap(), (0..40).sum::<u32>());
    }
}

//! `Select`: sets of operations that are made at run time.

use crate::matrix;

use heist::chan::{self, Select, SendError};
use heist::go;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A set that is made at run time: more channels than fit on the stack, sends that are used up,
/// removal.
#[test]
fn sets_of_operations_change_at_run_time() {
    matrix::run(|| {
        let channels: Vec<_> = (0..20).map(|_| chan::bounded::<usize>(1)).collect();
        let mut select = Select::new();
        for (_, rx) in &channels {
            select.recv(rx);
        }
        assert!(select.try_select().is_err());
        let start = Instant::now();
        assert!(select.select_deadline(start + Duration::from_millis(1)).is_err());
        assert!(start.elapsed() >= Duration::from_millis(1));
        let senders: Vec<_> = channels.iter().map(|(tx, _)| tx.clone()).collect();
        go(move || (0..200).for_each(|i| senders[i * 7 % 20].send(i).unwrap()));
        let mut seen = [false; 200];
        for _ in 0..200 {
            let chosen = select.select();
            let channel = chosen.index();
            let i = chosen.recv(&channels[channel].1).unwrap();
            assert_eq!(i * 7 % 20, channel);
            assert!(!std::mem::replace(&mut seen[i], true));
        }
        select.remove(3);
        channels[3].0.send(1).unwrap();
        assert!(select.try_select().is_err());

        let (tx, rx) = chan::bounded(2);
        let mut select = Select::new_biased();
        let (first, second) = (select.send_message(&tx, "a"), select.send_message(&tx, "b"));
        let chosen = select.select();
        assert_eq!((chosen.index(), chosen.sent(&tx)), (first, Ok(())));
        let chosen = select.select();
        assert_eq!((chosen.index(), chosen.sent(&tx)), (second, Ok(())));
        assert!(select.try_select().is_err(), "both are sent");
        assert!(rx.try_iter().eq(["a", "b"]));
        rx.close();
        let third = select.send_message(&tx, "c");
        let chosen = select.try_select().unwrap();
        assert_eq!((chosen.index(), chosen.sent(&tx)), (third, Err(SendError("c"))));
    });
}

/// A watcher of readiness is woken by a sender, a receiver, room or a close, and takes nothing.
#[test]
fn readiness_takes_nothing() {
    matrix::run(|| {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded(capacity);
            let watched = rx.clone();
            let watches = go(move || {
                let mut select = Select::new();
                select.recv(&watched);
                select.ready()
            });
            matrix::until_parked(1, "select");
            let sender = tx.clone();
            let sends = go(move || sender.send(7));
            assert_eq!(watches.join().unwrap(), 0);
            assert_eq!(rx.recv(), Ok(7), "the message is still there");
            sends.join().unwrap().unwrap();

            (0..capacity).for_each(|_| tx.send(1).unwrap());
            let watched = tx.clone();
            let watches = go(move || {
                let mut select = Select::new();
                select.send_message(&watched, 2);
                select.ready()
            });
            matrix::until_parked(1, "select");
            let receiver = rx.clone();
            let receives = go(move || receiver.recv());
            assert_eq!(watches.join().unwrap(), 0);
            tx.send(3).unwrap();
            assert_eq!(receives.join().unwrap(), Ok(if capacity == 0 { 3 } else { 1 }));
            while rx.try_recv().is_ok() {}

            // Two watchers do not match each other.
            let (mut give, mut get) = (Select::new(), Select::new());
            if capacity == 0 {
                give.send_message(&tx, 1);
                assert!(give.ready_timeout(Duration::from_micros(100)).is_err());
            }
            get.recv(&rx);
            assert!(get.ready_deadline(Instant::now() + Duration::from_micros(100)).is_err());
            tx.close();
            assert_eq!(get.try_ready(), Ok(0));
        }
    });
}

/// A result that belongs to another channel is refused, and a message that is not taken is dropped.
#[test]
fn dynamic_results_belong_to_their_channel() {
    let (tx, rx) = chan::bounded(2);
    let message = Arc::new(());
    tx.send(Arc::clone(&message)).unwrap();
    tx.send(Arc::clone(&message)).unwrap();
    let other = rx.clone();
    let mut select = Select::new();
    select.recv(&rx);
    let wrong = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        select.select().recv(&other).is_ok()
    }));
    assert!(wrong.is_err());
    drop(select.select());
    drop(select);
    assert_eq!(Arc::strong_count(&message), 1);
}

/// A received message that is not taken is dropped with the operation; a message that was not sent
/// stays for the next round.
#[test]
fn a_result_that_is_not_taken_is_dropped() {
    matrix::run(|| {
        let token = Arc::new(());
        let (tx, rx) = chan::bounded(1);
        tx.send(Arc::clone(&token)).unwrap();
        let mut select = Select::new();
        let receive = select.recv(&rx);
        let chosen = select.select();
        assert_eq!((chosen.index(), Arc::strong_count(&token)), (receive, 2));
        drop(chosen);
        assert_eq!(Arc::strong_count(&token), 1);
        drop(select);

        let mut select = Select::new();
        select.send_message(&tx, Arc::clone(&token));
        rx.close();
        drop(select.select());
        assert_eq!(Arc::strong_count(&token), 2);
        assert!(Arc::ptr_eq(&select.select().sent(&tx).unwrap_err().into_inner(), &token));
        drop(select);
        assert_eq!(Arc::strong_count(&token), 1);
    });
}

/// A watcher is woken when the message is there, not before: the only receiver finds it.
#[test]
fn readiness_comes_after_the_message() {
    matrix::run(|| {
        let rounds = 2000 / matrix::emulator::slowness();
        for capacity in [None, Some(1), Some(0)] {
            let (tx, rx) = capacity.map_or_else(chan::unbounded, chan::bounded);
            let (ack, acked) = chan::bounded::<()>(1);
            let sends = go(move || {
                for i in 0..rounds {
                    tx.send(i).unwrap();
                    acked.recv().unwrap();
                }
            });
            for i in 0..rounds {
                let mut select = Select::new();
                select.recv(&rx);
                assert_eq!(select.ready(), 0);
                assert_eq!(rx.try_recv(), Ok(i));
                ack.send(()).unwrap();
            }
            sends.join().unwrap();
        }
    });
}

/// The same for room: the only sender finds it.
#[test]
fn readiness_comes_after_the_room() {
    matrix::run(|| {
        let rounds = 2000 / matrix::emulator::slowness();
        for capacity in [1, 0] {
            let (tx, rx) = chan::bounded(capacity);
            (0..capacity as u32).for_each(|_| tx.send(0).unwrap());
            let (ack, acked) = chan::bounded::<()>(1);
            let receives = go(move || {
                for _ in 0..rounds {
                    rx.recv().unwrap();
                    acked.recv().unwrap();
                }
                rx
            });
            for i in 0..rounds {
                let mut select = Select::new();
                select.send_message(&tx, u32::MAX);
                assert_eq!(select.ready(), 0);
                assert_eq!(tx.try_send(i), Ok(()));
                ack.send(()).unwrap();
            }
            assert_eq!(receives.join().unwrap().len(), capacity);
        }
    });
}

/// A failed attempt wakes no watcher, and neither does a watcher of the other end.
#[heist::test(unsafe, procs = 1)]
fn failed_attempts_signal_no_readiness() {
    let (tx, rx) = chan::bounded(0);
    let receiver = rx.clone();
    let watches = go(move || {
        let mut select = Select::new();
        select.recv(&receiver);
        select.ready();
        receiver.try_recv()
    });
    heist::yield_now();
    assert!(tx.try_send(1).unwrap_err().is_full());
    let mut select = Select::new();
    select.send_message(&tx, 2);
    assert!(select.try_ready().is_err());
    assert!(select.ready_timeout(Duration::from_millis(1)).is_err());
    drop(select);
    heist::yield_now();
    assert!(!watches.is_finished());
    // A select that waits with a send counts as a sender.
    let (_never, silent) = chan::bounded::<u8>(0);
    heist::select! {
        send(tx, 3) -> sent => assert_eq!(sent, Ok(())),
        recv(silent) -> _ => unreachable!(),
    }
    assert_eq!(watches.join().unwrap(), Ok(3));
    drop(rx);
}

/// SE-05: two cases of one channel are equally likely, also where the select has to wait.
#[heist::test(unsafe, procs = [1, 2])]
fn two_cases_of_one_channel_are_equally_likely() {
    const ROUNDS: usize = 1000;
    for capacity in [0, 1] {
        let (tx, rx) = chan::bounded::<usize>(capacity);
        let ones = go(move || rx.iter().sum::<usize>());
        for _ in 0..ROUNDS {
            heist::select! {
                send(tx, 0) -> sent => sent.unwrap(),
                send(tx, 1) -> sent => sent.unwrap(),
            }
        }
        drop(tx);
        let ones = ones.join().unwrap();
        assert!(ones > ROUNDS / 4 && ones < ROUNDS * 3 / 4, "{ones} of {ROUNDS}");

        let (tx, rx) = chan::bounded::<()>(capacity);
        go(move || (0..ROUNDS).for_each(|_| tx.send(()).unwrap()));
        let mut select = Select::new();
        (0..3).for_each(|_| _ = select.recv(&rx));
        let mut chosen = [0; 3];
        for _ in 0..ROUNDS {
            let operation = select.select();
            chosen[operation.index()] += 1;
            operation.recv(&rx).unwrap();
        }
        assert!(chosen.iter().all(|&n| n > ROUNDS / 6), "{chosen:?}");
    }
}

/// Of an even number of goroutines that each send or receive once, all are matched: a receiver is
/// reserved for the send that was chosen.
#[test]
fn sends_with_later_messages_are_matched() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<usize>(0);
        let n = 20;
        let matched: Vec<_> = (0..n)
            .map(|i| {
                let (tx, rx) = (tx.clone(), rx.clone());
                heist::go(move || {
                    let mut select = Select::new();
                    let send = select.send(&tx);
                    select.recv(&rx);
                    let chosen = select.select();
                    if chosen.index() == send {
                        chosen.send(&tx, i).unwrap();
                        None
                    } else {
                        Some(chosen.recv(&rx).unwrap())
                    }
                })
            })
            .collect();
        let received: Vec<_> = matched.into_iter().filter_map(|one| one.join().unwrap()).collect();
        assert_eq!(received.len(), n / 2);
        assert!(rx.try_recv().is_err());
    });
}

/// The same between threads, which all wait before the first is matched: a select does not wake
/// itself.
#[test]
fn threads_with_later_messages_are_matched() {
    let (tx, rx) = chan::bounded::<usize>(0);
    for _round in 0..20 {
        std::thread::scope(|s| {
            for i in 0..10 {
                let (tx, rx) = (&tx, &rx);
                s.spawn(move || {
                    let mut select = Select::new();
                    let send = select.send(tx);
                    select.recv(rx);
                    let chosen = select.select();
                    if chosen.index() == send {
                        chosen.send(tx, i).unwrap();
                    } else {
                        assert_ne!(chosen.recv(rx).unwrap(), i);
                    }
                });
            }
        });
    }
    assert!(rx.try_recv().is_err());
}

/// A chosen send that is dropped is not done: the receiver that was reserved waits on, and gets the
/// next message.
#[test]
fn a_dropped_send_releases_its_receiver() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<u8>(0);
        let receives = heist::go(move || rx.recv());
        matrix::until_parked(1, "chan receive");
        let mut select = Select::new();
        select.send(&tx);
        drop(select.select());
        let chosen = select.select();
        // A receiver that is reserved cannot be cancelled or taken by another sender.
        assert!(tx.try_send(1).is_err());
        receives.cancel();
        heist::yield_now();
        assert!(!receives.is_finished());
        chosen.send(&tx, 2).unwrap();
        // The message is there, so the goroutine may or may not see that it was cancelled.
        assert!(receives.join().is_ok_and(|got| got == Ok(2)));
        let chosen = select.select();
        assert_eq!(chosen.send(&tx, 3), Err(SendError(3)), "the receiver is gone");
    });
}

/// A send with a later message waits for room in a buffer, and for a receiver.
#[test]
fn a_send_with_a_later_message_waits() {
    matrix::run(|| {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded::<u32>(capacity);
            (0..capacity as u32).for_each(|i| tx.send(i).unwrap());
            let sends = heist::go(move || {
                let never = chan::never::<u8>();
                let mut select = Select::new();
                select.recv(&never);
                let send = select.send(&tx);
                assert!(select.try_select().is_err() && select.try_ready().is_err());
                let chosen = select.select();
                assert_eq!(chosen.index(), send);
                chosen.send(&tx, 7)
            });
            matrix::until_parked(1, "select");
            assert!(rx.iter().eq((0..capacity as u32).chain([7])));
            assert_eq!(sends.join().unwrap(), Ok(()));
        }
    });
}

/// Many senders and receivers, each with a select: every message arrives once.
#[test]
fn later_messages_arrive_once() {
    matrix::run(|| {
        for capacity in [0, 1, 3] {
            let (tx, rx) = chan::bounded::<usize>(capacity);
            let (n, each) = (4, 50);
            for i in 0..n {
                let tx = tx.clone();
                heist::go(move || {
                    for j in 0..each {
                        let mut select = Select::new();
                        select.send(&tx);
                        select.select().send(&tx, i * each + j).unwrap();
                    }
                });
            }
            drop(tx);
            let receivers: Vec<_> = (0..n)
                .map(|_| {
                    let rx = rx.clone();
                    heist::go(move || {
                        let mut got = Vec::new();
                        loop {
                            let mut select = Select::new();
                            select.recv(&rx);
                            match select.select().recv(&rx) {
                                Ok(message) => got.push(message),
                                Err(_) => return got,
                            }
                        }
                    })
                })
                .collect();
            let mut all: Vec<_> =
                receivers.into_iter().flat_map(|one| one.join().unwrap()).collect();
            all.sort_unstable();
            assert!(all.into_iter().eq(0..n * each), "capacity {capacity}");
        }
    });
}

/// The two ways to add a send have each their way to complete it.
#[test]
#[should_panic = "if it was added with its message, call `sent`"]
fn a_message_cannot_be_passed_twice() {
    let (tx, _rx) = chan::bounded(1);
    let mut select = Select::new();
    select.send_message(&tx, 1);
    let _ = select.select().send(&tx, 2);
}

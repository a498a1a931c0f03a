//! Channels: Go's behaviours, at every configuration.

use crate::matrix;

use crate::capacities::{CAPACITIES, channels};
use heist::chan::{
    self, Receiver, RecvError, RecvTimeoutError, SendTimeoutError, Sender, TryRecvError,
    TrySendError,
};
use heist::go;
use heist::sync::WaitGroup;
use std::panic::catch_unwind;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// CH-01: receivers of an empty channel block, the non-blocking form fails, and two sends release
/// two receivers.
#[test]
fn receivers_of_an_empty_channel_block() {
    matrix::run(|| {
        for (tx, rx) in channels() {
            let (a, b) = (rx.clone(), rx.clone());
            let a = go(move || a.recv());
            let b = go(move || b.recv());
            matrix::until_parked(2, "chan receive");
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            assert!(!a.is_finished() && !b.is_finished());
            tx.send(1).unwrap();
            tx.send(2).unwrap();
            let got = [a.join().unwrap().unwrap(), b.join().unwrap().unwrap()];
            assert_eq!(got.iter().sum::<i32>(), 3);
            assert!(rx.is_empty());
        }
    });
}

/// CH-02: a sender to a full channel blocks, the non-blocking form fails, and one receive releases
/// it.
#[test]
fn a_sender_of_a_full_channel_blocks() {
    matrix::run(|| {
        for capacity in CAPACITIES {
            let (tx, rx) = chan::bounded(capacity);
            (0..capacity).for_each(|i| tx.send(i).unwrap());
            let last = tx.clone();
            let last = go(move || last.send(capacity));
            matrix::until_parked(1, "chan send");
            assert_eq!(tx.try_send(9999), Err(TrySendError::Full(9999)));
            assert_eq!(rx.recv(), Ok(0));
            assert_eq!(last.join().unwrap(), Ok(()));
            assert!((1..=capacity).eq(rx.try_iter()));
        }
    });
}

/// CH-05: 100 values in order for one sender and one receiver.
#[test]
fn one_to_one_keeps_the_order() {
    matrix::run(|| {
        for (tx, rx) in channels() {
            let sends = go(move || (0..100).for_each(|i| tx.send(i).unwrap()));
            assert!((0..100).eq(rx));
            sends.join().unwrap();
        }
    });
}

/// CH-06: the length is 0..capacity while filling; without a buffer both are zero.
#[test]
fn length_and_capacity_are_exact() {
    for (tx, rx) in channels() {
        let capacity = tx.capacity();
        assert_eq!(rx.capacity(), capacity);
        let n = capacity.unwrap_or(1000);
        for round in 0..3 {
            for i in 0..n {
                assert_eq!((tx.len(), rx.len(), tx.is_empty()), (i, i, i == 0), "round {round}");
                assert!(!tx.is_full() && !rx.is_full());
                tx.send(i).unwrap();
            }
            assert_eq!((tx.len(), tx.is_full()), (n, capacity.is_some()));
            for i in (0..n).rev() {
                rx.recv().unwrap();
                assert_eq!(rx.len(), i);
            }
        }
    }
}

/// CH-06, SP-20: a capacity for which there cannot be memory is a panic that can be caught.
#[test]
fn impossible_capacities_panic() {
    for capacity in [1 << 59, usize::MAX, usize::MAX / 2, isize::MAX as usize] {
        let payload = catch_unwind(|| chan::bounded::<u64>(capacity)).unwrap_err();
        assert_eq!(payload.downcast_ref(), Some(&"makechan: size out of range"));
    }
    assert!(catch_unwind(|| chan::bounded::<()>(usize::MAX)).is_err());
}

/// CH-13: ten values through a buffer in order; ten chained receivers of unbuffered channels too.
#[test]
fn chained_receivers_keep_the_order() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded(10);
        (0..10).for_each(|i| tx.send(i).unwrap());
        assert!((0..10).all(|i| rx.recv() == Ok(i)));

        let (values, rx) = chan::bounded(0);
        let log = Arc::new(Mutex::new(Vec::new()));
        let (first, mut turn) = chan::bounded::<()>(0);
        for _ in 0..10 {
            let (next, after) = chan::bounded(0);
            let (rx, log) = (rx.clone(), Arc::clone(&log));
            let mine = std::mem::replace(&mut turn, after);
            go(move || {
                mine.recv().unwrap();
                log.lock().unwrap().push(rx.recv().unwrap());
                next.send(()).unwrap();
            });
        }
        first.send(()).unwrap();
        (0..10).for_each(|i| values.send(i).unwrap());
        turn.recv().unwrap();
        assert!(log.lock().unwrap().iter().copied().eq(0..10));
    });
}

/// CH-14: a non-blocking send works once a receiver waits and fails before; so does its mirror
/// image.
#[test]
fn non_blocking_operations_meet_waiters() {
    fn meet<T: Send + PartialEq + std::fmt::Debug + Copy + 'static>(value: T) {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded(capacity);
            assert_eq!(tx.try_send(value).is_ok(), capacity == 1);
            assert_eq!(rx.try_recv().is_ok(), capacity == 1);
            assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
            let waits = rx.clone();
            let waits = go(move || waits.recv());
            matrix::until_parked(1, "chan receive");
            assert_eq!(tx.try_send(value), Ok(()));
            assert_eq!(waits.join().unwrap(), Ok(value));
            (0..capacity).for_each(|_| tx.send(value).unwrap());
            let waits = tx.clone();
            let waits = go(move || waits.send(value));
            matrix::until_parked(1, "chan send");
            assert_eq!(rx.try_recv(), Ok(value));
            assert_eq!(waits.join().unwrap(), Ok(()));
        }
    }
    matrix::run(|| {
        meet(7i32);
        meet(true);
        meet("text");
        meet([3u64; 9]);
        meet(());
    });
}

/// CH-16: channels of channels, and of values without a size.
#[test]
fn channels_carry_channels_and_nothing() {
    matrix::run(|| {
        for capacity in [0, 1] {
            let (tx, rx) = chan::bounded::<(u32, Sender<u32>)>(capacity);
            go(move || rx.iter().for_each(|(n, reply)| reply.send(n * 2).unwrap()));
            for n in 0..10 {
                let (reply, answer) = chan::bounded(capacity);
                tx.send((n, reply)).unwrap();
                assert_eq!(answer.recv(), Ok(n * 2));
            }
            let (tx, rx) = chan::bounded::<()>(capacity);
            go(move || (0..100).for_each(|_| tx.send(()).unwrap()));
            assert_eq!(rx.iter().count(), 100);
            let (tx, rx) = chan::bounded::<[u64; 0]>(capacity);
            go(move || tx.send([]).unwrap());
            assert_eq!(rx.recv(), Ok([]));
        }
        let (tx, rx) = chan::unbounded::<()>();
        (0..1000).for_each(|_| tx.send(()).unwrap());
        drop(tx);
        assert_eq!(rx.iter().count(), 1000);
    });
}

/// CH-17: the prime sieve, one goroutine per prime.
#[test]
fn the_sieve_finds_the_primes() {
    matrix::run(|| {
        let (tx, mut rx) = chan::bounded(0);
        go(move || (2..).try_for_each(|i| tx.send(i)));
        let mut primes = Vec::new();
        loop {
            let prime: u32 = rx.recv().unwrap();
            if prime >= 100 {
                break;
            }
            primes.push(prime);
            let (tx, next) = chan::bounded(0);
            let numbers = std::mem::replace(&mut rx, next);
            go(move || numbers.iter().filter(|n| n % prime != 0).try_for_each(|n| tx.send(n)));
        }
        assert_eq!(primes.len(), 25);
        assert_eq!(primes[20..], [73, 79, 83, 89, 97]);
    });
}

/// CH-22: a zero value is distinguished from a closed channel; a goroutine spawned inside a
/// handshake continues.
#[test]
fn a_handshake_with_a_spawn_inside_continues() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded(1);
        tx.send(0).unwrap();
        drop(tx);
        assert_eq!(rx.recv(), Ok(0), "zero is a value");
        assert_eq!(rx.recv(), Err(RecvError));

        let (request, requests) = chan::bounded::<Sender<u32>>(0);
        go(move || {
            for reply in requests {
                go(move || reply.send(1).unwrap());
            }
        });
        for _ in 0..10 {
            let (reply, answer) = chan::bounded(0);
            request.send(reply).unwrap();
            assert_eq!(answer.recv(), Ok(1));
        }
    });
}

/// CH-24: unbuffered hand-off on one P: the receiver goes to `run_next`, the sender continues.
#[test]
fn a_hand_off_lets_the_sender_continue() {
    let rt = matrix::plain(1);
    let log = rt.run(|| {
        let (tx, rx) = chan::bounded(0);
        let log = Arc::new(Mutex::new(Vec::new()));
        let group = WaitGroup::new();
        group.add(1);
        let (theirs, done) = (Arc::clone(&log), group.clone());
        go(move || {
            rx.iter().for_each(|i| theirs.lock().unwrap().push(i));
            done.done();
        });
        matrix::until_parked(1, "chan receive");
        for i in 0..3 {
            tx.send(i).unwrap();
            log.lock().unwrap().push(100 + i);
        }
        drop(tx);
        group.wait();
        log.lock().unwrap().clone()
    });
    assert_eq!(log, [100, 0, 1, 101, 102, 2]);
}

/// CH-26: a channel that is never ready blocks forever, with Go's wait reason, and its non-blocking
/// forms fail.
#[test]
fn a_never_channel_blocks_forever() {
    matrix::run(|| {
        let (tx, rx) = (Sender::<u8>::never(), chan::never::<u8>());
        assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        let short = Duration::from_micros(100);
        assert_eq!(tx.send_timeout(1, short), Err(SendTimeoutError::Timeout(1)));
        assert_eq!(rx.recv_timeout(short), Err(RecvTimeoutError::Timeout));
        assert_eq!((rx.len(), rx.capacity(), rx.is_closed()), (0, Some(0), false));
        assert!(rx.same_channel(&rx.clone()) && tx.same_channel(&tx.clone()));
        let sends = go(move || tx.send(1));
        let receives = go(move || rx.recv());
        matrix::until_parked(1, "chan send (nil chan)");
        matrix::until_parked(1, "chan receive (nil chan)");
        sends.cancel();
        receives.cancel();
        assert!(sends.join().unwrap_err().is_cancelled());
        assert!(receives.join().unwrap_err().is_cancelled());
    });
}

/// CH-27: a message for a receiver that waits goes past the buffer; a receive from a full buffer
/// lets the first waiting sender in behind the others. The order of values is that of their sends.
#[test]
fn values_stay_in_order_across_the_buffer() {
    matrix::run(|| {
        for capacity in [0, 1, 2, 5] {
            let (tx, rx) = chan::bounded(capacity);
            let waits = rx.clone();
            let waits = go(move || waits.recv());
            matrix::until_parked(1, "chan receive");
            tx.send(1000).unwrap();
            assert_eq!(tx.len(), 0, "past the buffer");
            assert_eq!(waits.join().unwrap(), Ok(1000));

            (0..capacity).for_each(|i| tx.send(i).unwrap());
            for i in 0..5 {
                let tx = tx.clone();
                go(move || tx.send(capacity + i).unwrap());
                matrix::until_parked(i + 1, "chan send");
            }
            for i in 0..5 {
                assert_eq!(rx.recv(), Ok(i));
                assert_eq!(rx.len(), capacity, "the next one moved up");
                assert!(tx.try_send(7777).is_err(), "a send must not overtake the waiting senders");
            }
            assert!((5..capacity + 5).eq(rx.try_iter()));
        }
    });
}

/// An operation in time succeeds, one that is not gives the message back and leaves no entry in a
/// queue.
#[test]
fn deadlines_are_kept() {
    let short = Duration::from_millis(2);
    matrix::run(|| {
        for capacity in [0, 1, 3] {
            let (tx, rx) = chan::bounded(capacity);
            let start = Instant::now();
            assert_eq!(rx.recv_timeout(short), Err(RecvTimeoutError::Timeout));
            assert!(start.elapsed() >= short);
            (0..capacity).for_each(|i| tx.send(i).unwrap());
            let start = Instant::now();
            assert_eq!(tx.send_deadline(99, start + short), Err(SendTimeoutError::Timeout(99)));
            assert!(start.elapsed() >= short);
            assert!((0..capacity).eq(rx.try_iter()));
            assert!(tx.try_send(1).is_ok() == (capacity > 0), "no receiver is left behind");
            let _ = rx.try_recv();
            let late = tx.clone();
            go(move || late.send_timeout(5, Duration::from_secs(100)));
            assert_eq!(rx.recv_deadline(Instant::now() + Duration::from_secs(100)), Ok(5));
        }
        let far = Duration::MAX;
        let (tx, rx) = chan::bounded(0);
        go(move || tx.send_timeout(1, far));
        assert_eq!(rx.recv_timeout(far), Ok(1));
    });
}

/// Plain threads and goroutines at the two ends of one channel, all of them at once.
#[test]
fn threads_and_goroutines_mix() {
    const N: usize = 2000;
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        for (tx, rx) in channels() {
            let sum = |rx: &Receiver<usize>| rx.iter().sum::<usize>();
            let total = std::thread::scope(|threads| {
                for _ in 0..2 {
                    let (a, b) = (tx.clone(), tx.clone());
                    threads.spawn(move || (0..N).for_each(|i| a.send(i).unwrap()));
                    rt.handle().spawn(move || (0..N).for_each(|i| b.send(i).unwrap()));
                }
                drop(tx);
                let from_goroutine = {
                    let rx = rx.clone();
                    rt.handle().spawn(move || sum(&rx))
                };
                let theirs = rx.clone();
                let from_thread = threads.spawn(move || sum(&theirs));
                sum(&rx) + from_thread.join().unwrap() + from_goroutine.join().unwrap()
            });
            assert_eq!(total, 4 * (0..N).sum::<usize>());
        }
    });
}

/// A deadline from before the machine started has passed, as any other. It was taken for a wait
/// that is not one, and tried again and again.
#[test]
fn a_deadline_from_before_the_clock_has_passed() {
    let age = Duration::from_secs(1 << 40);
    let past = Instant::now().checked_sub(age).expect("an Instant goes back that far");
    let check = || {
        for (tx, rx) in channels() {
            assert_eq!(rx.recv_deadline(past), Err(RecvTimeoutError::Timeout));
            if let Some(capacity) = tx.capacity() {
                (0..capacity).for_each(|_| assert_eq!(tx.send_deadline(1, past), Ok(())));
                assert_eq!(tx.send_deadline(2, past), Err(SendTimeoutError::Timeout(2)));
            }
        }
    };
    check();
    matrix::run(check);
}

/// Threads alone, without any runtime, with deadlines.
#[test]
fn threads_need_no_runtime() {
    for (tx, rx) in channels() {
        std::thread::scope(|threads| {
            let ends = threads.spawn(|| {
                let mut sum = 0;
                loop {
                    match rx.recv_timeout(Duration::from_micros(50)) {
                        Ok(n) => sum += n,
                        Err(RecvTimeoutError::Timeout) => {}
                        Err(RecvTimeoutError::Disconnected) => return sum,
                    }
                }
            });
            threads.spawn(move || {
                for n in 0..500 {
                    let mut message = n;
                    while let Err(error) = tx.send_timeout(message, Duration::from_micros(20)) {
                        message = error.into_inner();
                    }
                }
            });
            assert_eq!(ends.join().unwrap(), (0..500).sum());
        });
    }
}

/// Two hundred rounds of a blocked send while its goroutine has used much of its stack.
#[test]
fn blocked_sends_survive_deep_stacks() {
    #[inline(never)]
    fn deep(n: usize, tx: &Sender<usize>) -> usize {
        let here = std::hint::black_box([n; 64]);
        if n == 0 {
            tx.send(here[0]).unwrap();
            return here[63];
        }
        deep(n - 1, tx) + here[n % 64]
    }
    matrix::run(|| {
        let (tx, rx) = chan::bounded(0);
        let done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&done);
        go(move || {
            for _ in 0..200 {
                deep(50, &tx);
            }
            flag.store(true, Ordering::SeqCst);
        });
        assert_eq!(rx.iter().filter(|&n| n == 0).count(), 200);
        assert!(done.load(Ordering::SeqCst));
    });
}

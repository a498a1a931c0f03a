//! Select: Go's behaviours, at every configuration.

use crate::matrix;

use heist::chan::{self, Receiver, RecvError, Select, SendError, Sender};
use heist::sync::WaitGroup;
use heist::{go, select, select_biased, yield_now};
use std::cell::RefCell;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// CH-08: a hundred sends that choose between 1 and 0 on one channel: both appear more than ten
/// times.
#[test]
fn two_sends_on_one_channel_are_both_chosen() {
    matrix::run(|| {
        for capacity in [0, 100] {
            let (tx, rx) = chan::bounded(capacity);
            go(move || {
                for _ in 0..100 {
                    select! {
                        send(tx, 0) -> sent => sent.unwrap(),
                        send(tx, 1) -> sent => sent.unwrap(),
                    }
                }
            });
            let ones: usize = rx.iter().sum();
            assert!((11..90).contains(&ones), "{ones} of 100");
        }
    });
}

/// CH-11: a goroutine may wait several times at one channel, and the waiters behind it are still
/// woken.
#[test]
fn a_channel_may_be_named_twice() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<u32>(0);
        let (other, quiet) = chan::bounded::<u32>(0);
        let twice = rx.clone();
        let twice = go(move || {
            select! {
                recv(twice) -> got => got,
                recv(twice) -> got => got,
                recv(quiet) -> got => got,
            }
        });
        matrix::until_parked(1, "select");
        let behind = go(move || rx.recv());
        matrix::until_parked(1, "chan receive");
        other.send(7).unwrap();
        assert_eq!(twice.join().unwrap(), Ok(7));
        tx.send(8).unwrap();
        assert_eq!(behind.join().unwrap(), Ok(8));
        assert!(tx.try_send(9).is_err(), "no entry is left");
    });
}

/// SE-02: at every moment one of two channels has something; a select with a default sees it, and
/// so does one whose default is due at once.
fn never_default(ready: impl Fn(&Sender<u32>) + Copy + Send + Sync + 'static) {
    let n = if cfg!(debug_assertions) { 300 } else { 3000 };
    matrix::each_of(&matrix::cases_with(&[2, 4]), |_, rt| {
        rt.run(|| {
            let (done, dones) = chan::bounded(1);
            for i in 0..n {
                let (tx1, rx1) = chan::bounded(1);
                let (tx2, rx2) = chan::bounded(1);
                tx1.send(1).unwrap();
                let (done, first, second) = (done.clone(), rx1.clone(), rx2.clone());
                go(move || {
                    let found = if i % 2 == 0 {
                        select! {
                            recv(first) -> _ => true,
                            recv(second) -> _ => true,
                            default => false,
                        }
                    } else {
                        select! {
                            recv(first) -> _ => true,
                            recv(second) -> _ => true,
                            default(Duration::ZERO) => false,
                        }
                    };
                    done.send(found).unwrap();
                });
                ready(&tx2);
                let _ = rx1.try_recv();
                assert!(dones.recv().unwrap(), "no moment at which none was ready");
            }
        });
    });
}

/// SE-02: with a send.
#[test]
fn a_default_is_not_chosen_against_a_send() {
    never_default(|tx| tx.send(1).unwrap());
}

/// SE-02: with a close.
#[test]
fn a_default_is_not_chosen_against_a_close() {
    never_default(|tx| assert!(tx.close()));
}

/// SE-03: two goroutines that both send and receive on one channel in each select do not deadlock,
/// and without a buffer no goroutine gets its own value.
#[test]
fn a_select_does_not_match_itself() {
    matrix::run(|| {
        for capacity in [0, 10] {
            let (tx, rx) = chan::bounded(capacity);
            let group = WaitGroup::new();
            for me in 0..2 {
                group.add(1);
                let (tx, rx, group) = (tx.clone(), rx.clone(), group.clone());
                go(move || {
                    for i in 0..1000 {
                        if me == 0 || i % 2 == 0 {
                            select! {
                                send(tx, me) -> sent => sent.unwrap(),
                                recv(rx) -> got => assert!(got != Ok(me) || capacity > 0),
                            }
                        } else {
                            select! {
                                recv(rx) -> got => assert!(got != Ok(me) || capacity > 0),
                                send(tx, me) -> sent => sent.unwrap(),
                            }
                        }
                    }
                    group.done();
                });
            }
            group.wait();
        }
    });
}

/// SE-05: of two cases that are always ready and two that never are, each of the first is chosen
/// half of the time.
#[test]
fn ready_cases_are_chosen_uniformly() {
    const TRIALS: usize = 10_000;
    let (tx1, c1) = chan::bounded(TRIALS + 1);
    let (tx2, c2) = chan::bounded(TRIALS + 1);
    for i in 0..=TRIALS {
        tx1.send(i).unwrap();
        tx2.send(i).unwrap();
    }
    let (c3, c4) = (chan::never::<u8>(), chan::bounded::<u8>(0));
    let choose = || {
        let mut counts = [0; 2];
        for _ in 0..TRIALS {
            select! {
                recv(c3) -> _ => unreachable!(),
                recv(c4.1) -> _ => unreachable!(),
                recv(c1) -> got => { counts[0] += 1; tx1.send(got.unwrap()).unwrap() }
                recv(c2) -> got => { counts[1] += 1; tx2.send(got.unwrap()).unwrap() }
            }
        }
        counts
    };
    let fair = |[a, _]: [usize; 2]| assert!((4500..=5500).contains(&a), "{a} of {TRIALS}");
    fair(choose());
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| fair(rt.run(choose)));
}

/// SE-06: several send cases of one channel with boxed values of a trait.
#[test]
fn boxed_values_are_sent() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<Box<dyn Fn() -> u32 + Send>>(1);
        for _ in 0..100 {
            select! {
                send(tx, Box::new(|| 1)) -> sent => assert!(sent.is_ok()),
                send(tx, Box::new(|| 2)) -> sent => assert!(sent.is_ok()),
            }
            assert!([1, 2].contains(&rx.recv().unwrap()()));
        }
    });
}

/// SE-07: values spread by a select over four channels and merged by four forwarders: none comes
/// twice.
#[test]
fn a_select_fires_one_case() {
    let n: usize = if cfg!(debug_assertions) { 2_000 } else { 100_000 };
    matrix::each_of(&matrix::cases_with(&[1, 2, 4]), |_, rt| {
        rt.run(|| {
            let spread: [_; 4] = std::array::from_fn(|_| chan::bounded(0));
            let (merged, all) = chan::bounded(0);
            let senders: [Sender<usize>; 4] = std::array::from_fn(|i| spread[i].0.clone());
            for (_, rx) in spread {
                let merged = merged.clone();
                go(move || rx.iter().for_each(|value| merged.send(value).unwrap()));
            }
            drop(merged);
            go(move || {
                for i in 0..n {
                    select! {
                        send(senders[0], i) -> sent => sent.unwrap(),
                        send(senders[1], i) -> sent => sent.unwrap(),
                        send(senders[2], i) -> sent => sent.unwrap(),
                        send(senders[3], i) -> sent => sent.unwrap(),
                    }
                }
            });
            let mut seen = vec![false; n];
            all.iter().for_each(|i| assert!(!std::mem::replace(&mut seen[i], true), "{i} twice"));
            assert!(seen.iter().all(|&seen| seen));
        });
    });
}

/// SE-08, SE-11: channels and messages are evaluated once, in source order, whether their case is
/// chosen or not; the pattern is bound for the chosen case alone.
#[test]
fn evaluation_is_in_source_order() {
    matrix::run(|| {
        let log = RefCell::new(Vec::new());
        let (tx, rx) = chan::bounded(1);
        let never = Sender::never();
        let note = |what: &'static str| log.borrow_mut().push(what);
        for _ in 0..5 {
            let sender = |name, tx| {
                note(name);
                tx
            };
            let value = |name| {
                note(name);
                0
            };
            select! {
                send(sender("a", &tx), value("1")) -> sent => { note("sent"); sent.unwrap() }
                send(sender("b", &never), value("2")) -> _ => note("never"),
                recv({ note("c"); chan::never::<u8>() }) -> _ => note("never"),
            }
            assert_eq!(log.take(), ["a", "1", "b", "2", "c", "sent"]);
            rx.recv().unwrap();
        }
        tx.send(0).unwrap();
        select! {
            send(tx, { note("unsent"); 1 }) -> _ => note("never"),
            default => note("default"),
        }
        assert_eq!(log.take(), ["unsent", "default"]);
        let Ok(0) = (select! { recv(rx) -> got => got }) else { panic!("one case is a receive") };
    });
}

/// SE-10: the table of forms that block and forms that do not.
#[test]
fn each_form_blocks_as_its_table_says() {
    fn blocks(form: impl FnOnce() + Send + 'static) {
        let form = go(form);
        // A form that does not block is over before the goroutine is seen waiting.
        matrix::yield_until("a form that waits", || {
            assert!(!form.is_finished(), "does not block");
            heist::dump_goroutines().lines().any(|line| {
                ["[chan send", "[chan receive", "[select"].iter().any(|w| line.contains(w))
            })
        });
        form.cancel();
        assert!(form.join().unwrap_err().is_cancelled());
    }
    matrix::run(|| {
        let never = || (Sender::<u8>::never(), chan::never::<u8>());
        let full = || {
            let (tx, rx) = chan::bounded::<u8>(1);
            tx.send(0).unwrap();
            (tx, rx)
        };
        blocks(move || assert!(never().0.send(1).is_ok()));
        blocks(move || assert!(never().1.recv().is_ok()));
        blocks(move || select! { recv(never().1) -> _ => () });
        blocks(move || select! { send(never().0, 1) -> _ => () });
        blocks(move || assert!(full().0.send(1).is_ok()));
        blocks(move || {
            let (tx, _rx) = full();
            select! { send(tx, 1) -> _ => (), recv(never().1) -> _ => () }
        });
        blocks(move || {
            let (_tx, rx) = chan::bounded::<u8>(1);
            select! { recv(rx) -> _ => (), send(never().0, 2) -> _ => () }
        });
        blocks(|| select! {});

        select! { recv(never().1) -> _ => unreachable!(), default => () }
        select! { send(never().0, 1) -> _ => unreachable!(), default => () }
        select! { recv(full().1) -> got => assert_eq!(got, Ok(0)) }
        let (tx, rx) = full();
        select! { send(tx, 1) -> _ => unreachable!(), default => () }
        select! { recv(rx) -> got => assert_eq!(got, Ok(0)), default => unreachable!() }
        select! { send(tx, 1) -> sent => sent.unwrap(), default => unreachable!() }
        tx.close();
        select! { send(tx, 2) -> sent => assert_eq!(sent, Err(SendError(2))) }
        select! { send(tx, 2) -> sent => assert!(sent.is_err()), default => unreachable!() }
        select! { recv(rx) -> got => assert_eq!(got, Ok(1)), default => unreachable!() }
        for _ in 0..3 {
            select! { recv(rx) -> got => assert_eq!(got, Err(RecvError)) }
            select! { recv(rx) -> got => assert!(got.is_err()), default => unreachable!() }
        }
    });
}

/// SE-13: three forms of a sender against three forms of a receiver, either of them first.
#[test]
fn all_forms_meet() {
    fn send(form: usize, tx: &Sender<usize>) {
        match form {
            0 => tx.send(1).unwrap(),
            1 => select! { send(tx, 1) -> sent => sent.unwrap() },
            _ => select! {
                send(tx, 1) -> sent => sent.unwrap(),
                recv(chan::never::<u8>()) -> _ => unreachable!(),
            },
        }
    }
    fn recv(form: usize, rx: &Receiver<usize>) -> usize {
        match form {
            0 => rx.recv().unwrap(),
            1 => select! { recv(rx) -> got => got.unwrap() },
            _ => select! {
                recv(rx) -> got => got.unwrap(),
                recv(chan::never::<u8>()) -> _ => unreachable!(),
            },
        }
    }
    matrix::run(|| {
        for (sender, receiver) in (0..3).flat_map(|s| (0..3).map(move |r| (s, r))) {
            let (tx, rx) = chan::bounded(0);
            let first = go(move || send(sender, &tx));
            yield_now();
            assert_eq!(recv(receiver, &rx), 1);
            first.join().unwrap();
            let (tx, rx) = chan::bounded(0);
            let first = go(move || recv(receiver, &rx));
            yield_now();
            send(sender, &tx);
            assert_eq!(first.join().unwrap(), 1);
        }
    });
}

/// SE-15: an empty select waits forever, with Go's wait reason.
#[test]
fn an_empty_select_waits_forever() {
    matrix::run(|| {
        let waits = go(|| select! {});
        matrix::until_parked(1, "select (no cases)");
        let dynamic = go(|| Select::new().select().index());
        matrix::until_parked(2, "select (no cases)");
        waits.cancel();
        dynamic.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        assert!(dynamic.join().unwrap_err().is_cancelled());
    });
}

/// SE-16: selects over the same channels in every order do not deadlock, though each takes the
/// locks of all of them to wait; and no entry is left in a queue.
#[test]
fn locks_are_taken_in_one_order() {
    matrix::run(|| {
        let (a, b, c) = (chan::bounded(0), chan::bounded(0), chan::bounded(0));
        let orders = [[&a, &b, &c], [&c, &a, &b], [&b, &c, &a], [&c, &b, &a]];
        let received = Arc::new(AtomicUsize::new(0));
        let receivers: Vec<_> = orders
            .map(|[x, y, z]| {
                let (x, y, z, received) =
                    (x.1.clone(), y.1.clone(), z.1.clone(), Arc::clone(&received));
                go(move || {
                    loop {
                        let got = select! {
                            recv(x) -> got => got,
                            recv(y) -> got => got,
                            recv(z) -> got => got,
                        };
                        if got == Err(RecvError) {
                            return;
                        }
                        received.fetch_add(1, Ordering::Relaxed);
                    }
                })
            })
            .into();
        for i in 0..300 {
            select! {
                send(a.0, i) -> sent => sent.unwrap(),
                send(b.0, i) -> sent => sent.unwrap(),
                send(c.0, i) -> sent => sent.unwrap(),
            }
        }
        a.0.close();
        receivers.into_iter().for_each(|receiver| receiver.join().unwrap());
        assert_eq!(received.load(Ordering::Relaxed), 300);
        for (tx, rx) in [&b, &c] {
            assert!(tx.try_send(0).is_err() && rx.try_recv().is_err(), "a waiter was left");
        }
    });
}

/// SE-18: two channels that become ready at once wake a select once, and the other message stays.
#[test]
fn two_wakers_wake_once() {
    matrix::run(|| {
        for capacity in [0, 1] {
            for _ in 0..20 {
                let (tx1, rx1) = chan::bounded(capacity);
                let (tx2, rx2) = chan::bounded(capacity);
                let (r1, r2) = (rx1.clone(), rx2.clone());
                let waits = go(move || select! { recv(r1) -> got => got, recv(r2) -> got => got });
                let senders = [tx1.clone(), tx2.clone()].map(|tx| go(move || tx.send(1).unwrap()));
                assert_eq!(waits.join().unwrap(), Ok(1));
                let left = select! { recv(rx1) -> got => got, recv(rx2) -> got => got };
                assert_eq!(left, Ok(1));
                senders.into_iter().for_each(|sender| sender.join().unwrap());
            }
        }
    });
}

/// A million selects on a busy and an idle channel leave no entry in a queue.
#[test]
fn selects_leave_no_entries() {
    let n = if cfg!(debug_assertions) { 100_000 } else { 1_000_000 };
    let rt = matrix::plain(2);
    rt.run(|| {
        let (busy, rx) = chan::bounded(0);
        let (idle, quiet) = chan::bounded::<u32>(0);
        go(move || (0..n).for_each(|i| busy.send(i).unwrap()));
        for _ in 0..n {
            select! { recv(rx) -> got => assert!(got.is_ok()), recv(quiet) -> _ => unreachable!() }
        }
        // An entry that was left would be met, or would be of a frame that is gone.
        assert!(idle.try_send(1).is_err());
        assert_eq!(rx.recv(), Err(RecvError));
    });
}

/// A select that is cancelled removes all its entries and drops its unsent messages.
#[test]
fn a_cancelled_select_leaves_nothing() {
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<Arc<()>>(0);
        let (full, kept) = chan::bounded(1);
        let message = Arc::new(());
        full.send(Arc::clone(&message)).unwrap();
        let (r, s, m) = (rx.clone(), full.clone(), Arc::clone(&message));
        let waits = go(move || {
            select! { recv(r) -> _ => unreachable!(), send(s, m) -> _ => unreachable!() }
        });
        matrix::until_parked(1, "select");
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        assert_eq!(Arc::strong_count(&message), 2);
        assert!(tx.try_send(Arc::clone(&message)).is_err());
        drop(kept.recv());
        assert_eq!(kept.len(), 0, "a waiting send moved into the buffer");
    });
}

/// A default with a timeout is chosen when the time is over and not before.
#[test]
fn a_default_waits_for_its_timeout() {
    let short = Duration::from_millis(2);
    matrix::run(|| {
        let (tx, rx) = chan::bounded::<u8>(0);
        let start = Instant::now();
        select! {
            recv(rx) -> _ => unreachable!(),
            send(tx, 1) -> _ => unreachable!(),
            default(short) => assert!(start.elapsed() >= short),
        }
        let start = Instant::now();
        select! { default(short) => assert!(start.elapsed() >= short) }
        let late = tx.clone();
        go(move || late.send(3));
        let got = select! { recv(rx) -> got => got.ok(), default(Duration::MAX) => None };
        assert_eq!(got, Some(3));
    });
}

/// The first case that is ready wins a biased select.
#[test]
fn a_biased_select_prefers_the_first() {
    matrix::run(|| {
        let (tx1, rx1) = chan::bounded(100);
        let (tx2, rx2) = chan::bounded(100);
        (0..100).for_each(|i| tx1.send(i).and(tx2.send(i)).unwrap());
        for _ in 0..100 {
            select_biased! { recv(rx1) -> _ => (), recv(rx2) -> _ => unreachable!() }
        }
        select_biased! { recv(rx1) -> _ => unreachable!(), recv(rx2) -> got => assert!(got.is_ok()) }
    });
}

/// The expression of a case belongs to the surrounding function, and may use the channels again.
#[test]
fn bodies_belong_to_their_function() {
    fn first_even(mut rx: Receiver<u32>, spare: &Receiver<u32>) -> Result<u32, RecvError> {
        loop {
            select! {
                recv(rx) -> got => match got {
                    Ok(n) if n % 2 == 0 => return Ok(n),
                    Ok(_) => continue,
                    Err(_) => rx = chan::never(),
                },
                recv(spare) -> got => { got?; break }
            }
        }
        Ok(0)
    }
    matrix::run(|| {
        let (tx, rx) = chan::unbounded();
        let (other, spare) = chan::unbounded();
        [1, 3, 4].into_iter().for_each(|n| tx.send(n).unwrap());
        assert_eq!(first_even(rx.clone(), &spare), Ok(4));
        tx.close();
        other.send(1).unwrap();
        assert_eq!(first_even(rx.clone(), &spare), Ok(0));
        drop(other);
        assert_eq!(first_even(rx, &spare), Err(RecvError));
    });
}

/// Plain threads select against goroutines.
#[test]
fn threads_select() {
    const N: usize = 500;
    matrix::each_of(&matrix::cases_with(&[1, 4]), |_, rt| {
        let (a, b) = (chan::bounded(0), chan::bounded(1));
        let sum = Mutex::new(0);
        std::thread::scope(|threads| {
            for _ in 0..2 {
                let (tx1, tx2) = (a.0.clone(), b.0.clone());
                rt.handle().spawn(move || {
                    for i in 0..N {
                        select! {
                            send(tx1, i) -> sent => sent.unwrap(),
                            send(tx2, i) -> sent => sent.unwrap(),
                        }
                    }
                });
                threads.spawn(|| {
                    for _ in 0..N {
                        let got = select! {
                            recv(a.1) -> got => got.unwrap(),
                            recv(b.1) -> got => got.unwrap(),
                            default(Duration::from_secs(100)) => unreachable!(),
                        };
                        *sum.lock().unwrap() += got;
                    }
                });
            }
        });
        assert_eq!(*sum.lock().unwrap(), 2 * (0..N).sum::<usize>());
    });
}

/// CH-21: messages with tags through ten selectors and small buffers, each seen once and in its
/// order.
#[test]
fn tagged_messages_through_selectors() {
    const SOURCES: usize = 10;
    const EACH: usize = 100;
    matrix::run(|| {
        let (out, all) = chan::bounded(2);
        let ins: Vec<_> = (0..SOURCES).map(|_| chan::bounded::<(usize, usize)>(2)).collect();
        for source in 0..SOURCES {
            let tx = ins[source].0.clone();
            go(move || (0..EACH).for_each(|i| tx.send((source, i)).unwrap()));
            let (a, b) = (ins[source].1.clone(), ins[(source + 1) % SOURCES].1.clone());
            let out = out.clone();
            go(move || {
                loop {
                    let got = select! { recv(a) -> got => got, recv(b) -> got => got };
                    match got {
                        Ok(tagged) => out.send(tagged).unwrap(),
                        Err(RecvError) => return,
                    }
                }
            });
        }
        drop(out);
        let mut seen = [[false; EACH]; SOURCES];
        for _ in 0..SOURCES * EACH {
            let (source, i) = all.recv().unwrap();
            assert!(!std::mem::replace(&mut seen[source][i], true));
        }
        ins.iter().for_each(|(tx, _)| assert!(tx.close()));
        assert_eq!(all.recv(), Err(RecvError));
    });
}

/// The names in a timeout expression are the caller's, independent of the names that the macros
/// use, and it is evaluated only if no case is ready at once.
#[test]
fn timeout_expressions_belong_to_the_caller() {
    const CASES: Duration = Duration::from_millis(1);

    mod select_parts {
        pub const fn timeout() -> std::time::Duration {
            std::time::Duration::from_millis(1)
        }
    }

    matrix::run(|| {
        let (tx, rx) = chan::bounded::<u8>(1);
        let start = Instant::now();
        select! {
            recv(rx) -> _ => unreachable!(),
            default(CASES) => {}
        }
        select_biased! {
            recv(rx) -> _ => unreachable!(),
            default(select_parts::timeout()) => {}
        }
        assert!(start.elapsed() >= 2 * CASES);
        tx.send(1).unwrap();
        select! {
            recv(rx) -> message => assert_eq!(message, Ok(1)),
            default(never_asked()) => unreachable!(),
        }
    });

    fn never_asked() -> Duration {
        unreachable!("a case was ready");
    }
}

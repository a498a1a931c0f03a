//! Channels of timers: `after`, `tick`, `Timer`, `Ticker`.

use crate::child;
use crate::matrix;

use heist::chan::{self, RecvTimeoutError, Select, TryRecvError};
use heist::time::{Ticker, Timer};
use heist::{go, select};
use std::panic::catch_unwind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

/// Tries an upper bound on time a few times: other processes may take the CPU meanwhile.
#[track_caller]
fn within_tries(what: &str, mut attempt: impl FnMut() -> bool) {
    assert!((0..10).any(|_| attempt()), "{what}");
}

/// TM-06: `after` is never early, and carries a time that is not early either.
#[test]
fn after_is_never_early() {
    matrix::run(|| {
        let start = Instant::now();
        let receiver = chan::after(3 * MS);
        let due = receiver.recv().unwrap();
        assert!(due >= start + 3 * MS && Instant::now() >= due);
        assert_eq!(receiver.try_recv(), Err(TryRecvError::Empty), "once");
        assert_eq!(receiver.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
    });
    let start = Instant::now();
    chan::after(MS).recv().unwrap();
    assert!(start.elapsed() >= MS, "on a plain thread too");
}

/// TM-06: ten of them, one after the other, take ten times as long and not much more.
#[test]
fn after_is_not_much_late() {
    let rt = matrix::plain(1);
    within_tries("ten times 10 ms within 300 ms", || {
        let took = rt.run(|| {
            let start = Instant::now();
            (0..10).for_each(|_| assert!(chan::after(10 * MS).recv().is_ok()));
            start.elapsed()
        });
        assert!(took >= 100 * MS);
        took <= 300 * MS
    });
}

/// TM-08: timers of different lengths come in the order of their times.
#[test]
fn timers_fire_in_order() {
    let slots = [5u32, 3, 6, 6, 6, 1, 1, 2, 7, 9, 4, 8, 0];
    let rt = matrix::plain(2);
    within_tries("in the order of their slots", || {
        rt.run(move || {
            let (tx, rx) = chan::unbounded();
            let start = Instant::now();
            for slot in slots {
                let (tx, timer) = (tx.clone(), chan::after(slot * 10 * MS));
                go(move || {
                    timer.recv().unwrap();
                    assert!(start.elapsed() >= slot * 10 * MS);
                    tx.send(slot).unwrap();
                });
            }
            drop(tx);
            rx.iter().collect::<Vec<_>>().is_sorted()
        })
    });
}

/// TM-07: stop says whether it prevented the message; there is none after it.
#[test]
fn stop_is_truthful() {
    matrix::run(|| {
        let timer = Timer::new(2 * MS);
        assert!(timer.stop());
        assert!(!timer.stop());
        assert_eq!(timer.receiver().recv_timeout(5 * MS), Err(RecvTimeoutError::Timeout));
        let timer = Timer::new(Duration::ZERO);
        timer.receiver().recv().unwrap();
        assert!(!timer.stop(), "it was received");
    });
}

/// TM-11, IN-41: reset of a live timer is true and moves it; of one that was received false.
#[test]
fn reset_is_truthful() {
    matrix::run(|| {
        let start = Instant::now();
        let timer = Timer::new(HOUR);
        assert!(timer.reset(2 * MS));
        timer.receiver().recv().unwrap();
        assert!(start.elapsed() >= 2 * MS);
        assert!(!timer.reset(MS));
        assert!(timer.receiver().recv().is_ok());
        assert!(!timer.reset(HOUR));
        assert_eq!(timer.receiver().try_recv(), Err(TryRecvError::Empty));
    });
}

/// TM-12: the longest duration never comes, none at all comes at once, and a period may be as long.
#[test]
fn durations_saturate() {
    matrix::run(|| {
        let never = chan::after(Duration::MAX);
        assert_eq!(never.recv_timeout(MS), Err(RecvTimeoutError::Timeout));
        assert!(chan::after(Duration::ZERO).recv().is_ok());
        assert!(chan::tick(Duration::MAX).try_recv().is_err());
        let ticker = Ticker::new(MS);
        ticker.reset(Duration::MAX);
        assert!(ticker.receiver().try_recv().is_err());
    });
}

/// TM-15: a timer that is moved earlier, while a goroutine waits for it, fires at its new time.
#[test]
fn moving_a_timer_earlier_wakes_its_waiter() {
    matrix::each_of(&matrix::cases_with(&[1, 2, 4]), |_, rt| {
        rt.run(|| {
            for _ in 0..20 {
                let timer = Arc::new(Timer::new(HOUR));
                let theirs = Arc::clone(&timer);
                let waits = go(move || theirs.receiver().recv());
                for _ in 0..10 {
                    heist::yield_now();
                    timer.stop();
                    timer.reset(Duration::ZERO);
                }
                assert!(waits.join().unwrap().is_ok());
            }
        });
    });
}

/// TM-18: many goroutines share one fast ticker, others reset one fast timer.
#[test]
fn fast_tickers_are_shared() {
    matrix::run(|| {
        let ticker = Arc::new(Ticker::new(Duration::from_micros(1)));
        let timer = Arc::new(Timer::new(Duration::from_nanos(1)));
        let handles: Vec<_> = (0..4)
            .flat_map(|_| {
                let (ticker, timer) = (Arc::clone(&ticker), Arc::clone(&timer));
                let ticks = go(move || {
                    for _ in 0..100 {
                        select! { recv(ticker.receiver()) -> _ => (), default(MS) => () }
                    }
                });
                let resets = go(move || {
                    for _ in 0..100 {
                        timer.reset(Duration::from_nanos(1));
                        let _ = timer.receiver().recv_timeout(MS);
                    }
                });
                [ticks, resets]
            })
            .collect();
        handles.into_iter().for_each(|handle| handle.join().unwrap());
    });
}

/// TM-19: a ticker keeps its period, follows a reset, and is silent after stop.
#[test]
fn a_ticker_keeps_its_period() {
    const COUNT: u32 = 10;
    let delta = 10 * MS;
    let rt = matrix::plain(2);
    within_tries("within 30 % of the sum of periods", || {
        let took = rt.run(move || {
            let start = Instant::now();
            let ticker = Ticker::new(delta);
            for _ in 0..COUNT / 2 {
                ticker.receiver().recv().unwrap();
            }
            ticker.reset(2 * delta);
            for _ in 0..COUNT / 2 {
                ticker.receiver().recv().unwrap();
            }
            ticker.stop();
            let took = start.elapsed();
            let quiet = ticker.receiver().recv_timeout(4 * delta);
            assert_eq!(quiet, Err(RecvTimeoutError::Timeout));
            took
        });
        let target = delta * 3 * COUNT / 2;
        assert!(took >= target - delta);
        took <= target * 13 / 10
    });
}

/// TM-20: a period of zero is refused; tickers may be made and stopped in a loop.
#[test]
fn periods_are_checked() {
    for _ in 0..3 {
        let ticker = Ticker::new(MS);
        ticker.receiver().recv().unwrap();
        ticker.stop();
    }
    assert!(catch_unwind(|| Ticker::new(Duration::ZERO)).is_err());
    assert!(catch_unwind(|| Ticker::new(MS).reset(Duration::ZERO)).is_err());
    assert!(catch_unwind(|| chan::tick(Duration::ZERO)).is_err());
}

/// TM-22, TM-31: a timer without a waiter is in no queue of the scheduler, so dropping it frees it;
/// a waiter that gave up leaves nothing either.
#[test]
fn dropped_timers_free_their_memory() {
    let ended = child::run(|| {
        matrix::plain(2).run(|| {
            let mut before_kib = 0;
            for round in 0..50_000 {
                let (timer, ticker) = (Timer::new(HOUR), Ticker::new(HOUR));
                let (after, tick) = (chan::after(HOUR), chan::tick(HOUR));
                if round % 100 == 0 {
                    let gave_up = select! {
                        recv(timer.receiver()) -> _ => false,
                        recv(ticker.receiver()) -> _ => false,
                        recv(after) -> _ => false,
                        recv(tick) -> _ => false,
                        default(Duration::from_micros(10)) => true,
                    };
                    assert!(gave_up);
                }
                if round == 1000 {
                    before_kib = child::own_status("VmRSS");
                }
            }
            // Were they kept, it would be 20 MiB.
            let grown_kib = child::own_status("VmRSS").saturating_sub(before_kib);
            assert!(grown_kib < 4096, "{grown_kib} KiB more");
        });
    });
    ended.succeeded();
}

/// TM-23: the channel of a timer has no length and no capacity; a due timer is seen without
/// waiting, and by two waiters once; a stop between expiry and receive is true and leaves nothing.
#[test]
fn timer_channels_hold_nothing() {
    matrix::run(|| {
        let (timer, ticker) = (Timer::new(Duration::ZERO), Ticker::new(Duration::from_nanos(1)));
        for receiver in [timer.receiver(), ticker.receiver()] {
            assert_eq!(
                (receiver.len(), receiver.capacity(), receiver.is_empty()),
                (0, Some(0), true)
            );
            assert!(!receiver.is_closed() && !receiver.close());
            assert!(receiver.try_recv().is_ok(), "due");
        }
        assert!(timer.receiver().try_recv().is_err());
        timer.reset(Duration::ZERO);
        assert!(timer.stop(), "due but not received");
        assert!(timer.receiver().try_recv().is_err());
        timer.reset(Duration::ZERO);
        assert!(timer.reset(HOUR), "due but not received");
        assert!(timer.receiver().try_recv().is_err());

        let timer = Arc::new(Timer::new(2 * MS));
        let waiters = [(); 2].map(|()| {
            let timer = Arc::clone(&timer);
            go(move || timer.receiver().recv_timeout(20 * MS).is_ok())
        });
        let got = waiters.map(|waiter| waiter.join().unwrap());
        assert!(got[0] != got[1], "one value for two: {got:?}");
    });
}

/// TM-24: a value that is read late carries the time at which it was due.
#[test]
fn late_values_carry_their_time() {
    let rt = matrix::plain(1);
    rt.run(|| {
        let start = Instant::now();
        let (after, tick) = (chan::after(5 * MS), chan::tick(5 * MS));
        heist::time::sleep(50 * MS);
        let near = start + 5 * MS..start + 40 * MS;
        within_tries("near the time it was due", || {
            let (after, tick) = (after.try_recv(), tick.try_recv());
            after.is_ok_and(|due| near.contains(&due)) && tick.is_ok_and(|due| near.contains(&due))
        });
    });
}

/// TM-29: after a long pause there is one tick, not one for every period that passed.
#[test]
fn missed_ticks_do_not_pile_up() {
    let rt = matrix::plain(1);
    within_tries("one tick after a pause", || {
        rt.run(|| {
            let ticks = chan::tick(20 * MS);
            heist::time::sleep(90 * MS);
            assert!(ticks.try_recv().is_ok());
            ticks.try_recv().is_err()
        })
    });
}

/// SE-17: a select sees a timer that is due though no processor has run it, and prefers nothing
/// else to it.
#[test]
fn a_select_sees_a_due_timer() {
    matrix::run(|| {
        let timer = Timer::new(Duration::ZERO);
        select! { recv(timer.receiver()) -> due => assert!(due.is_ok()), default => unreachable!() }
        select! { recv(timer.receiver()) -> _ => unreachable!(), default => () }
        timer.reset(Duration::ZERO);
        let mut select = Select::new();
        select.recv(timer.receiver());
        assert!(select.select().recv(timer.receiver()).is_ok());
    });
}

/// A select over several timers waits for the earliest, and follows a reset while it waits.
#[test]
fn a_select_waits_for_the_earliest() {
    matrix::run(|| {
        let start = Instant::now();
        let first = select! {
            recv(chan::after(HOUR)) -> _ => "hour",
            recv(chan::after(2 * MS)) -> _ => "soon",
            recv(chan::never::<u8>()) -> _ => "never",
        };
        assert!(first == "soon" && start.elapsed() >= 2 * MS);

        let timer = Arc::new(Timer::new(HOUR));
        let theirs = Arc::clone(&timer);
        let waits = go(move || {
            select! {
                recv(theirs.receiver()) -> due => due.is_ok(),
                recv(chan::never::<u8>()) -> _ => false,
            }
        });
        matrix::yield_until("parked", || heist::dump_goroutines().contains("[select]"));
        timer.reset(MS);
        assert!(waits.join().unwrap());
    });
}

/// A goroutine that waits for a timer is cancelled like any other.
#[test]
fn waiting_for_a_timer_is_cancelled() {
    matrix::run(|| {
        let timer = Arc::new(Timer::new(HOUR));
        let theirs = Arc::clone(&timer);
        let waits = go(move || theirs.receiver().recv());
        matrix::yield_until("parked", || heist::dump_goroutines().contains("[chan receive]"));
        waits.cancel();
        assert!(waits.join().unwrap_err().is_cancelled());
        assert!(timer.reset(Duration::ZERO), "no waiter is left");
        assert!(timer.receiver().recv().is_ok());
    });
}

/// The message of a delay is not before the delay is over, however short it is: the clock of the
/// messages and the one of the waits are converted into each other without a loss.
#[test]
fn messages_are_not_before_the_delay_is_over() {
    matrix::run(|| {
        for i in 0..5000_u64 {
            let short = Duration::from_nanos(i % 50);
            let from = Instant::now();
            let due = chan::after(short).recv().unwrap();
            assert!(due >= from + short, "{:?} too early", (from + short) - due);
            assert!(due <= Instant::now());
        }
    });
}

/// The message is exactly the requested moment, even if it is in the past; a timer can be reset to
/// a moment.
#[test]
fn messages_carry_the_exact_moment() {
    matrix::run(|| {
        let now = Instant::now();
        assert_eq!(chan::at(now + MS).recv(), Ok(now + MS));
        assert!(Instant::now() >= now + MS);
        let past = now.checked_sub(3 * MS).unwrap();
        assert_eq!(chan::at(past).try_recv(), Ok(past));
        assert_eq!(chan::at(now + HOUR).try_recv(), Err(TryRecvError::Empty));
        let timer = Timer::at(now + HOUR);
        assert!(timer.reset_at(now + 2 * MS));
        assert_eq!(timer.receiver().recv(), Ok(now + 2 * MS));
        assert!(!timer.reset_at(past) && timer.stop());
    });
}

/// TM-12: the most distant moment is valid: a timer for it counts as set, stopping it returns true,
/// and it can be set to an earlier one.
#[test]
fn the_farthest_timer_is_set() {
    matrix::run(|| {
        let timer = Timer::new(Duration::MAX);
        assert_eq!(timer.receiver().recv_timeout(MS), Err(RecvTimeoutError::Timeout));
        assert!(timer.stop() && !timer.stop());
        assert!(!timer.reset(Duration::MAX), "it was stopped");
        assert!(timer.reset(Duration::MAX) && timer.reset(MS));
        timer.receiver().recv().unwrap();
        assert!(!timer.stop());
    });
}

/// A timer has one clock. The goroutine that makes it may lose its CPU at any moment, even between
/// two reads of the clock: the timer's times are correct afterwards.
#[test]
fn timers_of_preempted_goroutines_tell_the_right_time() {
    const SLACK: Duration = Duration::from_micros(1);
    let rt = matrix::start(heist::Runtime::builder().procs(2).quantum(MS));
    rt.run(|| {
        let over = Arc::new(AtomicBool::new(false));
        let hogs: Vec<_> = (0..6)
            .map(|_| {
                let over = Arc::clone(&over);
                go(move || while !over.load(Ordering::Relaxed) {})
            })
            .collect();
        let makers: Vec<_> = (0..2)
            .map(|_| {
                go(|| {
                    let until = Instant::now() + 1500 * MS;
                    while Instant::now() < until {
                        let timer = Timer::new(HOUR);
                        let before = Instant::now();
                        timer.reset(Duration::ZERO);
                        let due = timer.receiver().try_recv().unwrap();
                        assert!(due + SLACK >= before, "{:?} early", before - due);
                    }
                })
            })
            .collect();
        let made: Vec<_> = makers.into_iter().map(|maker| maker.join()).collect();
        over.store(true, Ordering::Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
        made.into_iter().for_each(|made| made.unwrap());
    });
}

//! Goroutines that spin, yield or block still let each other make progress.

use crate::matrix;

use heist::chan::{self, TryRecvError};
use heist::{Runtime, go, lock_os_thread, testing, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// With Go's slices.
fn runtime(procs: usize) -> Runtime {
    matrix::start(Runtime::builder().procs(procs))
}

/// PR-01: a goroutine that polls for a message and yields in a loop gets it, also when it is locked
/// to its thread.
#[test]
fn a_yielding_loop_gets_its_message() {
    matrix::run(|| {
        for locked in [false, true] {
            let (sender, receiver) = chan::bounded(0);
            let (acknowledge, acknowledged) = chan::bounded(0);
            let looks = go(move || {
                let _guard = locked.then(lock_os_thread);
                loop {
                    match receiver.try_recv() {
                        Ok(message) => break acknowledge.send(message).unwrap(),
                        Err(TryRecvError::Empty) => yield_now(),
                        Err(closed) => panic!("{closed}"),
                    }
                }
            });
            heist::time::sleep(Duration::from_millis(2));
            sender.send(7).unwrap();
            assert_eq!(acknowledged.recv(), Ok(7));
            looks.join().unwrap();
        }
    });
}

/// PR-02: two goroutines that hand a token back and forth, spinning with calls in between, make
/// progress with any number of processors.
#[test]
fn spinning_with_calls_hands_the_token_on() {
    for procs in [1, 2, 4, 16] {
        runtime(procs).run(|| {
            let token = Arc::new(AtomicU32::new(0));
            let players: Vec<_> = (0..2)
                .map(|own| {
                    let token = Arc::clone(&token);
                    go(move || {
                        for _ in 0..5 {
                            while token.load(Ordering::SeqCst) != own {
                                std::hint::black_box(heist::num_goroutines());
                            }
                            token.store(1 - own, Ordering::SeqCst);
                        }
                    })
                })
                .collect();
            players.into_iter().for_each(|player| player.join().unwrap());
        });
    }
}

/// PR-06: short blocking calls in a loop do not defeat preemption: with two processors and eight
/// such goroutines, every goroutine starts and sees the order to stop.
#[test]
fn short_blocking_calls_do_not_defeat_preemption() {
    for micros in [10, 100, 1000] {
        for announced in [true, false] {
            let rt = runtime(2);
            rt.run(|| {
                for _ in 0..3 {
                    let stop = Arc::new(AtomicBool::new(false));
                    let (started, all) = chan::unbounded();
                    let loops: Vec<_> = (0..8)
                        .map(|_| {
                            let (stop, started) = (Arc::clone(&stop), started.clone());
                            go(move || {
                                started.send(()).unwrap();
                                while !stop.load(Ordering::SeqCst) {
                                    let call = || std::thread::sleep(Duration::from_micros(micros));
                                    if announced { heist::blocking(call) } else { call() }
                                }
                            })
                        })
                        .collect();
                    for _ in 0..8 {
                        all.recv().unwrap();
                    }
                    stop.store(true, Ordering::SeqCst);
                    loops.into_iter().for_each(|one| one.join().unwrap());
                }
            });
        }
    }
}

/// PR-11: four goroutines pass a counter on in strict rotation by pure spinning: all of them get a
/// processor.
#[test]
fn spinners_in_strict_rotation_all_make_progress() {
    for procs in [1, 2, 4] {
        // With fewer processors than spinners each step takes a slice.
        let rt = matrix::start(Runtime::builder().procs(procs).quantum(Duration::from_millis(1)));
        rt.run(|| {
            for _ in 0..3 {
                let counter = Arc::new(AtomicU32::new(0));
                let spinners: Vec<_> = (0..4)
                    .map(|own| {
                        let counter = Arc::clone(&counter);
                        go(move || {
                            for round in 0..3 {
                                let expected = 4 * round + own;
                                while counter.load(Ordering::SeqCst) != expected {
                                    std::hint::spin_loop();
                                }
                                counter.store(expected + 1, Ordering::SeqCst);
                            }
                        })
                    })
                    .collect();
                spinners.into_iter().for_each(|spinner| spinner.join().unwrap());
            }
        });
    }
}

/// PR-14: a goroutine that spins on a flag sees it set by another.
#[test]
fn a_spinner_sees_the_flag() {
    for procs in [1, 2] {
        runtime(procs).run(|| {
            let flag = Arc::new(AtomicBool::new(false));
            let spins = {
                let flag = Arc::clone(&flag);
                go(move || while !flag.load(Ordering::SeqCst) {})
            };
            let sets = go(move || flag.store(true, Ordering::SeqCst));
            spins.join().unwrap();
            sets.join().unwrap();
        });
    }
}

/// PR-17: two loops on one processor take turns of ten milliseconds or a little more. A turn can be
/// longer if the machine is busy, so the longest of a few tries decides; it is never shorter.
#[test]
fn hogs_take_turns_of_ten_milliseconds() {
    const SLICE: Duration = Duration::from_millis(10);
    let good = (0..10).any(|_| {
        let rt = matrix::start(Runtime::builder().procs(1).exact_quantum(SLICE));
        let turns = rt.run(|| {
            let turn = Arc::new(AtomicU64::new(u64::MAX));
            let from = Instant::now();
            let hogs: Vec<_> = (0..2)
                .map(|own| {
                    let turn = Arc::clone(&turn);
                    go(move || {
                        let mut began = Vec::new();
                        while from.elapsed() < Duration::from_millis(300) {
                            if turn.swap(own, Ordering::SeqCst) != own {
                                began.push(from.elapsed());
                            }
                        }
                        began
                    })
                })
                .collect();
            let mut began: Vec<_> = hogs.into_iter().flat_map(|hog| hog.join().unwrap()).collect();
            began.sort();
            began.windows(2).map(|pair| pair[1] - pair[0]).collect::<Vec<_>>()
        });
        if turns.len() <= 2 {
            // The machine gave the two too little time to tell.
            return false;
        }
        // The last one is cut short by the end of its loop, not by the scheduler.
        let whole = &turns[..turns.len() - 1];
        assert!(whole.iter().all(|&turn| turn >= Duration::from_millis(9)), "{turns:?}");
        let mut sorted = turns.clone();
        sorted.sort();
        sorted[sorted.len() / 2] <= Duration::from_millis(25)
    });
    assert!(good, "the slices are too long in every try");
}

/// IN-29: a chain of goroutines that ready each other through `run_next` shares one slice: the tick
/// does not advance.
#[test]
fn a_chain_of_run_next_shares_one_slice() {
    matrix::plain(1).run(|| {
        let (sender, receiver) = chan::bounded::<u32>(0);
        let echo = go(move || receiver.iter().sum::<u32>());
        yield_now();
        let before = testing::tick();
        for i in 0..20 {
            sender.send(i).unwrap();
        }
        assert_eq!(testing::tick(), before);
        drop(sender);
        assert_eq!(echo.join().unwrap(), 190);
    });
}

/// IN-29: so a goroutine that waits behind such a chain gets the processor after one slice of the
/// whole chain.
#[test]
fn a_chain_of_run_next_does_not_starve_others() {
    runtime(1).run(|| {
        let stop = Arc::new(AtomicBool::new(false));
        let (ping, pings) = chan::bounded::<()>(0);
        let (pong, pongs) = chan::bounded::<()>(0);
        let one = {
            let stop = Arc::clone(&stop);
            go(move || {
                while !stop.load(Ordering::SeqCst) {
                    ping.send(()).unwrap();
                    pongs.recv().unwrap();
                }
            })
        };
        let other = go(move || pings.iter().for_each(|()| pong.send(()).unwrap()));
        for _ in 0..3 {
            go(|| ()).join().unwrap();
            yield_now();
        }
        stop.store(true, Ordering::SeqCst);
        one.join().unwrap();
        other.join().unwrap();
    });
}

/// IN-28: the ways back from a blocking call: with its own processor if it was not taken, with an
/// idle one, or after a wait for its turn, always on the same thread.
#[test]
fn each_way_back_from_a_blocking_call_keeps_the_thread() {
    let here = || std::thread::current().id();
    let regained = "/heist/blocking/regained:events";
    // No other goroutine: the processor stays.
    let rt = matrix::plain(1);
    rt.run(|| heist::blocking(|| ()));
    assert_eq!(rt.metrics().get(regained), Some(0));
    // Another goroutine, which is done when the call returns: an idle processor.
    let rt = matrix::plain(1);
    rt.run(|| {
        let before = here();
        let other = go(|| ());
        heist::blocking(|| matrix::eventually("its end", || other.is_finished()));
        assert_eq!(here(), before);
    });
    assert!(rt.metrics().get(regained) > Some(0));
    // Another goroutine, which has the processor when the call returns: a turn.
    let rt = runtime(1);
    rt.run(|| {
        let before = here();
        let (stop, runs) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let hog = {
            let (stop, runs) = (Arc::clone(&stop), Arc::clone(&runs));
            go(move || {
                while !stop.load(Ordering::SeqCst) {
                    runs.store(true, Ordering::SeqCst);
                }
            })
        };
        heist::blocking(|| matrix::eventually("a hog", || runs.load(Ordering::SeqCst)));
        assert_eq!(here(), before);
        stop.store(true, Ordering::SeqCst);
        hog.join().unwrap();
    });
    assert!(rt.metrics().get(regained) > Some(0));
}

//! The network beside goroutines that never yield, and beside the deadlock detector.

use crate::child;
use crate::matrix;
use crate::wire;

use heist::Runtime;
use heist::net::{TcpListener, TcpStream};
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// NP-29: one processor, one goroutine that never calls anything: an echo takes two slices, at most
/// 50 ms in the median.
#[test]
fn an_echo_beside_a_hog_takes_two_slices() {
    let median = || {
        let rt = matrix::start(Runtime::builder().procs(1));
        rt.run(|| {
            let stop = Arc::new(AtomicBool::new(false));
            let (mut near, far) = wire::pair();
            let echo = heist::go(move || wire::echo(far));
            let hog = {
                let stop = Arc::clone(&stop);
                heist::go(move || {
                    while !stop.load(Ordering::Relaxed) {
                        black_box(0);
                    }
                })
            };
            let mut rounds: Vec<_> = (0..15)
                .map(|_| {
                    let began = Instant::now();
                    near.write_all(b"x").expect("writes");
                    near.read_exact(&mut [0]).expect("reads");
                    began.elapsed()
                })
                .collect();
            stop.store(true, Ordering::Relaxed);
            drop(near);
            hog.join().expect("ends well");
            echo.join().expect("ends well");
            rounds.sort_unstable();
            rounds[rounds.len() / 2]
        })
    };
    // Upper bounds of time are tried again: the machine may be busy with something else.
    let tries: Vec<_> = (0..5).map(|_| median()).collect();
    assert!(tries.iter().any(|median| *median <= Duration::from_millis(50)), "{tries:?}");
}

/// NP-28: a goroutine that waits for the network is not in a deadlock: the main goroutine waits for
/// a connection that comes late, for one that is refused, for a datagram.
#[test]
fn waiting_for_the_network_is_no_deadlock() {
    let ended = child::run(|| {
        let rt = matrix::plain(2);
        rt.run_main(|| {
            let (_taken, nobody) = wire::refusing();
            let refused = TcpStream::connect(nobody).expect_err("there is no listener");
            assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
            let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
            let address = listener.local_addr().expect("an address").port();
            // Another process, so that no thread of this one does anything meanwhile.
            let script = format!("sleep 0.3; exec 3<>/dev/tcp/127.0.0.1/{address}; echo hi >&3");
            let mut child = heist::process::Command::new("bash")
                .args(["-c", &script])
                .spawn()
                .expect("bash starts");
            let (mut stream, _) = listener.accept().expect("accepts");
            let mut text = String::new();
            stream.read_to_string(&mut text).expect("reads");
            assert_eq!(text, "hi\n");
            assert!(child.wait().expect("waits").success());
        });
    });
    ended.succeeded();
}

/// Configurations whose thieves take the last goroutine of a queue. The gentle ones leave it to the
/// slice of its processor's hog to end, and in these tests none ends.
fn greedy() -> Vec<matrix::Case> {
    let mut cases = matrix::cases_with(&[2, 4]);
    cases.retain(|case| case.policy == matrix::Policy::Go);
    cases
}

/// IN-22: a thread that waits in the poller for descriptors, or for a later timer, is woken by an
/// earlier one.
#[test]
fn an_earlier_timer_wakes_the_poller() {
    matrix::each(|case, rt| {
        let (near, far) = wire::pair();
        let reader = rt.handle().spawn(move || {
            let mut near = near;
            near.read(&mut [0]).expect("the end")
        });
        let sleeper = rt.handle().spawn(|| heist::time::sleep(Duration::from_secs(3600)));
        for round in 0..5 {
            // A thread is in the poller most of the time.
            matrix::eventually("all processors are idle", || {
                heist::testing::sample(rt).n_idle as usize == case.procs
            });
            let began = Instant::now();
            let wait = Duration::from_millis(1 + round);
            rt.handle().spawn(move || heist::time::sleep(wait)).join().expect("ends well");
            assert!(began.elapsed() >= wait);
        }
        sleeper.cancel();
        drop(far);
        assert_eq!(reader.join().expect("ends well"), 0);
    });
}

/// IN-24: goroutines that become ready in one poll are spread over the idle processors: each of
/// them keeps its processor until all of them run.
#[test]
fn ready_goroutines_are_spread() {
    matrix::each_of(&greedy(), |case, rt| {
        for _ in 0..10 {
            let running = Arc::new(AtomicUsize::new(0));
            let (mut nears, readers): (Vec<_>, Vec<_>) = (0..case.procs)
                .map(|_| {
                    let (near, mut far) = wire::pair();
                    let running = Arc::clone(&running);
                    let procs = case.procs;
                    let reader = rt.handle().spawn(move || {
                        far.read_exact(&mut [0]).expect("reads");
                        running.fetch_add(1, Ordering::Relaxed);
                        while running.load(Ordering::Relaxed) < procs {
                            std::hint::spin_loop();
                        }
                    });
                    (near, reader)
                })
                .unzip();
            matrix::eventually("all wait", || {
                heist::testing::poll_waiters(rt) as usize == case.procs
            });
            for near in &mut nears {
                near.write_all(b"x").expect("writes");
            }
            for reader in readers {
                reader.join().expect("ends well");
            }
        }
    });
}

/// The thread that waited in the poller leaves it to run the goroutine that it found. If that
/// goroutine never yields, an idle processor handles a timer and another descriptor nevertheless.
#[test]
fn a_hog_from_the_poller_does_not_stop_polling() {
    matrix::each_of(&greedy(), |case, rt| {
        for _ in 0..5 {
            let stop = Arc::new(AtomicBool::new(false));
            let (mut near, mut far) = wire::pair();
            let hog = {
                let stop = Arc::clone(&stop);
                rt.handle().spawn(move || {
                    far.read_exact(&mut [0]).expect("reads");
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                })
            };
            let (mut asking, mut answering) = wire::pair();
            let answerer = rt.handle().spawn(move || {
                answering.read_exact(&mut [0]).expect("reads");
                answering.write_all(b"y").expect("writes");
            });
            let sleeper = rt.handle().spawn(|| heist::time::sleep(Duration::from_millis(20)));
            matrix::eventually("all processors are idle", || {
                heist::testing::sample(rt).n_idle as usize == case.procs
            });
            near.write_all(b"x").expect("writes");
            sleeper.join().expect("ends well");
            asking.write_all(b"x").expect("writes");
            asking.read_exact(&mut [0]).expect("reads");
            stop.store(true, Ordering::Relaxed);
            hog.join().expect("ends well");
            answerer.join().expect("ends well");
        }
    });
}

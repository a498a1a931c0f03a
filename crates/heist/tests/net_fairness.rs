//! The network beside goroutines that do not let go, and beside the detector of deadlocks.

mod child;
mod matrix;
mod wire;

use heist::Runtime;
use heist::net::{TcpListener, TcpStream};
use std::hint::black_box;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

/// NP-29: one processor, one goroutine that never calls anything: an echo takes two slices, at most
/// 50 ms in the median.
#[test]
fn an_echo_beside_a_hog() {
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

/// NP-28: whoever waits for the network is not in a deadlock: the main goroutine waits for a
/// connection that comes late, for one that is refused, for a datagram.
#[test]
fn waiting_for_the_network_is_no_deadlock() {
    let ended = child::run("waiting_for_the_network_is_no_deadlock", || {
        let rt = matrix::plain(2);
        rt.run_main(|| {
            let (_taken, nobody) = wire::refusing();
            let refused = TcpStream::connect(nobody).expect_err("nobody listens");
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

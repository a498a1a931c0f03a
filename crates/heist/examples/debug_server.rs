//! A program with something to look at, and the debug server that shows it.
//!
//! ```console
//! cargo run --release -p heist --example debug_server -- 127.0.0.1:6060
//! ```
//! Then open `http://127.0.0.1:6060/debug/sched`. Without an address the system chooses a port. A
//! second argument ends the program after so many seconds.

use heist::chan::{self, Receiver, Sender};
use heist::goroutine::Builder;
use heist::sync::Mutex;
use std::sync::Arc;
use std::time::{Duration, Instant};

#[heist::main(unsafe)]
fn main() -> std::io::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let addr = arguments.next().unwrap_or_else(|| "127.0.0.1:0".to_owned());
    let seconds = arguments.next().and_then(|text| text.parse().ok());
    let server = heist::debug::serve(addr)?;
    if let Some(addr) = server.local_addr() {
        println!("http://{addr}/debug/sched");
    }
    pipeline();
    contend();
    burst();
    compute();
    block();
    wait_for_ever();
    heist::time::sleep(Duration::from_secs(seconds.unwrap_or(u64::MAX / 2)));
    Ok(())
}

/// Eight producers, four stages, one sink.
fn pipeline() {
    let (first, mut input) = chan::bounded::<u64>(64);
    for _ in 0..8 {
        let first = first.clone();
        spawn("producer", move || produce(&first));
    }
    for _ in 0..4 {
        let (output, next) = chan::bounded(64);
        let from = std::mem::replace(&mut input, next);
        spawn("stage", move || {
            while let Ok(n) = from.recv() {
                if output.send(n.wrapping_mul(31)).is_err() {
                    return;
                }
            }
        });
    }
    spawn("sink", move || drain(&input));
}

fn produce(output: &Sender<u64>) {
    for n in 0.. {
        if output.send(n).is_err() {
            return;
        }
        if n % 500 == 0 {
            heist::time::sleep(Duration::from_millis(20));
        }
    }
}

fn drain(input: &Receiver<u64>) {
    while input.recv().is_ok() {}
}

/// Goroutines that want the same lock.
fn contend() {
    let shared = Arc::new(Mutex::new(0_u64));
    for _ in 0..12 {
        let shared = Arc::clone(&shared);
        spawn("contender", move || {
            loop {
                *shared.lock() += 1;
                spin_for(Duration::from_micros(20));
                heist::time::sleep(Duration::from_millis(2));
            }
        });
    }
}

/// A burst of short goroutines five times a second: the other processors steal from this one.
fn burst() {
    spawn("burst", || {
        loop {
            for _ in 0..400 {
                drop(heist::go(|| spin_for(Duration::from_micros(30))));
            }
            heist::time::sleep(Duration::from_millis(200));
        }
    });
}

/// A goroutine that computes for seconds at a time.
fn compute() {
    spawn("report", || {
        loop {
            spin_for(Duration::from_secs(4));
            heist::time::sleep(Duration::from_secs(6));
        }
    });
}

/// Calls that block their thread.
fn block() {
    for _ in 0..3 {
        spawn("log writer", || {
            loop {
                heist::blocking(|| std::thread::sleep(Duration::from_millis(300)));
                heist::time::sleep(Duration::from_millis(500));
            }
        });
    }
}

/// Connections without traffic.
fn wait_for_ever() {
    let (never, wait) = chan::bounded::<()>(0);
    for _ in 0..800 {
        let wait = wait.clone();
        drop(heist::go(move || wait.recv()));
    }
    std::mem::forget(never);
    for i in 0..200 {
        drop(heist::go(move || {
            loop {
                heist::time::sleep(Duration::from_millis(500 + 10 * i));
            }
        }));
    }
}

#[track_caller]
fn spawn(name: &str, f: impl FnOnce() + Send + 'static) {
    if let Err(error) = Builder::new().name(name).spawn(f) {
        eprintln!("{name} is missing: {error}");
    }
}

fn spin_for(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

//! A program to look at with tokio-console:
//!
//! ```console
//! cargo run --manifest-path ecosystem/Cargo.toml -p heist-console --example workers
//! ```
//!
//! and `tokio-console` in another terminal. It runs until it is interrupted, or for as many seconds
//! as its argument says.

use heist::goroutine::Builder;
use heist::sync::Mutex;
use heist::{chan, time};
use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

fn compute(time: Duration) {
    let until = Instant::now() + time;
    let mut n = 0_u64;
    while Instant::now() < until {
        n = black_box(n.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1));
    }
}

#[track_caller]
fn named(name: impl Into<String>, body: impl FnOnce() + Send + 'static) {
    let name = name.into();
    drop(Builder::new().name(&name).spawn(body).expect("there is memory"));
}

#[heist::main(unsafe)]
fn main() -> std::io::Result<()> {
    let seconds = std::env::args().nth(1).and_then(|text| text.parse().ok()).unwrap_or(u64::MAX);
    let console = heist_console::serve(heist_console::DEFAULT_ADDR)?;
    println!("tokio-console http://{}", console.local_addr());

    // Requests go through a queue to four workers, which share a table.
    let (requests, queue) = chan::bounded::<u64>(8);
    let table = Arc::new(Mutex::new(0_u64));
    for n in 0..4 {
        let (queue, table) = (queue.clone(), Arc::clone(&table));
        named(format!("worker {n}"), move || {
            while let Ok(request) = queue.recv() {
                compute(Duration::from_micros(300 + request % 7 * 100));
                let mut table = table.lock();
                *table += request;
                time::sleep(Duration::from_millis(1));
            }
        });
    }
    named("client", move || {
        for request in 0.. {
            time::sleep(Duration::from_millis(2));
            if requests.send(request).is_err() {
                return;
            }
        }
    });
    // Never waits: it is preempted.
    named("hog", || {
        loop {
            compute(Duration::from_millis(50));
        }
    });
    // Blocks its thread, as a library without async support does.
    named("blocking library", || {
        loop {
            heist::blocking(|| std::thread::sleep(Duration::from_millis(400)));
            time::sleep(Duration::from_millis(100));
        }
    });
    named("parent of short ones", || {
        loop {
            for child in (0..5).map(|_| heist::go(|| compute(Duration::from_millis(2)))) {
                drop(child.join());
            }
            time::sleep(Duration::from_millis(700));
        }
    });
    drop(heist::spawn(async {
        loop {
            time::sleep_async(Duration::from_millis(30)).await;
            compute(Duration::from_millis(1));
        }
    }));
    time::sleep(Duration::from_secs(seconds));
    Ok(())
}

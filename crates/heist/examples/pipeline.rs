//! A pipeline of three stages that can be called off: numbers, their squares on several goroutines,
//! and a sum that is reported as it grows. It ends when enough was summed up or the time is over,
//! and then every stage ends by itself.
//!
//! `cargo run --release -p heist --example pipeline`

use heist::chan::{self, Receiver, Sender};
use heist::select;
use heist::time::Ticker;
use std::time::Duration;

/// Notifies all stages at once: nothing is ever sent, the channel is closed.
struct Stop {
    _open: Sender<()>,
    stopped: Receiver<()>,
}

impl Stop {
    fn new() -> Self {
        let (open, stopped) = chan::bounded(0);
        Self { _open: open, stopped }
    }
}

/// Sends until it is called off.
fn source(stop: &Stop) -> Receiver<u64> {
    let (tx, rx) = chan::bounded(16);
    let stopped = stop.stopped.clone();
    heist::go(move || {
        for n in 1.. {
            select! {
                send(tx, n) -> sent => if sent.is_err() { return },
                recv(stopped) -> _ => return,
            }
        }
    });
    rx
}

/// Squares on `n_workers` goroutines.
fn square(stop: &Stop, numbers: &Receiver<u64>, n_workers: usize) -> Receiver<u64> {
    let (tx, rx) = chan::bounded(16);
    for _ in 0..n_workers {
        let (numbers, tx, stopped) = (numbers.clone(), tx.clone(), stop.stopped.clone());
        heist::go(move || {
            for n in numbers {
                select! {
                    send(tx, n * n) -> sent => if sent.is_err() { return },
                    recv(stopped) -> _ => return,
                }
            }
        });
    }
    rx
}

#[heist::main(unsafe)]
fn main() {
    let stop = Stop::new();
    let squares = square(&stop, &source(&stop), 4);
    let report = Ticker::new(Duration::from_millis(50));
    let timeout = chan::after(Duration::from_secs(2));
    let (mut n, mut sum) = (0u64, 0u64);
    while n < 200_000 {
        select! {
            recv(squares) -> square => {
                let Ok(square) = square else { break };
                n += 1;
                sum = sum.wrapping_add(square);
            }
            recv(report.receiver()) -> _ => println!("{n} squares so far"),
            recv(timeout) -> _ => {
                println!("out of time");
                break;
            }
        }
    }
    // Messages that were not received are dropped with the channels.
    drop(stop);
    println!("the sum of {n} squares is {sum}");
}

//! Channel workloads on tasks that block: ping_pong, chan_*, select, ring.

use std::time::Instant;

use super::ns_each;
use crate::contract::blocking::{Channels, Group as _, Select, SharedReceiver, Tasks};
use crate::reading::{Figures, Outcome};

pub const N_ROUNDS: usize = 300_000;
pub const N_MESSAGES: usize = 2_000_000;
pub const CAPACITY: usize = 128;
pub const RING_SIZE: usize = 1000;
pub const RING_ROUNDS: usize = 300;

pub fn ping_pong<R: Tasks, C: Channels>(procs: usize) -> Outcome {
    fn round<R: Tasks, C: Channels>(n: usize) -> f64 {
        let (ping_tx, ping_rx) = C::channel::<u64>(0);
        let (pong_tx, pong_rx) = C::channel::<u64>(0);
        R::spawn(move || {
            while let Some(token) = C::recv(&ping_rx) {
                C::send(&pong_tx, token + 1);
            }
        });
        let start = Instant::now();
        for token in 0..n as u64 {
            C::send(&ping_tx, token);
            assert_eq!(C::recv(&pong_rx), Some(token + 1), "ping_pong: lost token");
        }
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, || {
        round::<R, C>(N_ROUNDS / 10);
        round::<R, C>(N_ROUNDS)
    });
    Ok(Figures::one(ns).with_note(C::RENDEZVOUS_NOTE))
}

fn send_share<R: Tasks, C: Channels>(tx: &C::Tx<u64>, n_senders: usize, n_each: usize) {
    for _ in 0..n_senders {
        let tx = tx.clone();
        R::spawn(move || (0..n_each as u64).for_each(|message| C::send(&tx, message)));
    }
}

fn receive_all<C: Channels>(rx: &C::Rx<u64>) -> usize {
    let mut n_received = 0;
    while C::recv(rx).is_some() {
        n_received += 1;
    }
    n_received
}

/// chan_mpsc with four senders, chan_spsc with one.
pub fn to_one<R: Tasks, C: Channels>(procs: usize, n_senders: usize) -> Outcome {
    fn round<R: Tasks, C: Channels>(n_senders: usize, n: usize) -> f64 {
        let start = Instant::now();
        let (tx, rx) = C::channel(CAPACITY);
        send_share::<R, C>(&tx, n_senders, n / n_senders);
        drop(tx);
        assert_eq!(receive_all::<C>(&rx), n, "chan: lost messages");
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, move || {
        round::<R, C>(n_senders, N_MESSAGES / 10);
        round::<R, C>(n_senders, N_MESSAGES)
    });
    Ok(Figures::one(ns))
}

pub fn mpmc<R: Tasks, C: SharedReceiver>(procs: usize) -> Outcome {
    fn round<R: Tasks, C: SharedReceiver>(n: usize) -> f64 {
        const SIDE: usize = 4;
        let start = Instant::now();
        let (tx, rx) = C::channel(CAPACITY);
        let receivers: Vec<_> = (0..SIDE)
            .map(|_| {
                let rx = C::share(&rx);
                R::fork(move || receive_all::<C>(&rx))
            })
            .collect();
        send_share::<R, C>(&tx, SIDE, n / SIDE);
        drop(tx);
        let n_received: usize = receivers.into_iter().map(R::join).sum();
        assert_eq!(n_received, n, "chan_mpmc: lost messages");
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, || {
        round::<R, C>(N_MESSAGES / 10);
        round::<R, C>(N_MESSAGES)
    });
    Ok(Figures::one(ns))
}

pub fn select<R: Tasks, C: Select>(procs: usize) -> Outcome {
    fn round<R: Tasks, C: Select>(n: usize) -> f64 {
        let half = n / 2;
        let start = Instant::now();
        let (tx_a, rx_a) = C::channel(CAPACITY);
        let (tx_b, rx_b) = C::channel(CAPACITY);
        send_share::<R, C>(&tx_a, 1, half);
        send_share::<R, C>(&tx_b, 1, half);
        // The senders stay open so that no closed channel is forever ready.
        let sum = C::select_sum(rx_a, rx_b, n as u64);
        let took = start.elapsed();
        assert_eq!(sum, 2 * expected_sum(half), "select: lost messages");
        drop((tx_a, tx_b));
        ns_each(took, n)
    }
    let ns = R::run(procs, || {
        round::<R, C>(N_MESSAGES / 20);
        round::<R, C>(N_MESSAGES / 2)
    });
    Ok(Figures::one(ns))
}

/// The sum of the messages 0..n of one sender.
pub fn expected_sum(n: usize) -> u64 {
    let n = n as u64;
    n * (n - 1) / 2
}

pub fn ring<R: Tasks, C: Channels>(procs: usize) -> Outcome {
    fn round<R: Tasks, C: Channels>(rounds: usize) -> f64 {
        let group = R::Group::new();
        group.add(RING_SIZE);
        let (first_tx, mut rx) = C::channel::<usize>(0);
        for _ in 1..RING_SIZE {
            let (tx, next_rx) = C::channel(0);
            station::<R, C>(rx, tx, group.clone());
            rx = next_rx;
        }
        let start = Instant::now();
        // The last station closes the ring: it alone counts rounds and stops the token.
        let back = first_tx.clone();
        let last = group.clone();
        R::spawn(move || {
            for _ in 1..rounds {
                let token = C::recv(&rx).expect("ring: token lost");
                C::send(&back, token + 1);
            }
            C::recv(&rx).expect("ring: token lost");
            drop(back);
            last.done();
        });
        C::send(&first_tx, 0);
        drop(first_tx);
        group.wait();
        ns_each(start.elapsed(), RING_SIZE * rounds)
    }
    fn station<R: Tasks, C: Channels>(rx: C::Rx<usize>, tx: C::Tx<usize>, group: R::Group) {
        R::spawn(move || {
            while let Some(token) = C::recv(&rx) {
                C::send(&tx, token + 1);
            }
            drop(tx);
            group.done();
        });
    }
    // A hop between OS threads takes so long that fewer hops are enough.
    let rounds = if R::MAX_TASKS < 30_000 { RING_ROUNDS / 10 } else { RING_ROUNDS };
    let ns = R::run(procs, move || {
        round::<R, C>(rounds / 10);
        round::<R, C>(rounds)
    });
    Ok(Figures::one(ns).with_note(C::RENDEZVOUS_NOTE))
}

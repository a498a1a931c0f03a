//! Channel workloads on tasks that are futures: ping_pong, chan_*, select, ring.

use std::time::Instant;

use super::channels::{CAPACITY, N_MESSAGES, N_ROUNDS, RING_ROUNDS, RING_SIZE, expected_sum};
use super::ns_each;
use crate::contract::futures::{Channels, Group as _, SharedReceiver, Tasks};
use crate::reading::{Figures, Outcome};

pub fn ping_pong<R: Tasks, C: Channels>(procs: usize) -> Outcome {
    async fn round<R: Tasks, C: Channels>(n: usize) -> f64 {
        let (ping_tx, mut ping_rx) = C::channel::<u64>(0);
        let (pong_tx, mut pong_rx) = C::channel::<u64>(0);
        R::spawn(async move {
            while let Some(token) = C::recv(&mut ping_rx).await {
                C::send(&pong_tx, token + 1).await;
            }
        });
        let start = Instant::now();
        for token in 0..n as u64 {
            C::send(&ping_tx, token).await;
            let answer = C::recv(&mut pong_rx).await;
            assert_eq!(answer, Some(token + 1), "ping_pong: lost token");
        }
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, async {
        round::<R, C>(N_ROUNDS / 10).await;
        round::<R, C>(N_ROUNDS).await
    });
    Ok(Figures::one(ns).with_note(C::RENDEZVOUS_NOTE))
}

fn send_share<R: Tasks, C: Channels>(tx: &C::Tx<u64>, n_senders: usize, n_each: usize) {
    for _ in 0..n_senders {
        let tx = tx.clone();
        R::spawn(async move {
            for message in 0..n_each as u64 {
                C::send(&tx, message).await;
            }
        });
    }
}

async fn receive_all<C: Channels>(mut rx: C::Rx<u64>) -> usize {
    let mut n_received = 0;
    while C::recv(&mut rx).await.is_some() {
        n_received += 1;
    }
    n_received
}

/// chan_mpsc with four senders, chan_spsc with one.
pub fn to_one<R: Tasks, C: Channels>(procs: usize, n_senders: usize) -> Outcome {
    async fn round<R: Tasks, C: Channels>(n_senders: usize, n: usize) -> f64 {
        let start = Instant::now();
        let (tx, rx) = C::channel(CAPACITY);
        send_share::<R, C>(&tx, n_senders, n / n_senders);
        drop(tx);
        assert_eq!(receive_all::<C>(rx).await, n, "chan: lost messages");
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, async move {
        round::<R, C>(n_senders, N_MESSAGES / 10).await;
        round::<R, C>(n_senders, N_MESSAGES).await
    });
    Ok(Figures::one(ns))
}

pub fn mpmc<R: Tasks, C: SharedReceiver>(procs: usize) -> Outcome {
    async fn round<R: Tasks, C: SharedReceiver>(n: usize) -> f64 {
        const SIDE: usize = 4;
        let start = Instant::now();
        let (tx, rx) = C::channel(CAPACITY);
        let receivers: Vec<_> =
            (0..SIDE).map(|_| R::fork(receive_all::<C>(C::share(&rx)))).collect();
        send_share::<R, C>(&tx, SIDE, n / SIDE);
        drop(tx);
        let mut n_received = 0;
        for receiver in receivers {
            n_received += R::join(receiver).await;
        }
        assert_eq!(n_received, n, "chan_mpmc: lost messages");
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, async {
        round::<R, C>(N_MESSAGES / 10).await;
        round::<R, C>(N_MESSAGES).await
    });
    Ok(Figures::one(ns))
}

pub fn select<R: Tasks, C: Channels>(procs: usize) -> Outcome {
    async fn round<R: Tasks, C: Channels>(n: usize) -> f64 {
        let half = n / 2;
        let start = Instant::now();
        let (tx_a, rx_a) = C::channel(CAPACITY);
        let (tx_b, rx_b) = C::channel(CAPACITY);
        send_share::<R, C>(&tx_a, 1, half);
        send_share::<R, C>(&tx_b, 1, half);
        // The senders stay open so that no closed channel is forever ready.
        let sum = C::select_sum(rx_a, rx_b, n as u64).await;
        let took = start.elapsed();
        assert_eq!(sum, 2 * expected_sum(half), "select: lost messages");
        drop((tx_a, tx_b));
        ns_each(took, n)
    }
    let ns = R::run(procs, async {
        round::<R, C>(N_MESSAGES / 20).await;
        round::<R, C>(N_MESSAGES / 2).await
    });
    Ok(Figures::one(ns))
}

pub fn ring<R: Tasks, C: Channels>(procs: usize) -> Outcome {
    async fn round<R: Tasks, C: Channels>(rounds: usize) -> f64 {
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
        R::spawn(async move {
            for _ in 1..rounds {
                let token = C::recv(&mut rx).await.expect("ring: token lost");
                C::send(&back, token + 1).await;
            }
            C::recv(&mut rx).await.expect("ring: token lost");
            drop(back);
            last.done();
        });
        C::send(&first_tx, 0).await;
        drop(first_tx);
        group.wait().await;
        ns_each(start.elapsed(), RING_SIZE * rounds)
    }
    fn station<R: Tasks, C: Channels>(mut rx: C::Rx<usize>, tx: C::Tx<usize>, group: R::Group) {
        R::spawn(async move {
            while let Some(token) = C::recv(&mut rx).await {
                C::send(&tx, token + 1).await;
            }
            drop(tx);
            group.done();
        });
    }
    let ns = R::run(procs, async {
        round::<R, C>(RING_ROUNDS / 10).await;
        round::<R, C>(RING_ROUNDS).await
    });
    Ok(Figures::one(ns).with_note(C::RENDEZVOUS_NOTE))
}

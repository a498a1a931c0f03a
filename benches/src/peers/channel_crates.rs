//! crossbeam-channel, kanal and flume: channels of their own on std threads.

use super::threads::Threads;
use crate::catalog;
use crate::contract::blocking::{Channels, Select, SharedReceiver};
use crate::reading::{Outcome, cannot};
use crate::workloads::channels;

const NOT_ITS_TRADE: &str = "a channel, not a runtime";

macro_rules! channel_crate {
    ($name:ident, $module:ident) => {
        pub struct $name;

        impl Channels for $name {
            type Tx<T: Send + 'static> = $module::Sender<T>;
            type Rx<T: Send + 'static> = $module::Receiver<T>;

            fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
                $module::bounded(capacity)
            }

            fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
                // A receiver that has left is how a round ends.
                let _ = tx.send(message);
            }

            fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T> {
                rx.recv().ok()
            }
        }

        impl SharedReceiver for $name {
            fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T> {
                rx.clone()
            }
        }
    };
}

channel_crate!(Crossbeam, crossbeam_channel);
channel_crate!(Kanal, kanal);
channel_crate!(Flume, flume);

impl Select for Crossbeam {
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let next = || {
            crossbeam_channel::select! {
                recv(a) -> message => message,
                recv(b) -> message => message,
            }
        };
        (0..n).map(|_| next().expect("select: channel closed")).sum()
    }
}

impl Select for Flume {
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let next = || {
            flume::Selector::new().recv(&a, |message| message).recv(&b, |message| message).wait()
        };
        (0..n).map(|_| next().expect("select: channel closed")).sum()
    }
}

fn run<C: SharedReceiver>(workload: &str, procs: usize) -> Outcome {
    match workload {
        "ping_pong" => channels::ping_pong::<Threads, C>(procs),
        "chan_mpmc" => channels::mpmc::<Threads, C>(procs),
        "chan_mpsc" => channels::to_one::<Threads, C>(procs, 4),
        "chan_spsc" => channels::to_one::<Threads, C>(procs, 1),
        "ring" => channels::ring::<Threads, C>(procs),
        other if catalog::workload(other).is_some() => cannot(NOT_ITS_TRADE),
        other => super::unknown(other),
    }
}

pub fn run_crossbeam(workload: &str, procs: usize) -> Outcome {
    match workload {
        "select" => channels::select::<Threads, Crossbeam>(procs),
        other => run::<Crossbeam>(other, procs),
    }
}

pub fn run_kanal(workload: &str, procs: usize) -> Outcome {
    match workload {
        "select" => cannot("kanal has no select"),
        other => run::<Kanal>(other, procs),
    }
}

pub fn run_flume(workload: &str, procs: usize) -> Outcome {
    match workload {
        "select" => channels::select::<Threads, Flume>(procs),
        other => run::<Flume>(other, procs),
    }
}

//! crossbeam-channel, kanal and flume: their channels on std threads.

use super::threads::Threads;
use crate::catalog;
use crate::contract::blocking::{Channels, Select, SharedReceiver};
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::dispatch::blocking as dispatch;

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

fn run<C: SharedReceiver>(job: Job<'_>) -> Outcome {
    dispatch::channels::<Threads, C>(job)
        .or_else(|| dispatch::shared_receivers::<Threads, C>(job))
        .unwrap_or_else(|| match job.workload {
            other if catalog::workload(other).is_some() => cannot(NOT_ITS_TRADE),
            other => super::unknown(other),
        })
}

pub fn run_crossbeam(job: Job<'_>) -> Outcome {
    dispatch::select::<Threads, Crossbeam>(job).unwrap_or_else(|| run::<Crossbeam>(job))
}

pub fn run_kanal(job: Job<'_>) -> Outcome {
    match job.workload {
        "select" => cannot("kanal has no select"),
        _ => run::<Kanal>(job),
    }
}

pub fn run_flume(job: Job<'_>) -> Outcome {
    dispatch::select::<Threads, Flume>(job).unwrap_or_else(|| run::<Flume>(job))
}

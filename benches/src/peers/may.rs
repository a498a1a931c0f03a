//! may: stackful coroutines on a global scheduler.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use may::coroutine::{self, JoinHandle};
use may::go;
use may::net::{TcpListener, TcpStream};
use may::sync::{Mutex, RwLock, SyncFlag, mpsc};

use crate::contract::blocking::{Channels, Gate, Group, Tasks, Timers};
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::dispatch::blocking as dispatch;

pub struct May;

impl Tasks for May {
    const MAX_TASKS: usize = 30_000;
    const LIMIT_NOTE: Option<&'static str> =
        Some("at most 30,000 coroutines: two mappings each, the kernel allows 65,530");

    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Group = MayGroup;
    type Gate = MayGate;

    fn run<T: Send + 'static>(procs: usize, main: impl FnOnce() -> T + Send + 'static) -> T {
        may::config().set_workers(procs);
        go!(main).join().expect("coroutine panicked")
    }

    fn spawn(task: impl FnOnce() + Send + 'static) {
        go!(task);
    }

    fn fork<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        go!(task)
    }

    fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.join().expect("coroutine panicked")
    }

    fn yield_now() {
        coroutine::yield_now();
    }
}

/// may's own WaitGroup takes a mutex for every clone and drop; a counter with its flag is
/// the kinder choice.
#[derive(Clone)]
pub struct MayGroup(Arc<(AtomicUsize, SyncFlag)>);

impl Group for MayGroup {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), SyncFlag::new())))
    }

    fn add(&self, n: usize) {
        self.0.0.fetch_add(n, Ordering::Relaxed);
    }

    fn done(&self) {
        // ORDERING: AcqRel, pairs with the other calls: the last one has seen everything that all
        // did, and the flag passes that on.
        if self.0.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.1.fire();
        }
    }

    fn wait(&self) {
        self.0.1.wait();
    }
}

#[derive(Clone)]
pub struct MayGate(Arc<SyncFlag>);

impl Gate for MayGate {
    fn new() -> Self {
        Self(Arc::new(SyncFlag::new()))
    }

    fn wait(&self) {
        self.0.wait();
    }

    fn open(&self) {
        self.0.fire();
    }
}

impl Channels for May {
    const RENDEZVOUS_NOTE: Option<&'static str> =
        Some("unbounded channels, may has no bounded ones");

    type Tx<T: Send + 'static> = mpsc::Sender<T>;
    type Rx<T: Send + 'static> = mpsc::Receiver<T>;

    fn channel<T: Send + 'static>(_capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        mpsc::channel()
    }

    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message);
    }

    fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T> {
        rx.recv().ok()
    }
}

super::std_like_locks!(May, Mutex, RwLock);

impl Timers for May {
    fn sleep(duration: Duration) {
        coroutine::sleep(duration);
    }
}

super::std_like_sockets!(May, TcpListener, TcpStream);

const UNBOUNDED: &str = "may's channels are unbounded";

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "chan_mpmc" | "chan_mpsc" | "chan_spsc" | "select" => cannot(UNBOUNDED),
        "blocking" => cannot("may has no way to announce a blocking call"),
        "start_stop" => cannot("may's scheduler is global and never stops"),
        other => dispatch::tasks::<May>(job)
            .or_else(|| dispatch::channels::<May, May>(job))
            .or_else(|| dispatch::locks::<May, May>(job))
            .or_else(|| dispatch::timers::<May>(job))
            .or_else(|| dispatch::servers::<May>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

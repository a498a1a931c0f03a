//! smol's global executor with the channels, locks, timers and sockets it re-exports.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use event_listener::Event;
use smol::channel::{Receiver, Sender};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::lock::{Mutex, RwLock};
use smol::net::{TcpListener, TcpStream};
use smol::{Executor, Task, Timer, future};

use crate::contract::futures::{
    Announce, Channels, Gate, Group, Locks, SharedReceiver, Tasks, Timers,
};
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::dispatch::futures as dispatch;
use crate::workloads::{servers, start_stop};

pub struct Smol;

impl Tasks for Smol {
    type Handle<T: Send + 'static> = Task<T>;
    type Group = SmolGroup;
    type Gate = SmolGate;

    fn run<T: Send + 'static>(_procs: usize, main: impl Future<Output = T> + Send + 'static) -> T {
        smol::block_on(smol::spawn(main))
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        smol::spawn(task).detach();
    }

    fn fork<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Task<T> {
        smol::spawn(task)
    }

    async fn join<T: Send + 'static>(handle: Task<T>) -> T {
        handle.await
    }

    async fn yield_now() {
        future::yield_now().await;
    }
}

#[derive(Clone)]
pub struct SmolGroup(Arc<(AtomicUsize, Event)>);

impl Group for SmolGroup {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), Event::new())))
    }

    fn add(&self, n: usize) {
        self.0.0.fetch_add(n, Ordering::Relaxed);
    }

    fn done(&self) {
        // ORDERING: AcqRel, pairs with the other calls and the Acquire in `wait`: the waiter has
        // seen everything that every task did.
        if self.0.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.1.notify(usize::MAX);
        }
    }

    async fn wait(&self) {
        loop {
            let listener = self.0.1.listen();
            // ORDERING: Acquire, see `done`.
            if self.0.0.load(Ordering::Acquire) == 0 {
                return;
            }
            listener.await;
        }
    }
}

#[derive(Clone)]
pub struct SmolGate(Arc<(AtomicBool, Event)>);

impl Gate for SmolGate {
    fn new() -> Self {
        Self(Arc::new((AtomicBool::new(false), Event::new())))
    }

    async fn wait(&self, registered: impl FnOnce() + Send) {
        let listener = self.0.1.listen();
        registered();
        // ORDERING: Acquire, pairs with the Release in `open`.
        if !self.0.0.load(Ordering::Acquire) {
            listener.await;
        }
    }

    fn open(&self) {
        // ORDERING: Release, pairs with the Acquire in `wait`.
        self.0.0.store(true, Ordering::Release);
        self.0.1.notify(usize::MAX);
    }
}

impl Channels for Smol {
    const RENDEZVOUS_NOTE: Option<&'static str> = Some("capacity 1, smol has no rendezvous");

    type Tx<T: Send + 'static> = Sender<T>;
    type Rx<T: Send + 'static> = Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        smol::channel::bounded(capacity.max(1))
    }

    async fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message).await;
    }

    async fn recv<T: Send + 'static>(rx: &mut Self::Rx<T>) -> Option<T> {
        rx.recv().await.ok()
    }

    async fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let mut sum = 0;
        for _ in 0..n {
            sum += future::race(a.recv(), b.recv()).await.expect("select: channel closed");
        }
        sum
    }
}

impl SharedReceiver for Smol {
    fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T> {
        rx.clone()
    }
}

impl Locks for Smol {
    type Mutex = Mutex<u64>;
    type RwLock = RwLock<u64>;

    fn mutex() -> Self::Mutex {
        Mutex::new(0)
    }

    async fn lock(mutex: &Self::Mutex, critical: impl FnOnce(&mut u64) + Send) {
        critical(&mut *mutex.lock().await);
    }

    fn rwlock() -> Self::RwLock {
        RwLock::new(0)
    }

    async fn read(lock: &Self::RwLock, critical: impl FnOnce(&u64) + Send) {
        critical(&*lock.read().await);
    }

    async fn write(lock: &Self::RwLock, critical: impl FnOnce(&mut u64) + Send) {
        critical(&mut *lock.write().await);
    }
}

impl Timers for Smol {
    async fn sleep(duration: Duration) {
        Timer::after(duration).await;
    }
}

impl Announce for Smol {
    async fn blocking(call: impl FnOnce() + Send + 'static) {
        smol::unblock(call).await;
    }
}

super::tokio_like_sockets!(Smol, TcpListener, TcpStream);

/// An executor of one's own, since the global one never ends.
fn start_stop(procs: usize) -> Outcome {
    start_stop::measure(|| {
        let executor = Executor::new();
        let (stop, stopped) = smol::channel::bounded::<()>(1);
        thread::scope(|scope| {
            for _ in 0..procs {
                scope.spawn(|| {
                    // The channel closing is the signal; there is never a message.
                    let _ = smol::block_on(executor.run(stopped.recv()));
                });
            }
            smol::block_on(executor.spawn(async {}));
            drop(stop);
        });
    })
}

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "http" => cannot(servers::NO_HTTP_LIBRARY),
        "http_hyper" => cannot("its adapters for hyper are a crate of their own"),
        "start_stop" => start_stop(job.procs),
        other => dispatch::tasks::<Smol>(job)
            .or_else(|| dispatch::channels::<Smol, Smol>(job))
            .or_else(|| dispatch::shared_receivers::<Smol, Smol>(job))
            .or_else(|| dispatch::locks::<Smol, Smol>(job))
            .or_else(|| dispatch::timers::<Smol>(job))
            .or_else(|| dispatch::announced::<Smol>(job))
            .or_else(|| dispatch::servers::<Smol>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

//! tokio's multi-thread runtime with tokio's own channels, locks, timers and sockets.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, RwLock, mpsc};
use tokio::task::JoinHandle;

use crate::contract::futures::{Announce, Channels, Gate, Group, Locks, Tasks, Timers};
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::dispatch::futures as dispatch;
use crate::workloads::servers::{self, Service};
use crate::workloads::{beside_echo, hyper_hello, start_stop};

pub struct Tokio;

fn runtime(procs: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(procs).enable_all().build().expect("tokio runtime")
}

impl Tasks for Tokio {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Group = TokioGroup;
    type Gate = TokioGate;

    fn run<T: Send + 'static>(procs: usize, main: impl Future<Output = T> + Send + 'static) -> T {
        // On a worker, since the thread in block_on is not one.
        runtime(procs).block_on(async { tokio::spawn(main).await.expect("task panicked") })
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        tokio::spawn(task);
    }

    fn fork<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> JoinHandle<T> {
        tokio::spawn(task)
    }

    async fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.await.expect("task panicked")
    }

    async fn yield_now() {
        tokio::task::yield_now().await;
    }
}

#[derive(Clone)]
pub struct TokioGroup(Arc<(AtomicUsize, Notify)>);

impl Group for TokioGroup {
    fn new() -> Self {
        Self(Arc::new((AtomicUsize::new(0), Notify::new())))
    }

    fn add(&self, n: usize) {
        self.0.0.fetch_add(n, Ordering::Relaxed);
    }

    fn done(&self) {
        // ORDERING: AcqRel, pairs with the other calls and the Acquire in `wait`: the waiter has
        // seen everything that every task did.
        if self.0.0.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.1.notify_one();
        }
    }

    async fn wait(&self) {
        // ORDERING: Acquire, see `done`.
        while self.0.0.load(Ordering::Acquire) > 0 {
            self.0.1.notified().await;
        }
    }
}

#[derive(Clone)]
pub struct TokioGate(Arc<Notify>);

impl Gate for TokioGate {
    fn new() -> Self {
        Self(Arc::new(Notify::new()))
    }

    async fn wait(&self, registered: impl FnOnce() + Send) {
        let opened = self.0.notified();
        tokio::pin!(opened);
        opened.as_mut().enable();
        registered();
        opened.await;
    }

    fn open(&self) {
        self.0.notify_waiters();
    }
}

impl Channels for Tokio {
    const RENDEZVOUS_NOTE: Option<&'static str> = Some("capacity 1, tokio has no rendezvous");

    type Tx<T: Send + 'static> = mpsc::Sender<T>;
    type Rx<T: Send + 'static> = mpsc::Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        mpsc::channel(capacity.max(1))
    }

    async fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message).await;
    }

    async fn recv<T: Send + 'static>(rx: &mut Self::Rx<T>) -> Option<T> {
        rx.recv().await
    }

    async fn select_sum(mut a: Self::Rx<u64>, mut b: Self::Rx<u64>, n: u64) -> u64 {
        let mut sum = 0;
        for _ in 0..n {
            sum += tokio::select! {
                Some(message) = a.recv() => message,
                Some(message) = b.recv() => message,
                else => panic!("select: channel closed"),
            };
        }
        sum
    }
}

impl Locks for Tokio {
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

impl Timers for Tokio {
    async fn sleep(duration: Duration) {
        tokio::time::sleep(duration).await;
    }
}

impl Announce for Tokio {
    async fn blocking(call: impl FnOnce() + Send + 'static) {
        tokio::task::spawn_blocking(call).await.expect("call panicked");
    }
}

super::tokio_like_sockets!(Tokio, TcpListener, TcpStream);

pub async fn serve_with_hyper(stream: TcpStream) {
    hyper_hello::serve(TokioIo::new(stream)).await;
}

/// The batch is rayon's, with as many threads as tokio has.
#[cfg(feature = "peer-rayon")]
fn beside_echo(procs: usize) -> Outcome {
    use super::rayon::Rayon;
    use crate::contract::joins::Joins;
    let figures = beside_echo::measure(move |listening| {
        std::thread::spawn(move || <Rayon as Joins>::run(procs, beside_echo::batch::<Rayon>));
        servers::run_futures::<Tokio, _>(procs, listening, |stream| async {
            let _ = servers::converse_futures::<Tokio>(beside_echo::SERVICE, stream).await;
        });
    });
    figures.map(|figures| figures.with_note(Some("with rayon")))
}

#[cfg(not(feature = "peer-rayon"))]
fn beside_echo(_procs: usize) -> Outcome {
    cannot("this build has no rayon, which would run the batch")
}

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "chan_mpmc" => cannot("tokio's receiver cannot be shared"),
        "join_beside_echo" => beside_echo(job.procs),
        "http" | "http_hyper" => {
            let served = Service::HttpHyper;
            let outcome = servers::futures_with::<Tokio, _>(job.procs, served, serve_with_hyper);
            outcome.map(|figures| figures.with_note(Some("hyper")))
        }
        "start_stop" => start_stop::measure(|| {
            runtime(job.procs)
                .block_on(async { tokio::spawn(async {}).await.expect("task panicked") });
        }),
        other => dispatch::tasks::<Tokio>(job)
            .or_else(|| dispatch::channels::<Tokio, Tokio>(job))
            .or_else(|| dispatch::locks::<Tokio, Tokio>(job))
            .or_else(|| dispatch::timers::<Tokio>(job))
            .or_else(|| dispatch::announced::<Tokio>(job))
            .or_else(|| dispatch::servers::<Tokio>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

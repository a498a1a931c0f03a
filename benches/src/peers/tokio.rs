//! tokio's multi-thread runtime with tokio's own channels, locks, timers and sockets.

use std::convert::Infallible;
use std::future::Future;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Mutex, Notify, RwLock, mpsc};
use tokio::task::JoinHandle;

use crate::contract::futures::{Announce, Channels, Gate, Group, Locks, Net, Tasks, Timers};
use crate::reading::{Outcome, cannot};
use crate::workloads::servers::{self, Service};
use crate::workloads::steal::{self, Thief};
use crate::workloads::{
    async_channels, fork_join, idle_cpu, locks, parked, spawn_join, stalls, start_stop, timers,
    uneven_tree, yielding,
};

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
        // ORDERING: AcqRel, pairs with the other calls and the Acquire in `wait`: whoever
        // waits has seen what every task did.
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

impl Net for Tokio {
    type Listener = TcpListener;
    type Stream = TcpStream;

    async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read(buffer).await
    }

    async fn write_all(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all(bytes).await
    }

    async fn serve_http(stream: TcpStream) {
        async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
            Ok(Response::new(Full::new(Bytes::from_static(b"Hello, World!"))))
        }
        // A connection that breaks ends its task, as in any server.
        let _ = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(stream), hyper::service::service_fn(hello))
            .await;
    }
}

pub fn run(workload: &str, procs: usize) -> Outcome {
    match workload {
        "spawn_join" => spawn_join::futures::<Tokio>(procs),
        "skynet" => fork_join::skynet_futures::<Tokio>(procs),
        "fib_join" => fork_join::fib_futures::<Tokio>(procs),
        "yield" => yielding::futures::<Tokio>(procs),
        "ping_pong" => async_channels::ping_pong::<Tokio, Tokio>(procs),
        "chan_mpmc" => cannot("tokio's receiver cannot be shared"),
        "chan_mpsc" => async_channels::to_one::<Tokio, Tokio>(procs, 4),
        "chan_spsc" => async_channels::to_one::<Tokio, Tokio>(procs, 1),
        "select" => async_channels::select::<Tokio, Tokio>(procs),
        "ring" => async_channels::ring::<Tokio, Tokio>(procs),
        "mutex" => locks::mutex_futures::<Tokio, Tokio>(procs),
        "rwlock" => locks::rwlock_futures::<Tokio, Tokio>(procs),
        "timers" => timers::futures::<Tokio>(procs),
        "parked_100k" => parked::futures::<Tokio>(procs, 100_000),
        "parked_1m" => parked::futures::<Tokio>(procs, 1_000_000),
        "steal_hot" => steal::futures::<Tokio>(procs, Thief::Hot),
        "steal_idle" => steal::futures::<Tokio>(procs, Thief::Idle),
        "uneven_tree" => uneven_tree::futures::<Tokio>(procs),
        "hogs" => stalls::hogs_futures::<Tokio>(procs),
        "blocking" => stalls::blocking_futures::<Tokio>(procs),
        "unannounced" => stalls::unannounced_futures::<Tokio>(procs),
        "tcp_echo_64" => servers::futures::<Tokio>(procs, Service::Echo { n_connections: 64 }),
        "tcp_echo_1000" => servers::futures::<Tokio>(procs, Service::Echo { n_connections: 1000 }),
        "http" => servers::futures::<Tokio>(procs, Service::Http),
        "idle_cpu" => idle_cpu::futures::<Tokio>(procs),
        "start_stop" => start_stop::measure(|| {
            runtime(procs).block_on(async { tokio::spawn(async {}).await.expect("task panicked") });
        }),
        other => super::unknown(other),
    }
}

//! heist's tasks: futures on the scheduler of the goroutines, with heist's own channels and timers.

use std::future::{Future, poll_fn};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::pin::pin;
use std::time::Duration;

use heist::net::{TcpListener, TcpStream};
use heist::sync::WaitGroup;
use heist::{Task, chan};

use super::heist::runtime;
use crate::contract::futures::{Channels, Gate, Group, Net, Tasks, Timers};
use crate::job::Job;
use crate::reading::Outcome;
use crate::workloads::dispatch::futures as dispatch;
#[cfg(feature = "peer-tokio")]
use crate::workloads::hyper_hello;

pub struct HeistTasks;

impl Tasks for HeistTasks {
    type Handle<T: Send + 'static> = Task<T>;
    type Group = HeistGroup;
    type Gate = HeistGroup;

    fn run<T: Send + 'static>(procs: usize, main: impl Future<Output = T> + Send + 'static) -> T {
        // As a task: what waits in `run` is not one.
        runtime(procs).run(|| heist::spawn(main).join().expect("task panicked"))
    }

    fn spawn(task: impl Future<Output = ()> + Send + 'static) {
        heist::spawn(task);
    }

    fn fork<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Task<T> {
        heist::spawn(task)
    }

    async fn join<T: Send + 'static>(handle: Task<T>) -> T {
        handle.await.expect("task panicked")
    }

    async fn yield_now() {
        heist::task::yield_now().await;
    }
}

#[derive(Clone)]
pub struct HeistGroup(WaitGroup);

impl Group for HeistGroup {
    fn new() -> Self {
        Self(WaitGroup::new())
    }

    fn add(&self, n: usize) {
        self.0.add(n);
    }

    fn done(&self) {
        self.0.done();
    }

    async fn wait(&self) {
        self.0.wait_async().await;
    }
}

/// A group with one member that is done when the gate opens.
impl Gate for HeistGroup {
    fn new() -> Self {
        let group = <Self as Group>::new();
        group.0.add(1);
        group
    }

    async fn wait(&self, registered: impl FnOnce() + Send) {
        let (mut wait, mut registered) = (pin!(self.0.wait_async()), Some(registered));
        // The first poll puts the task into the queue.
        poll_fn(|context| {
            let polled = wait.as_mut().poll(context);
            if let Some(registered) = registered.take() {
                registered();
            }
            polled
        })
        .await;
    }

    fn open(&self) {
        self.0.done();
    }
}

impl Channels for HeistTasks {
    type Tx<T: Send + 'static> = chan::Sender<T>;
    type Rx<T: Send + 'static> = chan::Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        chan::bounded(capacity)
    }

    async fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send_async(message).await;
    }

    async fn recv<T: Send + 'static>(rx: &mut Self::Rx<T>) -> Option<T> {
        rx.recv_async().await.ok()
    }

    async fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let mut sum = 0;
        for _ in 0..n {
            let (mut a, mut b) = (pin!(a.recv_async()), pin!(b.recv_async()));
            let first = poll_fn(|context| match a.as_mut().poll(context) {
                std::task::Poll::Pending => b.as_mut().poll(context),
                ready => ready,
            });
            sum += first.await.expect("select: channel closed");
        }
        sum
    }
}

impl Timers for HeistTasks {
    async fn sleep(duration: Duration) {
        heist::time::sleep_async(duration).await;
    }
}

impl Net for HeistTasks {
    type Listener = TcpListener;
    type Stream = TcpStream;

    async fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    async fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept_async().await?;
        stream.set_nodelay(true)?;
        Ok(stream)
    }

    async fn read(stream: &mut TcpStream, buffer: &mut [u8]) -> io::Result<usize> {
        stream.read_async(buffer).await
    }

    async fn write_all(stream: &mut TcpStream, bytes: &[u8]) -> io::Result<()> {
        stream.write_all_async(bytes).await
    }
}

#[cfg(feature = "peer-tokio")]
fn http_hyper(job: Job<'_>) -> Option<Outcome> {
    use crate::workloads::servers::{Service, futures_with};
    let service = Service::of(job.workload).filter(|service| *service == Service::HttpHyper)?;
    let outcome = futures_with::<HeistTasks, _>(job.procs, service, hyper_hello::serve);
    Some(outcome.map(|figures| figures.with_note(Some("hyper"))))
}

/// hyper comes with tokio.
#[cfg(not(feature = "peer-tokio"))]
fn http_hyper(_: Job<'_>) -> Option<Outcome> {
    None
}

/// The workloads of tasks. None if it is another one.
pub fn run(job: Job<'_>) -> Option<Outcome> {
    dispatch::only_tasks::<HeistTasks>(job)
        .or_else(|| dispatch::only_channels::<HeistTasks, HeistTasks>(job))
        .or_else(|| dispatch::only_timers::<HeistTasks>(job))
        .or_else(|| http_hyper(job))
}

//! The primitives of a peer whose tasks are futures.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// Starting tasks and waiting for them.
pub trait Tasks: 'static {
    type Handle<T: Send + 'static>: Send;
    type Group: Group;
    type Gate: Gate;

    /// Runs `main` as the first task of a runtime with `procs` workers.
    fn run<T: Send + 'static>(procs: usize, main: impl Future<Output = T> + Send + 'static) -> T;
    /// Starts a task that will not be joined.
    fn spawn(task: impl Future<Output = ()> + Send + 'static);
    /// Starts a task whose result will be joined.
    fn fork<T: Send + 'static>(task: impl Future<Output = T> + Send + 'static) -> Self::Handle<T>;
    fn join<T: Send + 'static>(handle: Self::Handle<T>) -> impl Future<Output = T> + Send;
    fn yield_now() -> impl Future<Output = ()> + Send;
}

/// A wait group: counts tasks, lets one task wait for all.
pub trait Group: Clone + Send + Sync + 'static {
    fn new() -> Self;
    fn add(&self, n: usize);
    fn done(&self);
    fn wait(&self) -> impl Future<Output = ()> + Send;
}

/// A gate: any number of tasks wait until it opens, once.
pub trait Gate: Clone + Send + Sync + 'static {
    fn new() -> Self;
    /// Calls `registered` when the task is in the gate's queue, then waits.
    fn wait(&self, registered: impl FnOnce() + Send) -> impl Future<Output = ()> + Send;
    fn open(&self);
}

/// Bounded channels.
pub trait Channels: 'static {
    /// The substitute for a channel of capacity 0 where there is none.
    const RENDEZVOUS_NOTE: Option<&'static str> = None;

    type Tx<T: Send + 'static>: Clone + Send + Sync + 'static;
    type Rx<T: Send + 'static>: Send + 'static;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>);
    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) -> impl Future<Output = ()> + Send;
    /// Receives; `None` when all senders are gone.
    fn recv<T: Send + 'static>(rx: &mut Self::Rx<T>) -> impl Future<Output = Option<T>> + Send;
    /// Receives `n` messages from both together, returns their sum.
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> impl Future<Output = u64> + Send;
}

/// Channels whose receiving end can be shared.
pub trait SharedReceiver: Channels {
    fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T>;
}

/// The runtime's own locks.
pub trait Locks: 'static {
    type Mutex: Send + Sync + 'static;
    type RwLock: Send + Sync + 'static;

    fn mutex() -> Self::Mutex;
    fn lock(
        mutex: &Self::Mutex,
        critical: impl FnOnce(&mut u64) + Send,
    ) -> impl Future<Output = ()> + Send;
    fn rwlock() -> Self::RwLock;
    fn read(
        lock: &Self::RwLock,
        critical: impl FnOnce(&u64) + Send,
    ) -> impl Future<Output = ()> + Send;
    fn write(
        lock: &Self::RwLock,
        critical: impl FnOnce(&mut u64) + Send,
    ) -> impl Future<Output = ()> + Send;
}

/// Sleeping without holding a worker.
pub trait Timers: Tasks {
    fn sleep(duration: Duration) -> impl Future<Output = ()> + Send;
}

/// Moving a call that blocks off the workers.
pub trait Announce: Tasks {
    fn blocking(call: impl FnOnce() + Send + 'static) -> impl Future<Output = ()> + Send;
}

/// Sockets.
pub trait Net: Tasks {
    type Listener: Send + Sync + 'static;
    type Stream: Send + 'static;

    /// Listens on a free port of the loopback interface.
    fn listen() -> impl Future<Output = io::Result<(Self::Listener, SocketAddr)>> + Send;
    fn accept(listener: &Self::Listener) -> impl Future<Output = io::Result<Self::Stream>> + Send;
    fn read(
        stream: &mut Self::Stream,
        buffer: &mut [u8],
    ) -> impl Future<Output = io::Result<usize>> + Send;
    fn write_all(
        stream: &mut Self::Stream,
        bytes: &[u8],
    ) -> impl Future<Output = io::Result<()>> + Send;
}

//! The primitives of a peer whose tasks may block anywhere.

use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

/// Starting tasks and waiting for them.
pub trait Tasks: 'static {
    /// How many tasks may be alive at once: fewer than a million where each is an OS thread
    /// or has two kernel mappings, of which a process may have 65,530.
    const MAX_TASKS: usize = usize::MAX;
    /// The limit as text: where the figure does not depend on the number of tasks, it is measured
    /// with this many; elsewhere there is no figure.
    const LIMIT_NOTE: Option<&'static str> = None;

    type Handle<T: Send + 'static>;
    type Group: Group;
    type Gate: Gate;

    /// Runs `main` as the first task of a runtime with `procs` workers.
    fn run<T: Send + 'static>(procs: usize, main: impl FnOnce() -> T + Send + 'static) -> T;
    /// Starts a task that will not be joined.
    fn spawn(task: impl FnOnce() + Send + 'static);
    /// Starts a task whose result will be joined.
    fn fork<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> Self::Handle<T>;
    fn join<T: Send + 'static>(handle: Self::Handle<T>) -> T;
    fn yield_now();
}

/// A wait group: counts tasks, lets one task wait for all.
pub trait Group: Clone + Send + Sync + 'static {
    fn new() -> Self;
    fn add(&self, n: usize);
    fn done(&self);
    fn wait(&self);
}

/// A gate: any number of tasks wait until it opens, once.
pub trait Gate: Clone + Send + Sync + 'static {
    fn new() -> Self;
    fn wait(&self);
    fn open(&self);
}

/// Bounded channels.
pub trait Channels: 'static {
    /// The substitute for a channel of capacity 0 where there is none.
    const RENDEZVOUS_NOTE: Option<&'static str> = None;

    type Tx<T: Send + 'static>: Clone + Send + 'static;
    type Rx<T: Send + 'static>: Send + 'static;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>);
    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T);
    /// Receives; `None` when all senders are gone.
    fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T>;
}

/// Channels whose receiving end can be shared.
pub trait SharedReceiver: Channels {
    fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T>;
}

/// Waiting for whichever of two channels has a message.
pub trait Select: Channels {
    /// Receives `n` messages from both together, returns their sum.
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64;
}

/// The runtime's own locks.
pub trait Locks: 'static {
    const NOTE: Option<&'static str> = None;

    type Mutex: Send + Sync + 'static;
    type RwLock: Send + Sync + 'static;

    fn mutex() -> Self::Mutex;
    fn lock(mutex: &Self::Mutex, critical: impl FnOnce(&mut u64));
    fn rwlock() -> Self::RwLock;
    fn read(lock: &Self::RwLock, critical: impl FnOnce(&u64));
    fn write(lock: &Self::RwLock, critical: impl FnOnce(&mut u64));
}

/// Sleeping without holding a worker.
pub trait Timers: Tasks {
    fn sleep(duration: Duration);
}

/// Telling the scheduler that a call will block the thread.
pub trait Announce: Tasks {
    fn blocking(call: impl FnOnce() + Send + 'static);
}

/// Sockets.
pub trait Net: Tasks {
    type Listener: Send + 'static;
    type Stream: Read + Write + Send + 'static;

    /// Listens on a free port of the loopback interface.
    fn listen() -> io::Result<(Self::Listener, SocketAddr)>;
    fn accept(listener: &Self::Listener) -> io::Result<Self::Stream>;
}

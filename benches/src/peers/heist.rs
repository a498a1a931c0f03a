//! heist itself.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use heist::chan::{self, Receiver, Sender};
use heist::net::{TcpListener, TcpStream};
use heist::sync::{Mutex, RwLock, WaitGroup};
use heist::{JoinHandle, Runtime};

use crate::catalog;
use crate::contract::blocking::{
    Announce, Channels, Gate, Group, Locks, Net, Select, SharedReceiver, Tasks, Timers,
};
use crate::reading::{Outcome, cannot};
use crate::workloads::servers::{self, Service};
use crate::workloads::steal::{self, Thief};
use crate::workloads::{
    channels, fork_join, idle_cpu, locks, parked, spawn_join, stalls, start_stop, timers,
    uneven_tree, yielding,
};

pub struct Heist;

fn runtime(procs: usize) -> Runtime {
    // SAFETY: the workloads hold no thread-local borrow and no other value bound to a
    // thread across a call that may park.
    unsafe { Runtime::builder().procs(procs).build() }.expect("heist runtime")
}

impl Tasks for Heist {
    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Group = HeistGroup;
    type Gate = HeistGroup;

    fn run<T: Send + 'static>(procs: usize, main: impl FnOnce() -> T + Send + 'static) -> T {
        runtime(procs).run(main)
    }

    fn spawn(task: impl FnOnce() + Send + 'static) {
        heist::go(task);
    }

    fn fork<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        heist::go(task)
    }

    fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.join().expect("goroutine panicked")
    }

    fn yield_now() {
        heist::yield_now();
    }
}

impl Timers for Heist {
    fn sleep(duration: Duration) {
        heist::time::sleep(duration);
    }
}

impl Announce for Heist {
    fn blocking(call: impl FnOnce() + Send + 'static) {
        heist::blocking(call);
    }
}

impl Channels for Heist {
    type Tx<T: Send + 'static> = Sender<T>;
    type Rx<T: Send + 'static> = Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Sender<T>, Receiver<T>) {
        chan::bounded(capacity)
    }

    fn send<T: Send + 'static>(tx: &Sender<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message);
    }

    fn recv<T: Send + 'static>(rx: &Receiver<T>) -> Option<T> {
        rx.recv().ok()
    }
}

impl SharedReceiver for Heist {
    fn share<T: Send + 'static>(rx: &Receiver<T>) -> Receiver<T> {
        rx.clone()
    }
}

impl Select for Heist {
    fn select_sum(a: Receiver<u64>, b: Receiver<u64>, n: u64) -> u64 {
        let next = || {
            heist::select! {
                recv(a) -> message => message,
                recv(b) -> message => message,
            }
        };
        (0..n).map(|_| next().expect("select: channel closed")).sum()
    }
}

impl Net for Heist {
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        let (stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        Ok(stream)
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

    fn wait(&self) {
        self.0.wait();
    }
}

/// A group with one member that is done when the gate opens.
impl Gate for HeistGroup {
    fn new() -> Self {
        let group = <Self as Group>::new();
        group.0.add(1);
        group
    }

    fn wait(&self) {
        self.0.wait();
    }

    fn open(&self) {
        self.0.done();
    }
}

impl Locks for Heist {
    type Mutex = Mutex<u64>;
    type RwLock = RwLock<u64>;

    fn mutex() -> Self::Mutex {
        Mutex::new(0)
    }

    fn lock(mutex: &Self::Mutex, critical: impl FnOnce(&mut u64)) {
        critical(&mut mutex.lock());
    }

    fn rwlock() -> Self::RwLock {
        RwLock::new(0)
    }

    fn read(lock: &Self::RwLock, critical: impl FnOnce(&u64)) {
        critical(&lock.read());
    }

    fn write(lock: &Self::RwLock, critical: impl FnOnce(&mut u64)) {
        critical(&mut lock.write());
    }
}

pub fn run(workload: &str, procs: usize) -> Outcome {
    match workload {
        "spawn_join" => spawn_join::blocking::<Heist>(procs),
        "skynet" => fork_join::skynet_blocking::<Heist>(procs),
        "fib_join" => fork_join::fib_blocking::<Heist>(procs),
        "ping_pong" => channels::ping_pong::<Heist, Heist>(procs),
        "chan_mpmc" => channels::mpmc::<Heist, Heist>(procs),
        "chan_mpsc" => channels::to_one::<Heist, Heist>(procs, 4),
        "chan_spsc" => channels::to_one::<Heist, Heist>(procs, 1),
        "select" => channels::select::<Heist, Heist>(procs),
        "ring" => channels::ring::<Heist, Heist>(procs),
        "yield" => yielding::blocking::<Heist>(procs),
        "parked_100k" => parked::blocking::<Heist>(procs, 100_000),
        "parked_1m" => parked::blocking::<Heist>(procs, 1_000_000),
        "steal_hot" => steal::blocking::<Heist>(procs, Thief::Hot),
        "mutex" => locks::mutex::<Heist, Heist>(procs),
        "rwlock" => locks::rwlock::<Heist, Heist>(procs),
        "steal_idle" => steal::blocking::<Heist>(procs, Thief::Idle),
        "timers" => timers::blocking::<Heist>(procs),
        "hogs" => stalls::hogs::<Heist>(procs),
        "blocking" => stalls::blocking::<Heist>(procs),
        "unannounced" => stalls::unannounced::<Heist>(procs),
        "tcp_echo_64" => servers::blocking::<Heist>(procs, Service::Echo { n_connections: 64 }),
        "tcp_echo_1000" => servers::blocking::<Heist>(procs, Service::Echo { n_connections: 1000 }),
        "http" => servers::blocking::<Heist>(procs, Service::Http),
        "uneven_tree" => uneven_tree::blocking::<Heist>(procs),
        "idle_cpu" => idle_cpu::blocking::<Heist>(procs),
        "start_stop" => start_stop::measure(|| runtime(procs).run(|| ())),
        other if catalog::workload(other).is_some() => cannot("not yet"),
        other => super::unknown(other),
    }
}

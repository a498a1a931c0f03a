//! std threads: a task is an OS thread, channels are std's.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::unknown;
use crate::contract::blocking::{Announce, Channels, Gate, Group, Locks, Net, Tasks, Timers};
use crate::reading::{Outcome, cannot};
use crate::workloads::servers::{self, Service};
use crate::workloads::steal::{self, Thief};
use crate::workloads::{
    channels, fork_join, idle_cpu, locks, parked, spawn_join, stalls, start_stop, timers, yielding,
};

pub struct Threads;

impl Tasks for Threads {
    const MAX_TASKS: usize = 10_000;
    const LIMIT_NOTE: Option<&'static str> = Some("at most 10,000 OS threads");

    type Handle<T: Send + 'static> = JoinHandle<T>;
    type Group = ThreadGroup;
    type Gate = ThreadGate;

    fn run<T: Send + 'static>(_procs: usize, main: impl FnOnce() -> T + Send + 'static) -> T {
        main()
    }

    fn spawn(task: impl FnOnce() + Send + 'static) {
        thread::spawn(task);
    }

    fn fork<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
        thread::spawn(task)
    }

    fn join<T: Send + 'static>(handle: JoinHandle<T>) -> T {
        handle.join().expect("thread panicked")
    }

    fn yield_now() {
        thread::yield_now();
    }
}

#[derive(Clone)]
pub struct ThreadGroup(Arc<(Mutex<usize>, Condvar)>);

impl Group for ThreadGroup {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(0), Condvar::new())))
    }

    fn add(&self, n: usize) {
        *self.0.0.lock().expect("poisoned") += n;
    }

    fn done(&self) {
        let (count, changed) = &*self.0;
        let mut count = count.lock().expect("poisoned");
        *count -= 1;
        if *count == 0 {
            changed.notify_all();
        }
    }

    fn wait(&self) {
        let (count, changed) = &*self.0;
        let count = count.lock().expect("poisoned");
        drop(changed.wait_while(count, |count| *count > 0).expect("poisoned"));
    }
}

#[derive(Clone)]
pub struct ThreadGate(Arc<(Mutex<bool>, Condvar)>);

impl Gate for ThreadGate {
    fn new() -> Self {
        Self(Arc::new((Mutex::new(false), Condvar::new())))
    }

    fn wait(&self) {
        let (open, changed) = &*self.0;
        let open = open.lock().expect("poisoned");
        drop(changed.wait_while(open, |open| !*open).expect("poisoned"));
    }

    fn open(&self) {
        *self.0.0.lock().expect("poisoned") = true;
        self.0.1.notify_all();
    }
}

impl Channels for Threads {
    type Tx<T: Send + 'static> = mpsc::SyncSender<T>;
    type Rx<T: Send + 'static> = mpsc::Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        mpsc::sync_channel(capacity)
    }

    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message);
    }

    fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T> {
        rx.recv().ok()
    }
}

impl Locks for Threads {
    type Mutex = Mutex<u64>;
    type RwLock = RwLock<u64>;

    fn mutex() -> Self::Mutex {
        Mutex::new(0)
    }

    fn lock(mutex: &Self::Mutex, critical: impl FnOnce(&mut u64)) {
        critical(&mut mutex.lock().expect("poisoned"));
    }

    fn rwlock() -> Self::RwLock {
        RwLock::new(0)
    }

    fn read(lock: &Self::RwLock, critical: impl FnOnce(&u64)) {
        critical(&lock.read().expect("poisoned"));
    }

    fn write(lock: &Self::RwLock, critical: impl FnOnce(&mut u64)) {
        critical(&mut lock.write().expect("poisoned"));
    }
}

impl Timers for Threads {
    fn sleep(duration: Duration) {
        thread::sleep(duration);
    }
}

impl Announce for Threads {
    fn blocking(call: impl FnOnce() + Send + 'static) {
        call();
    }
}

impl Net for Threads {
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

pub fn run(workload: &str, procs: usize) -> Outcome {
    match workload {
        "spawn_join" => spawn_join::blocking::<Threads>(procs),
        "skynet" => fork_join::skynet_blocking::<Threads>(procs),
        "fib_join" => fork_join::fib_blocking::<Threads>(procs),
        "yield" => yielding::blocking::<Threads>(procs),
        "ping_pong" => channels::ping_pong::<Threads, Threads>(procs),
        "chan_mpmc" => cannot("std's receiver cannot be shared"),
        "chan_mpsc" => channels::to_one::<Threads, Threads>(procs, 4),
        "chan_spsc" => channels::to_one::<Threads, Threads>(procs, 1),
        "select" => cannot("std's channels have no select"),
        "ring" => channels::ring::<Threads, Threads>(procs),
        "mutex" => locks::mutex::<Threads, Threads>(procs),
        "rwlock" => locks::rwlock::<Threads, Threads>(procs),
        "timers" => timers::blocking::<Threads>(procs),
        "parked_100k" => parked::blocking::<Threads>(procs, 100_000),
        "parked_1m" => parked::blocking::<Threads>(procs, 1_000_000),
        "steal_hot" => steal::blocking::<Threads>(procs, Thief::Hot),
        "steal_idle" => steal::blocking::<Threads>(procs, Thief::Idle),
        "uneven_tree" => cannot("at most 10,000 OS threads"),
        "hogs" => stalls::hogs::<Threads>(procs),
        "blocking" => stalls::blocking::<Threads>(procs),
        "unannounced" => stalls::unannounced::<Threads>(procs),
        "tcp_echo_64" => servers::blocking::<Threads>(procs, Service::Echo { n_connections: 64 }),
        "tcp_echo_1000" => {
            servers::blocking::<Threads>(procs, Service::Echo { n_connections: 1000 })
        }
        "http" => servers::blocking::<Threads>(procs, Service::Http),
        "idle_cpu" => idle_cpu::blocking::<Threads>(procs),
        "start_stop" => {
            start_stop::measure(|| thread::spawn(|| ()).join().expect("thread panicked"))
        }
        other => unknown(other),
    }
}

//! heist itself.

use std::time::Duration;

use heist::net::{TcpListener, TcpStream};
use heist::sync::{Mutex, RwLock, WaitGroup};
use heist::{JoinHandle, Runtime, chan};

use crate::contract::blocking::{
    Announce, Channels, Gate, Group, Locks, Select, SharedReceiver, Tasks, Timers,
};
use crate::contract::joins::Joins;
use crate::job::Job;
use crate::reading::Outcome;
use crate::workloads::dispatch::blocking as dispatch;
use crate::workloads::{beside_echo, joins, servers, start_stop};

pub struct Heist;

pub(super) fn runtime(procs: usize) -> Runtime {
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

impl Joins for Heist {
    type Cx<'a> = ();

    fn run<T: Send>(procs: usize, main: impl FnOnce(&mut ()) -> T + Send) -> T {
        runtime(procs).run(|| main(&mut ()))
    }

    fn join<A: Send, B: Send>(
        (): &mut (),
        a: impl FnOnce(&mut ()) -> A + Send,
        b: impl FnOnce(&mut ()) -> B + Send,
    ) -> (A, B) {
        heist::join(|| a(&mut ()), || b(&mut ()))
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

impl Channels for Heist {
    type Tx<T: Send + 'static> = chan::Sender<T>;
    type Rx<T: Send + 'static> = chan::Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        chan::bounded(capacity)
    }

    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        // A receiver that has left is how a round ends.
        let _ = tx.send(message);
    }

    fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T> {
        rx.recv().ok()
    }
}

impl SharedReceiver for Heist {
    fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T> {
        rx.clone()
    }
}

impl Select for Heist {
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let next = || {
            heist::select! {
                recv(a) -> message => message,
                recv(b) -> message => message,
            }
        };
        (0..n).map(|_| next().expect("select: channel closed")).sum()
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

super::std_like_sockets!(Heist, TcpListener, TcpStream);

/// The batch is of the idle class: it has the processors that the server leaves.
fn beside_echo(procs: usize) -> Outcome {
    beside_echo::measure(move |listening| {
        runtime(procs).run(move || {
            let batch = heist::goroutine::Builder::new().class(heist::goroutine::Class::Idle);
            batch.spawn(|| beside_echo::batch::<Heist>(&mut ())).expect("the runtime runs");
            servers::serve::<Heist>(beside_echo::SERVICE, &listening);
        });
    })
}

/// The workloads of futures.
#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
fn tasks(job: Job<'_>) -> Option<Outcome> {
    super::heist_tasks::run(job)
}

/// Without a peer there is nothing to compare futures with.
#[cfg(not(any(feature = "peer-tokio", feature = "peer-smol")))]
fn tasks(_: Job<'_>) -> Option<Outcome> {
    None
}

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "join_beside_echo" => beside_echo(job.procs),
        "start_stop" => start_stop::measure(|| runtime(job.procs).run(|| ())),
        other => tasks(job)
            .or_else(|| dispatch::tasks::<Heist>(job))
            .or_else(|| joins::run::<Heist>(other, job.procs))
            .or_else(|| dispatch::channels::<Heist, Heist>(job))
            .or_else(|| dispatch::shared_receivers::<Heist, Heist>(job))
            .or_else(|| dispatch::select::<Heist, Heist>(job))
            .or_else(|| dispatch::locks::<Heist, Heist>(job))
            .or_else(|| dispatch::timers::<Heist>(job))
            .or_else(|| dispatch::announced::<Heist>(job))
            .or_else(|| dispatch::servers::<Heist>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

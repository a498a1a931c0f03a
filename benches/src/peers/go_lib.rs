//! go-lib: another port of Go's scheduler to Rust.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, mpsc};
use std::time::Duration;

use go_lib::chan::{Receiver, Sender, chan};
use go_lib::net::{TcpListener, TcpStream};
use go_lib::sync::{Mutex, RwLock, WaitGroup};
use go_lib::{go, select};

use crate::contract::blocking::{
    Announce, Channels, Gate, Group, Net, Select, SharedReceiver, Tasks, Timers,
};
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::dispatch::blocking as dispatch;

pub struct GoLib;

#[go_lib::main]
fn enter(main: Box<dyn FnOnce() + Send>) {
    main();
}

impl Tasks for GoLib {
    const MAX_TASKS: usize = 30_000;
    const LIMIT_NOTE: Option<&'static str> =
        Some("at most 30,000 goroutines: two mappings each, the kernel allows 65,530");

    /// A result is returned as in Go: through a channel with room for it.
    type Handle<T: Send + 'static> = Receiver<T>;
    type Group = GoLibGroup;
    type Gate = GoLibGroup;

    fn run<T: Send + 'static>(_procs: usize, main: impl FnOnce() -> T + Send + 'static) -> T {
        let (tx, rx) = mpsc::channel();
        enter(Box::new(move || tx.send(main()).expect("nobody waits for the result")));
        rx.recv().expect("goroutine panicked")
    }

    fn spawn(task: impl FnOnce() + Send + 'static) {
        go!(task);
    }

    fn fork<T: Send + 'static>(task: impl FnOnce() -> T + Send + 'static) -> Receiver<T> {
        let (tx, rx) = chan(1);
        go!(move || tx.send(task()));
        rx
    }

    fn join<T: Send + 'static>(handle: Receiver<T>) -> T {
        handle.recv().expect("goroutine panicked")
    }

    fn yield_now() {
        go_lib::gosched();
    }
}

#[derive(Clone)]
pub struct GoLibGroup(Arc<WaitGroup>);

impl Group for GoLibGroup {
    fn new() -> Self {
        Self(Arc::new(WaitGroup::new()))
    }

    fn add(&self, n: usize) {
        self.0.add(n as i64);
    }

    fn done(&self) {
        self.0.done();
    }

    fn wait(&self) {
        self.0.wait();
    }
}

/// A group with one member that is done when the gate opens.
impl Gate for GoLibGroup {
    fn new() -> Self {
        let group = <Self as Group>::new();
        group.add(1);
        group
    }

    fn wait(&self) {
        self.0.wait();
    }

    fn open(&self) {
        self.0.done();
    }
}

/// go-lib closes a channel only explicitly; the last sender that is dropped does it.
pub struct Closing<T: Send + 'static>(Sender<T>);

impl<T: Send + 'static> Drop for Closing<T> {
    fn drop(&mut self) {
        self.0.close();
    }
}

impl Channels for GoLib {
    type Tx<T: Send + 'static> = Arc<Closing<T>>;
    type Rx<T: Send + 'static> = Receiver<T>;

    fn channel<T: Send + 'static>(capacity: usize) -> (Self::Tx<T>, Self::Rx<T>) {
        let (tx, rx) = chan(capacity);
        (Arc::new(Closing(tx)), rx)
    }

    fn send<T: Send + 'static>(tx: &Self::Tx<T>, message: T) {
        tx.0.send(message);
    }

    fn recv<T: Send + 'static>(rx: &Self::Rx<T>) -> Option<T> {
        rx.recv()
    }
}

impl SharedReceiver for GoLib {
    fn share<T: Send + 'static>(rx: &Self::Rx<T>) -> Self::Rx<T> {
        rx.clone()
    }
}

impl Select for GoLib {
    fn select_sum(a: Self::Rx<u64>, b: Self::Rx<u64>, n: u64) -> u64 {
        let mut sum = 0;
        for _ in 0..n {
            select! {
                recv(a) -> message => { sum += message.expect("select: channel closed") }
                recv(b) -> message => { sum += message.expect("select: channel closed") }
            }
        }
        sum
    }
}

super::std_like_locks!(GoLib, Mutex, RwLock, "std's locks, which go-lib re-exports");

impl Timers for GoLib {
    fn sleep(duration: Duration) {
        go_lib::sleep(duration);
    }
}

impl Announce for GoLib {
    fn blocking(call: impl FnOnce() + Send + 'static) {
        go_lib::with_syscall(call);
    }
}

impl Net for GoLib {
    type Listener = TcpListener;
    type Stream = TcpStream;

    fn listen() -> io::Result<(TcpListener, SocketAddr)> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
        let address = listener.local_addr()?;
        Ok((listener, address))
    }

    fn accept(listener: &TcpListener) -> io::Result<TcpStream> {
        listener.accept()
    }
}

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "start_stop" => cannot("go-lib's scheduler is global and never stops"),
        other => dispatch::tasks::<GoLib>(job)
            .or_else(|| dispatch::channels::<GoLib, GoLib>(job))
            .or_else(|| dispatch::shared_receivers::<GoLib, GoLib>(job))
            .or_else(|| dispatch::select::<GoLib, GoLib>(job))
            .or_else(|| dispatch::locks::<GoLib, GoLib>(job))
            .or_else(|| dispatch::timers::<GoLib>(job))
            .or_else(|| dispatch::announced::<GoLib>(job))
            .or_else(|| dispatch::servers::<GoLib>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

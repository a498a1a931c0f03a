//! std threads: a task is an OS thread, channels are std's.

use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex, RwLock, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::contract::blocking::{Announce, Channels, Gate, Group, Tasks, Timers};
use crate::job::Job;
use crate::reading::{Figures, Outcome, cannot};
use crate::workloads::dispatch::blocking as dispatch;
use crate::workloads::start_stop;

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

super::std_like_locks!(Threads, Mutex, RwLock);

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

super::std_like_sockets!(Threads, TcpListener, TcpStream);

pub fn run(job: Job<'_>) -> Outcome {
    match job.workload {
        "chan_mpmc" => cannot("std's receiver cannot be shared"),
        "select" => cannot("std's channels have no select"),
        "uneven_tree" => cannot("at most 10,000 OS threads"),
        "start_stop" => {
            let cycle = || thread::spawn(|| ()).join().expect("thread panicked");
            let one = |figures: Figures| figures.with_note(Some("one thread, there is no pool"));
            start_stop::measure(cycle).map(one)
        }
        other => dispatch::tasks::<Threads>(job)
            .or_else(|| dispatch::channels::<Threads, Threads>(job))
            .or_else(|| dispatch::locks::<Threads, Threads>(job))
            .or_else(|| dispatch::timers::<Threads>(job))
            .or_else(|| dispatch::announced::<Threads>(job))
            .or_else(|| dispatch::servers::<Threads>(job))
            .unwrap_or_else(|| super::unknown(other)),
    }
}

//! The traces of one runtime that run at the moment, and the thread that serves them.
//!
//! A hub exists while at least one trace of its runtime runs. docs/design/trace.md has the
//! protocol.

use super::collect;
use super::consumer::{Consumer, Sink, Summary};
use super::recorder::Recorder;
use crate::current;
use crate::sched::Sched;
use crate::sched::stall::blocking::blocking;
use crate::sched::world::{self, Cause, with_world_lock};
use crate::sys::futex::Kernel;
use crate::sys::{clock, last_words, registers, thread, ticks};
use crate::trace::emit;
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicUsize, Ordering};
use heist_trace::file::Goroutine;
use std::collections::BTreeMap;
use std::io;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

/// How long a process that ends waits for its traces to be written.
const LAST_WORDS_NS: u64 = 5_000_000_000;

/// The hubs of all runtimes, and how many traces each serves.
static HUBS: Mutex<Vec<Served>> = Mutex::new(Vec::new());

struct Served {
    hub: Arc<Hub>,
    n_traces: usize,
    thread: JoinHandle<()>,
}

/// What the collector is asked for.
pub(super) enum Order {
    /// Write this snapshot to the file of a trace.
    Snapshot(u64, u64, Vec<Goroutine>),
    /// Complete the trace; buffers before its last generation are still to be collected.
    End(u64, Sender<io::Result<Summary>>),
    /// Collect, and write what is there to the file of a trace.
    Flush(u64, Sender<io::Result<()>>),
    /// Collect, and call this with the ring of a trace.
    Dump(u64, super::consumer::Out, Vec<Goroutine>, Sender<io::Result<Summary>>),
    /// End the thread.
    Leave,
}

/// The traces of one runtime.
pub(super) struct Hub {
    pub(super) recorder: Arc<Recorder>,
    pub(super) sched: Weak<Sched>,
    pub(super) name: String,
    /// The traces that run. Its holder may change the generation.
    control: Mutex<Vec<u64>>,
    pub(super) consumers: Mutex<Vec<Consumer>>,
    pub(super) orders: Mutex<Vec<Order>>,
    /// How the traces ended that the collector ended by itself.
    pub(super) ended: Mutex<BTreeMap<u64, io::Result<Summary>>>,
    /// The process ends.
    dying: AtomicU32,
    /// The collector has written everything.
    said: AtomicU32,
    /// The thread pointer of the collector.
    collector: AtomicUsize,
}

/// Locks a mutex of this module, which no panic leaves half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Hub {
    fn new(sched: &Arc<Sched>) -> Self {
        Self {
            recorder: Arc::clone(&sched.recorder),
            sched: Arc::downgrade(sched),
            name: sched.config.name.clone(),
            control: Mutex::new(Vec::new()),
            consumers: Mutex::new(Vec::new()),
            orders: Mutex::new(Vec::new()),
            ended: Mutex::new(BTreeMap::new()),
            dying: AtomicU32::new(0),
            said: AtomicU32::new(0),
            collector: AtomicUsize::new(0),
        }
    }

    /// Joins the hub of a runtime, or makes it. Blocks.
    fn join(sched: &Arc<Sched>) -> io::Result<Arc<Self>> {
        ticks::prepare();
        last_words::set(speak);
        let mut hubs = lock(&HUBS);
        let of_sched = |served: &&mut Served| Arc::ptr_eq(&served.hub.recorder, &sched.recorder);
        if let Some(served) = hubs.iter_mut().find(of_sched) {
            served.n_traces += 1;
            return Ok(Arc::clone(&served.hub));
        }
        let hub = Arc::new(Self::new(sched));
        let served = Arc::clone(&hub);
        let thread = thread::spawn_roomy_joinable(&format!("{}-trace", hub.name), move || {
            served.collector.store(registers::thread_pointer(), Ordering::Relaxed);
            collect::run(&served);
        })?;
        hubs.push(Served { hub: Arc::clone(&hub), n_traces: 1, thread });
        Ok(hub)
    }

    /// Leaves the hub. The last trace that leaves ends the collector. Blocks.
    fn leave(&self) {
        let mut hubs = lock(&HUBS);
        let Some(at) = hubs.iter().position(|served| std::ptr::eq(&*served.hub, self)) else {
            return;
        };
        hubs[at].n_traces -= 1;
        if hubs[at].n_traces == 0 {
            let served = hubs.swap_remove(at);
            self.order(Order::Leave);
            // A new hub of this runtime must not begin before the collector is gone: so the lock
            // is held. The collector does not panic; if it did, that has been reported.
            let _ = served.thread.join();
        }
    }

    fn order(&self, order: Order) {
        lock(&self.orders).push(order);
        self.recorder.ring();
    }

    /// Begins a trace with a new generation, and returns its number.
    pub(super) fn begin(
        sched: &Arc<Sched>,
        until: Option<std::time::Instant>,
        sink: impl FnOnce() -> io::Result<Sink>,
    ) -> io::Result<(Arc<Self>, u64)> {
        static N_TRACES: AtomicU32 = AtomicU32::new(0);
        let hub = blocking(|| Self::join(sched))?;
        let joined = Joined(&hub);
        let sink = sink()?;
        std::mem::forget(joined);
        let id = u64::from(N_TRACES.fetch_add(1, Ordering::Relaxed));
        let takes_snapshot = matches!(sink, Sink::File(_));
        {
            let mut running = lock(&hub.control);
            running.push(id);
            let from = as_runtime(|| hub.recorder.upcoming());
            lock(&hub.consumers).push(Consumer { id, from, to: u32::MAX, until, sink });
            change(sched, || {
                hub.recorder.next_generation();
                emit::procs(&hub.recorder, sched.procs());
            });
        }
        if takes_snapshot {
            let ticks = ticks::now();
            hub.order(Order::Snapshot(id, ticks, super::convert::goroutines(sched)));
        } else {
            // The other traces have buffers of the old generation to be collected.
            hub.recorder.ring();
        }
        Ok((hub, id))
    }

    /// Ends the generation of a trace. After that nothing is written for it any more.
    pub(super) fn close(&self, id: u64, stop: impl FnOnce(&mut dyn FnMut())) {
        let mut running = lock(&self.control);
        let Some(at) = running.iter().position(|&other| other == id) else { return };
        running.swap_remove(at);
        let is_last = running.is_empty();
        // Set before the generation begins: otherwise the collector could hand a buffer of it to
        // this trace. The number cannot change meanwhile, because `control` is held.
        let to = as_runtime(|| self.recorder.upcoming());
        let mut consumers = lock(&self.consumers);
        if let Some(consumer) = consumers.iter_mut().find(|consumer| consumer.id == id) {
            consumer.to = to;
        }
        drop(consumers);
        stop(&mut || {
            if is_last {
                self.recorder.close();
            } else {
                self.recorder.next_generation();
            }
        });
    }

    /// Ends a trace, and waits until everything is written.
    pub(super) fn end(&self, sched: &Arc<Sched>, id: u64) -> io::Result<Summary> {
        self.close(id, |switch| change(sched, switch));
        let (reply, answer) = mpsc::channel();
        self.order(Order::End(id, reply));
        let outcome = blocking(|| {
            let outcome = answer.recv();
            self.leave();
            outcome
        });
        outcome.unwrap_or_else(|_| Err(io::Error::other("the trace was ended with the process")))
    }

    /// Hands the events up to now to the writer of a trace.
    pub(super) fn flush(&self, id: u64) -> io::Result<()> {
        let (reply, answer) = mpsc::channel();
        self.renew();
        self.order(Order::Flush(id, reply));
        let outcome = blocking(|| answer.recv());
        outcome.unwrap_or_else(|_| Err(io::Error::other("the trace has ended")))
    }

    /// Writes the ring of a trace.
    pub(super) fn dump(
        &self,
        sched: &Arc<Sched>,
        id: u64,
        out: super::consumer::Out,
    ) -> io::Result<Summary> {
        let (reply, answer) = mpsc::channel();
        {
            let _control = lock(&self.control);
            as_runtime(|| self.recorder.next_generation());
        }
        self.order(Order::Dump(id, out, super::convert::goroutines(sched), reply));
        let outcome = blocking(|| answer.recv());
        outcome.unwrap_or_else(|_| Err(io::Error::other("the trace has ended")))
    }

    /// Begins a new generation, so that no buffer is filled for too long.
    pub(super) fn renew(&self) {
        let running = lock(&self.control);
        if !running.is_empty() {
            as_runtime(|| self.recorder.next_generation());
        }
    }

    /// Whether the process ends.
    pub(super) fn is_dying(&self) -> bool {
        // ORDERING: Acquire pairs with `speak`.
        self.dying.load(Ordering::Acquire) != 0
    }

    /// The collector has written everything.
    pub(super) fn has_said_all(&self) {
        // ORDERING: Release pairs with `speak`.
        self.said.store(1, Ordering::Release);
        Kernel.wake(&self.said);
    }
}

/// Leaves the hub if the user's writer refuses the beginning of a trace, or panics.
struct Joined<'a>(&'a Hub);

impl Drop for Joined<'_> {
    fn drop(&mut self) {
        blocking(|| self.0.leave());
    }
}

/// Calls `f`, which takes a lock of the runtime, as the runtime does: a goroutine must not be
/// preempted while it holds such a lock.
fn as_runtime<T>(f: impl FnOnce() -> T) -> T {
    let rt = current::enter();
    let result = f();
    drop(rt);
    result
}

/// Calls `switch`, which changes the generation, while the world of the runtime is stopped; or just
/// so, if the runtime has ended.
fn change(sched: &Sched, mut switch: impl FnMut()) {
    with_world_lock(sched, |caller, world_lock| {
        let world = world::stop_the_world(sched, world_lock, caller, Cause::Trace);
        switch();
        drop(world);
    });
}

/// Completes all traces, because the process ends. It takes no lock without a bound.
fn speak() {
    let until = clock::now_ns() + LAST_WORDS_NS;
    let hubs = loop {
        match HUBS.try_lock() {
            Ok(hubs) => break hubs,
            Err(std::sync::TryLockError::Poisoned(hubs)) => break hubs.into_inner(),
            Err(_) if clock::now_ns() >= until => return,
            Err(_) => thread::nap(Duration::from_millis(1)),
        }
    };
    for Served { hub, .. } in &*hubs {
        hub.recorder.shut();
        // ORDERING: Release pairs with `is_dying`.
        hub.dying.store(1, Ordering::Release);
        hub.recorder.ring();
    }
    let own = registers::thread_pointer();
    let others = |served: &&Served| served.hub.collector.load(Ordering::Relaxed) != own;
    for Served { hub, .. } in hubs.iter().filter(others) {
        // ORDERING: Acquire pairs with `has_said_all`.
        while hub.said.load(Ordering::Acquire) == 0 {
            let left = until.saturating_sub(clock::now_ns());
            if left == 0 {
                return;
            }
            Kernel.wait(&hub.said, 0, Some(Duration::from_nanos(left)));
        }
    }
}

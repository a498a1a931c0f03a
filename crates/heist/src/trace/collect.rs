//! The collector: the thread that takes full buffers and hands them to the traces.
//!
//! It has no P. It may allocate, write files and wait for locks of user code.

use super::consumer::{Consumer, Sink, Summary, guarded};
use super::convert;
use super::hub::{Hub, Order, lock};
use crate::sys::membarrier::heavy_fence;
use crate::sys::{stderr, thread};
use std::io;
use std::time::{Duration, Instant};

/// A buffer holds the low bits of the time, so none may be filled for too long.
const RENEW_PERIOD: Duration = Duration::from_secs(3600);

/// How long the collector of a process that ends waits for a thread in the middle of a record.
const LAST_PATIENCE: Duration = Duration::from_millis(200);

/// Serves the traces of a hub until it is asked to leave.
pub(super) fn run(hub: &Hub) {
    let mut renewed = Instant::now();
    loop {
        let rings = hub.recorder.rings();
        if hub.is_dying() {
            return die(hub);
        }
        distribute(hub);
        let orders = std::mem::take(&mut *lock(&hub.orders));
        for order in orders {
            match order {
                Order::Snapshot(id, ticks, goroutines) => {
                    let mut consumers = lock(&hub.consumers);
                    let consumer = consumers.iter_mut().find(|consumer| consumer.id == id);
                    if let Some(Consumer { sink: Sink::File(file), .. }) = consumer {
                        file.snapshot(ticks, &goroutines);
                    }
                }
                Order::End(id, reply) => {
                    // The caller may have given up.
                    let _ = reply.send(end(hub, id));
                }
                Order::Flush(id, reply) => {
                    // The caller may have given up.
                    let _ = reply.send(flush(hub, id));
                }
                Order::Dump(id, out, goroutines, reply) => {
                    collect_all(hub, || true);
                    let consumers = lock(&hub.consumers);
                    let consumer = consumers.iter().find(|consumer| consumer.id == id);
                    let outcome = match consumer.map(|consumer| &consumer.sink) {
                        Some(Sink::Ring(ring)) => ring.dump(out, &goroutines),
                        _ => guarded(|| {
                            drop(out);
                            Err(io::Error::other("the trace has ended"))
                        }),
                    };
                    // The caller may have given up.
                    let _ = reply.send(outcome);
                }
                Order::Leave => return hub.recorder.give_back(),
            }
        }
        if renewed.elapsed() >= RENEW_PERIOD {
            renewed = Instant::now();
            hub.renew();
        }
        let next = end_expired(hub).min(RENEW_PERIOD);
        hub.recorder.set_idle(true);
        hub.recorder.await_ring(rings, next);
        hub.recorder.set_idle(false);
    }
}

/// Ends the traces whose time is over. Returns for how long there is none.
fn end_expired(hub: &Hub) -> Duration {
    let mut next = Duration::MAX;
    let now = Instant::now();
    let mut expired = Vec::new();
    for consumer in &*lock(&hub.consumers) {
        match consumer.until {
            Some(until) if until <= now => expired.push(consumer.id),
            Some(until) => next = next.min(until - now),
            None => {}
        }
    }
    for id in expired {
        hub.close(id, |switch| switch());
        let outcome = end(hub, id);
        if let Err(error) = &outcome {
            stderr::report(format_args!("heist: a trace could not be written: {error}\n"));
        }
        lock(&hub.ended).insert(id, outcome);
    }
    next
}

/// Completes a trace whose last generation is over.
fn end(hub: &Hub, id: u64) -> io::Result<Summary> {
    if let Some(outcome) = lock(&hub.ended).remove(&id) {
        return outcome;
    }
    collect_all(hub, || true);
    let mut consumers = lock(&hub.consumers);
    let Some(at) = consumers.iter().position(|consumer| consumer.id == id) else {
        return Err(io::Error::other("there is no such trace"));
    };
    let ended = consumers.swap_remove(at);
    drop(consumers);
    match ended.sink {
        Sink::File(file) => file.finish(),
        Sink::Ring(_) => Ok(Summary::default()),
    }
}

/// Hands what happened in earlier generations to the traces, and flushes the writer of one.
fn flush(hub: &Hub, id: u64) -> io::Result<()> {
    collect_all(hub, || true);
    let mut consumers = lock(&hub.consumers);
    match consumers.iter_mut().find(|consumer| consumer.id == id).map(|found| &mut found.sink) {
        Some(Sink::File(file)) => file.flush(),
        _ => Err(io::Error::other("the trace has ended")),
    }
}

/// Collects the buffers of earlier generations from all threads, and distributes them.
fn collect_all(hub: &Hub, mut patience: impl FnMut() -> bool) {
    let reached = hub.recorder.reached();
    // After this no writer takes an earlier generation for the current one.
    heavy_fence();
    if let Some(sched) = hub.sched.upgrade() {
        let ms = sched.threads.all_ms();
        let pens = ms.iter().map(|m| (m.id + 1, m.traced.pen()));
        let mut lost = Vec::new();
        let waits = || {
            std::thread::yield_now();
            patience()
        };
        hub.recorder.collect(reached, pens, waits, |writer, n| lost.push((writer, n)));
        for consumer in &mut *lock(&hub.consumers) {
            lost.iter().for_each(|&(writer, n)| consumer.lost(writer, n));
        }
    }
    distribute(hub);
}

/// Hands the full buffers to the traces that want them.
fn distribute(hub: &Hub) {
    while let Some(full) = hub.recorder.next_full() {
        for consumer in &mut *lock(&hub.consumers) {
            if consumer.wants(full.generation) {
                consumer.block(&full.context, full.records());
            }
        }
        hub.recorder.recycle(full);
    }
}

/// Completes all traces, because the process ends.
fn die(hub: &Hub) {
    hub.recorder.close();
    let until = Instant::now() + LAST_PATIENCE;
    collect_all(hub, || Instant::now() < until);
    let goroutines = hub.sched.upgrade().map_or_else(Vec::new, |sched| {
        let goroutines = convert::goroutines(&sched);
        // The runtime is not to be freed here, whatever happens to its owner.
        std::mem::forget(sched);
        goroutines
    });
    for consumer in std::mem::take(&mut *lock(&hub.consumers)) {
        let written = match consumer.sink {
            Sink::File(file) => file.finish().map(drop),
            Sink::Ring(ring) => ring.dump_at_end(&goroutines),
        };
        if let Err(error) = written {
            stderr::report(format_args!("heist: a trace could not be written: {error}\n"));
        }
    }
    hub.has_said_all();
    thread::sleep_for_ever();
}

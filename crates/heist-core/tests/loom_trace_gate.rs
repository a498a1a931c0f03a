//! Every interleaving of a thread that writes records with a collector that takes its buffer:
//! `trace_gate.rs`.
//!
//! loom reports an access to the buffer that is not ordered with another one. No record is lost or
//! collected twice.
//!
//! Mutations it catches, each tried on `trace_gate.rs`:
//! - no fence of the writer between `busy` and the generation,
//! - no fence of the collector between the generation and `busy`,
//! - `busy` cleared with Relaxed.
#![cfg(loom)]

use heist_core::sync::{AtomicU32, Ordering, UnsafeCell, fence};
use heist_core::trace_gate::{Busy, Gate};
use loom::sync::{Arc, Mutex};
use loom::thread;
use std::num::NonZeroU32;

struct World {
    gate: Gate,
    busy: Busy,
    /// The generation of the buffer. The writer changes it, under the lock.
    generation: UnsafeCell<u32>,
    /// The records in the buffer.
    buffer: UnsafeCell<u32>,
    /// The records of full buffers.
    full: Mutex<u32>,
    written: AtomicU32,
}

fn full_fence() {
    fence(Ordering::SeqCst);
}

impl World {
    fn new() -> Arc<Self> {
        let world = Self {
            gate: Gate::new(),
            busy: Busy::new(),
            generation: UnsafeCell::new(1),
            buffer: UnsafeCell::new(0),
            full: Mutex::new(0),
            written: AtomicU32::new(0),
        };
        world.gate.set(NonZeroU32::new(1));
        Arc::new(world)
    }

    fn write(&self) {
        let Some(generation) = self.busy.begin(&self.gate, full_fence) else { return };
        // SAFETY: only this thread changes it.
        let old = self.generation.with(|old| unsafe { *old });
        if old != generation.get() {
            let mut full = self.full.lock().unwrap();
            // SAFETY: under the lock.
            self.generation.with_mut(|old| unsafe { *old = generation.get() });
            // SAFETY: as above.
            *full += self.buffer.with_mut(|buffer| unsafe { std::mem::take(&mut *buffer) });
        }
        // SAFETY: by the protocol it is of the current generation; loom checks it.
        self.buffer.with_mut(|buffer| unsafe { *buffer += 1 });
        self.written.fetch_add(1, Ordering::Relaxed);
        self.busy.end();
    }

    /// Changes the generation, and takes the buffer if the writer does not change it itself.
    fn collect(&self, generation: Option<NonZeroU32>) {
        self.gate.set(generation);
        full_fence();
        while !self.busy.is_clear() {
            thread::yield_now();
        }
        let mut full = self.full.lock().unwrap();
        let now = generation.map_or(0, NonZeroU32::get);
        // SAFETY: the writer changes the generation of its buffer only under the lock.
        if self.generation.with(|old| unsafe { *old }) != now {
            // SAFETY: it is of an earlier generation, so only the holder of the lock touches it.
            *full += self.buffer.with_mut(|buffer| unsafe { std::mem::take(&mut *buffer) });
        }
    }
}

/// The gate is closed while a thread writes.
#[test]
fn a_gate_that_closes_leaves_no_record_behind() {
    loom::model(|| {
        let world = World::new();
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || (0..2).for_each(|_| world.write()))
        };
        world.collect(None);
        let collected = *world.full.lock().unwrap();
        writer.join().unwrap();
        assert_eq!(collected, world.written.load(Ordering::Relaxed));
    });
}

/// The generation changes while a thread writes; then the gate is closed.
#[test]
fn a_new_generation_keeps_every_record() {
    loom::model(|| {
        let world = World::new();
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || (0..2).for_each(|_| world.write()))
        };
        world.collect(NonZeroU32::new(2));
        writer.join().unwrap();
        world.collect(None);
        assert_eq!(*world.full.lock().unwrap(), world.written.load(Ordering::Relaxed));
    });
}

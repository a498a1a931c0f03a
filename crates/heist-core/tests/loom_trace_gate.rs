//! Every interleaving of a thread that writes records with a collector that takes its buffer:
//! `trace_gate.rs`.
//!
//! loom reports an access to the buffer that is not ordered with another one. No record is lost or
//! collected twice.
//!
//! Mutations it catches. Each was tried, and loom reports concurrent accesses to the buffer:
//! - no fence of the writer between `busy` and the generation: all three tests,
//! - no fence of the collector between the generation and `busy`: all three tests,
//! - `busy` cleared with Relaxed, or read with Relaxed: all three tests,
//! - a collector that compares with the generation at the moment instead of the one before its
//!   fence: only the last test.
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
    state: Mutex<State>,
    written: AtomicU32,
}

/// What the lock protects.
struct State {
    /// The records of full buffers.
    full: u32,
    /// The last generation.
    generation: u32,
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
            state: Mutex::new(State { full: 0, generation: 1 }),
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
            let mut state = self.state.lock().unwrap();
            // SAFETY: under the lock.
            self.generation.with_mut(|old| unsafe { *old = generation.get() });
            // SAFETY: as above.
            state.full += self.buffer.with_mut(|buffer| unsafe { std::mem::take(&mut *buffer) });
        }
        // SAFETY: by the protocol it is of the current generation; loom checks it.
        self.buffer.with_mut(|buffer| unsafe { *buffer += 1 });
        self.written.fetch_add(1, Ordering::Relaxed);
        self.busy.end();
    }

    fn write_twice(world: &Arc<Self>) -> thread::JoinHandle<()> {
        let world = Arc::clone(world);
        thread::spawn(move || (0..2).for_each(|_| world.write()))
    }

    /// Begins a new generation.
    fn renew(&self) {
        let mut state = self.state.lock().unwrap();
        state.generation += 1;
        self.gate.set(NonZeroU32::new(state.generation));
    }

    fn close(&self) {
        let mut state = self.state.lock().unwrap();
        state.generation += 1;
        self.gate.set(None);
    }

    /// Takes the buffer if it is of an earlier generation. Returns how many records were collected.
    fn collect(&self) -> u32 {
        let reached = self.state.lock().unwrap().generation;
        full_fence();
        while !self.busy.is_clear() {
            thread::yield_now();
        }
        let mut state = self.state.lock().unwrap();
        // SAFETY: the writer changes the generation of its buffer only under the lock.
        if self.generation.with(|old| unsafe { *old }) < reached {
            // SAFETY: it is of an earlier generation, so only the holder of the lock touches it.
            state.full += self.buffer.with_mut(|buffer| unsafe { std::mem::take(&mut *buffer) });
        }
        state.full
    }
}

/// The gate is closed while a thread writes.
#[test]
fn a_gate_that_closes_leaves_no_record_behind() {
    loom::model(|| {
        let world = World::new();
        let writer = World::write_twice(&world);
        world.close();
        let collected = world.collect();
        writer.join().unwrap();
        assert_eq!(collected, world.written.load(Ordering::Relaxed));
    });
}

/// The generation changes while a thread writes; then the gate is closed.
#[test]
fn a_new_generation_keeps_every_record() {
    loom::model(|| {
        let world = World::new();
        let writer = World::write_twice(&world);
        world.renew();
        world.collect();
        writer.join().unwrap();
        world.close();
        assert_eq!(world.collect(), world.written.load(Ordering::Relaxed));
    });
}

/// Another thread changes the generation while the collector collects: it may come after the fence
/// of the collector, and the writer may not have seen it.
#[test]
fn a_generation_that_begins_after_the_fence_is_left_alone() {
    loom::model(|| {
        let world = World::new();
        let writer = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.write())
        };
        let other = {
            let world = Arc::clone(&world);
            thread::spawn(move || world.renew())
        };
        world.collect();
        writer.join().unwrap();
        other.join().unwrap();
        world.close();
        assert_eq!(world.collect(), world.written.load(Ordering::Relaxed));
    });
}

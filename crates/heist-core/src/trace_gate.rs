//! The gate between threads that write records of a trace and the thread that collects them.
//!
//! Each writer has a buffer that only it touches, so that writing a record needs neither a lock nor
//! a read-modify-write. Still the collector has to take the buffer of a writer that sleeps.
//!
//! # The protocol
//! The gate has a generation; zero means that it is closed. A writer remembers the generation of
//! its buffer, which it changes only under a lock.
//!
//! The writer, for each record:
//! 1. sets `busy`,
//! 2. executes a light fence,
//! 3. reads the generation. If the gate is closed, it clears `busy` and writes nothing. If the
//!    generation is not that of its buffer, it takes the lock and changes the buffer,
//! 4. writes the record,
//! 5. clears `busy` (Release).
//!
//! The collector:
//! 1. changes the generation, or reads under the lock which one another thread changed it to,
//! 2. executes a heavy fence,
//! 3. waits until `busy` is clear (Acquire), without the lock,
//! 4. takes the lock. If the writer's buffer is of a generation before that of step 1, it takes the
//!    buffer.
//!
//! The generation may change again meanwhile. The collector must not go by that: no fence has made
//! sure that the writer sees it.
//!
//! # Why it works
//! By the pair of fences, either the collector sees `busy` and waits for that record, which it then
//! sees whole; or the writer reads the new generation, and does not touch its old buffer without
//! the lock. A writer that comes later reads the new generation as well, or a later one. So a
//! buffer of an earlier generation is, after step 3, touched only under the lock. The writer clears
//! `busy` only at the end, and may wait for the lock meanwhile; the collector does not hold the
//! lock while it waits. The model `loom_trace_gate` runs it, with full fences.

use crate::sync::{AtomicU32, Ordering};
use std::num::NonZeroU32;

/// Whether records are written, and the generation of the buffers.
#[derive(Debug)]
pub struct Gate(AtomicU32);

impl Gate {
    /// A closed gate.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// The generation; None while the gate is closed.
    #[inline]
    #[must_use]
    pub fn generation(&self) -> Option<NonZeroU32> {
        NonZeroU32::new(self.0.load(Ordering::Relaxed))
    }

    /// Opens the gate with a new generation, or closes it.
    pub fn set(&self, generation: Option<NonZeroU32>) {
        self.0.store(generation.map_or(0, NonZeroU32::get), Ordering::Relaxed);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self::new()
    }
}

/// Whether one writer writes a record at this moment.
#[derive(Debug)]
pub struct Busy(AtomicU32);

impl Busy {
    /// A writer that does not write.
    #[must_use]
    pub fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Begins a record. None if the gate is closed: then there is nothing to end.
    #[inline]
    pub fn begin(&self, gate: &Gate, light_fence: impl FnOnce()) -> Option<NonZeroU32> {
        self.0.store(1, Ordering::Relaxed);
        light_fence();
        let generation = gate.generation();
        if generation.is_none() {
            self.end();
        }
        generation
    }

    /// Ends the record.
    #[inline]
    pub fn end(&self) {
        // ORDERING: pairs with `is_clear`: the collector sees the record.
        self.0.store(0, Ordering::Release);
    }

    /// Whether no record is being written. The collector has changed the generation and executed
    /// a heavy fence before it asks.
    #[must_use]
    pub fn is_clear(&self) -> bool {
        // ORDERING: see `end`.
        self.0.load(Ordering::Acquire) == 0
    }
}

impl Default for Busy {
    fn default() -> Self {
        Self::new()
    }
}

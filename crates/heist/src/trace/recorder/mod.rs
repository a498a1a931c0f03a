//! The buffers of the traces of one runtime.
//!
//! Each M writes into a buffer of its own, its page. Threads that are no M of the runtime share one
//! under the lock. A full buffer goes to the collector. `heist_core::trace_gate` says how the
//! collector takes the buffer of an M that does not write, and docs/design/trace.md has the whole.
//!
//! # Access
//! - a `Page`: its M, between `Busy::begin` and `Busy::end`; under the lock, also the collector if
//!   the page is of an earlier generation.
//! - a `Buffer`: the page that has it, or the holder of the lock, or the collector that took it.

mod buffer;

use buffer::{BUFFER_BYTES, Buffer, Page, Row};
pub(super) use buffer::{Full, Lines};

use crate::current;
use crate::sys::futex::Kernel;
use crate::sys::lock::Lock;
use crate::sys::membarrier::light_fence;
use crate::sys::{memory, ticks};
use heist_core::lock_rank::Rank;
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use heist_core::trace_gate::{Busy, Gate};
use heist_trace::record::{Context, Record};
use std::cell::{Cell, UnsafeCell};
use std::num::NonZeroU32;
use std::ptr::{NonNull, null_mut};
use std::sync::Arc;
use std::time::Duration;

/// Bytes of all buffers of a runtime. Beyond that records are dropped.
const MAPPED_MAX: usize = 64 << 20;
const BUFFERS_MAX: u32 = (MAPPED_MAX / BUFFER_BYTES) as u32;
/// How many runtimes record, and how many computations are measured: while it is zero, a hook costs
/// a load and a branch.
static ON: AtomicU32 = AtomicU32::new(0);

/// Whether anybody in this process wants to hear of what the schedulers do.
#[inline(always)]
pub(crate) fn is_on() -> bool {
    ON.load(Ordering::Relaxed) != 0
}

/// While it lives, the hooks are on.
pub(crate) struct Listening(());

impl Listening {
    pub(crate) fn begin() -> Self {
        // A goroutine that begins to listen is heard from now on: by the M that it is on, and by
        // every thread that the goroutine is handed to.
        ON.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for Listening {
    fn drop(&mut self) {
        ON.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How many buffers a runtime may have.
static N_BUFFERS_MAX: AtomicU32 = AtomicU32::new(BUFFERS_MAX);

/// Changes how many buffers a runtime may have. For tests.
pub(crate) fn limit_buffers(n: u32) {
    N_BUFFERS_MAX.store(n, Ordering::Relaxed);
}

/// The part of an M that writes.
pub(crate) struct Pen {
    recorder: Arc<Recorder>,
    busy: Busy,
    /// The generation of the page. Its M changes it, under the lock.
    generation: Cell<u32>,
    page: UnsafeCell<Page>,
}

impl Pen {
    pub(crate) fn new(recorder: Arc<Recorder>) -> Self {
        let page = UnsafeCell::new(Page::new());
        Self { recorder, busy: Busy::new(), generation: Cell::new(0), page }
    }

    /// The recorder of its runtime.
    pub(crate) fn recorder(&self) -> &Recorder {
        &self.recorder
    }
}

impl Drop for Pen {
    /// The collector may not have taken the last buffer.
    fn drop(&mut self) {
        // The last reference to a runtime may be dropped by a goroutine of another one.
        let _rt = current::enter();
        self.recorder.state.lock().finish(self.page.get_mut());
    }
}

/// What the lock protects.
struct State {
    free: Row,
    full: Row,
    n_mapped: u32,
    /// The page of the threads that are no M, and its generation.
    shared: Page,
    shared_generation: u32,
    /// The last generation.
    generation: u32,
}

// SAFETY: the buffers are used under the lock.
unsafe impl Send for State {}

impl State {
    fn free_buffer(&mut self) -> *mut Buffer {
        if let Some(buffer) = self.free.pop() {
            return buffer.as_ptr();
        }
        if self.n_mapped >= N_BUFFERS_MAX.load(Ordering::Relaxed) {
            return null_mut();
        }
        match memory::map(BUFFER_BYTES) {
            Ok(mapped) => {
                self.n_mapped += 1;
                mapped.cast().as_ptr()
            }
            Err(_) => null_mut(),
        }
    }

    /// Puts the buffer of a page among the full ones. False if the page has none.
    fn finish(&mut self, page: &mut Page) -> bool {
        let buffer = std::mem::replace(&mut page.buffer, null_mut());
        let Some(finished) = NonNull::new(buffer) else { return false };
        // SAFETY: the page owned the buffer.
        unsafe {
            (*finished.as_ptr()).n = page.n as u32;
            self.full.push(buffer);
        }
        true
    }

    /// Puts the shared buffer among the full ones.
    fn finish_shared(&mut self) {
        let mut page = std::mem::replace(&mut self.shared, Page::new());
        self.finish(&mut page);
        self.shared = page;
    }

    /// Gives a page a new buffer. False if there is none.
    fn renew(&mut self, page: &mut Page, generation: u32, context: Context) -> bool {
        page.n = 0;
        page.buffer = self.free_buffer();
        // SAFETY: null, or a buffer that was free.
        let Some(buffer) = (unsafe { page.buffer.as_mut() }) else { return false };
        buffer.generation = generation;
        buffer.context = Context {
            sequence: page.sequence,
            dropped: std::mem::take(&mut page.dropped),
            ..context
        };
        page.sequence = page.sequence.wrapping_add(1);
        true
    }
}

/// Records what the scheduler of one runtime does.
pub(crate) struct Recorder {
    gate: Gate,
    state: Lock<State>,
    /// Changes when the collector has something to do.
    bell: AtomicU32,
    idle_collectors: AtomicU32,
    n_dropped: AtomicU64,
    n_records: AtomicU64,
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let state = State {
            free: Row::new(),
            full: Row::new(),
            n_mapped: 0,
            shared: Page::new(),
            shared_generation: 0,
            generation: 0,
        };
        Self {
            gate: Gate::new(),
            state: Lock::new(Rank::Trace, state),
            bell: AtomicU32::new(0),
            idle_collectors: AtomicU32::new(0),
            n_dropped: AtomicU64::new(0),
            n_records: AtomicU64::new(0),
        }
    }

    /// Whether this runtime records.
    pub(super) fn is_open(&self) -> bool {
        self.gate.generation().is_some()
    }

    /// How many records were lost because no buffer was free.
    pub(crate) fn n_dropped(&self) -> u64 {
        self.n_dropped.load(Ordering::Relaxed)
    }

    /// How many bytes of records the collector has received.
    pub(crate) fn n_bytes(&self) -> u64 {
        self.n_records.load(Ordering::Relaxed) * size_of::<Record>() as u64
    }

    /// Begins a new generation, and opens the gate if it is closed.
    pub(super) fn next_generation(&self) {
        let mut state = self.state.lock();
        let next = NonZeroU32::MIN.saturating_add(state.generation);
        state.generation = next.get();
        if !self.is_open() {
            ON.fetch_add(1, Ordering::Relaxed);
        }
        self.gate.set(Some(next));
    }

    /// Closes the gate. The next opening will be later than the generation that this begins.
    pub(super) fn close(&self) {
        let mut state = self.state.lock();
        state.generation += 1;
        if self.is_open() {
            ON.fetch_sub(1, Ordering::Relaxed);
        }
        self.gate.set(None);
    }

    /// The generation that will be the next.
    pub(super) fn upcoming(&self) -> u32 {
        self.reached() + 1
    }

    /// The last generation: no buffer of a later one exists.
    pub(super) fn reached(&self) -> u32 {
        self.state.lock().generation
    }

    /// Stops the writing, for a process that ends: takes no lock. The collector closes the gate.
    pub(super) fn shut(&self) {
        self.gate.set(None);
    }

    /// Sets whether the collector is idle: it then does nothing that could wake a goroutine.
    pub(super) fn set_idle(&self, idle: bool) {
        // ORDERING: SeqCst: the search for a deadlock reads it after the state of the Ps.
        self.idle_collectors.store(idle.into(), Ordering::SeqCst);
    }

    /// How many threads of this trace are idle.
    pub(crate) fn idle_collectors(&self) -> u32 {
        // ORDERING: see `set_idle`.
        self.idle_collectors.load(Ordering::SeqCst)
    }

    /// Writes a group of at most `n` records of the M whose pen this is. `context` describes the M
    /// before the first of them.
    ///
    /// # Safety
    /// It is the pen of the calling thread's M, which is in the runtime.
    #[inline]
    pub(super) unsafe fn write(
        &self,
        pen: &Pen,
        n: usize,
        context: impl FnOnce() -> Context,
        fill: impl FnOnce(&mut Lines<'_>),
    ) {
        let Some(generation) = pen.busy.begin(&self.gate, light_fence) else { return };
        let is_current = pen.generation.get() == generation.get();
        // SAFETY: by the caller's promise and the protocol: a page of the current generation is
        // this thread's until the record ends.
        let has_room = is_current && unsafe { &*pen.page.get() }.has_room(n);
        if has_room || self.turn(pen, generation.get(), n, context()) {
            // SAFETY: it has room, and is of the current generation.
            unsafe { (*pen.page.get()).write(fill) };
        }
        pen.busy.end();
    }

    /// Gives the page of a pen a new buffer, and the old one to the collector. False if there is
    /// none: then `n` records are lost.
    #[cold]
    #[inline(never)]
    fn turn(&self, pen: &Pen, generation: u32, n: usize, context: Context) -> bool {
        let mut state = self.state.lock();
        // SAFETY: the page is this thread's, or of an earlier generation, and the lock is held.
        let page = unsafe { &mut *pen.page.get() };
        pen.generation.set(generation);
        let finished = state.finish(page);
        let renewed = state.renew(page, generation, context);
        drop(state);
        if finished {
            self.ring();
        }
        if !renewed {
            page.dropped += n as u64;
            self.n_dropped.fetch_add(n as u64, Ordering::Relaxed);
        }
        renewed
    }

    /// Writes a group of at most `n` records of a thread that is no M of this runtime.
    pub(super) fn write_shared(&self, n: usize, fill: impl FnOnce(&mut Lines<'_>)) {
        let mut state = self.state.lock();
        // Under the lock the generation does not change.
        let Some(generation) = self.gate.generation() else { return };
        let generation = generation.get();
        let mut page = std::mem::replace(&mut state.shared, Page::new());
        let mut finished = false;
        let mut has_room = state.shared_generation == generation && page.has_room(n);
        if !has_room {
            finished = state.finish(&mut page);
            let context = Context { ticks: ticks::now(), ..Context::default() };
            state.shared_generation = generation;
            has_room = state.renew(&mut page, generation, context);
        }
        if has_room {
            // SAFETY: it has room, and is the lock holder's.
            unsafe { page.write(fill) };
        } else {
            page.dropped += n as u64;
            self.n_dropped.fetch_add(n as u64, Ordering::Relaxed);
        }
        state.shared = page;
        drop(state);
        if finished {
            self.ring();
        }
    }

    /// Takes the buffers of generations before `reached` from the writers that still have them. The
    /// caller has executed a heavy fence since that generation was [reached](Self::reached); a
    /// generation that began later does not count, because a writer may not have seen its
    /// beginning. `patience` is asked as long as a writer is in the middle of a record; if it
    /// answers false, that writer keeps its buffer. `lost` is told about records that were lost
    /// after the last buffer of a writer.
    pub(super) fn collect<'a>(
        &self,
        reached: u32,
        pens: impl Iterator<Item = (u32, &'a Pen)>,
        mut patience: impl FnMut() -> bool,
        mut lost: impl FnMut(u32, u64),
    ) {
        for (writer, pen) in pens {
            let mut clear = pen.busy.is_clear();
            while !clear && patience() {
                clear = pen.busy.is_clear();
            }
            if !clear {
                continue;
            }
            let mut state = self.state.lock();
            // The writer changes the generation of its page under the lock.
            if pen.generation.get() < reached {
                // SAFETY: a page of a generation before the one that was reached at the fence is
                // touched only under the lock.
                let page = unsafe { &mut *pen.page.get() };
                state.finish(page);
                let dropped = std::mem::take(&mut page.dropped);
                drop(state);
                if dropped != 0 {
                    lost(writer, dropped);
                }
            }
        }
        let mut state = self.state.lock();
        let mut dropped = 0;
        if state.shared_generation < reached {
            state.finish_shared();
            dropped = std::mem::take(&mut state.shared.dropped);
        }
        drop(state);
        if dropped != 0 {
            lost(0, dropped);
        }
    }

    /// The next full buffer.
    pub(super) fn next_full(&self) -> Option<Full> {
        let full = self.state.lock().full.pop()?;
        // SAFETY: off the list it is the caller's.
        let n = unsafe { full.as_ref() }.n;
        self.n_records.fetch_add(n.into(), Ordering::Relaxed);
        Some(Full(full))
    }

    /// Gives a buffer back.
    pub(super) fn recycle(&self, full: Full) {
        // SAFETY: it was the caller's, and is in no list.
        unsafe { self.state.lock().free.push(full.0.as_ptr()) };
    }

    /// Unmaps the buffers that are free.
    pub(super) fn give_back(&self) {
        loop {
            let mut state = self.state.lock();
            let Some(buffer) = state.free.pop() else { return };
            state.n_mapped -= 1;
            drop(state);
            // SAFETY: it was mapped by `free_buffer`, and nobody uses it.
            unsafe { memory::unmap(buffer.cast(), BUFFER_BYTES) };
        }
    }

    /// Wakes the collector.
    pub(super) fn ring(&self) {
        // ORDERING: Release pairs with `rings`: the collector sees why it was woken.
        self.bell.fetch_add(1, Ordering::Release);
        Kernel.wake(&self.bell);
    }

    /// How often the collector was woken. Read before it looks for something to do.
    pub(super) fn rings(&self) -> u32 {
        // ORDERING: see `ring`.
        self.bell.load(Ordering::Acquire)
    }

    /// Sleeps until the collector is woken, if it was not since `rings`.
    pub(super) fn await_ring(&self, rings: u32, timeout: Duration) {
        Kernel.wait(&self.bell, rings, Some(timeout));
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        // As for a pen.
        let _rt = current::enter();
        self.close();
        self.state.lock().finish_shared();
        while let Some(full) = self.next_full() {
            self.recycle(full);
        }
        self.give_back();
    }
}

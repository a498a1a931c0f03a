//! Idle Ps: the stack that holds them and the bitmaps by which thieves skip them.
//!
//! # Invariants
//! - The stack is touched only under the scheduler lock; the count and the masks are readable
//!   without it.
//! - Idle Ps that are reserved for the latency class are on a stack of their own and are not in the
//!   count: other goroutines do not see them.
//! - A P on the stack has an empty run queue and its bit set in the idle mask.
//! - The bit of a P that has, or may soon have, timers is set in the timer mask.
//!
//! # Ordering
//! Masks and count change with SeqCst: a sleeper's "this P is idle" and a submitter's "no P is
//! idle" must not miss each other (see `spinning`).
//!
//! GO: proc.go pMask, pidleput, pidleget.

use crate::level_time::LevelTime;
use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// A bitmap over the Ps.
#[derive(Debug)]
#[doc(alias = "pMask")]
pub struct ProcMask {
    words: Box<[AtomicU64]>,
}

impl ProcMask {
    /// A mask for up to `capacity` Ps, all clear.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self { words: (0..capacity.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Whether the bit of `id` is set.
    #[inline]
    #[must_use]
    pub fn contains(&self, id: u32) -> bool {
        self.words[id as usize / 64].load(Ordering::SeqCst) & (1 << (id % 64)) != 0
    }

    /// Sets the bit of `id`.
    pub fn set(&self, id: u32) {
        self.words[id as usize / 64].fetch_or(1 << (id % 64), Ordering::SeqCst);
    }

    /// Clears the bit of `id`.
    pub fn clear(&self, id: u32) {
        self.words[id as usize / 64].fetch_and(!(1 << (id % 64)), Ordering::SeqCst);
    }

    /// How many bits are set.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.words.iter().map(|word| word.load(Ordering::SeqCst).count_ones()).sum()
    }
}

/// The idle Ps, last in first out: the most recent one has the warmest cache. Lives inside the
/// scheduler lock.
#[derive(Debug)]
pub struct IdleProcs {
    // It has room for all Ps from the start, because pushing must not allocate.
    stack: Vec<u32>,
    /// The idle Ps that are reserved for the latency class.
    reserved: Vec<u32>,
    clock: fn() -> u64,
    /// How long they have been idle.
    time: LevelTime,
    /// How often one was taken.
    n_taken: u64,
}

/// The data about the idle Ps that can be read without the lock.
#[derive(Debug)]
pub struct IdleView {
    count: AtomicU32,
    reserved: AtomicU32,
    /// Ps with a lower number are reserved for the latency class.
    n_reserved: u32,
    /// Ps on the idle stack.
    pub idle: ProcMask,
    /// Ps that have timers.
    pub timers: ProcMask,
}

impl IdleView {
    /// No P is idle, none has timers.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::with_reserved(capacity, 0)
    }

    /// As [`new`](Self::new), with the first `n_reserved` Ps reserved for the latency class.
    #[must_use]
    pub fn with_reserved(capacity: u32, n_reserved: u32) -> Self {
        Self {
            count: AtomicU32::new(0),
            reserved: AtomicU32::new(0),
            n_reserved,
            idle: ProcMask::new(capacity),
            timers: ProcMask::new(capacity),
        }
    }

    /// Whether a P is reserved for the latency class.
    #[inline]
    #[must_use]
    pub const fn is_reserved(&self, id: u32) -> bool {
        id < self.n_reserved
    }

    /// How many Ps are reserved for the latency class.
    #[must_use]
    pub const fn n_reserved(&self) -> u32 {
        self.n_reserved
    }

    /// How many of the reserved Ps are idle.
    #[inline]
    #[must_use]
    pub fn count_reserved(&self) -> u32 {
        self.reserved.load(Ordering::SeqCst)
    }

    /// How many Ps are idle, reserved ones included.
    #[must_use]
    pub fn count_all(&self) -> u32 {
        self.count() + self.count_reserved()
    }

    fn counter(&self, id: u32) -> &AtomicU32 {
        if self.is_reserved(id) { &self.reserved } else { &self.count }
    }

    /// How many Ps are idle, without the reserved ones.
    #[inline]
    #[must_use]
    #[doc(alias = "npidle")]
    pub fn count(&self) -> u32 {
        self.count.load(Ordering::SeqCst)
    }
}

impl IdleProcs {
    /// An empty stack with room for `capacity` Ps.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self::with_clock(capacity, || 0)
    }

    /// As [`new`](Self::new), with a clock by which idle time is measured.
    #[must_use]
    pub fn with_clock(capacity: u32, clock: fn() -> u64) -> Self {
        let stack = || Vec::with_capacity(capacity as usize);
        let time = LevelTime::new(0, clock());
        Self { stack: stack(), reserved: stack(), clock, time, n_taken: 0 }
    }

    /// How often a P was taken. If all Ps are idle at two checks and this has not changed, no
    /// goroutine did anything in between that needs a P.
    #[must_use]
    pub const fn n_taken(&self) -> u64 {
        self.n_taken
    }

    /// The idle time of all Ps together, until now.
    #[must_use]
    pub const fn rested_ns(&self, now_ns: u64) -> u64 {
        self.time.total_ns(now_ns)
    }

    /// Notes that the number of idle Ps has changed.
    fn has_changed(&mut self) {
        self.time.set((self.stack.len() + self.reserved.len()) as u32, (self.clock)());
    }

    /// Puts a P on the stack. `has_timers` says whether its timer bit must stay.
    #[doc(alias = "pidleput")]
    pub fn put(&mut self, view: &IdleView, id: u32, has_timers: bool) {
        if view.idle.contains(id) {
            crate::throw!("IdleProcs::put: P{id} is idle already");
        }
        if !has_timers {
            view.timers.clear(id);
        }
        view.idle.set(id);
        self.stack_of(view, id).push(id);
        self.has_changed();
        view.counter(id).fetch_add(1, Ordering::SeqCst);
    }

    fn stack_of(&mut self, view: &IdleView, id: u32) -> &mut Vec<u32> {
        if view.is_reserved(id) { &mut self.reserved } else { &mut self.stack }
    }

    /// Takes a reserved P.
    pub fn take_reserved(&mut self, view: &IdleView) -> Option<u32> {
        let id = self.reserved.pop()?;
        self.woken(view, id);
        Some(id)
    }

    /// Takes any P, a reserved one first.
    pub fn take_any(&mut self, view: &IdleView) -> Option<u32> {
        self.take_reserved(view).or_else(|| self.take(view))
    }

    /// Takes the most recent P that is not reserved.
    #[doc(alias = "pidleget")]
    pub fn take(&mut self, view: &IdleView) -> Option<u32> {
        let id = self.stack.pop()?;
        self.woken(view, id);
        Some(id)
    }

    /// Takes a given P off the stack, if it is there.
    pub fn take_this(&mut self, view: &IdleView, id: u32) -> bool {
        let stack = self.stack_of(view, id);
        let Some(at) = stack.iter().rposition(|&other| other == id) else {
            return false;
        };
        stack.remove(at);
        self.woken(view, id);
        true
    }

    /// The idle Ps, most recently put first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.stack.iter().rev().copied()
    }

    fn woken(&mut self, view: &IdleView, id: u32) {
        self.n_taken += 1;
        self.has_changed();
        // Timers may be added as soon as the P runs: thieves must check it from now on.
        view.timers.set(id);
        view.idle.clear(id);
        view.counter(id).fetch_sub(1, Ordering::SeqCst);
    }
}

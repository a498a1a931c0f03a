//! Idle Ps: the stack they rest on and the bitmaps by which thieves skip them.
//!
//! # Invariants
//! - The stack is touched only under the scheduler lock; the count and the masks are readable
//!   without it.
//! - A P on the stack has an empty run queue and its bit set in the idle mask.
//! - The bit of a P that has, or may soon have, timers is set in the timer mask.
//!
//! # Ordering
//! Masks and count change with SeqCst: a sleeper's "this P is idle" and a submitter's "no P is
//! idle" must not miss each other (see `spinning`).
//!
//! GO: proc.go pMask, pidleput, pidleget.

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

/// The idle Ps, last in first out: the one that rested least has the warmest cache. Lives inside
/// the scheduler lock.
#[derive(Debug)]
pub struct IdleProcs {
    // Reserved for all Ps at once: pushing must not allocate.
    stack: Vec<u32>,
}

/// What others may know about the idle Ps without the lock.
#[derive(Debug)]
pub struct IdleView {
    count: AtomicU32,
    /// Ps on the idle stack.
    pub idle: ProcMask,
    /// Ps that have timers.
    pub timers: ProcMask,
}

impl IdleView {
    /// No P is idle, none has timers.
    #[must_use]
    pub fn new(capacity: u32) -> Self {
        Self {
            count: AtomicU32::new(0),
            idle: ProcMask::new(capacity),
            timers: ProcMask::new(capacity),
        }
    }

    /// How many Ps are idle.
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
        Self { stack: Vec::with_capacity(capacity as usize) }
    }

    /// Puts a P to rest. `has_timers` says whether its timer bit must stay.
    #[doc(alias = "pidleput")]
    pub fn put(&mut self, view: &IdleView, id: u32, has_timers: bool) {
        if view.idle.contains(id) {
            crate::throw!("IdleProcs::put: P{id} is idle already");
        }
        if !has_timers {
            view.timers.clear(id);
        }
        view.idle.set(id);
        self.stack.push(id);
        view.count.fetch_add(1, Ordering::SeqCst);
    }

    /// Takes the P that rested least.
    #[doc(alias = "pidleget")]
    pub fn take(&mut self, view: &IdleView) -> Option<u32> {
        let id = self.stack.pop()?;
        Self::woken(view, id);
        Some(id)
    }

    /// Takes a given P off the stack, if it is there.
    pub fn take_this(&mut self, view: &IdleView, id: u32) -> bool {
        let Some(at) = self.stack.iter().rposition(|&other| other == id) else {
            return false;
        };
        self.stack.remove(at);
        Self::woken(view, id);
        true
    }

    /// The idle Ps, most recently put first.
    pub fn iter(&self) -> impl Iterator<Item = u32> + '_ {
        self.stack.iter().rev().copied()
    }

    fn woken(view: &IdleView, id: u32) {
        // Timers may be added as soon as the P runs: thieves must look from now on.
        view.timers.set(id);
        view.idle.clear(id);
        view.count.fetch_sub(1, Ordering::SeqCst);
    }
}

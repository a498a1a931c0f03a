//! The global run queue: a FIFO under the scheduler lock whose length anyone may read.
//!
//! It has four lanes. The goroutines of the latency class and the urgent ones are its front part:
//! they may not wait behind others, and an M that looks for work asks for them first, but not every
//! time. The other ways to take from the queue begin with the normal lane, so that it is not
//! starved. The idle lane is asked for by an M that found nothing else. It does not count as queued
//! work.
//!
//! # Invariants
//! - A goroutine that was frozen together with its thread is here, or it has been taken out to be
//!   given a P at once. It is never in the ring of a P, where its thread would not be found. The
//!   model `loom_frozen` runs the steps that give it a P.
//! - The lists are touched only by the holder of the scheduler lock; that is the `&mut` of
//!   [`GlobalQueue`].
//! - [`GlobalLen`] is stored before the lock is released. A reader without the lock may see an old
//!   value for a while: an M that goes to sleep reads it again under the lock.
//!
//! GO: proc.go globrunqput, globrunqget, globrunqgetbatch.

use crate::lane::LaneQueue;
use crate::list::{Linked, List};
use crate::policy;
use crate::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// The lengths of the global queue, readable without the lock.
#[derive(Debug)]
pub struct GlobalLen {
    all: AtomicU32,
    urgent: AtomicU32,
    latency: AtomicU32,
    idle: AtomicU32,
}

impl GlobalLen {
    /// The length of an empty queue.
    #[must_use]
    pub fn new() -> Self {
        let zero = || AtomicU32::new(0);
        Self { all: zero(), urgent: zero(), latency: zero(), idle: zero() }
    }

    /// The length at some recent moment.
    #[inline]
    #[must_use]
    pub fn get(&self) -> u32 {
        self.all.load(Ordering::Relaxed)
    }

    /// How many of them are in the front part.
    #[inline]
    #[must_use]
    pub fn urgent(&self) -> u32 {
        self.urgent.load(Ordering::Relaxed)
    }

    /// How many of them are of the latency class.
    #[inline]
    #[must_use]
    pub fn latency(&self) -> u32 {
        self.latency.load(Ordering::Relaxed)
    }

    /// How many goroutines are in the idle lane, which [`get`](Self::get) does not count.
    #[inline]
    #[must_use]
    pub fn idle(&self) -> u32 {
        self.idle.load(Ordering::Relaxed)
    }
}

impl Default for GlobalLen {
    fn default() -> Self {
        Self::new()
    }
}

/// Where a goroutine waits in the global queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lane {
    /// Those of the latency class.
    Latency,
    /// Those that may not wait behind others.
    Urgent,
    /// Most of them.
    Normal,
    /// Those that run only where a P would be idle.
    Idle,
}

/// The queue itself. Lives inside the scheduler lock.
#[derive(Debug)]
pub struct GlobalQueue<T: Linked> {
    latency: LaneQueue<T>,
    urgent: LaneQueue<T>,
    normal: LaneQueue<T>,
    idle: LaneQueue<T>,
}

impl<T: Linked> GlobalQueue<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            latency: LaneQueue::new(),
            urgent: LaneQueue::new(),
            normal: LaneQueue::new(),
            idle: LaneQueue::new(),
        }
    }

    /// The exact length, without the idle lane.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.latency.len() + self.urgent.len() + self.normal.len()
    }

    /// Whether it is empty, but for the idle lane.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether a goroutine waits in the idle lane.
    #[must_use]
    pub const fn has_idle(&self) -> bool {
        !self.idle.is_empty()
    }

    const fn lane(&mut self, lane: Lane) -> &mut LaneQueue<T> {
        match lane {
            Lane::Latency => &mut self.latency,
            Lane::Urgent => &mut self.urgent,
            Lane::Normal => &mut self.normal,
            Lane::Idle => &mut self.idle,
        }
    }

    /// Appends one goroutine to a lane.
    ///
    /// # Safety
    /// `gp` is valid, runnable and in no queue.
    #[doc(alias = "globrunqput")]
    pub unsafe fn push(&mut self, len: &GlobalLen, lane: Lane, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.lane(lane).push(gp) };
        self.publish(len);
    }

    /// Appends a goroutine that was frozen together with its thread.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub unsafe fn push_frozen(&mut self, len: &GlobalLen, lane: Lane, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.lane(lane).push_frozen(gp) };
        self.publish(len);
    }

    /// Appends a batch in order.
    #[doc(alias = "globrunqputbatch")]
    pub fn append(&mut self, len: &GlobalLen, lane: Lane, batch: &mut List<T>) {
        self.lane(lane).append(batch);
        self.publish(len);
    }

    /// Puts a batch in front of the normal lane, in order: the goroutines of a P that is removed.
    #[doc(alias = "globrunqputhead")]
    pub fn prepend(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.normal.prepend(batch);
        self.publish(len);
    }

    /// Puts frozen goroutines in front of the normal lane, in order; the first is next.
    pub fn prepend_frozen(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.normal.prepend_frozen(batch);
        self.publish(len);
    }

    /// Puts back a frozen goroutine of the normal lane that was just taken. At least one other has
    /// its turn first.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub unsafe fn put_back_frozen(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.normal.put_back_frozen(gp) };
        self.publish(len);
    }

    /// Takes one from the front part.
    pub fn pop_urgent(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.latency.pop().or_else(|| self.urgent.pop());
        self.publish(len);
        gp
    }

    /// Takes the next one of a lane.
    pub fn pop_lane(&mut self, len: &GlobalLen, lane: Lane) -> Option<NonNull<T>> {
        let gp = self.lane(lane).pop();
        self.publish(len);
        gp
    }

    /// Takes a frozen one out of turn: the caller needs its thread.
    pub fn pop_frozen(&mut self, len: &GlobalLen, lane: Lane) -> Option<NonNull<T>> {
        let gp = self.lane(lane).pop_frozen();
        self.publish(len);
        gp
    }

    /// Takes a frozen one of the normal lane if it is its turn.
    pub fn pop_frozen_in_turn(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        if !self.normal.is_turn_of_frozen() {
            return None;
        }
        self.pop_frozen(len, Lane::Normal)
    }

    /// Takes the first wanted goroutine that is not frozen and is not in the idle lane, out of
    /// turn. The whole queue may be searched for it.
    pub fn take_wanted(
        &mut self,
        len: &GlobalLen,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<NonNull<T>> {
        let lanes = [&mut self.latency, &mut self.urgent, &mut self.normal];
        let gp = lanes.into_iter().find_map(|lane| lane.take_wanted(&wanted));
        self.publish(len);
        gp
    }

    /// Whether a frozen goroutine is queued, in any lane.
    #[must_use]
    pub const fn has_frozen(&self) -> bool {
        self.latency.has_frozen() || self.normal.has_frozen() || self.idle.has_frozen()
    }

    /// Whether a goroutine is queued that is not a frozen one, in another lane than the idle one.
    #[must_use]
    pub const fn has_free(&self) -> bool {
        self.latency.has_free() || self.urgent.has_free() || self.normal.has_free()
    }

    /// Takes exactly one.
    #[doc(alias = "globrunqget")]
    pub fn pop(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.normal.pop().or_else(|| self.latency.pop()).or_else(|| self.urgent.pop());
        let counted = self.len();
        if gp.is_none() && counted > 0 {
            crate::throw!("GlobalQueue::pop: {counted} counted, none found");
        }
        self.publish(len);
        gp
    }

    /// Takes a P's fair share, in order. A frozen goroutine comes alone: it is given a P at once
    /// and never put into a ring.
    #[doc(alias = "globrunqgetbatch")]
    pub fn pop_batch(&mut self, len: &GlobalLen, procs: u32) -> List<T> {
        let n = policy::global_batch(self.len(), procs);
        let mut batch = List::new();
        for lane in [&mut self.normal, &mut self.latency, &mut self.urgent] {
            if batch.is_empty() && lane.is_turn_of_frozen() {
                push(&mut batch, lane.pop_frozen());
                break;
            }
            batch.append(&mut lane.split_free(n - batch.len()));
        }
        if n > 0 && batch.is_empty() {
            crate::throw!("GlobalQueue::pop_batch: {n} counted, none found");
        }
        self.publish(len);
        batch
    }

    fn publish(&self, len: &GlobalLen) {
        let n_latency = self.latency.len();
        let n_urgent = n_latency + self.urgent.len();
        len.all.store(n_urgent + self.normal.len(), Ordering::Relaxed);
        len.urgent.store(n_urgent, Ordering::Relaxed);
        len.latency.store(n_latency, Ordering::Relaxed);
        len.idle.store(self.idle.len(), Ordering::Relaxed);
    }
}

/// Appends one that was just taken out of a list.
fn push<T: Linked>(batch: &mut List<T>, taken: Option<NonNull<T>>) {
    if let Some(gp) = taken {
        // SAFETY: it was in a list, so it is valid, and it is in none now.
        unsafe { batch.push_back(gp) };
    }
}

impl<T: Linked> Default for GlobalQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

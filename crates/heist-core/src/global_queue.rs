//! The global run queue: a FIFO under the scheduler lock whose length anyone may read.
//!
//! It has a front part for goroutines that may not wait behind others: first those of the latency
//! class, then the urgent ones, each in the order in which they came. Whoever looks for work asks
//! for those first, but not every time; the other ways to take from the queue begin with those that
//! are not in the front part, so that they are not starved.
//!
//! # Invariants
//! - The list is touched only by who holds the scheduler lock; that is the `&mut` of [`GlobalQueue`].
//! - [`GlobalLen`] is stored before the lock is released. A reader without the lock may see it
//!   late, never for good: who goes to sleep reads it again under the lock.
//!
//! GO: proc.go globrunqput, globrunqget, globrunqgetbatch.

use crate::list::{Linked, List};
use crate::policy;
use crate::sync::{AtomicU32, Ordering};
use std::ptr::NonNull;

/// The length of the global queue, readable without the lock.
#[derive(Debug)]
pub struct GlobalLen {
    all: AtomicU32,
    urgent: AtomicU32,
    latency: AtomicU32,
}

impl GlobalLen {
    /// The length of an empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self { all: AtomicU32::new(0), urgent: AtomicU32::new(0), latency: AtomicU32::new(0) }
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
}

impl Default for GlobalLen {
    fn default() -> Self {
        Self::new()
    }
}

/// The queue itself. Lives inside the scheduler lock.
#[derive(Debug)]
pub struct GlobalQueue<T: Linked> {
    latency: List<T>,
    urgent: List<T>,
    list: List<T>,
}

impl<T: Linked> GlobalQueue<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self { latency: List::new(), urgent: List::new(), list: List::new() }
    }

    /// The exact length.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.latency.len() + self.urgent.len() + self.list.len()
    }

    /// Whether nothing waits here.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends one goroutine.
    ///
    /// # Safety
    /// `gp` is valid, runnable and in no queue.
    #[doc(alias = "globrunqput")]
    pub unsafe fn push_back(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.list.push_back(gp) };
        self.publish(len);
    }

    /// Appends a batch in order.
    #[doc(alias = "globrunqputbatch")]
    pub fn append(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.list.append(batch);
        self.publish(len);
    }

    /// Appends a batch to the urgent ones.
    pub fn append_urgent(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.urgent.append(batch);
        self.publish(len);
    }

    /// Appends one goroutine to those of the latency class.
    ///
    /// # Safety
    /// As for [`push_back`](Self::push_back).
    pub unsafe fn push_latency(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.latency.push_back(gp) };
        self.publish(len);
    }

    /// Takes one from the front part.
    pub fn pop_urgent(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.latency.pop_front().or_else(|| self.urgent.pop_front());
        self.publish(len);
        gp
    }

    /// Takes one of the latency class.
    pub fn pop_latency(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.latency.pop_front();
        self.publish(len);
        gp
    }

    /// Puts a batch in front of all that are not urgent, in order: the goroutines of a P that is taken away.
    #[doc(alias = "globrunqputhead")]
    pub fn prepend(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.list.prepend(batch);
        self.publish(len);
    }

    /// Takes exactly one.
    #[doc(alias = "globrunqget")]
    pub fn pop(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let lists = [&mut self.list, &mut self.latency, &mut self.urgent];
        let gp = lists.into_iter().find_map(List::pop_front);
        let counted = self.len();
        if gp.is_none() && counted > 0 {
            crate::throw!("GlobalQueue::pop: {counted} counted, none found");
        }
        self.publish(len);
        gp
    }

    /// Takes a P's fair share, in order.
    #[doc(alias = "globrunqgetbatch")]
    pub fn pop_batch(&mut self, len: &GlobalLen, procs: u32) -> List<T> {
        let n = policy::global_batch(self.len(), procs);
        let mut batch = self.list.split_front(n);
        batch.append(&mut self.latency.split_front(n - batch.len()));
        batch.append(&mut self.urgent.split_front(n - batch.len()));
        if batch.len() != n {
            crate::throw!("GlobalQueue::pop_batch: {n} counted, {} found", batch.len());
        }
        self.publish(len);
        batch
    }

    /// The goroutines in order, which stay.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.latency.iter().chain(self.urgent.iter()).chain(self.list.iter())
    }

    /// Takes out the first that `wanted` agrees to, among the first `limit`.
    pub fn take_first(
        &mut self,
        len: &GlobalLen,
        limit: u32,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<NonNull<T>> {
        let lists = [&mut self.latency, &mut self.urgent, &mut self.list];
        let gp = lists.into_iter().find_map(|list| list.take_first(limit, &wanted));
        self.publish(len);
        gp
    }

    fn publish(&self, len: &GlobalLen) {
        len.all.store(self.len(), Ordering::Relaxed);
        len.urgent.store(self.latency.len() + self.urgent.len(), Ordering::Relaxed);
        len.latency.store(self.latency.len(), Ordering::Relaxed);
    }
}

impl<T: Linked> Default for GlobalQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

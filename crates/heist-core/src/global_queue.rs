//! The global run queue: a FIFO under the scheduler lock whose length anyone may read.
//!
//! It has a front part for goroutines that may not wait behind others: first those of the latency
//! class, then the urgent ones, each in the order in which they were queued. An M that looks for
//! work asks for those first, but not every time. The other ways to take from the queue begin with
//! the goroutines that are not in the front part, so that they are not starved.
//!
//! Frozen goroutines, which were stopped together with their threads, are in their own lists, so
//! that an M that needs a thread finds one at once. (The names in this file call them stopped.)
//! They take turns with the others of their class: the first one waits for those that are queued
//! already, each later one for its share of them; in the latency class the two kinds alternate.
//!
//! # Invariants
//! - A stopped goroutine is here, or it has been taken out to be given a P at once. It is never in
//!   the ring of a P, where its thread would not be found. The model `loom_stopped` runs the steps
//!   that give it a P.
//! - The list is touched only by the holder of the scheduler lock; that is the `&mut` of
//!   [`GlobalQueue`].
//! - [`GlobalLen`] is stored before the lock is released. A reader without the lock may see an old
//!   value for a while: an M that goes to sleep reads it again under the lock.
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
    stopped: List<T>,
    stopped_latency: List<T>,
    /// How many of `list` go before the first of `stopped`.
    ahead: u32,
    /// Whether a stopped one of the latency class goes before one that is not.
    stopped_first: bool,
}

impl<T: Linked> GlobalQueue<T> {
    /// An empty queue.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            latency: List::new(),
            urgent: List::new(),
            list: List::new(),
            stopped: List::new(),
            stopped_latency: List::new(),
            ahead: 0,
            stopped_first: false,
        }
    }

    /// The exact length.
    #[must_use]
    pub const fn len(&self) -> u32 {
        self.n_latency() + self.urgent.len() + self.list.len() + self.stopped.len()
    }

    const fn n_latency(&self) -> u32 {
        self.latency.len() + self.stopped_latency.len()
    }

    /// Whether it is empty.
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
        let gp = self.take_latency().or_else(|| self.urgent.pop_front());
        self.publish(len);
        gp
    }

    /// Takes one of the latency class.
    pub fn pop_latency(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.take_latency();
        self.publish(len);
        gp
    }

    /// Puts a batch in front of all that are not urgent, in order: the goroutines of a P that is
    /// removed.
    #[doc(alias = "globrunqputhead")]
    pub fn prepend(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        self.list.prepend(batch);
        self.publish(len);
    }

    /// Appends a goroutine that was stopped together with its thread.
    ///
    /// # Safety
    /// As for [`push_back`](Self::push_back).
    pub unsafe fn push_stopped(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        if self.stopped.is_empty() {
            self.ahead = self.list.len();
        }
        // SAFETY: passed on.
        unsafe { self.stopped.push_back(gp) };
        self.publish(len);
    }

    /// Appends a goroutine of the latency class that was stopped together with its thread.
    ///
    /// # Safety
    /// As for [`push_back`](Self::push_back).
    pub unsafe fn push_stopped_latency(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.stopped_latency.push_back(gp) };
        self.publish(len);
    }

    /// Puts stopped goroutines in front of the other stopped ones, in order; the first is next.
    pub fn prepend_stopped(&mut self, len: &GlobalLen, batch: &mut List<T>) {
        if !batch.is_empty() {
            self.stopped.prepend(batch);
            self.ahead = 0;
        }
        self.publish(len);
    }

    /// Takes a stopped one that is not of the latency class, out of turn: the caller needs its
    /// thread.
    pub fn pop_stopped(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.take_stopped();
        self.publish(len);
        gp
    }

    /// Takes a stopped one if it is its turn.
    pub fn pop_stopped_in_turn(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        if !self.is_turn_of_stopped() {
            return None;
        }
        self.pop_stopped(len)
    }

    /// As [`pop_stopped`](Self::pop_stopped), for the latency class.
    pub fn pop_stopped_latency(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = self.stopped_latency.pop_front();
        self.publish(len);
        gp
    }

    /// Takes the first wanted goroutine that was not stopped, out of turn. The whole queue may be
    /// searched for it.
    pub fn take_wanted(
        &mut self,
        len: &GlobalLen,
        wanted: impl Fn(&T) -> bool,
    ) -> Option<NonNull<T>> {
        let lists = [&mut self.latency, &mut self.urgent, &mut self.list];
        let gp = lists.into_iter().find_map(|list| list.take_first(u32::MAX, &wanted));
        self.ahead = self.ahead.min(self.list.len());
        self.publish(len);
        gp
    }

    /// Whether a stopped goroutine is queued.
    #[must_use]
    pub const fn has_stopped(&self) -> bool {
        !self.stopped.is_empty() || !self.stopped_latency.is_empty()
    }

    /// Whether a goroutine is queued that is not a stopped one.
    #[must_use]
    pub const fn has_unstopped(&self) -> bool {
        !self.latency.is_empty() || !self.urgent.is_empty() || !self.list.is_empty()
    }

    /// Puts back a stopped goroutine that was just taken. The others have their turn first.
    ///
    /// # Safety
    /// As for [`push_back`](Self::push_back).
    pub unsafe fn put_back_stopped(&mut self, len: &GlobalLen, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.stopped.push_front(gp) };
        self.ahead = self.ahead.max(1);
        self.publish(len);
    }

    /// Takes exactly one.
    #[doc(alias = "globrunqget")]
    pub fn pop(&mut self, len: &GlobalLen) -> Option<NonNull<T>> {
        let gp = if self.is_turn_of_stopped() {
            self.take_stopped()
        } else {
            self.take_unstopped(1).pop_front()
        };
        let gp = gp.or_else(|| self.take_latency()).or_else(|| self.urgent.pop_front());
        let counted = self.len();
        if gp.is_none() && counted > 0 {
            crate::throw!("GlobalQueue::pop: {counted} counted, none found");
        }
        self.publish(len);
        gp
    }

    /// Takes a P's fair share, in order. A stopped goroutine comes alone: it is given a P at once
    /// and never put into a ring.
    #[doc(alias = "globrunqgetbatch")]
    pub fn pop_batch(&mut self, len: &GlobalLen, procs: u32) -> List<T> {
        let n = policy::global_batch(self.len(), procs);
        let mut batch = List::new();
        if self.is_turn_of_stopped() {
            push(&mut batch, self.take_stopped());
        } else {
            batch.append(&mut self.take_unstopped(n));
            batch.append(&mut self.latency.split_front(n - batch.len()));
            batch.append(&mut self.urgent.split_front(n - batch.len()));
            if batch.is_empty() {
                push(&mut batch, self.stopped_latency.pop_front());
            }
        }
        if n > 0 && batch.is_empty() {
            crate::throw!("GlobalQueue::pop_batch: {n} counted, none found");
        }
        self.publish(len);
        batch
    }

    fn is_turn_of_stopped(&self) -> bool {
        !self.stopped.is_empty() && (self.ahead == 0 || self.list.is_empty())
    }

    /// Takes up to `n` that are not stopped, but none that comes after one that is.
    fn take_unstopped(&mut self, n: u32) -> List<T> {
        if self.stopped.is_empty() {
            return self.list.split_front(n);
        }
        let batch = self.list.split_front(n.min(self.ahead));
        self.ahead -= batch.len();
        batch
    }

    /// Takes a stopped one; the next one waits for its share of the others.
    fn take_stopped(&mut self) -> Option<NonNull<T>> {
        let gp = self.stopped.pop_front()?;
        self.ahead = policy::ahead_of_stopped(self.list.len(), self.stopped.len());
        Some(gp)
    }

    fn take_latency(&mut self) -> Option<NonNull<T>> {
        self.stopped_first = !self.stopped_first;
        let (first, second) = match self.stopped_first {
            true => (&mut self.stopped_latency, &mut self.latency),
            false => (&mut self.latency, &mut self.stopped_latency),
        };
        first.pop_front().or_else(|| second.pop_front())
    }

    fn publish(&self, len: &GlobalLen) {
        len.all.store(self.len(), Ordering::Relaxed);
        len.urgent.store(self.n_latency() + self.urgent.len(), Ordering::Relaxed);
        len.latency.store(self.n_latency(), Ordering::Relaxed);
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

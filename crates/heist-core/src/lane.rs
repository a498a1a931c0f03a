//! One lane of the global queue.
//!
//! A goroutine in a lane is free, or it was frozen together with its thread and goes on there. The
//! frozen ones are in a list of their own, so that an M that needs a thread finds one at once.
//!
//! The two kinds take turns: the first frozen one waits for those that are queued already, each
//! later one for its share of them.

use crate::list::{Linked, List};
use crate::policy;
use std::ptr::NonNull;

/// A lane: goroutines that are equally urgent.
#[derive(Debug)]
pub(crate) struct LaneQueue<T: Linked> {
    free: List<T>,
    frozen: List<T>,
    /// How many of `free` go before the first of `frozen`.
    ahead: u32,
}

impl<T: Linked> LaneQueue<T> {
    pub(crate) const fn new() -> Self {
        Self { free: List::new(), frozen: List::new(), ahead: 0 }
    }

    pub(crate) const fn len(&self) -> u32 {
        self.free.len() + self.frozen.len()
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.len() == 0
    }

    pub(crate) const fn has_frozen(&self) -> bool {
        !self.frozen.is_empty()
    }

    pub(crate) const fn has_free(&self) -> bool {
        !self.free.is_empty()
    }

    /// # Safety
    /// `gp` is valid, runnable and in no queue.
    pub(crate) unsafe fn push(&mut self, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.free.push_back(gp) };
    }

    /// # Safety
    /// As for [`push`](Self::push).
    pub(crate) unsafe fn push_frozen(&mut self, gp: NonNull<T>) {
        if self.frozen.is_empty() {
            self.ahead = self.free.len();
        }
        // SAFETY: passed on.
        unsafe { self.frozen.push_back(gp) };
    }

    pub(crate) fn append(&mut self, batch: &mut List<T>) {
        self.free.append(batch);
    }

    /// Puts a batch in front of the free ones, in order.
    pub(crate) fn prepend(&mut self, batch: &mut List<T>) {
        self.free.prepend(batch);
    }

    /// Puts frozen goroutines in front of the others, in order; the first is next.
    pub(crate) fn prepend_frozen(&mut self, batch: &mut List<T>) {
        if !batch.is_empty() {
            self.frozen.prepend(batch);
            self.ahead = 0;
        }
    }

    /// Puts back a frozen goroutine that was just taken. At least one other has its turn first.
    ///
    /// # Safety
    /// As for [`push`](Self::push).
    pub(crate) unsafe fn put_back_frozen(&mut self, gp: NonNull<T>) {
        // SAFETY: passed on.
        unsafe { self.frozen.push_front(gp) };
        self.ahead = self.ahead.max(1);
    }

    /// Whether the next one is a frozen one.
    pub(crate) const fn is_turn_of_frozen(&self) -> bool {
        !self.frozen.is_empty() && (self.ahead == 0 || self.free.is_empty())
    }

    /// Takes the next one.
    pub(crate) fn pop(&mut self) -> Option<NonNull<T>> {
        if self.is_turn_of_frozen() { self.pop_frozen() } else { self.split_free(1).pop_front() }
    }

    /// Takes up to `n` free ones, but none that comes after a frozen one.
    pub(crate) fn split_free(&mut self, n: u32) -> List<T> {
        if self.frozen.is_empty() {
            return self.free.split_front(n);
        }
        let batch = self.free.split_front(n.min(self.ahead));
        self.ahead -= batch.len();
        batch
    }

    /// Takes a frozen one, out of turn; the next one waits for its share of the free ones.
    pub(crate) fn pop_frozen(&mut self) -> Option<NonNull<T>> {
        let gp = self.frozen.pop_front()?;
        self.ahead = policy::ahead_of_frozen(self.free.len(), self.frozen.len());
        Some(gp)
    }

    /// Takes the first free one that is wanted, out of turn.
    pub(crate) fn take_wanted(&mut self, wanted: impl Fn(&T) -> bool) -> Option<NonNull<T>> {
        let gp = self.free.take_first(u32::MAX, wanted);
        self.ahead = self.ahead.min(self.free.len());
        gp
    }
}

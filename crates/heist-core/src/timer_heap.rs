//! The timers of a P: a heap of entries by time, four children to a node.
//!
//! An entry is a time and a small value that says whom to wake. Nothing points into the heap, so
//! an entry whose wait is over is not looked up and removed: it stays as a stale one until it comes
//! to the top or the heap is cleaned. Cleaning is due when the heap has twice the length it had
//! after the last cleaning, so it costs every insertion a constant, and at most half of a large
//! heap is stale.
//!
//! # Invariants
//! - No entry is earlier than its parent.
//! - After every change `earliest` is the time of the top, so a wake-up by it is never late. It may
//!   be early: the top may be stale.
//!
//! GO: time.go timers.siftUp, siftDown, cleanHead, adjust.

/// Children of a node. Four make the heap half as deep as two, and lie in one or two cache lines.
const ARITY: usize = 4;

/// Heaps shorter than this are not cleaned.
const CLEAN_MIN: usize = 64;

/// A timer: when, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The moment it is due.
    pub when: u64,
    /// What is due then.
    pub what: T,
}

/// Where the entries lie. The scheduler may not use the allocator, so it brings its own.
pub trait Store<E: Copy> {
    /// The entries.
    fn entries(&self) -> &[E];
    /// The entries, to be changed.
    fn entries_mut(&mut self) -> &mut [E];
    /// Appends an entry; false if there is no memory.
    #[must_use]
    fn push(&mut self, entry: E) -> bool;
    /// Keeps the first `len`.
    fn truncate(&mut self, len: usize);
}

impl<E: Copy> Store<E> for Vec<E> {
    fn entries(&self) -> &[E] {
        self
    }

    fn entries_mut(&mut self) -> &mut [E] {
        self
    }

    fn push(&mut self, entry: E) -> bool {
        Self::push(self, entry);
        true
    }

    fn truncate(&mut self, len: usize) {
        Self::truncate(self, len);
    }
}

/// The time of an empty heap's top: never.
pub const NEVER: u64 = u64::MAX;

/// A heap of timers.
#[derive(Debug)]
pub struct TimerHeap<T, S> {
    store: S,
    /// The length after the last cleaning.
    clean_len: usize,
    _what: std::marker::PhantomData<T>,
}

impl<T: Copy, S: Store<Entry<T>>> TimerHeap<T, S> {
    /// An empty heap.
    pub const fn new(store: S) -> Self {
        Self { store, clean_len: 0, _what: std::marker::PhantomData }
    }

    /// Entries, stale ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.store.entries().len()
    }

    /// Whether there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// When the top is due, or [`NEVER`].
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> u64 {
        self.store.entries().first().map_or(NEVER, |top| top.when)
    }

    /// Whether enough was added since the last cleaning to make one worth it.
    #[must_use]
    pub fn wants_cleaning(&self) -> bool {
        self.len() >= CLEAN_MIN && self.len() >= 2 * self.clean_len
    }

    /// Adds an entry; false if there is no memory for it.
    #[must_use]
    pub fn push(&mut self, entry: Entry<T>) -> bool {
        if !self.store.push(entry) {
            return false;
        }
        let last = self.len() - 1;
        sift_up(self.store.entries_mut(), last);
        true
    }

    /// Takes the top if it is due at `now`.
    pub fn pop_due(&mut self, now: u64) -> Option<T> {
        let top = *self.store.entries().first()?;
        if top.when > now {
            return None;
        }
        self.pop_top();
        Some(top.what)
    }

    /// Drops entries from the top that are stale, and answers when the first other one is due.
    pub fn earliest_live(&mut self, is_stale: impl Fn(&T) -> bool) -> u64 {
        while let Some(top) = self.store.entries().first() {
            if !is_stale(&top.what) {
                return top.when;
            }
            self.pop_top();
        }
        NEVER
    }

    /// Drops all stale entries.
    pub fn clean(&mut self, is_stale: impl Fn(&T) -> bool) {
        let entries = self.store.entries_mut();
        let mut kept = 0;
        for i in 0..entries.len() {
            if !is_stale(&entries[i].what) {
                entries[kept] = entries[i];
                kept += 1;
            }
        }
        self.store.truncate(kept);
        self.restore();
        self.clean_len = kept;
    }

    /// Takes all entries of `other` over, or as many as there is memory for. True if it is all.
    #[must_use]
    pub fn append(&mut self, other: &mut Self) -> bool {
        while let Some(&entry) = other.store.entries().last() {
            if !self.push(entry) {
                return false;
            }
            let len = other.len() - 1;
            other.store.truncate(len);
        }
        other.clean_len = 0;
        true
    }

    fn pop_top(&mut self) {
        let entries = self.store.entries_mut();
        let last = entries.len() - 1;
        entries.swap(0, last);
        self.store.truncate(last);
        if last > 1 {
            sift_down(self.store.entries_mut(), 0);
        }
    }

    /// Makes a heap of entries in any order.
    fn restore(&mut self) {
        let entries = self.store.entries_mut();
        if entries.len() < 2 {
            return;
        }
        let last_parent = (entries.len() - 2) / ARITY;
        for at in (0..=last_parent).rev() {
            sift_down(entries, at);
        }
    }
}

fn sift_up<T: Copy>(entries: &mut [Entry<T>], mut at: usize) {
    let entry = entries[at];
    while at > 0 {
        let parent = (at - 1) / ARITY;
        if entries[parent].when <= entry.when {
            break;
        }
        entries[at] = entries[parent];
        at = parent;
    }
    entries[at] = entry;
}

fn sift_down<T: Copy>(entries: &mut [Entry<T>], mut at: usize) {
    let entry = entries[at];
    loop {
        let first = at * ARITY + 1;
        let end = (first + ARITY).min(entries.len());
        let Some(least) = (first..end).min_by_key(|&child| entries[child].when) else { break };
        if entries[least].when >= entry.when {
            break;
        }
        entries[at] = entries[least];
        at = least;
    }
    entries[at] = entry;
}

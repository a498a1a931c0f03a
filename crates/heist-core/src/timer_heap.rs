//! The timers of a P: a heap of entries by time, four children to a node.
//!
//! An entry is a time and a small value that names the goroutine to wake. Nothing points into the
//! heap, so an entry whose wait is over is not looked up and removed: it stays as a stale one until
//! it comes to the top or the heap is cleaned. Cleaning is due when the heap is twice as long as
//! after the last cleaning, so it adds a constant cost to every insertion, and at most half of a
//! large heap is stale.
//!
//! # Layout
//! Most of a large heap is not in the cache, so the cost is the number of lines that are waited
//! for, one after the other. With entries of 16 bytes the four children of a node are one line:
//!
//! ```text
//!   line 0   -  -  -  0        0 is the top
//!   line 1   1  2  3  4        the children of 0
//!   line 2   5  6  7  8        the children of 1
//! ```
//!
//! So the children of the entry at place `p` (counted from the first dash) are line `p - 2`. A
//! descent prefetches the four lines of the grandchildren before it knows which of them it needs,
//! and takes the earliest of four without a branch that could be mispredicted. Places without an
//! entry hold [`NEVER`], which is never the earliest.
//!
//! # Invariants
//! - No entry is earlier than its parent.
//! - After every change `earliest` is the time of the top, so a wake-up by it is never late. It may
//!   be early: the top may be stale.
//!
//! GO: time.go timers.siftUp, siftDown, cleanHead, adjust.

/// Children of a node. Four make the heap half as deep as two.
const ARITY: usize = 4;

/// The place of the top.
const TOP: usize = ARITY - 1;

/// Heaps shorter than this are not cleaned.
const CLEAN_MIN: usize = 64;

/// The time of an empty heap's top: never.
pub const NEVER: u64 = u64::MAX;

/// A timer: its time and its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry<T> {
    /// The moment it is due, which is not [`NEVER`].
    pub when: u64,
    /// The value that names the goroutine to wake.
    pub what: T,
}

/// The children of one node.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
pub struct Siblings<T>([Entry<T>; ARITY]);

impl<T: Copy> Siblings<T> {
    /// An empty place with the value of this entry.
    const fn without(entry: Entry<T>) -> Self {
        Self([Entry { when: NEVER, what: entry.what }; ARITY])
    }

    /// The earliest of them, and its index. Compiled to conditional moves.
    #[inline]
    fn earliest(&self) -> (usize, Entry<T>) {
        let [a, b, c, d] = self.0.each_ref().map(|entry| entry.when);
        let (left, left_when) = if b < a { (1, b) } else { (0, a) };
        let (right, right_when) = if d < c { (3, d) } else { (2, c) };
        let which = if right_when < left_when { right } else { left };
        (which, self.0[which])
    }
}

/// The storage of the entries. The scheduler may not use the allocator, so it brings its own.
pub trait Store<L: Copy> {
    /// The lines.
    fn lines(&self) -> &[L];
    /// The lines, to be changed.
    fn lines_mut(&mut self) -> &mut [L];
    /// Appends a line; false if there is no memory.
    #[must_use]
    fn push(&mut self, line: L) -> bool;
    /// Keeps the first `len`.
    fn truncate(&mut self, len: usize);
    /// A hint that a line is about to be used. There may be no such line.
    fn fetch(_line: *const L) {}
}

impl<L: Copy> Store<L> for Vec<L> {
    fn lines(&self) -> &[L] {
        self
    }

    fn lines_mut(&mut self) -> &mut [L] {
        self
    }

    fn push(&mut self, line: L) -> bool {
        Self::push(self, line);
        true
    }

    fn truncate(&mut self, len: usize) {
        Self::truncate(self, len);
    }
}

/// A heap of timers.
#[derive(Debug)]
pub struct TimerHeap<T, S> {
    store: S,
    len: usize,
    /// The length after the last cleaning.
    clean_len: usize,
    _what: std::marker::PhantomData<T>,
}

impl<T: Copy, S: Store<Siblings<T>>> TimerHeap<T, S> {
    /// An empty heap.
    pub const fn new(store: S) -> Self {
        Self { store, len: 0, clean_len: 0, _what: std::marker::PhantomData }
    }

    /// Entries, stale ones included.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether there is none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// When the top is due, or [`NEVER`].
    #[inline]
    #[must_use]
    pub fn earliest(&self) -> u64 {
        self.store.lines().first().map_or(NEVER, |line| line.0[TOP].when)
    }

    /// Whether enough was added since the last cleaning to make another one worthwhile.
    #[must_use]
    pub const fn wants_cleaning(&self) -> bool {
        self.len >= CLEAN_MIN && self.len >= 2 * self.clean_len
    }

    /// Adds an entry; false if there is no memory for it.
    #[must_use]
    pub fn push(&mut self, entry: Entry<T>) -> bool {
        debug_assert_ne!(entry.when, NEVER, "a timer that is never due");
        let place = TOP + self.len;
        if place / ARITY == self.store.lines().len() && !self.store.push(Siblings::without(entry)) {
            return false;
        }
        self.len += 1;
        sift_up(self.store.lines_mut(), place, entry);
        true
    }

    /// Takes the top if it is due at `now`.
    pub fn pop_due(&mut self, now: u64) -> Option<Entry<T>> {
        let top = self.top().filter(|top| top.when <= now)?;
        self.pop_top();
        Some(top)
    }

    /// Drops stale entries from the top, and returns when the first other one is due.
    pub fn earliest_live(&mut self, is_stale: impl Fn(&Entry<T>) -> bool) -> u64 {
        while let Some(top) = self.top() {
            if !is_stale(&top) {
                return top.when;
            }
            self.pop_top();
        }
        NEVER
    }

    /// Drops all stale entries.
    pub fn clean(&mut self, is_stale: impl Fn(&Entry<T>) -> bool) {
        let lines = self.store.lines_mut();
        let end = TOP + self.len;
        let mut kept = TOP;
        for place in TOP..end {
            let entry = at(lines, place);
            if !is_stale(&entry) {
                put(lines, kept, entry);
                kept += 1;
            }
        }
        for place in kept..end {
            clear(lines, place);
        }
        self.shorten(kept - TOP);
        self.restore();
        self.clean_len = self.len;
    }

    /// Takes over all entries of `other`, or as many as there is memory for. True if it took all.
    #[must_use]
    pub fn append(&mut self, other: &mut Self) -> bool {
        while other.len != 0 {
            let last = TOP + other.len - 1;
            if !self.push(at(other.store.lines(), last)) {
                return false;
            }
            clear(other.store.lines_mut(), last);
            other.shorten(other.len - 1);
        }
        other.clean_len = 0;
        true
    }

    #[inline]
    fn top(&self) -> Option<Entry<T>> {
        let line = self.store.lines().first()?;
        (self.len != 0).then(|| line.0[TOP])
    }

    fn pop_top(&mut self) {
        let last = TOP + self.len - 1;
        let lines = self.store.lines_mut();
        let entry = at(lines, last);
        clear(lines, last);
        if last == TOP {
            self.len = 0;
        } else {
            sift_down::<T, S>(lines, TOP, entry);
            self.shorten(self.len - 1);
        }
    }

    /// Removes and clears the entries behind the first `len`. The first line stays: most heaps
    /// become empty from time to time.
    fn shorten(&mut self, len: usize) {
        self.len = len;
        let lines = (TOP + len).div_ceil(ARITY);
        if lines < self.store.lines().len() {
            self.store.truncate(lines);
        }
    }

    /// Makes a heap of entries in any order.
    fn restore(&mut self) {
        let lines = self.store.lines_mut();
        // The node whose children are the last line.
        let last_parent = lines.len() + TOP - 1;
        for place in (TOP..last_parent).rev() {
            let entry = at(lines, place);
            sift_down::<T, S>(lines, place, entry);
        }
    }
}

#[inline]
fn at<T: Copy>(lines: &[Siblings<T>], place: usize) -> Entry<T> {
    lines[place / ARITY].0[place % ARITY]
}

#[inline]
fn put<T>(lines: &mut [Siblings<T>], place: usize, entry: Entry<T>) {
    lines[place / ARITY].0[place % ARITY] = entry;
}

fn clear<T>(lines: &mut [Siblings<T>], place: usize) {
    lines[place / ARITY].0[place % ARITY].when = NEVER;
}

/// Puts an entry at `place`, or above.
fn sift_up<T: Copy>(lines: &mut [Siblings<T>], mut place: usize, entry: Entry<T>) {
    while place > TOP {
        let parent = place / ARITY + TOP - 1;
        let above = at(lines, parent);
        if above.when <= entry.when {
            break;
        }
        put(lines, place, above);
        place = parent;
    }
    put(lines, place, entry);
}

/// Puts an entry at `place`, or below.
fn sift_down<T: Copy, S: Store<Siblings<T>>>(
    lines: &mut [Siblings<T>],
    mut place: usize,
    entry: Entry<T>,
) {
    loop {
        let children = place - TOP + 1;
        let Some(line) = lines.get(children) else { break };
        for child in 0..ARITY {
            // The line of the child's own children.
            S::fetch(lines.as_ptr().wrapping_add(ARITY * children + child - TOP + 1));
        }
        let (which, earliest) = line.earliest();
        if earliest.when >= entry.when {
            break;
        }
        put(lines, place, earliest);
        place = ARITY * children + which;
    }
    put(lines, place, entry);
}

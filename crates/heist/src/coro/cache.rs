//! The stacks that a P caches.

use super::stack::{Class, Slot, Stack};
use super::stack_pool::{self, find};
use crate::sys::memory;
use std::ptr::NonNull;

/// The maximum number of stacks that one refill of a cache takes from the pool or carves. Their
/// guards take one system call, and their first pages another. The number begins small and doubles,
/// so that a small program pays for few.
const REFILL_MAX: u32 = 32;
const CARVE_FIRST: u32 = 4;
/// The maximum number of stacks that a P keeps.
const CACHE_MAX: usize = 64;
const _: () = assert!(REFILL_MAX as usize <= memory::RANGES_MAX);

/// The stacks of the default class that a P caches.
pub(crate) struct StackCache {
    slots: [Option<NonNull<Slot>>; CACHE_MAX],
    len: usize,
    class: Class,
    /// How many to carve next time.
    carve: u32,
}

impl StackCache {
    pub(crate) const fn new(class: Class) -> Self {
        Self { slots: [None; CACHE_MAX], len: 0, class, carve: CARVE_FIRST }
    }

    /// A stack of this class: the one used last, or a new one.
    #[inline]
    pub(crate) fn take(&mut self, class: Class) -> std::io::Result<Stack> {
        if class != self.class {
            return stack_pool::take(class);
        }
        if self.len == 0 {
            self.refill()?;
        }
        self.len -= 1;
        match self.slots[self.len].take() {
            Some(slot) => Ok(Stack::of(slot)),
            None => heist_core::throw!("StackCache::take: {} counted, none found", self.len + 1),
        }
    }

    /// Keeps a stack for the next goroutine. True if this stack, or others that made room for it,
    /// were moved to the pool.
    #[inline]
    pub(crate) fn give(&mut self, stack: Stack) -> bool {
        if stack.class() != self.class {
            stack_pool::give(stack);
            return true;
        }
        let full = self.len == CACHE_MAX;
        if full {
            self.spill(CACHE_MAX / 2);
        }
        self.keep(stack.into_slot());
        full
    }

    #[cold]
    fn refill(&mut self) -> std::io::Result<()> {
        let (found, fresh) = find(self.class, REFILL_MAX, self.carve)?;
        let ready = if found.is_empty() {
            self.carve = (2 * self.carve).min(REFILL_MAX);
            fresh.guard_all(self.class)?
        } else {
            found
        };
        for slot in ready {
            self.keep(slot);
        }
        Ok(())
    }

    #[inline]
    fn keep(&mut self, slot: NonNull<Slot>) {
        self.slots[self.len] = Some(slot);
        self.len += 1;
    }

    /// Returns all but `keep` stacks to the pool, the coldest first.
    #[cold]
    pub(crate) fn spill(&mut self, keep: usize) {
        let surplus = self.len.saturating_sub(keep);
        if surplus == 0 {
            return; // User code drops a P that was never used, and must not lock.
        }
        let mut pool = self.class.pool().lock();
        for place in &mut self.slots[..surplus] {
            if let Some(slot) = place.take() {
                // SAFETY: owned by the cache until now, so valid and in no list.
                unsafe { pool.warm.push_front(slot) };
            }
        }
        drop(pool);
        self.slots[..self.len].rotate_left(surplus);
        self.len -= surplus;
    }
}

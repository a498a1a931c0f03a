//! The slabs that stacks are carved from, found by address.
//!
//! Slabs are never unmapped, and the list of them only grows, so any thread can ask at any time, a
//! signal handler too. An address that is in a stack can be read, whatever the stack is used for.
//!
//! # Ordering
//! A slab is linked in with Release after it is written; walkers load with Acquire.

use super::guard::GUARD_BYTES;
use super::stack::Class;
use crate::sys::registers::racy_word;
use heist_core::sync::{AtomicPtr, Ordering};
use std::ops::Range;
use std::ptr::{NonNull, null_mut};

/// A mapping with stacks of one class.
pub(super) struct Slab {
    next: *const Slab,
    addresses: Range<usize>,
    stride: usize,
}

/// All slabs, the newest first.
static SLABS: AtomicPtr<Slab> = AtomicPtr::new(null_mut());

impl Slab {
    /// Adds the slab of `n` stacks from `low` on. Its record is written to `place`.
    ///
    /// # Safety
    /// The place is valid for writes, aligned, and never unmapped, nor are the stacks.
    pub(super) unsafe fn add(place: NonNull<Self>, low: usize, class: Class, n: usize) {
        let stride = class.stride();
        let mut next = SLABS.load(Ordering::Relaxed);
        loop {
            // SAFETY: by the caller's promise; no other thread knows the place yet.
            unsafe { place.write(Self { next, addresses: low..low + n * stride, stride }) };
            let linked =
                SLABS.compare_exchange(next, place.as_ptr(), Ordering::Release, Ordering::Relaxed);
            match linked {
                Ok(_) => return,
                Err(newer) => next = newer,
            }
        }
    }

    fn iter() -> impl Iterator<Item = &'static Self> {
        // SAFETY: records are never unmapped.
        let first = unsafe { SLABS.load(Ordering::Acquire).as_ref() };
        // SAFETY: as above.
        std::iter::successors(first, |slab| unsafe { slab.next.as_ref() })
    }
}

/// The part of a stack that its user can touch, if an address is in it.
pub(crate) fn stack_around(address: usize) -> Option<Range<usize>> {
    let slab = Slab::iter().find(|slab| slab.addresses.contains(&address))?;
    let (start, stride) = (slab.addresses.start, slab.stride);
    let low = start + (address - start) / stride * stride;
    let usable = low + GUARD_BYTES..low + stride;
    usable.contains(&address).then_some(usable)
}

/// Calls `look` with the addresses of each slab.
pub(crate) fn for_each(mut look: impl FnMut(Range<usize>)) {
    Slab::iter().for_each(|slab| look(slab.addresses.clone()));
}

/// Reads words of stacks, remembering the stack it read last.
pub(crate) struct Reader {
    last: Range<usize>,
}

impl Reader {
    pub(crate) const fn new() -> Self {
        Self { last: 0..0 }
    }

    /// The word at an address, if it is in a stack.
    pub(crate) fn word(&mut self, address: usize) -> Option<usize> {
        if !address.is_multiple_of(size_of::<usize>()) {
            return None;
        }
        if !self.last.contains(&address) {
            self.last = stack_around(address)?;
        }
        // SAFETY: aligned, and in a stack above its guard; stacks are never unmapped.
        Some(unsafe { racy_word(address) })
    }
}

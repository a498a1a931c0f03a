//! A stack: its record, its bounds, and its size class.
//!
//! ```text
//!  low                                                             top
//!   | guard | .................. unused, not resident ............... | used |
//!                                                              grows <------
//! ```
//!
//! Stacks come in size classes: powers of two, besides the guard. `stack_pool` makes them and keeps
//! those that no goroutine uses.

use super::guard::GUARD_BYTES;
use crate::gmp::fork::Deque;
use crate::sys::memory::page_bytes;
use corosensei::stack::{Stack as CoroStack, StackPointer};
use heist_core::list::{Link, Linked};
use heist_core::sync::{AtomicPtr, AtomicUsize};
use std::num::NonZeroUsize;
use std::ops::Range;
use std::ptr::NonNull;

/// The smallest stack: a panic that prints a backtrace fits.
pub(crate) const MIN_BYTES: usize = 32 << 10;
/// The largest stack.
pub(crate) const MAX_BYTES: usize = 1 << 30;
/// The default: address space, of which a page or two is used.
pub(crate) const DEFAULT_BYTES: usize = 256 << 10;

const MIN_SHIFT: u32 = MIN_BYTES.trailing_zeros();
pub(super) const N_CLASSES: usize = (MAX_BYTES.trailing_zeros() - MIN_SHIFT + 1) as usize;

/// The record of a stack. It is kept apart from the stack's memory, so that reading the record of a
/// free stack touches none of its pages.
pub(crate) struct Slot {
    link: Link<Slot>,
    pub(super) low: usize,
    pub(super) class: Class,
}

impl Slot {
    /// The record of a stack from `low` on, which begins with its guard.
    pub(super) const fn new(low: usize, class: Class) -> Self {
        Self { link: Link::new(), low, class }
    }
}

// SAFETY: only the pools use `link`.
unsafe impl Linked for Slot {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

// SAFETY: a slot has one owner at a time: a pool, a cache or a goroutine.
unsafe impl Send for Slot {}

/// A stack that a goroutine owns: the address of its top, and its class in the low bits, which are
/// zero in the address of a page.
///
/// A switch needs the top. If it were in the slot, a goroutine that continues after a long wait
/// would cause one more cache miss. The pointer to the slot is in the highest word of the stack.
pub(crate) struct Stack(NonZeroUsize);

const TAG_MASK: usize = 0xfff;
const _: () = assert!(N_CLASSES <= TAG_MASK);

/// The highest words of a stack: the data about its goroutine while that does not run.
#[repr(C)]
pub(super) struct Head {
    /// The slot of the stack.
    slot: NonNull<Slot>,
    /// The thread pointer of the thread that ran it last; see `coro::relocation`.
    pub(super) thread: AtomicUsize,
    /// What the goroutine waits for, if it waits: the argument of its commit function.
    pub(super) waits_on: AtomicUsize,
    /// The deque of a goroutine that has forked, or null.
    pub(super) deque: AtomicPtr<Deque>,
}

const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES.is_multiple_of(16));

impl Head {
    /// How large the stack is.
    pub(super) const fn stack_bytes(&self) -> usize {
        // SAFETY: slots are never unmapped.
        unsafe { self.slot.as_ref() }.class.stride()
    }
}

impl Stack {
    /// The stack of a slot that the caller owns. It touches the first page.
    #[inline]
    pub(super) fn of(slot: NonNull<Slot>) -> Self {
        // SAFETY: slots are never unmapped.
        let &Slot { low, class, .. } = unsafe { slot.as_ref() };
        let top = low + class.stride();
        let tag = usize::from(class.0);
        let head = (top - HEAD_BYTES) as *mut Head;
        // SAFETY: it is the top of a stack that is not in use; a mapped address is not zero.
        unsafe {
            (&raw mut (*head).slot).write(slot);
            Self(NonZeroUsize::new_unchecked(top | tag))
        }
    }

    /// Its slot.
    #[inline]
    pub(super) fn into_slot(self) -> NonNull<Slot> {
        // SAFETY: written by `of`; the goroutine's frames lie below it.
        unsafe { (*self.head()).slot }
    }

    /// Its highest words.
    #[inline]
    pub(super) const fn head(&self) -> *const Head {
        (self.top() - HEAD_BYTES) as *const Head
    }

    #[inline]
    const fn top(&self) -> usize {
        self.0.get() & !TAG_MASK
    }

    /// Its size class.
    #[inline]
    pub(crate) const fn class(&self) -> Class {
        Class((self.0.get() & TAG_MASK) as u8)
    }

    /// Whether code has used the last quarter of the stack since the last call. It samples a few
    /// words for anything written there, so it may miss a use, rarely. For the owner of a stack on
    /// which no goroutine runs.
    #[cold]
    pub(crate) fn take_mark(&self) -> bool {
        /// Several words at different distances, because frames leave some words unwritten.
        const MARKS: usize = 16;
        const MARK_STRIDE: usize = 5;
        let bounds = self.bounds();
        let first = (bounds.guard().end + bounds.usable_bytes() / 4) as *mut u64;
        let marks = (0..MARKS).map(|i| first.wrapping_add(i * MARK_STRIDE));
        // SAFETY: inside the stack, which is aligned, mapped, zero at first, and not in use. A
        // volatile read, because the words were written by code that the compiler does not see.
        let found = marks.clone().fold(0, |found, mark| found | unsafe { mark.read_volatile() });
        if found != 0 {
            // SAFETY: as above.
            marks.for_each(|mark| unsafe { mark.write_volatile(0) });
        }
        found != 0
    }

    /// Its addresses.
    pub(crate) const fn bounds(&self) -> Bounds {
        let top = self.top();
        Bounds { low: top - self.class().stride(), top }
    }
}

/// The addresses of a stack, its guard included.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    low: usize,
    top: usize,
}

impl Bounds {
    /// The bounds of the stack in use whose highest address is `top`.
    ///
    /// # Safety
    /// It is a stack of this runtime.
    pub(super) unsafe fn of_top(top: usize) -> Self {
        // SAFETY: see `Stack::into_slot`; slots are never unmapped.
        let slot = unsafe { ((top - HEAD_BYTES) as *const NonNull<Slot>).read().as_ref() };
        Self { low: slot.low, top }
    }

    /// The guard.
    pub(crate) const fn guard(&self) -> Range<usize> {
        self.low..self.low + GUARD_BYTES
    }

    /// Whether an address is in the stack or its guard.
    pub(crate) const fn contains(&self, address: usize) -> bool {
        self.low <= address && address < self.top
    }

    /// How many bytes there are besides the guard.
    pub(crate) const fn usable_bytes(&self) -> usize {
        self.top - self.low - GUARD_BYTES
    }
}

// SAFETY: the memory between `limit` and `base` belongs to this stack, has at least 32 KiB less the
// head, and a guard at its low end.
unsafe impl CoroStack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        // SAFETY: a mapped address is not zero.
        unsafe { StackPointer::new_unchecked(self.top() - HEAD_BYTES) }
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        // SAFETY: a mapped address is not zero.
        unsafe { StackPointer::new_unchecked(self.bounds().low) }
    }
}

/// A size class: all its stacks have 2^(shift) bytes, and a guard besides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class whose stacks have at least `bytes`, or None if that is too much.
    pub(crate) fn for_bytes(bytes: usize) -> Option<Self> {
        // Whole pages, which may be larger than the smallest stack.
        let bytes = bytes.max(MIN_BYTES).max(page_bytes()).checked_next_power_of_two()?;
        (bytes <= MAX_BYTES).then(|| Self((bytes.trailing_zeros() - MIN_SHIFT) as u8))
    }

    /// The class that is `steps` sizes larger, or the largest.
    #[inline]
    pub(crate) const fn larger(self, steps: u32) -> Self {
        let (wanted, most) = (self.0 + steps as u8, N_CLASSES as u8 - 1);
        Self(if wanted < most { wanted } else { most })
    }

    /// How many sizes larger it is than another.
    pub(crate) const fn steps_above(self, other: Self) -> u32 {
        self.0.saturating_sub(other.0) as u32
    }

    /// The size of its stacks.
    pub(crate) const fn bytes(self) -> usize {
        MIN_BYTES << self.0
    }

    /// The bytes of its slab that each stack takes.
    pub(super) const fn stride(self) -> usize {
        self.bytes() + GUARD_BYTES
    }

    /// The number of the class, below [`N_CLASSES`].
    pub(super) const fn number(self) -> usize {
        self.0 as usize
    }
}

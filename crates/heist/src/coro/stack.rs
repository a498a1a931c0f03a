//! Stacks: carved from slabs, guarded, cached, given back.
//!
//! ```text
//!  low                                                             top
//!   | guard page | reserve | ............ unused, not resident ..... | used |
//!                                                              grows <------
//! ```
//!
//! The reserve is guarded too. When a goroutine reaches it, it is opened, so that the goroutine's
//! destructors, or a foreign function it is in the middle of, have room to finish.
//!
//! Stacks come in size classes (powers of two). A class carves its stacks from large mappings, so
//! that a million of them are a handful of kernel objects. A P keeps a few of the default class,
//! last in first out, because the stack used last is the one in the cache; the rest wait in the
//! class's pool, from which the helper thread returns the memory of those that nobody has needed
//! for a while.

use super::guard::{self, GUARD_BYTES, Guarded};
use crate::gmp::G;
use crate::sys::lock::Lock;
use crate::sys::memory::{self, Ranges};
use corosensei::stack::{Stack as CoroStack, StackPointer};
use heist_core::list::{Link, Linked, List};
use heist_core::lock_rank::Rank;
use heist_core::policy;
use heist_core::sync::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::cell::Cell;
use std::num::NonZeroUsize;
use std::ptr::NonNull;

/// The smallest stack: unwinding a panic needs about 12 KiB, besides the guard.
pub(crate) const MIN_BYTES: usize = ((16 << 10) + 4 * GUARD_BYTES).next_power_of_two();
/// The largest stack.
pub(crate) const MAX_BYTES: usize = 1 << 30;
/// What a goroutine gets unless told otherwise: address space, of which a page or two is used.
pub(crate) const DEFAULT_BYTES: usize = 256 << 10;

/// The largest reserve.
const RESERVE_MAX_BYTES: usize = 64 << 10;
const MIN_SHIFT: u32 = MIN_BYTES.trailing_zeros();
const N_CLASSES: usize = (MAX_BYTES.trailing_zeros() - MIN_SHIFT + 1) as usize;
/// Bytes mapped at once for stacks of a class: a part of what it has already, at least and at most
/// this. To map some keeps everybody else out of the kernel's map of the process, so a program with
/// many stacks should not do it for every few hundred of them.
const SLAB_PART: usize = 32;
const SLAB_MIN_BYTES: usize = 64 << 20;
const SLAB_MAX_BYTES: usize = 1 << 30;
/// Stacks that one refill of a cache takes from the pool, or carves at the most: their guards are
/// one system call, and their first pages another. It begins with few and doubles, so that a small
/// program pays for few.
const REFILL_MAX: u32 = 32;
const CARVE_FIRST: u32 = 4;
/// Stacks a P keeps.
const CACHE_MAX: usize = 64;
const _: () = assert!(REFILL_MAX as usize <= memory::RANGES_MAX);

/// What is known of a stack besides its memory. Lives apart from it, so that looking at a free
/// stack touches none of its pages.
pub(crate) struct Slot {
    link: Link<Slot>,
    low: usize,
    class: Class,
    /// It has no guard page but a canary.
    canary: Cell<bool>,
}

// SAFETY: `link` is used by the pools alone.
unsafe impl Linked for Slot {
    fn link(&self) -> &Link<Self> {
        &self.link
    }
}

// SAFETY: a slot has one owner at a time: a pool, a cache or a goroutine.
unsafe impl Send for Slot {}

/// A stack that a goroutine owns: the address of its top, and in the bits that the address of a page
/// leaves free its class and whether it has a canary.
///
/// A switch needs to know the top. Were it in the slot, a goroutine that comes back after a long wait
/// would miss the cache once more. The way back to the slot is in the highest word of the stack.
pub(crate) struct Stack(NonZeroUsize);

const CANARY_BIT: usize = 1;
const CLASS_SHIFT: u32 = 1;
const TAG_MASK: usize = 0xfff;
const _: () = assert!(N_CLASSES << CLASS_SHIFT <= TAG_MASK);

/// What the highest words of a stack hold: what is known of the goroutine on it while it does not run.
#[repr(C)]
pub(super) struct Head {
    /// The way back.
    slot: NonNull<Slot>,
    /// The goroutine that started on it last.
    pub(super) owner: AtomicPtr<G>,
    /// The thread pointer of the thread that ran it last; see `coro::relocation`.
    pub(super) thread: AtomicUsize,
    /// As much as keeps the rest of the stack aligned.
    _unused: usize,
}

const HEAD_BYTES: usize = size_of::<Head>();
const _: () = assert!(HEAD_BYTES.is_multiple_of(16));

impl Head {
    /// How large the stack is.
    pub(super) const fn stack_bytes(&self) -> usize {
        // SAFETY: slots are never unmapped.
        unsafe { self.slot.as_ref() }.class.bytes()
    }
}

impl Stack {
    /// The stack of a slot that the caller owns. It touches the first page.
    #[inline]
    fn of(slot: NonNull<Slot>) -> Self {
        // SAFETY: slots are never unmapped.
        let &Slot { low, class, ref canary, .. } = unsafe { slot.as_ref() };
        let top = low + class.bytes();
        let tag = usize::from(class.0) << CLASS_SHIFT | usize::from(canary.get());
        let head = (top - HEAD_BYTES) as *mut Head;
        // SAFETY: the top of a stack that is in use by nobody; a mapped address is not zero.
        unsafe {
            (&raw mut (*head).slot).write(slot);
            Self(NonZeroUsize::new_unchecked(top | tag))
        }
    }

    /// Its slot.
    #[inline]
    fn into_slot(self) -> NonNull<Slot> {
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
        Class(((self.0.get() & TAG_MASK) >> CLASS_SHIFT) as u8)
    }

    /// Whether it has a canary instead of a guard page.
    #[inline]
    pub(crate) const fn has_canary(&self) -> bool {
        self.0.get() & CANARY_BIT != 0
    }

    /// Guards the reserve again after a goroutine has used it, or looks at the canary.
    #[cold]
    pub(crate) fn clean_up(&self, top: usize) {
        if self.has_canary() {
            self.class().check_canary(top);
        } else {
            self.class().guarded(top).close_below(usize::MAX);
        }
    }
}

// SAFETY: the memory between `limit` and `base` belongs to this stack, has at least 32 KiB less the
// head, and either a guard page at its low end or a canary that is checked at every switch.
unsafe impl CoroStack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        // SAFETY: a mapped address is not zero.
        unsafe { StackPointer::new_unchecked(self.top() - HEAD_BYTES) }
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        // SAFETY: a mapped address is not zero.
        unsafe { StackPointer::new_unchecked(self.top() - self.class().bytes()) }
    }
}

/// A size class: all its stacks have 2^(shift) bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Class(u8);

impl Class {
    /// The class whose stacks have at least `bytes`, or None if that is too much.
    pub(crate) fn for_bytes(bytes: usize) -> Option<Self> {
        let bytes = bytes.max(MIN_BYTES).checked_next_power_of_two()?;
        (bytes <= MAX_BYTES).then(|| Self((bytes.trailing_zeros() - MIN_SHIFT) as u8))
    }

    /// The size of its stacks.
    pub(crate) const fn bytes(self) -> usize {
        MIN_BYTES << self.0
    }

    /// How much of that is kept back for the end.
    pub(crate) const fn reserve_bytes(self) -> usize {
        let share = self.bytes() / 8;
        let share = if share < RESERVE_MAX_BYTES { share } else { RESERVE_MAX_BYTES };
        // Whole pages, and at least two of the smallest.
        if share < 2 * GUARD_BYTES { 2 * GUARD_BYTES } else { share }
    }

    /// The guarded part of the stack whose highest address is `top`.
    pub(crate) const fn guarded(self, top: usize) -> Guarded {
        Guarded::new(top - self.bytes(), self.reserve_bytes())
    }

    /// Throws if somebody wrote over the end of a stack with a canary, whose highest address is
    /// `top`.
    #[cold]
    pub(crate) fn check_canary(self, top: usize) {
        // SAFETY: by the caller's word.
        if !unsafe { guard::canary_lives(top - self.bytes()) } {
            heist_core::throw!("check_canary: a stack of {} bytes overflowed", self.bytes());
        }
    }

    fn pool(self) -> &'static Lock<Pool> {
        &POOLS[self.0 as usize]
    }
}

/// Bytes of address space mapped for stacks.
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// The free stacks of a class.
struct Pool {
    /// Used before: their memory is resident.
    warm: List<Slot>,
    /// Their memory was given back.
    cold: List<Slot>,
    /// The fewest warm stacks since the helper last looked: so many were not needed.
    idle_warm: u32,
    /// Bytes of its slabs.
    mapped: usize,
    /// What is left of the newest slab.
    carve_low: usize,
    carve_slot: usize,
    carve_left: u32,
}

static POOLS: [Lock<Pool>; N_CLASSES] = [const {
    Lock::new(
        Rank::Stacks,
        Pool {
            warm: List::new(),
            cold: List::new(),
            idle_warm: 0,
            mapped: 0,
            carve_low: 0,
            carve_slot: 0,
            carve_left: 0,
        },
    )
}; N_CLASSES];

impl Pool {
    fn take(&mut self) -> Option<NonNull<Slot>> {
        let slot = self.warm.pop_front().or_else(|| self.cold.pop_front());
        self.idle_warm = self.idle_warm.min(self.warm.len());
        slot
    }

    fn map_slab(&mut self, class: Class, bytes: usize) -> std::io::Result<()> {
        let n = (bytes / class.bytes()).max(1);
        let slots = memory::map(n * size_of::<Slot>())?;
        let low = memory::map_stacks(n * class.bytes()).inspect_err(|_| {
            // SAFETY: just mapped, not used.
            unsafe { memory::unmap(slots, n * size_of::<Slot>()) };
        })?;
        MAPPED_BYTES.fetch_add((n * class.bytes()) as u64, Ordering::Relaxed);
        self.mapped += n * class.bytes();
        self.carve_low = low.as_ptr() as usize;
        self.carve_slot = slots.as_ptr() as usize;
        self.carve_left = n as u32;
        Ok(())
    }

    /// Sets up to `want` never used stacks aside. Their guards are not in place yet.
    fn carve(&mut self, class: Class, want: u32) -> std::io::Result<List<Slot>> {
        if self.carve_left == 0 {
            let bytes = (self.mapped / SLAB_PART).clamp(SLAB_MIN_BYTES, SLAB_MAX_BYTES);
            // Address space may be limited.
            self.map_slab(class, bytes).or_else(|_| self.map_slab(class, SLAB_MIN_BYTES))?;
        }
        let mut carved = List::new();
        for _ in 0..want.min(self.carve_left) {
            let slot = self.carve_slot as *mut Slot;
            // SAFETY: inside the mapping of the slots, aligned, and never used before.
            unsafe {
                slot.write(Slot {
                    link: Link::new(),
                    low: self.carve_low,
                    class,
                    canary: Cell::new(false),
                });
                carved.push_back(NonNull::new_unchecked(slot));
            }
            self.carve_slot += size_of::<Slot>();
            self.carve_low += class.bytes();
            self.carve_left -= 1;
        }
        Ok(carved)
    }
}

/// Takes one stack of `class`.
pub(crate) fn take(class: Class) -> std::io::Result<Stack> {
    let mut carved = {
        let mut pool = class.pool().lock();
        if let Some(slot) = pool.take() {
            return Ok(Stack::of(slot));
        }
        pool.carve(class, 1)?
    };
    let Some(slot) = carved.pop_front() else {
        heist_core::throw!("stack::take: a slab without stacks");
    };
    protect(slot);
    Ok(Stack::of(slot))
}

/// Gives one stack back to its pool.
pub(crate) fn give(stack: Stack) {
    let mut pool = stack.class().pool().lock();
    // SAFETY: the slot is valid for ever and, being owned by `stack`, in no list.
    unsafe { pool.warm.push_front(stack.into_slot()) };
}

/// Puts the guards of new stacks in place, which were carved one after the other, and makes the
/// first page of each resident.
fn prepare_all(carved: List<Slot>) -> List<Slot> {
    let Some(first) = carved.front() else { return carved };
    let n = carved.len() as usize;
    // SAFETY: slots are never unmapped.
    let &Slot { low, class, .. } = unsafe { first.as_ref() };
    let stride = class.bytes();
    let len = GUARD_BYTES + class.reserve_bytes();
    // SAFETY: the stacks are new and in use by nobody.
    let guarded = unsafe { guard::install_all(Ranges { base: guard::at(low), len, stride, n }) };
    let top_page = guard::at(low + stride - GUARD_BYTES);
    memory::populate_all(Ranges { base: top_page, len: GUARD_BYTES, stride, n });
    let mut done = List::new();
    for (i, slot) in carved.enumerate() {
        if i >= guarded {
            protect(slot);
        }
        // SAFETY: just taken out of the list of new stacks.
        unsafe { done.push_back(slot) };
    }
    done
}

/// Puts the guard of a new stack in place.
fn protect(slot: NonNull<Slot>) {
    // SAFETY: slots are never unmapped.
    let slot = unsafe { slot.as_ref() };
    let len = GUARD_BYTES + slot.class.reserve_bytes();
    // SAFETY: the stack is new and in use by nobody.
    let guarded = unsafe { guard::install(guard::at(slot.low), len) };
    slot.canary.set(!guarded);
}

/// The stacks of the default class that a P keeps at hand.
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

    /// The class it caches.
    pub(crate) const fn class(&self) -> Class {
        self.class
    }

    /// The stack used last, or a new one.
    #[inline]
    pub(crate) fn take(&mut self) -> std::io::Result<Stack> {
        if self.len == 0 {
            self.refill()?;
        }
        self.len -= 1;
        match self.slots[self.len].take() {
            Some(slot) => Ok(Stack::of(slot)),
            None => heist_core::throw!("StackCache::take: {} counted, none found", self.len + 1),
        }
    }

    /// Keeps a stack for the next goroutine. True if others had to go to the pool for it.
    #[inline]
    pub(crate) fn give(&mut self, stack: Stack) -> bool {
        let full = self.len == CACHE_MAX;
        if full {
            self.spill(CACHE_MAX / 2);
        }
        self.keep(stack.into_slot());
        full
    }

    #[cold]
    fn refill(&mut self) -> std::io::Result<()> {
        let mut found = List::new();
        let mut carved = List::new();
        {
            let mut pool = self.class.pool().lock();
            while found.len() < REFILL_MAX {
                let Some(slot) = pool.take() else { break };
                // SAFETY: just taken out of the pool, so valid and in no list.
                unsafe { found.push_back(slot) };
            }
            if found.is_empty() {
                carved = pool.carve(self.class, self.carve)?;
                self.carve = (2 * self.carve).min(REFILL_MAX);
            }
        }
        // Guards take system calls: not under the lock.
        for slot in prepare_all(carved) {
            self.keep(slot);
        }
        for slot in found {
            self.keep(slot);
        }
        Ok(())
    }

    #[inline]
    fn keep(&mut self, slot: NonNull<Slot>) {
        self.slots[self.len] = Some(slot);
        self.len += 1;
    }

    /// Gives all but `keep` stacks back to the pool, the coldest first.
    #[cold]
    pub(crate) fn spill(&mut self, keep: usize) {
        let surplus = self.len.saturating_sub(keep);
        if surplus == 0 {
            return; // A P that was never used is dropped by user code, which must not lock.
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

/// Returns the memory of stacks that nobody needed since the last call. Says how many bytes of
/// address space that was, and whether warm stacks are left to look at later.
pub(crate) fn scavenge() -> (u64, bool) {
    let mut returned = 0;
    let mut warm_left = false;
    for pool in &POOLS {
        let mut idle = {
            let mut pool = pool.lock();
            let n = policy::stacks_to_give_back(pool.idle_warm);
            let idle = pool.warm.split_front(n);
            pool.idle_warm = pool.warm.len();
            warm_left |= !pool.warm.is_empty();
            idle
        };
        let usable = idle.iter().map(|slot| {
            let guarded = GUARD_BYTES + slot.class.reserve_bytes();
            returned += slot.class.bytes() as u64;
            // SAFETY: a mapped address is not zero.
            let low = unsafe { NonNull::new_unchecked((slot.low + guarded) as *mut u8) };
            (low, slot.class.bytes() - guarded)
        });
        // SAFETY: a free stack's memory is in use by nobody.
        unsafe { memory::discard_all(usable) };
        pool.lock().cold.append(&mut idle);
    }
    (returned, warm_left)
}

/// What the process has in stacks, for metrics.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Usage {
    pub(crate) mapped_bytes: u64,
    pub(crate) warm: u64,
    pub(crate) cold: u64,
}

/// Counts the stacks of the process.
pub(crate) fn usage() -> Usage {
    let (mut warm, mut cold) = (0, 0);
    for pool in &POOLS {
        let pool = pool.lock();
        warm += u64::from(pool.warm.len());
        cold += u64::from(pool.cold.len());
    }
    Usage { mapped_bytes: MAPPED_BYTES.load(Ordering::Relaxed), warm, cold }
}

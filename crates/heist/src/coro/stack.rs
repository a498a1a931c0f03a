//! Stacks: carved from slabs, guarded, cached, returned.
//!
//! ```text
//!  low                                                             top
//!   | guard | .................. unused, not resident ............... | used |
//!                                                              grows <------
//! ```
//!
//! Stacks come in size classes (powers of two, besides the guard). A class carves its stacks from
//! large mappings, so that a million of them are a handful of kernel objects. A P keeps a few of
//! the default class, last in, first out, because the stack used last is still in the CPU cache.
//! The rest are in the class's pool, from which the helper thread returns the memory of those that
//! were not needed for a while.

use super::guard::{self, GUARD_BYTES};
use crate::sys::limits;
use crate::sys::lock::Lock;
use crate::sys::memory::{self, Ranges, page_bytes};
use corosensei::stack::{Stack as CoroStack, StackPointer};
use heist_core::list::{Link, Linked, List};
use heist_core::lock_rank::Rank;
use heist_core::policy;
use heist_core::sync::{AtomicU64, AtomicUsize, Ordering};
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
const N_CLASSES: usize = (MAX_BYTES.trailing_zeros() - MIN_SHIFT + 1) as usize;
/// Bytes mapped at once for stacks of a class: one part in this many of what the class has already,
/// within the two limits below. Mapping locks the kernel's map of the process against all other
/// threads, so a program with many stacks should not do it for every few hundred of them.
const SLAB_PART: usize = 32;
const SLAB_MIN_BYTES: usize = 64 << 20;
const SLAB_MAX_BYTES: usize = 1 << 30;

/// The record of a stack. It is kept apart from the stack's memory, so that reading the record of a
/// free stack touches none of its pages.
pub(crate) struct Slot {
    link: Link<Slot>,
    low: usize,
    class: Class,
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
    const fn stride(self) -> usize {
        self.bytes() + GUARD_BYTES
    }

    pub(super) fn pool(self) -> &'static Lock<Pool> {
        &POOLS[self.0 as usize]
    }
}

/// Bytes of address space mapped for stacks.
static MAPPED_BYTES: AtomicU64 = AtomicU64::new(0);

/// The free stacks of a class.
pub(super) struct Pool {
    /// Stacks that were used before: their memory is resident.
    pub(super) warm: List<Slot>,
    /// Stacks whose memory was returned to the system.
    cold: List<Slot>,
    /// Stacks that were never used, because they could not be guarded.
    unguarded: List<Slot>,
    /// The smallest number of warm stacks since the helper last checked: that many were not needed.
    idle_warm: u32,
    /// Bytes of its slabs.
    mapped: usize,
    /// The rest of the newest slab.
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
            unguarded: List::new(),
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
        let n = (bytes / class.stride()).max(1);
        let slots = memory::map(n * size_of::<Slot>())?;
        let low = memory::map_stacks(n * class.stride()).inspect_err(|_| {
            // SAFETY: just mapped, not used.
            unsafe { memory::unmap(slots, n * size_of::<Slot>()) };
        })?;
        MAPPED_BYTES.fetch_add((n * class.stride()) as u64, Ordering::Relaxed);
        self.mapped += n * class.stride();
        self.carve_low = low.as_ptr() as usize;
        self.carve_slot = slots.as_ptr() as usize;
        self.carve_left = n as u32;
        Ok(())
    }

    /// Maps a slab of `bytes`, or a smaller one, because memory may be limited.
    fn map_affordable(&mut self, class: Class, bytes: usize) -> std::io::Result<()> {
        let mut bytes = limits::affordable(bytes, class.stride())?;
        loop {
            match self.map_slab(class, bytes) {
                Err(_) if bytes > class.stride() => bytes /= 2,
                mapped => return mapped,
            }
        }
    }

    /// Carves up to `want` new stacks. Their guards are not in place yet.
    fn carve(&mut self, class: Class, want: u32) -> std::io::Result<List<Slot>> {
        if self.carve_left == 0 {
            let bytes = (self.mapped / SLAB_PART).clamp(SLAB_MIN_BYTES, SLAB_MAX_BYTES);
            self.map_affordable(class, bytes)?;
        }
        let mut carved = List::new();
        for _ in 0..want.min(self.carve_left) {
            let slot = self.carve_slot as *mut Slot;
            // SAFETY: inside the mapping of the slots, aligned, and never used before.
            unsafe {
                slot.write(Slot { link: Link::new(), low: self.carve_low, class });
                carved.push_back(NonNull::new_unchecked(slot));
            }
            self.carve_slot += size_of::<Slot>();
            self.carve_low += class.stride();
            self.carve_left -= 1;
        }
        Ok(carved)
    }
}

/// Takes one stack of `class`.
pub(crate) fn take(class: Class) -> std::io::Result<Stack> {
    let (found, fresh) = find(class, 1, 1)?;
    let mut ready = if found.is_empty() { fresh.guard_all(class)? } else { found };
    match ready.pop_front() {
        Some(slot) => Ok(Stack::of(slot)),
        None => heist_core::throw!("stack::take: none ready"),
    }
}

/// A reserved stack, on which a goroutine ends that can get no other one.
static LAST: Lock<Option<Stack>> = Lock::new(Rank::Stacks, None);

/// Makes sure that there is a last stack. Called before any goroutine runs.
pub(crate) fn reserve_last(class: Class) -> std::io::Result<()> {
    let missing = LAST.lock().is_none();
    if missing {
        // Two runtimes may start at once, or a goroutine may be using the last one.
        let stack = take(class)?;
        give_last(stack);
        // Another one, for a goroutine.
        give(take(class)?);
    }
    Ok(())
}

/// The last stack, unless it is in use.
pub(crate) fn take_last() -> Option<Stack> {
    LAST.lock().take()
}

/// Returns the last stack.
pub(crate) fn give_last(stack: Stack) {
    let other = LAST.lock().replace(stack);
    if let Some(other) = other {
        give(other);
    }
}

/// Returns one stack to its pool.
pub(crate) fn give(stack: Stack) {
    let mut pool = stack.class().pool().lock();
    // SAFETY: the slot is valid forever and, being owned by `stack`, in no list.
    unsafe { pool.warm.push_front(stack.into_slot()) };
}

/// Up to `want` stacks that were used before or, if there are none, up to `carve` new ones.
pub(super) fn find(class: Class, want: u32, carve: u32) -> std::io::Result<(List<Slot>, Fresh)> {
    let mut found = List::new();
    let mut pool = class.pool().lock();
    while found.len() < want {
        let Some(slot) = pool.take() else { break };
        // SAFETY: just taken out of the pool, so valid and in no list.
        unsafe { found.push_back(slot) };
    }
    let fresh = if !found.is_empty() {
        Fresh::Scattered(List::new())
    } else if pool.unguarded.is_empty() {
        Fresh::InARow(pool.carve(class, carve)?)
    } else {
        Fresh::Scattered(pool.unguarded.split_front(1))
    };
    Ok((found, fresh))
}

/// Stacks without guards.
pub(super) enum Fresh {
    /// New stacks, consecutive in memory.
    InARow(List<Slot>),
    Scattered(List<Slot>),
}

impl Fresh {
    /// Installs their guards. Stacks for which that is refused return to their pool; an error, if
    /// it is refused for all. It makes system calls, so it is not called under the pool's lock.
    pub(super) fn guard_all(self, class: Class) -> std::io::Result<List<Slot>> {
        let (slots, done) = match self {
            Self::InARow(slots) => prepare_row(slots),
            Self::Scattered(slots) => (slots, 0),
        };
        let (mut ready, mut refused) = (List::new(), List::new());
        for (i, slot) in slots.enumerate() {
            // SAFETY: slots are never unmapped; the stack is new and not in use.
            let guarded = i < done
                || refused.is_empty() && unsafe { guard::install(guard::at(slot.as_ref().low)) };
            let list = if guarded { &mut ready } else { &mut refused };
            // SAFETY: just taken out of the list of new stacks.
            unsafe { list.push_back(slot) };
        }
        if !refused.is_empty() {
            class.pool().lock().unguarded.append(&mut refused);
        }
        if ready.is_empty() { Err(std::io::ErrorKind::OutOfMemory.into()) } else { Ok(ready) }
    }
}

/// Guards new stacks that are consecutive in memory with one system call, if that is possible, and
/// makes the first page of each resident. Returns how many are guarded.
fn prepare_row(row: List<Slot>) -> (List<Slot>, usize) {
    let Some(first) = row.front() else { return (row, 0) };
    let n = row.len() as usize;
    // SAFETY: slots are never unmapped.
    let &Slot { low, class, .. } = unsafe { first.as_ref() };
    let stride = class.stride();
    let guards = Ranges { base: guard::at(low), len: GUARD_BYTES, stride, n };
    // SAFETY: the stacks are new and not in use.
    let guarded = unsafe { guard::install_all(guards) };
    let top_page = guard::at(low + stride - page_bytes());
    memory::populate_all(Ranges { base: top_page, len: page_bytes(), stride, n });
    (row, guarded)
}

/// Returns the memory of stacks that were not needed since the last call to the system. The result
/// is how many bytes of address space that was, and whether warm stacks are left to check later.
pub(crate) fn scavenge() -> (u64, bool) {
    let mut returned = 0;
    let mut warm_left = false;
    for pool in &POOLS {
        let mut idle = {
            let mut pool = pool.lock();
            let n = policy::stacks_to_release(pool.idle_warm);
            let idle = pool.warm.split_front(n);
            pool.idle_warm = pool.warm.len();
            warm_left |= !pool.warm.is_empty();
            idle
        };
        let usable = idle.iter().map(|slot| {
            returned += slot.class.bytes() as u64;
            (guard::at(slot.low + GUARD_BYTES), slot.class.bytes())
        });
        // SAFETY: a free stack's memory is not in use.
        unsafe { memory::discard_all(usable) };
        pool.lock().cold.append(&mut idle);
    }
    (returned, warm_left)
}

/// The numbers of stacks of the process, for metrics.
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

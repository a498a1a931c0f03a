//! The stacks that no goroutine uses: carved from slabs, guarded, cached, returned.
//!
//! A class of stacks carves them from large mappings, so that a million of them are a handful of
//! kernel objects. A P keeps a few of the default class, last in, first out, because the stack used
//! last is still in the CPU cache (`cache`). The rest are in the pool of the class, from which the
//! helper thread returns the memory of those that were not needed for a while.

use super::guard::{self, GUARD_BYTES};
use super::slabs::Slab;
use super::stack::{Class, N_CLASSES, Slot, Stack};
use crate::sys::limits;
use crate::sys::lock::Lock;
use crate::sys::memory::{self, Ranges, page_bytes};
use heist_core::list::List;
use heist_core::lock_rank::Rank;
use heist_core::policy;
use heist_core::sync::{AtomicU64, Ordering};
use std::ptr::NonNull;

/// Bytes mapped at once for stacks of a class: one part in this many of what the class has already,
/// within the two limits below. Mapping locks the kernel's map of the process against all other
/// threads, so a program with many stacks should not do it for every few hundred of them.
const SLAB_PART: usize = 32;
const SLAB_MIN_BYTES: usize = 64 << 20;
const SLAB_MAX_BYTES: usize = 1 << 30;

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

impl Class {
    /// Its free stacks.
    pub(super) fn pool(self) -> &'static Lock<Pool> {
        &POOLS[self.number()]
    }
}

impl Pool {
    fn take(&mut self) -> Option<NonNull<Slot>> {
        let slot = self.warm.pop_front().or_else(|| self.cold.pop_front());
        self.idle_warm = self.idle_warm.min(self.warm.len());
        slot
    }

    fn map_slab(&mut self, class: Class, bytes: usize) -> std::io::Result<()> {
        let n = (bytes / class.stride()).max(1);
        let bytes = size_of::<Slab>() + n * size_of::<Slot>();
        let records = memory::map(bytes)?;
        let low = memory::map_stacks(n * class.stride()).inspect_err(|_| {
            // SAFETY: just mapped, not used.
            unsafe { memory::unmap(records, bytes) };
        })?;
        // SAFETY: the beginning of a mapping, which is kept from now on, as are the stacks.
        unsafe { Slab::add(records.cast(), low.as_ptr() as usize, class, n) };
        MAPPED_BYTES.fetch_add((n * class.stride()) as u64, Ordering::Relaxed);
        self.mapped += n * class.stride();
        self.carve_low = low.as_ptr() as usize;
        self.carve_slot = records.as_ptr() as usize + size_of::<Slab>();
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
                slot.write(Slot::new(self.carve_low, class));
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
        None => heist_core::throw!("stack_pool::take: none ready"),
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

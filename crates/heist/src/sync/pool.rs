//! Values for reuse, kept near the processor that used them last.
//!
//! No operation waits: a lock is tried, and if it is held, the caller tries the next shelf. So a
//! goroutine that is preempted while it holds a lock delays no other.
//!
//! # Ordering
//! A private slot is claimed with Acquire and given back with Release: the caller that takes a
//! value sees everything that was done to it before it was put there.
//!
//! GO: sync/pool.go.

use super::{Mutex, OnceLock};
use crate::current;
use crossbeam_utils::CachePadded;
use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::fmt;
use std::mem::MaybeUninit;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering};

/// A pool of values that are expensive to make and can be reused: buffers, encoders, connections.
///
/// Each processor has its own shelf, with a private place for one value. A value comes, in this
/// order, from
///
/// 1. the private place of the processor,
/// 2. its shelf, the youngest first,
/// 3. the shelves of the other processors, the oldest first,
/// 4. the values that were left over by the last [`age`](Self::age),
/// 5. the function that makes new ones.
///
/// Values in a pool may be dropped at any time, so keep only values there that can be made again.
/// Go drops the values that two garbage collections found unused. Here there is no such moment: to
/// get memory back, call [`age`](Self::age). Values that were not used between two calls of it are
/// dropped.
///
/// # Examples
/// ```
/// use heist::sync::Pool;
/// static BUFFERS: Pool<Vec<u8>> = Pool::new(|| Vec::with_capacity(4096));
///
/// let mut buffer = BUFFERS.get();
/// buffer.extend(b"some bytes");
/// buffer.clear();
/// BUFFERS.put(buffer);
/// assert!(BUFFERS.get().capacity() >= 4096);
/// ```
pub struct Pool<T, F = fn() -> T> {
    shelves: OnceLock<Box<[CachePadded<Shelf<T>>]>>,
    make: F,
}

// A caller that takes a value owns it, and a panic leaves no value half put. Only the function that
// makes new values can be seen half changed.
impl<T, F: UnwindSafe> UnwindSafe for Pool<T, F> {}
impl<T, F: RefUnwindSafe> RefUnwindSafe for Pool<T, F> {}

struct Shelf<T> {
    private: Slot<T>,
    shared: Mutex<VecDeque<T>>,
    /// The values that were here when the pool last aged.
    old: Mutex<Vec<T>>,
}

impl<T, F: Fn() -> T> Pool<T, F> {
    /// A value from the pool, or a new one.
    #[doc(alias = "Get")]
    pub fn get(&self) -> T {
        self.try_get().unwrap_or_else(&self.make)
    }
}

impl<T, F> Pool<T, F> {
    /// An empty pool; `make` makes a value when there is none.
    #[must_use]
    pub const fn new(make: F) -> Self {
        Self { shelves: OnceLock::new(), make }
    }

    /// A value from the pool, if there is one.
    ///
    /// # Examples
    /// ```
    /// let pool = heist::sync::Pool::new(|| 0);
    /// assert_eq!(pool.try_get(), None);
    /// pool.put(5);
    /// assert_eq!(pool.try_get(), Some(5));
    /// ```
    pub fn try_get(&self) -> Option<T> {
        let shelves = self.shelves.get()?;
        let own = own_shelf(shelves.len());
        let (after, before) = (&shelves[own..], &shelves[..own]);
        let mut others = after[1..].iter().chain(before);
        let mut all = after.iter().chain(before);
        let near = &shelves[own];
        near.private
            .take()
            .or_else(|| near.shared.try_lock()?.pop_back())
            .or_else(|| others.find_map(|shelf| shelf.shared.try_lock()?.pop_front()))
            .or_else(|| all.find_map(|shelf| shelf.old.try_lock()?.pop()))
    }

    /// Puts a value into the pool, for a later [`get`](Self::get).
    #[doc(alias = "Put")]
    pub fn put(&self, value: T) {
        let shelves =
            self.shelves.get_or_init(|| (0..n_shelves()).map(|_| CachePadded::default()).collect());
        let own = own_shelf(shelves.len());
        let Err(value) = shelves[own].private.put(value) else { return };
        let mut near = shelves[own..].iter().chain(&shelves[..own]);
        if let Some(mut shared) = near.find_map(|shelf| shelf.shared.try_lock()) {
            shared.push_back(value);
        }
    }

    /// Drops the values that have not been used since the last call, and marks those that are here
    /// now.
    ///
    /// # Examples
    /// ```
    /// let pool = heist::sync::Pool::new(|| 0);
    /// pool.put(5);
    /// pool.age();
    /// assert_eq!(pool.get(), 5);
    /// pool.put(5);
    /// pool.age();
    /// pool.age();
    /// assert_eq!(pool.get(), 0);
    /// ```
    pub fn age(&self) {
        for shelf in self.shelves.get().into_iter().flatten() {
            let mut kept: Vec<T> = std::mem::take(&mut *shelf.shared.lock()).into();
            kept.extend(shelf.private.take());
            let dropped = std::mem::replace(&mut *shelf.old.lock(), kept);
            // Dropped without a lock: a destructor may use the pool.
            drop(dropped);
        }
    }
}

/// One shelf for each processor of the runtime, and at least one for each CPU.
fn n_shelves() -> usize {
    // SAFETY: the M of the calling thread is alive.
    let procs = unsafe { current::m().as_ref() }.map_or(0, |m| m.sched().procs() as usize);
    std::thread::available_parallelism().map_or(1, usize::from).max(procs)
}

/// The shelf of the caller's processor. The caller may be on another processor right after this;
/// then it uses the shelf of another processor, which is correct but slower.
fn own_shelf(n: usize) -> usize {
    // SAFETY: the M of the calling thread is alive.
    let id = unsafe { current::m().as_ref() }.and_then(|m| m.p_id());
    id.map_or(0, |id| id as usize % n)
}

const EMPTY: u8 = 0;
const FULL: u8 = 1;
/// A caller moves a value in or out.
const BUSY: u8 = 2;

/// A place for one value.
struct Slot<T> {
    state: AtomicU8,
    value: UnsafeCell<MaybeUninit<T>>,
}

// SAFETY: only the caller that made the state `BUSY` moves a value in or out.
unsafe impl<T: Send> Sync for Slot<T> {}

impl<T> Slot<T> {
    fn claim(&self, from: u8) -> bool {
        self.state.compare_exchange(from, BUSY, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn take(&self) -> Option<T> {
        if !self.claim(FULL) {
            return None;
        }
        // SAFETY: it was full, and this caller has claimed it.
        let value = unsafe { (*self.value.get()).assume_init_read() };
        self.state.store(EMPTY, Ordering::Release);
        Some(value)
    }

    fn put(&self, value: T) -> Result<(), T> {
        if !self.claim(EMPTY) {
            return Err(value);
        }
        // SAFETY: it was empty, and this caller has claimed it.
        unsafe { (*self.value.get()).write(value) };
        self.state.store(FULL, Ordering::Release);
        Ok(())
    }
}

impl<T> Drop for Slot<T> {
    fn drop(&mut self) {
        drop(self.take());
    }
}

impl<T> Default for Shelf<T> {
    fn default() -> Self {
        let value = UnsafeCell::new(MaybeUninit::uninit());
        Self {
            private: Slot { state: AtomicU8::new(EMPTY), value },
            shared: Mutex::new(VecDeque::new()),
            old: Mutex::new(Vec::new()),
        }
    }
}

impl<T, F> fmt::Debug for Pool<T, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Pool { .. }")
    }
}

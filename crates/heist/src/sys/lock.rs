//! `Lock`: the runtime's own mutex.
//!
//! It is not std's: the runtime must never preempt its holder, so it is taken only by code that
//! runs as the runtime (or by a plain thread), it does not poison, and it has a rank.
//!
//! # States
//! `FREE`, `HELD`, `CONTENDED` (held, and a thread may sleep). A thread that has to sleep always
//! leaves CONTENDED behind, so one that unlocks and finds HELD knows that none sleeps.
//!
//! # Ordering
//! Taking is Acquire, releasing is Release: the next holder sees what the last one wrote.
//!
//! GO: lock_futex.go.

use super::clock;
use super::futex::Kernel;
use heist_core::lock_rank::Rank;
use heist_core::note::Futex;
use heist_core::sync::{AtomicU32, AtomicU64, Ordering};
use std::cell::UnsafeCell;
use std::ops::{Deref, DerefMut};

const FREE: u32 = 0;
const HELD: u32 = 1;
const CONTENDED: u32 = 2;

/// How often a thread looks again before it sleeps. A critical section here is tens of nanoseconds
/// long; sleeping and being woken costs a thousand times that.
const SPINS: u32 = 200;

/// How long threads have waited for locks, by rank.
static WAITED_NS: [AtomicU64; Rank::COUNT] = [const { AtomicU64::new(0) }; Rank::COUNT];

/// How long threads of this process have slept for locks, by rank.
pub(crate) fn waited_ns() -> [u64; Rank::COUNT] {
    WAITED_NS.each_ref().map(|waited| waited.load(Ordering::Relaxed))
}

/// Data behind the runtime's mutex, and data that needs no lock but shares its cache line, because
/// both change together.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Lock<T, B = ()> {
    word: AtomicU32,
    beside: B,
    /// Its place in the lock order, checked in debug builds; and its name in the metrics.
    rank: Rank,
    data: UnsafeCell<T>,
}

// SAFETY: the mutex gives the data to one thread at a time.
unsafe impl<T: Send, B: Sync> Sync for Lock<T, B> {}
// SAFETY: as for the data.
unsafe impl<T: Send, B: Send> Send for Lock<T, B> {}

// A holder does not panic, so its data is never seen half changed.
impl<T, B> std::panic::RefUnwindSafe for Lock<T, B> {}
impl<T, B> std::panic::UnwindSafe for Lock<T, B> {}

impl<T> Lock<T> {
    pub(crate) const fn new(rank: Rank, data: T) -> Self {
        Self::with_beside(rank, data, ())
    }
}

impl<T, B> Lock<T, B> {
    pub(crate) const fn with_beside(rank: Rank, data: T, beside: B) -> Self {
        Self { word: AtomicU32::new(FREE), beside, rank, data: UnsafeCell::new(data) }
    }

    /// The data that needs no lock.
    #[inline]
    pub(crate) const fn beside(&self) -> &B {
        &self.beside
    }

    /// Takes the lock.
    #[inline]
    pub(crate) fn lock(&self) -> Guard<'_, T, B> {
        #[cfg(debug_assertions)]
        crate::current::held_locks(|held| held.acquire(self.rank));
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
        Guard { lock: self }
    }

    /// Whether a thread waits for it.
    #[cfg(test)]
    pub(crate) fn is_contended(&self) -> bool {
        self.word.load(Ordering::Relaxed) == CONTENDED
    }

    /// Takes the lock if it is free.
    pub(crate) fn try_lock(&self) -> Option<Guard<'_, T, B>> {
        self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).ok()?;
        #[cfg(debug_assertions)]
        crate::current::held_locks(|held| held.acquire(self.rank));
        Some(Guard { lock: self })
    }

    #[cold]
    fn lock_slow(&self) {
        for _ in 0..SPINS {
            std::hint::spin_loop();
            if self.word.load(Ordering::Relaxed) == FREE
                && self
                    .word
                    .compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
            {
                return;
            }
        }
        let from_ns = clock::now_ns();
        while self.word.swap(CONTENDED, Ordering::Acquire) != FREE {
            Kernel.wait(&self.word, CONTENDED, None);
        }
        let waited_ns = clock::now_ns() - from_ns;
        WAITED_NS[self.rank as usize].fetch_add(waited_ns, Ordering::Relaxed);
    }

    /// Releases a lock whose guard was forgotten.
    ///
    /// # Safety
    /// The calling thread took it and forgot the guard.
    pub(crate) unsafe fn unlock_forgotten(&self) {
        self.unlock();
    }

    /// The data, for a holder without a guard.
    #[inline]
    pub(crate) const fn data_ptr(&self) -> *mut T {
        self.data.get()
    }

    /// Takes another lock of a rank of which this thread holds one already. The caller takes them
    /// in the order of their addresses, and releases each by [`Lock::unlock_another`].
    #[inline]
    pub(crate) fn lock_another(&self) {
        if self.word.compare_exchange(FREE, HELD, Ordering::Acquire, Ordering::Relaxed).is_err() {
            self.lock_slow();
        }
    }

    /// Releases what [`Lock::lock_another`] took.
    ///
    /// # Safety
    /// The calling thread took it, and does not use its data any more.
    #[inline]
    pub(crate) unsafe fn unlock_another(&self) {
        self.give_back();
    }

    #[inline]
    fn unlock(&self) {
        // The next holder may free it.
        #[cfg(debug_assertions)]
        crate::current::held_locks(|held| held.release(self.rank));
        self.give_back();
    }

    #[inline]
    fn give_back(&self) {
        if self.word.swap(FREE, Ordering::Release) == CONTENDED {
            Kernel.wake(&self.word);
        }
    }
}

/// The right to use the data; releases the lock when dropped.
#[derive(Debug)]
pub(crate) struct Guard<'a, T, B = ()> {
    lock: &'a Lock<T, B>,
}

impl<'a, T, B> Guard<'a, T, B> {
    /// Keeps the lock without its guard: [`Lock::unlock_forgotten`] releases it.
    pub(crate) const fn into_lock(self) -> &'a Lock<T, B> {
        let lock = self.lock;
        std::mem::forget(self);
        lock
    }
}

impl<T, B> Deref for Guard<'_, T, B> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard is the evidence that this thread holds the lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T, B> DerefMut for Guard<'_, T, B> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard is the evidence that this thread holds the lock, and it is borrowed
        // mutably.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T, B> Drop for Guard<'_, T, B> {
    #[inline]
    fn drop(&mut self) {
        self.lock.unlock();
    }
}

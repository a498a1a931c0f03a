//! The deque of latent jobs: the second halves of forks that nobody has begun yet.
//!
//! One owner, the goroutine that forks, pushes and pops at the bottom, last in first out. Thieves
//! take at the top, first in first out. This is the deque of Chase and Lev (SPAA 2005), with a ring
//! that does not grow and with asymmetric fences.
//!
//! # Invariants
//! - `top` only grows. `bottom` is changed by the owner only. Both count from one, so that `bottom`
//!   can be one below `top` for a moment.
//! - Jobs `top .. bottom` are in the ring, at their number modulo the capacity. There are at most
//!   [`FORKS_MAX`] of them.
//! - The owner takes job `i` without a compare-exchange only if it sees `top < i` after it has
//!   stored `bottom = i`. In all other cases a job belongs to the side that moves `top` past it.
//!
//! # Why no job is taken twice
//! The owner pops job `i`: it stores `bottom = i`, light fence, loads `top`. A thief takes job `i`:
//! it loads `top == i`, heavy fence, loads `bottom`, and moves `top` from `i` to `i + 1` if `bottom
//! > i`. The heavy fence makes the owner's thread execute a full fence F at some point.
//! - The owner's store comes before F. Then the thief loads that store or a later one. A later one
//!   is greater than `i` only if the owner has pushed another job at `i` meanwhile. The thief, who
//!   loads with Acquire, then reads that other job.
//! - The owner's store comes after F. Then its load of `top` does, too, and sees at least the `i`
//!   that the thief saw before F. So the owner uses a compare-exchange, which only one side wins.
//!
//! A thief therefore looks first ([`Thief::look`]), executes the heavy fence, and then takes what
//! it saw ([`Thief::take`]). Looking needs no fence and is cheap. The number that was seen stays
//! good: `top` never returns to it, so a thief that comes late fails.
//!
//! # Reuse
//! An owner that hands an empty deque on moves `top` and `bottom` ahead ([`Owner::hand_on`]). A
//! thief that looked before fails. So the deque may serve another owner, even of another runtime,
//! without anybody waiting for the thieves.
//!
//! # Why not crossbeam-deque
//! Its `pop` executes a full fence each time, about 20 cycles, which is half of what a fork costs
//! here; the fence cannot be replaced. Its ring grows, and old rings are freed by epochs: that
//! allocates and frees inside the scheduler.
//!
//! # Ordering
//! Every store of `bottom` is Release and every load by a thief is Acquire: a thief that sees `i <
//! bottom` sees job `i`. That must hold for the stores of `pop` as well, since a relaxed store does
//! not continue a release sequence. The owner loads `top` with Acquire before it uses a slot again.
//! The model `loom_fork_deque` runs both halves, with full fences on both sides.

use crate::policy::FORKS_MAX;
use crate::sync::{AtomicPtr, AtomicU64, Ordering};
use crossbeam_utils::CachePadded;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// A deque of pointers to jobs.
#[derive(Debug)]
pub struct ForkDeque<T> {
    top: CachePadded<AtomicU64>,
    owned: CachePadded<Owned>,
    slots: [AtomicPtr<T>; FORKS_MAX],
}

/// The part that the owner writes at every fork.
#[derive(Debug)]
struct Owned {
    bottom: AtomicU64,
    /// The value of `bottom` at which the owner must look at `top` again before it pushes.
    limit: AtomicU64,
}

/// A job that a thief saw at the top.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

/// The ring is full.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full;

const FIRST: u64 = 1;
const CAPACITY: u64 = FORKS_MAX as u64;
const _: () = assert!(FORKS_MAX.is_power_of_two());

const fn slot(number: u64) -> usize {
    (number % CAPACITY) as usize
}

impl<T> ForkDeque<T> {
    /// An empty deque.
    #[must_use]
    pub fn new() -> Self {
        Self {
            top: CachePadded::new(AtomicU64::new(FIRST)),
            owned: CachePadded::new(Owned {
                bottom: AtomicU64::new(FIRST),
                limit: AtomicU64::new(FIRST + CAPACITY),
            }),
            slots: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// The owner's half.
    ///
    /// # Safety
    /// The caller is the owner: nobody else uses this half until the caller has handed the deque
    /// on, by means that order memory.
    #[inline]
    pub const unsafe fn owner(&self) -> Owner<'_, T> {
        Owner { deque: self, _not_send: PhantomData }
    }

    /// The thieves' half.
    #[inline]
    pub const fn thief(&self) -> Thief<'_, T> {
        Thief { deque: self }
    }
}

impl<T> Default for ForkDeque<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The owner's half of a deque.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a, T> {
    deque: &'a ForkDeque<T>,
    _not_send: PhantomData<*mut ()>,
}

impl<T> Owner<'_, T> {
    /// Pushes a job at the bottom.
    ///
    /// # Errors
    /// If the ring is full. The owner may then take the oldest job as a thief does; it needs no
    /// heavy fence for that, because it is the thread that pops.
    #[inline(always)]
    pub fn push(&self, job: NonNull<T>) -> Result<(), Full> {
        let Owned { bottom, limit } = &*self.deque.owned;
        let at = bottom.load(Ordering::Relaxed);
        if at == limit.load(Ordering::Relaxed) {
            self.raise_limit(at)?;
        }
        self.deque.slots[slot(at)].store(job.as_ptr(), Ordering::Relaxed);
        bottom.store(at + 1, Ordering::Release);
        Ok(())
    }

    /// Looks how far the thieves are.
    #[cold]
    #[inline(never)]
    fn raise_limit(&self, bottom: u64) -> Result<(), Full> {
        // A thief reads a slot before it moves `top` past it.
        let limit = self.deque.top.load(Ordering::Acquire) + CAPACITY;
        self.deque.owned.limit.store(limit, Ordering::Relaxed);
        if bottom < limit { Ok(()) } else { Err(Full) }
    }

    /// Pops `job`, which was pushed last and not popped yet. False if a thief has it: then thieves
    /// have all others, too, and the deque is empty.
    ///
    /// `light_fence` pairs with the heavy one of a thief. Throws if another job was pushed last: so
    /// the owner's forks did not end in the reverse of the order in which they began. They can do
    /// that on stacks that another library switches.
    #[inline(always)]
    #[must_use]
    pub fn pop(&self, job: NonNull<T>, light_fence: impl FnOnce()) -> bool {
        let last = self.deque.owned.bottom.load(Ordering::Relaxed) - 1;
        self.deque.owned.bottom.store(last, Ordering::Release);
        light_fence();
        let top = self.deque.top.load(Ordering::Relaxed);
        let own = top < last || self.pop_contended(last, top);
        // If a thief has it, the slot may hold another job.
        if own && self.deque.slots[slot(last)].load(Ordering::Relaxed) != job.as_ptr() {
            crate::throw!("ForkDeque::pop: a fork ended before one that began after it");
        }
        own
    }

    /// Ends a pop that found at most one job.
    #[cold]
    #[inline(never)]
    fn pop_contended(&self, last: u64, top: u64) -> bool {
        let own = top == last
            && self
                .deque
                .top
                .compare_exchange(top, top + 1, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok();
        self.deque.owned.bottom.store(last + 1, Ordering::Release);
        own
    }

    /// Whether there is no job. Only the owner adds jobs, so it stays so.
    #[inline]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.deque.top.load(Ordering::Acquire) >= self.deque.owned.bottom.load(Ordering::Relaxed)
    }

    /// Makes an empty deque ready for another owner: a thief that saw a job before gets nothing.
    pub fn hand_on(&self) {
        if !self.is_empty() {
            crate::throw!("ForkDeque::hand_on: there are jobs left");
        }
        let next = self.deque.top.fetch_add(1, Ordering::AcqRel) + 1;
        self.deque.owned.bottom.store(next, Ordering::Release);
        self.deque.owned.limit.store(next + CAPACITY, Ordering::Relaxed);
    }
}

/// The thieves' half of a deque.
#[derive(Clone, Copy, Debug)]
pub struct Thief<'a, T> {
    deque: &'a ForkDeque<T>,
}

impl<T> Thief<'_, T> {
    /// The oldest job, if there seems to be one.
    #[inline]
    #[must_use]
    pub fn look(&self) -> Option<Seen> {
        let top = self.deque.top.load(Ordering::Acquire);
        (top < self.deque.owned.bottom.load(Ordering::Acquire)).then_some(Seen(top))
    }

    /// Takes the job that was seen, unless another side was faster. Between the look and this the
    /// caller has executed a heavy fence.
    #[must_use]
    pub fn take(&self, seen: Seen) -> Option<NonNull<T>> {
        let Seen(top) = seen;
        if top >= self.deque.owned.bottom.load(Ordering::Acquire) {
            return None;
        }
        // If the owner uses the slot again meanwhile, `top` has moved and the exchange fails.
        let job = self.deque.slots[slot(top)].load(Ordering::Relaxed);
        self.deque
            .top
            .compare_exchange(top, top + 1, Ordering::AcqRel, Ordering::Relaxed)
            .ok()
            .and_then(|_| NonNull::new(job))
    }
}

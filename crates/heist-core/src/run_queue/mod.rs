//! The per-P run queue: a ring of 256 slots plus `run_next`.
//!
//! One producer (the owner P), many consumers (the owner and any thief). The two sides are
//! different types: only [`Owner`] can push, only [`Thief`] can steal.
//!
//! ```text
//!             head (CAS by owner and thieves)      tail (store by owner)
//!              v                                    v
//!  ring  . . . A B C D E F G H I J K L M N O P Q R . . . .      indices run freely, slot = i % 256
//!              |--- a thief takes this half ---|
//!  run_next    Z   runs before A, and only the owner puts it there
//! ```
//!
//! # Invariants
//! - `tail - head <= RING_CAPACITY`; only the owner moves `tail`, anyone moves `head` by CAS.
//! - Only the owner makes `run_next` non-null; anyone may take it.
//! - `is_empty` never returns true while a goroutine is here (it may return false late).
//!
//! # Ordering
//! - `tail`: stored with Release by the owner, loaded with Acquire by thieves. It publishes the
//!   slots below it and whatever was written to the goroutines in them.
//! - `head`: moved by a CAS with Release, loaded with Acquire by the owner before it reuses a slot.
//!   So a thief has finished reading a slot before the owner can overwrite it; a thief that read an
//!   overwritten slot fails its CAS and discards what it read.
//! - `run_next`: swapped or CASed with AcqRel: it hands a goroutine over by itself. A push swaps
//!   with SeqCst: a SeqCst load after it, of the count of spinners, cannot pass it (see
//!   `spinning`). That is free where a swap is a full fence anyway.
//!
//! GO: proc.go runqput, runqget, runqgrab, runqsteal, runqempty, runqputslow, runqputbatch.

mod steal;

pub use steal::{RunNext, Stolen, Thief};

use crate::list::{Linked, List};
use crate::policy::{OVERFLOW_BATCH, RING_CAPACITY, RunNextTheft, StealPolicy};
use crate::sync::{AtomicPtr, AtomicU32, Ordering, keep_seq_cst};
use crossbeam_utils::CachePadded;
use std::mem::MaybeUninit;
use std::ptr::{NonNull, null_mut};

const RING: usize = RING_CAPACITY as usize;
const OVERFLOW: usize = OVERFLOW_BATCH as usize + 1;

/// A run queue. Shared by reference; see [`RunQueue::owner`] and [`RunQueue::thief`].
///
/// `run_next` has a cache line of its own: two goroutines that keep waking each other change it all
/// the time, and nothing else, so thieves can read the ring without taking that line away.
#[derive(Debug)]
pub struct RunQueue<T> {
    head: CachePadded<AtomicU32>,
    tail: CachePadded<AtomicU32>,
    run_next: CachePadded<AtomicPtr<T>>,
    ring: [AtomicPtr<T>; RING],
}

/// Where a goroutine is put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Slot {
    /// In front of everything; the goroutine that was there moves to the tail.
    Next,
    /// Behind everything.
    Tail,
}

/// A goroutine taken by its owner, and whether it inherits the time slice of the last one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Popped<T> {
    /// From `run_next`: it inherits the slice, so a pair that keeps readying each other is
    /// preempted like one goroutine.
    Inherits(NonNull<T>),
    /// From the ring: a new slice.
    Fresh(NonNull<T>),
}

impl<T> Popped<T> {
    /// The goroutine.
    #[must_use]
    pub const fn goroutine(&self) -> NonNull<T> {
        match *self {
            Self::Inherits(gp) | Self::Fresh(gp) => gp,
        }
    }
}

impl<T> RunQueue<T> {
    /// An empty queue.
    #[must_use]
    pub fn new() -> Self {
        Self::starting_at(0)
    }

    /// An empty queue whose indices start at `index`, to test the wrap at `u32::MAX`.
    #[must_use]
    pub fn starting_at(index: u32) -> Self {
        Self {
            head: CachePadded::new(AtomicU32::new(index)),
            tail: CachePadded::new(AtomicU32::new(index)),
            run_next: CachePadded::new(AtomicPtr::new(null_mut())),
            ring: std::array::from_fn(|_| AtomicPtr::new(null_mut())),
        }
    }

    /// The half that pushes and pops.
    ///
    /// # Safety
    /// The caller owns the P: no two threads use an owner half of one queue at the same time.
    #[inline]
    #[must_use]
    pub const unsafe fn owner(&self) -> Owner<'_, T> {
        Owner(self)
    }

    /// The half that steals.
    #[inline]
    #[must_use]
    pub const fn thief(&self) -> Thief<'_, T> {
        Thief::new(self)
    }

    /// Whether there is nothing here, at one moment during the call.
    ///
    /// One read of each would miss a goroutine that moves from `run_next` into the ring: the ring
    /// is read before it arrives, `run_next` after it left. An arrival moves `tail`, so an
    /// unchanged `tail` around the read of `run_next` proves that no goroutine was moving.
    #[doc(alias = "runqempty")]
    #[must_use]
    pub fn is_empty(&self) -> bool {
        loop {
            let head = self.head.load(Ordering::Acquire);
            let tail = self.tail.load(Ordering::Acquire);
            let next = self.run_next.load(Ordering::Acquire);
            if tail == self.tail.load(Ordering::Acquire) {
                return head == tail && next.is_null();
            }
        }
    }

    /// Whether there is nothing in the ring, whatever is in `run_next`.
    #[inline]
    #[must_use]
    pub fn ring_is_empty(&self) -> bool {
        self.head.load(Ordering::Acquire) == self.tail.load(Ordering::Acquire)
    }

    /// The length of the ring, as a thief sees it.
    #[must_use]
    pub fn ring_len(&self) -> u32 {
        let head = self.head.load(Ordering::Acquire);
        let ring = self.tail.load(Ordering::Acquire).wrapping_sub(head);
        // More than the ring holds: head and tail are of different moments, so work is moving.
        ring.min(RING_CAPACITY)
    }

    /// The head of the ring, if there is something in it: as long as that is the same, nothing was
    /// taken.
    #[inline]
    #[must_use]
    pub fn waiting_head(&self) -> Option<u32> {
        let head = self.head.load(Ordering::Acquire);
        (head != self.tail.load(Ordering::Acquire)).then_some(head)
    }

    /// Whether there is something in `run_next`.
    #[inline]
    #[must_use]
    pub fn has_next(&self) -> bool {
        !self.run_next.load(Ordering::Acquire).is_null()
    }

    /// Whether a thief with this policy could take something, at one moment during the call.
    #[must_use]
    pub fn has_stealable(&self, policy: &StealPolicy) -> bool {
        let run_next = policy.run_next == RunNextTheft::LastTry;
        if run_next && policy.share.of(1) == 1 {
            return !self.is_empty();
        }
        policy.share.of(self.ring_len()) > 0 || run_next && !self.is_empty()
    }

    /// Goroutines in ring and `run_next`, for reports: exact only while the queue does not change.
    #[must_use]
    pub fn len(&self) -> u32 {
        let next = u32::from(!self.run_next.load(Ordering::Relaxed).is_null());
        // Head first: a later tail may be too far from it, an earlier one would be behind it.
        let head = self.head.load(Ordering::Acquire);
        let ring = self.tail.load(Ordering::Relaxed).wrapping_sub(head);
        ring.min(RING_CAPACITY) + next
    }

    fn slot(&self, index: u32) -> &AtomicPtr<T> {
        &self.ring[index as usize % RING]
    }
}

impl<T> Default for RunQueue<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// The half of a [`RunQueue`] that its P uses.
#[derive(Clone, Copy, Debug)]
pub struct Owner<'a, T>(&'a RunQueue<T>);

impl<T> Owner<'_, T> {
    /// Puts a goroutine into the queue.
    ///
    /// If the ring is full, its older half and the goroutine that found no slot, in this order, go
    /// to `overflow`, all at once, so that the global lock is taken once per 129.
    #[inline]
    #[doc(alias = "runqput")]
    pub fn push(&self, gp: NonNull<T>, slot: Slot, overflow: impl FnOnce(&mut [NonNull<T>])) {
        match slot {
            Slot::Tail => self.push_tail(gp, overflow),
            Slot::Next => {
                if let Some(kicked) = self.swap_next(gp) {
                    self.push_tail(kicked, overflow);
                }
            }
        }
    }

    /// Puts a goroutine into `run_next`. The caller pushes the one that was there at the tail.
    #[inline]
    #[must_use]
    pub fn swap_next(&self, gp: NonNull<T>) -> Option<NonNull<T>> {
        let kicked = self.0.run_next.swap(gp.as_ptr(), Ordering::SeqCst);
        keep_seq_cst();
        NonNull::new(kicked)
    }

    /// Puts a goroutine behind those in the ring; see [`push`](Self::push).
    #[inline]
    pub fn push_tail(&self, gp: NonNull<T>, overflow: impl FnOnce(&mut [NonNull<T>])) {
        loop {
            let head = self.0.head.load(Ordering::Acquire);
            let tail = self.0.tail.load(Ordering::Relaxed);
            if tail.wrapping_sub(head) < RING_CAPACITY {
                self.0.slot(tail).store(gp.as_ptr(), Ordering::Relaxed);
                self.0.tail.store(tail.wrapping_add(1), Ordering::Release);
                return;
            }
            if let Some(mut batch) = self.push_overflow(gp, head, tail) {
                return overflow(&mut batch);
            }
            // A thief made room meanwhile.
        }
    }

    /// Takes the older half out of a full ring and puts `gp` behind it. None if a thief took from
    /// the ring first.
    #[cold]
    #[doc(alias = "runqputslow")]
    fn push_overflow(
        &self,
        gp: NonNull<T>,
        head: u32,
        tail: u32,
    ) -> Option<[NonNull<T>; OVERFLOW]> {
        if tail.wrapping_sub(head) != RING_CAPACITY {
            crate::throw!("RunQueue::push_overflow: the queue is not full");
        }
        let mut batch = [gp; OVERFLOW];
        for (i, place) in batch[..OVERFLOW - 1].iter_mut().enumerate() {
            let found = self.0.slot(head.wrapping_add(i as u32)).load(Ordering::Relaxed);
            let Some(found) = NonNull::new(found) else {
                crate::throw!("RunQueue::push_overflow: an empty slot in a full ring");
            };
            *place = found;
        }
        let moved = head.wrapping_add(OVERFLOW_BATCH);
        self.0
            .head
            .compare_exchange(head, moved, Ordering::Release, Ordering::Relaxed)
            .is_ok()
            .then_some(batch)
    }

    /// Takes the next goroutine to run.
    #[inline]
    #[doc(alias = "runqget")]
    #[must_use]
    pub fn pop(&self) -> Option<Popped<T>> {
        let next = &self.0.run_next;
        // Only the owner fills it, so if it is seen empty it is empty.
        if !next.load(Ordering::Relaxed).is_null() {
            // One attempt: if it is gone now, a thief has it.
            if let Some(gp) = NonNull::new(next.swap(null_mut(), Ordering::AcqRel)) {
                return Some(Popped::Inherits(gp));
            }
        }
        loop {
            let head = self.0.head.load(Ordering::Acquire);
            if head == self.0.tail.load(Ordering::Relaxed) {
                return None;
            }
            let gp = self.0.slot(head).load(Ordering::Relaxed);
            let after = head.wrapping_add(1);
            if self
                .0
                .head
                .compare_exchange_weak(head, after, Ordering::Release, Ordering::Relaxed)
                .is_ok()
            {
                let Some(gp) = NonNull::new(gp) else {
                    crate::throw!("RunQueue::pop: an empty slot between head and tail");
                };
                return Some(Popped::Fresh(gp));
            }
        }
    }

    /// The goroutine that is next in the ring, unless a thief takes it first: a hint for
    /// prefetching.
    #[inline]
    #[must_use]
    pub fn upcoming(&self) -> *const T {
        let head = self.0.head.load(Ordering::Relaxed);
        if head == self.0.tail.load(Ordering::Relaxed) {
            return null_mut();
        }
        self.0.slot(head).load(Ordering::Relaxed)
    }

    /// Fills the ring from the front of `list`; goroutines that find no place stay in the list.
    #[doc(alias = "runqputbatch")]
    pub fn push_batch(&self, list: &mut List<T>)
    where
        T: Linked,
    {
        let head = self.0.head.load(Ordering::Acquire);
        let mut tail = self.0.tail.load(Ordering::Relaxed);
        while tail.wrapping_sub(head) < RING_CAPACITY {
            let Some(gp) = list.pop_front() else { break };
            self.0.slot(tail).store(gp.as_ptr(), Ordering::Relaxed);
            tail = tail.wrapping_add(1);
        }
        self.0.tail.store(tail, Ordering::Release);
    }

    /// Takes everything: `run_next` first, then the ring in order.
    #[doc(alias = "runqdrain")]
    pub fn drain(&self) -> List<T>
    where
        T: Linked,
    {
        let mut all = List::new();
        while let Some(popped) = self.pop() {
            // SAFETY: goroutines in a queue are valid and in no other; this one was just taken out.
            unsafe { all.push_back(popped.goroutine()) };
        }
        all
    }

    /// Free slots in the ring. Thieves can only make it larger.
    fn room(&self) -> u32 {
        let tail = self.0.tail.load(Ordering::Relaxed);
        RING_CAPACITY - tail.wrapping_sub(self.0.head.load(Ordering::Acquire))
    }
}

// A copy of a ring's worth of pointers must stay cheap to make on a scheduler stack.
const _: () = assert!(size_of::<[MaybeUninit<*mut ()>; OVERFLOW]>() <= 2048);

//! The buffer of an unbounded channel: a chain of blocks.
//!
//! Messages are written into blocks of a fixed number of slots. `tail` and `head` are positions in
//! the chain, counted in `LAP`s: one more than there are slots in a block. The position behind the
//! last slot of a block holds no message; there the word stays until the next block is linked.
//!
//! The sender that claims the last slot of a block links the next block, which its caller passed
//! in: nothing is allocated here. The receiver that takes the last message of a block moves `head`
//! to the next one and, when all other readers of the old block are done, passes the old block to
//! its caller, which frees it.
//!
//! # Invariants
//! - `head <= tail`; both only grow. The thread that moves one by compare-and-swap owns the next
//!   step of that slot.
//! - A block is touched only by threads that claimed one of its slots and have not set `READ`, and
//!   by the one that claimed its last slot to receive.
//! - `tail.block` and `head.block` change only while the index says that the block has ended; so a
//!   pair of an index and a block is consistent if the compare-and-swap on the index succeeds.
//!
//! # Ordering
//! - A slot's state is stored with Release and loaded with Acquire: a message is written before it
//!   is read, and read before its block is freed.
//! - The blocks are stored with Release before the index that belongs to them, which is loaded with
//!   Acquire before the block.
//! - Waiting needs no order between the words; see [`super`].

use super::{AWAITED, Backoff, Buffer, CLOSED, FLAGS, ONE, Pause, Put, Take};
use crate::sync::{AtomicPtr, AtomicU32, AtomicU64, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::mem::MaybeUninit;
use std::ptr::null_mut;

/// Positions per block.
const LAP: u64 = if cfg!(loom) { 3 } else { 32 };
/// Slots per block.
const SLOTS: u64 = LAP - 1;

/// In `head`, where the bit is not needed for anything else: the tail is in a later block, so there
/// is a message, whatever the tail is.
const BEHIND: u64 = CLOSED;

const EMPTY: u32 = 0;
const WRITTEN: u32 = 1;
const READ: u32 = 2;

#[derive(Debug)]
struct Slot<T> {
    state: AtomicU32,
    /// A message, while the slot is written.
    message: UnsafeCell<MaybeUninit<T>>,
}

#[derive(Debug)]
struct Block<T> {
    next: AtomicPtr<Block<T>>,
    slots: [Slot<T>; SLOTS as usize],
}

impl<T> Slot<T> {
    /// Makes an empty slot at `place`. The room for its message is not touched.
    ///
    /// # Safety
    /// `place` is valid for a slot.
    unsafe fn empty(place: *mut Self) {
        // SAFETY: by the caller's promise.
        unsafe { (&raw mut (*place).state).write(AtomicU32::new(EMPTY)) };
        #[cfg(loom)]
        // SAFETY: as above. A model's cell has a state of its own, beside the message.
        unsafe {
            (&raw mut (*place).message).write(UnsafeCell::new(MaybeUninit::uninit()));
        }
    }
}

impl<T> Block<T> {
    /// An empty block, made where it stays: with large messages a stack has no room for one.
    fn new() -> Box<Self> {
        let mut block = Box::<Self>::new_uninit();
        let place = block.as_mut_ptr();
        // SAFETY: the box is valid for a block. Every field is written, but for the room for
        // messages, which need not be.
        unsafe {
            (&raw mut (*place).next).write(AtomicPtr::new(null_mut()));
            let first = (&raw mut (*place).slots).cast::<Slot<T>>();
            for at in 0..SLOTS as usize {
                Slot::empty(first.add(at));
            }
            block.assume_init()
        }
    }
}

/// A block that is to be linked into the chain, or was removed from it.
#[derive(Debug)]
pub struct Spare<T>(Option<Box<Block<T>>>);

impl<T> Default for Spare<T> {
    fn default() -> Self {
        Self(None)
    }
}

/// One end of the chain.
#[derive(Debug)]
struct End<T> {
    index: AtomicU64,
    block: AtomicPtr<Block<T>>,
}

impl<T> End<T> {
    fn at(block: *mut Block<T>) -> CachePadded<Self> {
        CachePadded::new(Self { index: AtomicU64::new(0), block: AtomicPtr::new(block) })
    }
}

/// The slot of a position in its block; `SLOTS` behind the last.
const fn offset(index: u64) -> u64 {
    index / ONE % LAP
}

/// The number of the block.
const fn block_number(index: u64) -> u64 {
    index / ONE / LAP
}

/// A chain of blocks.
#[derive(Debug)]
pub struct Blocks<T> {
    tail: CachePadded<End<T>>,
    head: CachePadded<End<T>>,
    pause: Pause,
}

// SAFETY: a message is handed from the thread that put it in to the one that takes it out; no other
// thread reads it.
unsafe impl<T: Send> Sync for Blocks<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Blocks<T> {}

impl<T> Blocks<T> {
    /// An empty chain of one block.
    #[must_use]
    pub fn new(pause: Pause) -> Self {
        let first = Box::into_raw(Block::new());
        Self { tail: End::at(first), head: End::at(first), pause }
    }

    /// Waits until `slot` is in `state`. Another thread has claimed the slot and will set it.
    fn wait_for(&self, slot: &Slot<T>, state: u32) {
        let mut backoff = Backoff::new();
        while slot.state.load(Ordering::Acquire) != state {
            backoff.wait(self.pause);
        }
    }

    /// Moves the head to the next block, after the last message of its block was claimed.
    ///
    /// # Safety
    /// The caller has claimed that message, and `block` is its block.
    unsafe fn leave_block(&self, block: *mut Block<T>, index: u64) {
        let mut backoff = Backoff::new();
        let next = loop {
            // SAFETY: the block stays until this caller is done with it.
            let next = unsafe { &*block }.next.load(Ordering::Acquire);
            if !next.is_null() {
                break next;
            }
            backoff.wait(self.pause);
        };
        self.head.block.store(next, Ordering::Release);
        // One past the last slot, and past the position that has no slot.
        let first = (index & !FLAGS) + 2 * ONE;
        self.head.index.store(first, Ordering::Release);
    }

    /// How many messages a position has before it.
    const fn messages(index: u64) -> u64 {
        block_number(index) * SLOTS + offset(index)
    }
}

impl<T> Buffer<T> for Blocks<T> {
    type Spare = Spare<T>;

    fn provide(spare: &mut Spare<T>) {
        if spare.0.is_none() {
            spare.0 = Some(Block::new());
        }
    }

    fn suffices(&self, spare: &Spare<T>) -> bool {
        // While receivers are announced no slot is claimed. If a link is missing, the next slot is
        // the first of its block.
        spare.0.is_some() || offset(self.tail.index.load(Ordering::Acquire)) + 1 != SLOTS
    }

    #[inline(always)]
    unsafe fn put(&self, message: *const T, spare: &mut Spare<T>) -> Put {
        let mut backoff = Backoff::new();
        let mut tail = self.tail.index.load(Ordering::Acquire);
        loop {
            if tail & FLAGS != 0 {
                return if tail & CLOSED != 0 { Put::Closed } else { Put::Attend };
            }
            let at = offset(tail);
            if at == SLOTS {
                // Another sender is linking the next block.
                backoff.wait(self.pause);
                tail = self.tail.index.load(Ordering::Acquire);
                continue;
            }
            if at + 1 == SLOTS && spare.0.is_none() {
                return Put::Starved;
            }
            let block = self.tail.block.load(Ordering::Acquire);
            if let Err(now) = self.tail.index.compare_exchange_weak(
                tail,
                tail + ONE,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                tail = now;
                backoff.lost();
                continue;
            }
            // SAFETY: a block is freed when all its messages are read, and this one is not written.
            let block = unsafe { &*block };
            if at + 1 == SLOTS
                && let Some(next) = spare.0.take()
            {
                let next = Box::into_raw(next);
                self.tail.block.store(next, Ordering::Release);
                // Not a store: the channel may have been closed meanwhile.
                self.tail.index.fetch_add(ONE, Ordering::Release);
                block.next.store(next, Ordering::Release);
            }
            let slot = &block.slots[at as usize];
            // SAFETY: the slot belongs to this call; the caller owns the message.
            slot.message.with_mut(|place| unsafe {
                place.cast::<T>().copy_from_nonoverlapping(message, 1);
            });
            slot.state.store(WRITTEN, Ordering::Release);
            return Put::Done;
        }
    }

    #[inline(always)]
    unsafe fn take(&self, into: *mut T, spent: &mut Spare<T>) -> Take {
        let mut backoff = Backoff::new();
        let mut head = self.head.index.load(Ordering::Acquire);
        loop {
            let at = offset(head);
            if at == SLOTS {
                // Another receiver is moving to the next block.
                backoff.wait(self.pause);
                head = self.head.index.load(Ordering::Acquire);
                continue;
            }
            let mut next = head + ONE;
            if head & BEHIND == 0 {
                let tail = self.tail.index.load(Ordering::Acquire);
                if tail & !FLAGS == head {
                    return if tail & CLOSED != 0 { Take::Closed } else { Take::Empty };
                }
                if block_number(tail) != block_number(head) {
                    next |= BEHIND;
                }
            }
            let block = self.head.block.load(Ordering::Acquire);
            if let Err(now) = self.head.index.compare_exchange_weak(
                head,
                next,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                head = now;
                backoff.lost();
                continue;
            }
            if at + 1 == SLOTS {
                // SAFETY: the last message of this block was just claimed.
                unsafe { self.leave_block(block, head) };
            }
            // SAFETY: a block is freed when all its messages are read, and this one is not.
            let slots = unsafe { &(*block).slots };
            let slot = &slots[at as usize];
            self.wait_for(slot, WRITTEN);
            // SAFETY: the slot is this call's, and it is written.
            slot.message.with(|place| unsafe {
                into.copy_from_nonoverlapping(place.cast::<T>(), 1);
            });
            if at + 1 < SLOTS {
                // The block may be freed after this.
                slot.state.store(READ, Ordering::Release);
            } else {
                for other in &slots[..SLOTS as usize - 1] {
                    self.wait_for(other, READ);
                }
                // SAFETY: the chain has left the block, all other threads are done with it, and it
                // came from a box.
                spent.0 = Some(unsafe { Box::from_raw(block) });
            }
            return Take::Done;
        }
    }

    #[inline]
    fn await_message(&self) -> bool {
        let tail = self.tail.index.load(Ordering::Acquire);
        if tail & AWAITED != 0 {
            return true;
        }
        let head = self.head.index.load(Ordering::Acquire);
        // If the head has the flag `BEHIND`, the two differ.
        tail == head
            && self
                .tail
                .index
                .compare_exchange(tail, tail | AWAITED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn no_receivers(&self) {
        // While the flag is set no slot is claimed, but the sender that claimed the last slot of a
        // block may not have linked the next block yet, although its message may be gone already.
        // So the word may move.
        self.tail.index.fetch_and(!AWAITED, Ordering::AcqRel);
    }

    fn await_room(&self) -> bool {
        false
    }

    fn no_senders(&self) {}

    unsafe fn rotate(&self, _: *const T, _: *mut T) {
        crate::throw!("Blocks::rotate: a sender waits though there is no bound");
    }

    fn close(&self) {
        self.tail.index.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn is_closed(&self) -> bool {
        self.tail.index.load(Ordering::Acquire) & CLOSED != 0
    }

    fn len(&self) -> usize {
        loop {
            let tail = self.tail.index.load(Ordering::Acquire);
            let head = self.head.index.load(Ordering::Acquire);
            // If the tail did not move, both are of one moment.
            if self.tail.index.load(Ordering::Acquire) == tail {
                return Self::messages(tail).saturating_sub(Self::messages(head)) as usize;
            }
        }
    }

    fn capacity(&self) -> Option<usize> {
        None
    }

    fn receive_stamp(&self) -> u64 {
        self.tail.index.load(Ordering::Acquire)
    }

    fn send_stamp(&self) -> u64 {
        // A sender never has to wait.
        0
    }
}

impl<T> Drop for Blocks<T> {
    fn drop(&mut self) {
        let tail = self.tail.index.load(Ordering::Acquire) & !FLAGS;
        let mut head = self.head.index.load(Ordering::Acquire) & !FLAGS;
        let mut block = self.head.block.load(Ordering::Acquire);
        while head != tail {
            let at = offset(head);
            if at < SLOTS {
                // SAFETY: no other user is left, and between head and tail every slot is written.
                unsafe { &*block }.slots[at as usize]
                    .message
                    .with_mut(|place| unsafe { (*place).assume_init_drop() });
            } else {
                // SAFETY: the block came from a box, and no other user is left.
                let old = unsafe { Box::from_raw(block) };
                block = old.next.load(Ordering::Acquire);
            }
            head += ONE;
        }
        // SAFETY: as above.
        drop(unsafe { Box::from_raw(block) });
    }
}

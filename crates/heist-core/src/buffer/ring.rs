//! The buffer of a bounded channel: a ring of stamped slots.
//!
//! A position is a lap and an index below the capacity; `head` and `tail` hold one each above their
//! flag bits. A slot's stamp is the lap in which it may be filled, or that lap and `FILLED`:
//!
//! ```text
//!   stamp   lap 3        lap 3 FILLED       lap 4
//!           free    ->   holds the      ->  free for
//!           for 3        message of 3       the next round
//!                sender             receiver
//! ```
//!
//! So a sender reads `tail` and one slot, a receiver reads `head` and one slot, and only an
//! operation that finds no room or no message reads the other word.
//!
//! # Invariants
//! - `head <= tail <= head + capacity`. Both only grow. The thread that moves one by
//!   compare-and-swap owns the slot at the old value until it changes the stamp.
//! - A full ring with waiting senders stays full: [`Ring::rotate`] takes the oldest message out of
//!   the slot into which the next one belongs, and the stamp changes from filled to filled.
//!
//! # Ordering
//! - Stamps are stored with Release and loaded with Acquire: the message is written before it can
//!   be read, and read before it can be overwritten.
//! - `head` and `tail` are moved with AcqRel and loaded with Acquire, so that a thread that sees
//!   that a message was taken also sees what the taker did before it. A select with a default
//!   relies on that.
//! - Waiting needs no order between the words; see [`super`].

use super::{AWAITED, Backoff, Buffer, CLOSED, FLAGS, ONE, Pause, Put, Take};
use crate::sync::{AtomicU64, Ordering, UnsafeCell};
use crossbeam_utils::CachePadded;
use std::mem::MaybeUninit;

/// In a stamp: there is a message.
const FILLED: u64 = 1;

#[derive(Debug)]
struct Slot<T> {
    stamp: AtomicU64,
    message: UnsafeCell<MaybeUninit<T>>,
}

/// A ring of at least one slot.
#[derive(Debug)]
pub struct Ring<T> {
    tail: CachePadded<AtomicU64>,
    head: CachePadded<AtomicU64>,
    slots: Box<[Slot<T>]>,
    /// The step from one lap to the next. Positions below it are the index and the flags.
    lap: u64,
    pause: Pause,
}

// SAFETY: a message is handed from the thread that put it in to the one that takes it out; no other
// thread reads it.
unsafe impl<T: Send> Sync for Ring<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T> Ring<T> {
    /// Room for `capacity` messages, at least one. None if there is no memory for that many.
    #[must_use]
    pub fn new(capacity: usize, pause: Pause) -> Option<Self> {
        let index_end = (capacity as u64).checked_add(1)?.checked_next_power_of_two()?;
        let mut slots = Vec::new();
        slots.try_reserve_exact(capacity).ok()?;
        slots.resize_with(capacity, || Slot {
            stamp: AtomicU64::new(0),
            message: UnsafeCell::new(MaybeUninit::uninit()),
        });
        if slots.is_empty() {
            crate::throw!("Ring::new: a ring without slots");
        }
        Some(Self {
            tail: CachePadded::new(AtomicU64::new(0)),
            head: CachePadded::new(AtomicU64::new(0)),
            slots: slots.into_boxed_slice(),
            lap: index_end * ONE,
            pause,
        })
    }

    /// Whether a take was useless at some moment during the call: nothing was there, no sender
    /// waited, and the ring was open. Cheaper than the take.
    #[inline(always)]
    #[must_use]
    pub fn is_seen_empty(&self) -> bool {
        // In this order: the head does not pass the tail, so both were equal when the tail was
        // read. Senders wait only for a full ring, and a closed one has a flag here.
        let head = self.head.load(Ordering::Acquire);
        head == self.tail.load(Ordering::Acquire) & !AWAITED
    }

    /// The slot at a position.
    #[inline]
    fn slot(&self, position: u64) -> &Slot<T> {
        let index = ((position & (self.lap - 1)) / ONE) as usize;
        debug_assert!(index < self.slots.len(), "Ring::slot: index {index}");
        // SAFETY: `after` keeps the index of every position below the capacity.
        unsafe { self.slots.get_unchecked(index) }
    }

    /// The lap of a position: the stamp of its slot while it is free.
    #[inline]
    const fn lap_of(&self, position: u64) -> u64 {
        position & !(self.lap - 1)
    }

    /// The position that follows. Neither has flags.
    #[inline]
    fn after(&self, position: u64) -> u64 {
        let next = position + ONE;
        if ((next & (self.lap - 1)) / ONE) as usize == self.slots.len() {
            self.lap_of(position).wrapping_add(self.lap)
        } else {
            next
        }
    }
}

impl<T> Buffer<T> for Ring<T> {
    type Spare = ();

    fn provide((): &mut ()) {}

    #[inline(always)]
    unsafe fn put(&self, message: *const T, (): &mut ()) -> Put {
        let mut backoff = Backoff::new();
        let mut tail = self.tail.load(Ordering::Acquire);
        loop {
            if tail & FLAGS != 0 {
                return if tail & CLOSED != 0 { Put::Closed } else { Put::Attend };
            }
            let slot = self.slot(tail);
            let free = self.lap_of(tail);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == free {
                match self.tail.compare_exchange_weak(
                    tail,
                    self.after(tail),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => {
                        // SAFETY: the slot belongs to this call until the stamp changes; the caller
                        // owns the message.
                        slot.message.with_mut(|place| unsafe {
                            place.cast::<T>().copy_from_nonoverlapping(message, 1);
                        });
                        slot.stamp.store(free | FILLED, Ordering::Release);
                        return Put::Done;
                    }
                    Err(now) => {
                        tail = now;
                        backoff.lost();
                        continue;
                    }
                }
            }
            if stamp == free.wrapping_sub(self.lap) | FILLED {
                let head = self.head.load(Ordering::Acquire) & !FLAGS;
                if head.wrapping_add(self.lap) == tail {
                    return Put::Full;
                }
                // A receiver has claimed the slot and is not done with it.
                backoff.wait(self.pause);
            } else {
                backoff.lost();
            }
            tail = self.tail.load(Ordering::Acquire);
        }
    }

    #[inline(always)]
    unsafe fn take(&self, into: *mut T, (): &mut ()) -> Take {
        let mut backoff = Backoff::new();
        let mut head = self.head.load(Ordering::Acquire);
        loop {
            if head & AWAITED != 0 {
                return Take::Attend;
            }
            let slot = self.slot(head);
            let lap = self.lap_of(head);
            let stamp = slot.stamp.load(Ordering::Acquire);
            if stamp == lap | FILLED {
                match self.head.compare_exchange_weak(
                    head,
                    self.after(head),
                    Ordering::AcqRel,
                    Ordering::Acquire,
                ) {
                    Ok(_) => {
                        // SAFETY: the slot belongs to this call until the stamp changes, and it is
                        // filled.
                        slot.message.with(|place| unsafe {
                            into.copy_from_nonoverlapping(place.cast::<T>(), 1);
                        });
                        slot.stamp.store(lap.wrapping_add(self.lap), Ordering::Release);
                        return Take::Done;
                    }
                    Err(now) => {
                        head = now;
                        backoff.lost();
                        continue;
                    }
                }
            }
            if stamp == lap {
                let tail = self.tail.load(Ordering::Acquire);
                if tail & !FLAGS == head {
                    return if tail & CLOSED != 0 { Take::Closed } else { Take::Empty };
                }
                // A sender has claimed the slot and is not done with it.
                backoff.wait(self.pause);
            } else {
                backoff.lost();
            }
            head = self.head.load(Ordering::Acquire);
        }
    }

    #[inline]
    fn await_message(&self) -> bool {
        let tail = self.tail.load(Ordering::Acquire);
        if tail & AWAITED != 0 {
            return true;
        }
        let head = self.head.load(Ordering::Acquire);
        tail == head
            && self
                .tail
                .compare_exchange(tail, tail | AWAITED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn no_receivers(&self) {
        // While the flag is set, the word does not change without the lock.
        let tail = self.tail.load(Ordering::Relaxed);
        if tail & AWAITED != 0 {
            self.tail.store(tail & !AWAITED, Ordering::Release);
        }
    }

    #[inline]
    fn await_room(&self) -> bool {
        let head = self.head.load(Ordering::Acquire);
        if head & AWAITED != 0 {
            return true;
        }
        let tail = self.tail.load(Ordering::Acquire);
        head.wrapping_add(self.lap) == tail
            && self
                .head
                .compare_exchange(head, head | AWAITED, Ordering::AcqRel, Ordering::Relaxed)
                .is_ok()
    }

    #[inline]
    fn no_senders(&self) {
        // As for the receivers.
        let head = self.head.load(Ordering::Relaxed);
        if head & AWAITED != 0 {
            self.head.store(head & !AWAITED, Ordering::Release);
        }
    }

    unsafe fn rotate(&self, incoming: *const T, into: *mut T) {
        let head = self.head.load(Ordering::Acquire) & !FLAGS;
        let tail = head.wrapping_add(self.lap);
        if self.tail.load(Ordering::Acquire) != tail {
            crate::throw!("Ring::rotate: senders wait though there is room");
        }
        let slot = self.slot(head);
        let mut backoff = Backoff::new();
        // The sender that claimed it may not be done.
        while slot.stamp.load(Ordering::Acquire) != self.lap_of(head) | FILLED {
            backoff.wait(self.pause);
        }
        // SAFETY: the slot is filled. Receivers need the lock, which the caller holds, and senders
        // find no room; so the slot belongs to this call. The rest is the caller's promise.
        slot.message.with_mut(|place| unsafe {
            into.copy_from_nonoverlapping(place.cast::<T>(), 1);
            place.cast::<T>().copy_from_nonoverlapping(incoming, 1);
        });
        slot.stamp.store(self.lap_of(tail) | FILLED, Ordering::Release);
        self.tail.store(self.after(tail), Ordering::Release);
        self.head.store(self.after(head) | AWAITED, Ordering::Release);
    }

    fn close(&self) {
        self.tail.fetch_or(CLOSED, Ordering::AcqRel);
    }

    fn is_closed(&self) -> bool {
        self.tail.load(Ordering::Acquire) & CLOSED != 0
    }

    fn len(&self) -> usize {
        loop {
            let tail = self.tail.load(Ordering::Acquire);
            let head = self.head.load(Ordering::Acquire);
            // If the tail did not move, both are of one moment.
            if self.tail.load(Ordering::Acquire) != tail {
                continue;
            }
            let index = |position: u64| ((position & (self.lap - 1)) / ONE) as usize;
            let (first, end) = (index(head), index(tail));
            return if self.lap_of(head) == self.lap_of(tail) {
                // A rotation moves the tail first; then the ring is full.
                end.saturating_sub(first)
            } else {
                (end + self.slots.len() - first).min(self.slots.len())
            };
        }
    }

    fn capacity(&self) -> Option<usize> {
        Some(self.slots.len())
    }

    fn receive_stamp(&self) -> u64 {
        self.tail.load(Ordering::Acquire)
    }

    fn send_stamp(&self) -> u64 {
        let closed = self.tail.load(Ordering::Acquire) & CLOSED;
        self.head.load(Ordering::Acquire).wrapping_mul(2) | closed
    }
}

impl<T> Drop for Ring<T> {
    fn drop(&mut self) {
        if !std::mem::needs_drop::<T>() {
            return;
        }
        let tail = self.tail.load(Ordering::Acquire) & !FLAGS;
        let mut head = self.head.load(Ordering::Acquire) & !FLAGS;
        while head != tail {
            let next = self.after(head);
            // SAFETY: no other user is left, and between head and tail every slot is filled.
            self.slot(head).message.with_mut(|place| unsafe { (*place).assume_init_drop() });
            head = next;
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn put(ring: &Ring<u32>, message: u32) -> Put {
        // SAFETY: the message is a number, which may be copied.
        unsafe { ring.put(&raw const message, &mut ()) }
    }

    fn take(ring: &Ring<u32>) -> Take {
        let mut message = 0;
        // SAFETY: there is room for a message.
        unsafe { ring.take(&raw mut message, &mut ()) }
    }

    #[test]
    fn it_is_seen_empty_exactly_if_a_take_finds_nothing() {
        let ring = Ring::new(2, std::thread::yield_now).expect("a small ring");
        for _ in 0..5 {
            assert!(ring.is_seen_empty());
            assert_eq!(take(&ring), Take::Empty);
            // A receiver that waits changes nothing about that.
            assert!(ring.await_message() && ring.is_seen_empty());
            ring.no_receivers();
            assert_eq!((put(&ring, 1), put(&ring, 2)), (Put::Done, Put::Done));
            assert!(!ring.is_seen_empty());
            assert!(ring.await_room() && !ring.is_seen_empty());
            ring.no_senders();
            assert_eq!((take(&ring), take(&ring)), (Take::Done, Take::Done));
        }
        Buffer::<u32>::close(&ring);
        assert!(!ring.is_seen_empty(), "a take finds the end");
        assert_eq!(take(&ring), Take::Closed);
    }
}

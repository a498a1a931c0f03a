//! Places for threads that run goroutines: the stack of the thread, and above it the area of its
//! variables.
//!
//! A place is never unmapped. A waiting goroutine may hold addresses of the variables of a thread
//! that has ended (`coro::relocation`), so the area must not be used for anything else; the next
//! thread that gets the place has its variables at the same addresses.
//!
//! # Rows
//! The places of a row, 4 GiB of addresses, end 16 MiB apart. So the addresses of a variable in two
//! threads differ in one byte, the highest of the lower half:
//!
//! ```text
//!                 row       place   the same in all places
//!   0x0000   7e 37  ..  fe .. c8    59 f6 40
//! ```
//!
//! The scan of a stack cannot tell such an address from the rest of one with a smaller live value
//! in a part of it. If that value does not include the byte in which places differ, a move leaves
//! it as it is. Otherwise it must have been the same as that part of an address of the thread: a
//! byte of 200 or more, or a number of 32 bits in the uppermost quarter of their range. Counters,
//! sizes and tags are neither. Nothing else should be mapped in a row, so that no other pointer has
//! its upper half.
//!
//! # The clear bytes
//! The compiler may keep the address of a variable with an offset in it, if each access subtracts
//! the offset again: `table[c - b'a']` keeps an address beyond its table. Such an address must move
//! with its goroutine too. So nothing else is mapped around a place: a word that looks like an
//! address there was made from one of the thread's variables. Offsets of more than [`CLEAR_BYTES`]
//! are not recognised (docs/design/thread_locals.md).
//!
//! ```text
//!  low                                                            top
//!   | clear | guard | stack ............ | area of the thread | clear |
//! ```

use super::memory::{self, PAGE_MAX_BYTES};
use super::tls;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The distance of two rows.
const ROW: usize = 4 << 30;
/// How far the first row is below the addresses that the kernel gives out, tried one after the
/// other: stacks and heaps should not grow into it.
const ROWS_BELOW: [usize; 5] = [256, 64, 16, 4, 1];
/// The distance of two places.
const STRIDE: usize = 1 << 24;
/// Where the highest place of a row ends, and the lowest.
const HIGHEST: usize = 0xfe5a_0000;
const LOWEST: usize = 0xc85a_0000;
/// The bytes that are kept clear on each side of a place.
pub(super) const CLEAR_BYTES: usize = 64 << 10;
/// The size of the guard below a stack.
const GUARD_BYTES: usize = PAGE_MAX_BYTES;

/// Address space for the stack and the variables of one thread.
#[derive(Debug)]
pub(crate) struct Place {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: memory, which has one owner at a time.
unsafe impl Send for Place {}

impl Place {
    /// A place with `bytes` bytes above its guard.
    pub(crate) fn take(bytes: usize) -> io::Result<Self> {
        let len = GUARD_BYTES + bytes;
        let mut places = places();
        match places.pop_free(len) {
            Some(place) => Ok(place),
            None => places.make(len),
        }
    }

    /// Returns it, for the next thread. Its contents are discarded.
    pub(crate) fn give_back(self) {
        let used = self.stack();
        // SAFETY: no thread uses it.
        unsafe { memory::discard_all(std::iter::once(used)) };
        places().push_free(&self);
    }

    /// The memory above the guard.
    pub(crate) fn stack(&self) -> (NonNull<u8>, usize) {
        // SAFETY: inside the mapping.
        (unsafe { self.base.add(GUARD_BYTES) }, self.len - GUARD_BYTES)
    }

    /// The address of its end.
    pub(crate) fn top(&self) -> usize {
        self.base.addr().get() + self.len
    }
}

/// The guard below a stack whose lowest address is `stack_end`.
pub(crate) const fn guard_below(stack_end: usize) -> Range<usize> {
    stack_end.saturating_sub(GUARD_BYTES)..stack_end
}

/// All places of the process.
struct Places {
    /// Where the next one should end; None before the first one.
    next: Option<usize>,
    /// The first place that no thread has. Each one links the next.
    free: Option<NonNull<Free>>,
}

/// The data of a place that no thread has, at the low end of its stack. Returning a place must not
/// need the allocator: a thread that waits for the allocator here would keep others from making
/// threads.
struct Free {
    next: Option<NonNull<Free>>,
    len: usize,
}

// SAFETY: memory, which has one owner at a time.
unsafe impl Send for Places {}

/// Taken only by threads without a P: it is held during system calls.
static PLACES: Mutex<Places> = Mutex::new(Places { next: None, free: None });

fn places() -> MutexGuard<'static, Places> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The row `rows` below an address, or zero if there is none.
const fn row_below(address: usize, rows: usize) -> usize {
    (address / ROW).saturating_sub(rows) * ROW
}

/// The end of the place that follows the one that ends at `top`, downwards.
const fn end_below(top: usize) -> usize {
    if top % ROW > LOWEST { top - STRIDE } else { row_below(top, 1) + HIGHEST }
}

/// Where the first place should end: in a row below the addresses that the kernel gives out.
fn first_end() -> io::Result<usize> {
    let len = PAGE_MAX_BYTES;
    let given = memory::reserve(0, len)?.ok_or(io::ErrorKind::OutOfMemory)?;
    // SAFETY: just reserved, not used.
    unsafe { memory::unmap(given, len) };
    let rows = ROWS_BELOW.map(|rows| row_below(given.addr().get(), rows));
    Ok(rows.into_iter().find(|&row| row != 0).unwrap_or(0) + HIGHEST)
}

impl Places {
    /// Takes a free one that is large enough.
    fn pop_free(&mut self, len: usize) -> Option<Place> {
        let mut at = &mut self.free;
        while let Some(free) = *at {
            // SAFETY: written by `push_free`; nothing else uses the memory.
            let free = unsafe { &mut *free.as_ptr() };
            if free.len >= len {
                *at = free.next;
                // SAFETY: that is where it was put.
                let base = unsafe { NonNull::from(&mut *free).cast::<u8>().sub(GUARD_BYTES) };
                return Some(Place { base, len: free.len });
            }
            at = &mut free.next;
        }
        None
    }

    fn push_free(&mut self, place: &Place) {
        let free = place.stack().0.cast();
        // SAFETY: the memory of a place that no thread has.
        unsafe { free.write(Free { next: self.free, len: place.len }) };
        self.free = Some(free);
    }

    /// Maps one more place.
    fn make(&mut self, len: usize) -> io::Result<Place> {
        let (low, clear) = match self.reserve_in_rows(len)? {
            Some(low) => (low, CLEAR_BYTES),
            None => (memory::reserve(0, len)?.ok_or(io::ErrorKind::OutOfMemory)?, 0),
        };
        tls::limit_slack(clear);
        // SAFETY: inside what was just reserved.
        let base = unsafe { low.add(clear) };
        // SAFETY: just reserved, above the guard, not used.
        if unsafe { memory::open(base.add(GUARD_BYTES), len - GUARD_BYTES) } {
            return Ok(Place { base, len });
        }
        let error = io::Error::last_os_error();
        // SAFETY: reserved above, and no thread ever had its variables there.
        unsafe { memory::unmap(low, len + 2 * clear) };
        Err(error)
    }

    /// Reserves at the next place that is free, with the clear bytes. Returns the low end of all.
    /// None if there is no such place.
    fn reserve_in_rows(&mut self, len: usize) -> io::Result<Option<NonNull<u8>>> {
        let all = len + 2 * CLEAR_BYTES;
        if all > STRIDE {
            return Ok(None);
        }
        let mut top = match self.next {
            Some(next) => next,
            None => first_end()?,
        };
        while top > HIGHEST {
            let below = end_below(top);
            self.next = Some(below);
            if let Some(low) = memory::reserve(top - len - CLEAR_BYTES, all)? {
                return Ok(Some(low));
            }
            top = below;
        }
        Ok(None)
    }
}

const _: () = assert!(HIGHEST.is_multiple_of(PAGE_MAX_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;
    const LEN: usize = BYTES + GUARD_BYTES;
    const NONE: Places = Places { next: None, free: None };

    /// The part of an address in which places of a row may differ.
    const PLACE_BYTE: usize = 0xff00_0000;

    #[test]
    fn places_of_a_row_differ_in_one_byte() {
        let mut places = NONE;
        let made: Vec<_> = (0..20).map(|_| places.make(LEN).expect("memory")).collect();
        let first = made[0].top();
        for place in &made {
            assert_eq!(place.top() & !PLACE_BYTE, first & !PLACE_BYTE);
            assert!((LOWEST..=HIGHEST).contains(&(place.top() % ROW)), "{:#x}", place.top());
        }
        let mut tops: Vec<_> = made.iter().map(Place::top).collect();
        tops.sort_unstable();
        tops.dedup();
        assert_eq!(tops.len(), made.len(), "every place is somewhere else");
        made.into_iter().for_each(|place| places.push_free(&place));
    }

    #[test]
    fn the_next_row_is_below() {
        let (row, below) = (5 * ROW, 4 * ROW);
        assert_eq!(end_below(row + HIGHEST), row + HIGHEST - STRIDE);
        assert_eq!(end_below(row + LOWEST), below + HIGHEST);
        let n = std::iter::successors(Some(row + HIGHEST), |&top| Some(end_below(top)))
            .take_while(|&top| top > row)
            .count();
        assert_eq!(n, 55);
    }

    #[test]
    fn an_end_that_is_taken_is_passed_over() {
        let mut places = NONE;
        let first = places.make(LEN).expect("memory");
        places.next = Some(first.top());
        let second = places.make(LEN).expect("memory");
        assert_eq!(second.top(), end_below(first.top()));
        // As after the last row: anywhere.
        places.next = Some(HIGHEST);
        assert!(places.reserve_in_rows(LEN).expect("no error").is_none());
        assert!(places.reserve_in_rows(STRIDE).expect("no error").is_none());
    }

    #[test]
    fn a_free_place_is_used_again_if_it_is_large_enough() {
        let mut places = NONE;
        let (small, large) =
            (places.make(LEN).expect("memory"), places.make(2 * LEN).expect("memory"));
        let (small_top, large_top) = (small.top(), large.top());
        places.push_free(&large);
        places.push_free(&small);
        assert_eq!(places.pop_free(2 * LEN).map(|place| place.top()), Some(large_top));
        assert!(places.pop_free(2 * LEN).is_none());
        assert_eq!(places.pop_free(LEN).map(|place| place.top()), Some(small_top));
        assert!(places.pop_free(1).is_none());
    }
}

//! Places for threads that run goroutines: the stack of the thread, and above it the area of its
//! variables.
//!
//! A place is never unmapped. A waiting goroutine may hold addresses of the variables of a thread
//! that has ended (`coro::relocation`), so the area must not be used for anything else; the next
//! thread that gets the place has its variables at the same addresses.
//!
//! All places end at the same distance from a multiple of 4 GiB, the first hundred from a multiple
//! of 1 TiB. Then the addresses of a variable in two threads differ only in their upper halves. A
//! word on a stack may be the rest of an address, with a smaller live value in a part of it. If
//! that value is at the low end, it does not change when the word is moved; elsewhere it would have
//! to equal that part of the address, and booleans and tags do not (`is_telling`).
//!
//! ```text
//!  low                                                            top
//!   | clear | guard | stack ............ | area of the thread | clear |
//! ```
//!
//! # The clear bytes
//! The compiler may keep the address of a variable with an offset in it, if each access subtracts
//! the offset again: `table[c - b'a']` keeps an address beyond its table. Such an address must move
//! with its goroutine too. So nothing else is mapped around a place: a word that looks like an
//! address there was made from one of the thread's variables. Offsets of more than [`CLEAR_BYTES`]
//! are not recognised (docs/design/thread_locals.md).

use super::limits::Limit;
use super::memory::{self, PAGE_MAX_BYTES};
use super::tls;
use std::io;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The distances of two places, tried one after the other. With the first, about a hundred places
/// differ only in bits 40 to 46 of their addresses.
const STRIDES: [usize; 6] = [1 << 40, 4 << 30, 256 << 20, 16 << 20, 1 << 20, STRIDE_MIN];
/// Where the address space is too small for more: the rest of an address with a live value of two
/// bytes is still safe, and one of three or four bytes would have to hit the area by chance.
const STRIDE_MIN: usize = 64 << 10;
/// Below this address the kernel maps nothing, or user code is there.
const LOWEST: usize = 16 << 20;
/// The bytes that are kept clear on each side of a place, and the bytes where the address space is
/// limited.
const CLEAR_BYTES: usize = 1 << 20;
const CLEAR_LIMITED_BYTES: usize = 64 << 10;
/// Places that are closer to each other have no room for clear bytes.
const CLEAR_STRIDE_MIN: usize = 16 << 20;
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
            None => {
                let place = places.make(len)?;
                tls::limit_slack(places.clear);
                Ok(place)
            }
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
    /// Where the first one ends. Zero if there is none.
    first: usize,
    /// Where the next one would end.
    next: usize,
    /// The index of the distance in use.
    stride: usize,
    /// Bytes that are kept clear on each side of a place.
    clear: usize,
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
static PLACES: Mutex<Places> =
    Mutex::new(Places { first: 0, next: 0, stride: 0, clear: 0, free: None });

fn places() -> MutexGuard<'static, Places> {
    PLACES.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Whether the bytes of an address in which places at this distance differ are not small numbers:
/// with the rest of an address around it, a live boolean or tag must not look like an address.
fn is_telling(top: usize, stride: usize) -> bool {
    let byte = |i: usize| (top - 1) >> (8 * i) & 0xff;
    match stride {
        0x100_0000_0000.. => byte(4) >= 16 && byte(4) != 0xff && byte(5) >= 16,
        0x1_0000_0000.. => byte(4) >= 16 && byte(4) != 0xff,
        _ => true,
    }
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
        let low = if self.first == 0 { self.map_first(len)? } else { self.map_at_distance(len)? };
        // SAFETY: inside what was just reserved.
        let base = unsafe { low.add(self.clear) };
        // SAFETY: just reserved, above the guard, not used.
        if unsafe { memory::open(base.add(GUARD_BYTES), len - GUARD_BYTES) } {
            return Ok(Place { base, len });
        }
        let error = io::Error::last_os_error();
        self.next = self.next.max(base.addr().get() + len);
        // SAFETY: reserved above, and no thread ever had its variables there.
        unsafe { memory::unmap(low, len + 2 * self.clear) };
        Err(error)
    }

    /// Reserves where the kernel likes, or below that where addresses are telling. Returns the low
    /// end of all that was reserved, as does `map_at_distance`.
    fn map_first(&mut self, len: usize) -> io::Result<NonNull<u8>> {
        const TRIES: usize = 64;
        let limited = Limit::AddressSpace.get().is_some();
        self.clear = if limited { CLEAR_LIMITED_BYTES } else { CLEAR_BYTES };
        let all = len + 2 * self.clear;
        let Some(anywhere) = memory::reserve(0, all)? else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let top = anywhere.addr().get() + self.clear + len;
        let mut low = anywhere;
        if !is_telling(top, STRIDES[0]) {
            for i in 1..TRIES {
                let below = top.saturating_sub(i * STRIDES[1]);
                if below >= LOWEST + all
                    && is_telling(below, STRIDES[0])
                    && let Some(found) = memory::reserve(below - len - self.clear, all)?
                {
                    // SAFETY: just reserved, not used.
                    unsafe { memory::unmap(anywhere, all) };
                    low = found;
                    break;
                }
            }
        }
        self.first = low.addr().get() + self.clear + len;
        self.next = self.first.saturating_sub(STRIDES[0]);
        Ok(low)
    }

    /// Reserves at the highest free address that ends at the right distance from the other places;
    /// if there is none at any distance, anywhere.
    fn map_at_distance(&mut self, len: usize) -> io::Result<NonNull<u8>> {
        while let Some(&stride) = STRIDES.get(self.stride) {
            if stride < CLEAR_STRIDE_MIN {
                self.clear = 0;
            }
            let all = len + 2 * self.clear;
            while self.next >= LOWEST + all {
                let top = self.next;
                let found = if is_telling(top, stride) {
                    memory::reserve(top - len - self.clear, all)?
                } else {
                    None
                };
                self.next = top.saturating_sub(stride);
                if let Some(low) = found {
                    return Ok(low);
                }
            }
            self.stride += 1;
            let smaller = STRIDES.get(self.stride).unwrap_or(&STRIDE_MIN);
            self.next = self.first.saturating_sub(*smaller);
        }
        self.clear = 0;
        memory::reserve(0, len)?.ok_or_else(|| io::ErrorKind::OutOfMemory.into())
    }
}

const _: () = assert!(STRIDE_MIN.is_multiple_of(PAGE_MAX_BYTES));

#[cfg(test)]
mod tests {
    use super::*;

    const BYTES: usize = 64 << 10;
    const LEN: usize = BYTES + GUARD_BYTES;
    const NONE: Places = Places { first: 0, next: 0, stride: 0, clear: 0, free: None };

    #[test]
    fn places_differ_in_the_upper_half_of_their_addresses_only() {
        let places: Vec<_> = (0..20).map(|_| Place::take(BYTES).expect("memory")).collect();
        let first = places[0].top();
        for place in &places {
            assert_eq!(place.top() as u32, first as u32);
            assert!(is_telling(place.top(), STRIDES[1]), "{:#x}", place.top());
        }
        let mut tops: Vec<_> = places.iter().map(Place::top).collect();
        tops.sort_unstable();
        tops.dedup();
        assert_eq!(tops.len(), places.len(), "every place is somewhere else");
        places.into_iter().for_each(Place::give_back);
    }

    #[test]
    fn places_come_closer_where_addresses_are_taken() {
        let mut places = NONE;
        let first = places.make(LEN).expect("memory");
        // As if only the addresses below 4 GiB were left.
        places.next = (first.top() as u32).max(1 << 30) as usize;
        let second = places.make(LEN).expect("memory");
        assert!(places.stride > 0);
        assert_eq!((first.top() - second.top()) % STRIDES[places.stride], 0);
    }

    #[test]
    fn low_addresses_are_used_at_last() {
        // As under an emulator that maps from the bottom.
        let mut places = Places { first: 80 << 20, next: 0, ..NONE };
        let found: Vec<_> = (0..10).map(|_| places.make(LEN).expect("memory")).collect();
        assert!(places.stride >= 2, "{}", places.stride);
        let last = found.last().expect("some");
        assert!(last.top() > LOWEST);
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

    #[test]
    fn small_bytes_are_not_telling() {
        let tib = STRIDES[0];
        assert!(is_telling(0x7f37_1234_5000, tib));
        for top in [0x7f01_1234_5000, 0x0137_1234_5000, 0x7fff_1234_5000] {
            assert!(!is_telling(top, tib), "{top:#x}");
        }
        assert!(is_telling(0x0137_1234_5000, STRIDES[1]) && is_telling(0x1_0000, STRIDES[2]));
    }
}

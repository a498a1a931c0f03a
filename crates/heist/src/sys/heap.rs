//! The blocks of the C library's allocator, found by address.
//!
//! A heap of glibc is a chain of chunks without gaps. Each begins with a word that belongs to the
//! chunk before it and a word with its own size, whose low bits are flags; the memory that `malloc`
//! returned begins behind them. The first arena is the mapping `[heap]`. Each further one consists
//! of heaps that begin at a multiple of 64 MiB with a record of their own.
//!
//! None of this is promised by the C library, so nothing is believed: a region counts as a heap
//! only if its chain of chunks leads from its beginning exactly to its end. In every other case the
//! caller treats the memory as one that it does not understand.
//!
//! All threads stand still while a heap is read. One of them may be about to split a free chunk.
//! Then the chain is broken, or it leads through the old contents of that free chunk; no chunk that
//! is in use is affected.
//!
//! GO: mbitmap.go findObject.

use super::memory;
use super::registers::racy_word;
use std::ops::Range;
use std::ptr::NonNull;

/// Chunks begin at multiples of this.
const UNIT: usize = 16;
/// The two words at the beginning of a chunk.
const HEADER_BYTES: usize = 16;
/// The flag of a chunk whose predecessor is in use.
const PREVIOUS_IN_USE: usize = 1;
const FLAGS: usize = 7;
/// The distance of the heaps of further arenas.
const ARENA_BYTES: usize = 64 << 20;
/// The positions of fields in the record at the beginning of such a heap.
const ARENA_AT: usize = 0;
const SIZE_AT: usize = 16;
const OPEN_BYTES_AT: usize = 24;
/// Where the first chunk of such a heap may begin: behind the record, and in the first heap of an
/// arena behind the record of the arena, whose size depends on the version.
const FIRST_BEHIND_HEAP: Range<usize> = 0x20..0x60;
const FIRST_BEHIND_ARENA: Range<usize> = 0x820..0xa00;
/// There is an index of the chunks with an entry for so many bytes.
const INDEX_BYTES: usize = 4 << 10;

/// Memory of zeroes, from the system.
struct Room<T> {
    base: NonNull<T>,
    len: usize,
}

impl<T: Copy> Room<T> {
    fn new(len: usize) -> Option<Self> {
        let base = memory::map((len * size_of::<T>()).max(1)).ok()?.cast();
        Some(Self { base, len })
    }

    const fn as_slice(&self) -> &[T] {
        // SAFETY: mapped, zero is valid for the integers that it is used with, and this owns it.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr(), self.len) }
    }

    const fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as above.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr(), self.len) }
    }

    fn mapped(&self) -> Range<usize> {
        let start = self.base.addr().get();
        start..start + (self.len * size_of::<T>()).max(1)
    }
}

impl<T> Drop for Room<T> {
    fn drop(&mut self) {
        // SAFETY: mapped by `new` with this length.
        unsafe { memory::unmap(self.base.cast(), (self.len * size_of::<T>()).max(1)) };
    }
}

/// A block that `malloc` returned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Block {
    /// Its first byte.
    pub(crate) start: usize,
    /// The end of its last whole word.
    pub(crate) end: usize,
}

/// One heap.
pub(crate) struct Heap {
    start: usize,
    /// From its first chunk to its end.
    chunks: Range<usize>,
    /// A bit for each unit: a chunk begins there.
    begins: Room<u64>,
    /// A bit for each unit: the chunk that begins there is not to be looked at again.
    done: Room<u64>,
    /// For each stretch of `INDEX_BYTES`: the unit of the last chunk that begins before it.
    index: Room<u32>,
}

impl Heap {
    /// The heap that begins at `start`, in a mapping that ends at `end`. `is_main` says that it is
    /// the one of `brk`. `freed` is the mark of blocks that threads keep for reuse, if known.
    /// `read` reads a word of memory that may not be readable, such as a guard: other mappings look
    /// similar.
    pub(crate) fn at(
        start: usize,
        end: usize,
        is_main: bool,
        freed: Option<usize>,
        read: Read<'_>,
    ) -> Option<Self> {
        let chunks =
            if is_main { main_chunks(start, end, read) } else { arena_chunks(start, end, read) }?;
        // From here on, all of it is read directly.
        if !chunks.clone().step_by(memory::PAGE_MIN_BYTES).all(|page| read(page).is_some()) {
            return None;
        }
        let n_units = chunks.len() / UNIT;
        if u32::try_from(n_units).is_err() {
            return None;
        }
        let n_words = n_units / 64 + 1;
        let mut heap = Self {
            begins: Room::new(n_words)?,
            done: Room::new(n_words)?,
            index: Room::new(chunks.len() / INDEX_BYTES + 2)?,
            chunks: chunks.clone(),
            start,
        };
        let mut last = 0;
        let mut direct = |at: usize| {
            // SAFETY: all pages of the heap can be read.
            Some(unsafe { racy_word(at) })
        };
        walk(chunks.clone(), &mut direct, |chunk, size| {
            let unit = (chunk - chunks.start) / UNIT;
            heap.begins.as_mut_slice()[unit / 64] |= 1 << (unit % 64);
            for stretch in heap.index.as_mut_slice()
                [(last * UNIT).div_ceil(INDEX_BYTES)..(unit * UNIT).div_ceil(INDEX_BYTES)]
                .iter_mut()
            {
                *stretch = last as u32;
            }
            last = unit;
            // SAFETY: the header of the next chunk, or of this one, is in the heap.
            let is_free = unsafe {
                let next = chunk + size;
                let is_last = next + HEADER_BYTES > chunks.end;
                let is_kept = size >= 2 * UNIT
                    && freed.is_some_and(|mark| racy_word(chunk + HEADER_BYTES + 8) == mark);
                is_last || racy_word(next + 8) & PREVIOUS_IN_USE == 0 || is_kept
            };
            if is_free {
                heap.done.as_mut_slice()[unit / 64] |= 1 << (unit % 64);
            }
        });
        let first = (last * UNIT).div_ceil(INDEX_BYTES);
        heap.index.as_mut_slice()[first..].fill(last as u32);
        Some(heap)
    }

    /// All its addresses, with the record of the C library at its beginning.
    pub(crate) const fn whole(&self) -> Range<usize> {
        self.start..self.chunks.end
    }

    /// The addresses that it understands.
    pub(crate) fn addresses(&self) -> Range<usize> {
        self.chunks.clone()
    }

    /// The memory that this uses itself.
    pub(crate) fn rooms(&self) -> [Range<usize>; 3] {
        [self.begins.mapped(), self.done.mapped(), self.index.mapped()]
    }

    /// The block around an address, or right before it. None if the address is in no block.
    pub(crate) fn block_around(&self, address: usize) -> Option<Block> {
        let first = address.checked_sub(self.chunks.start + HEADER_BYTES)?;
        if address >= self.chunks.end {
            return None;
        }
        let unit = self.last_before(first / UNIT);
        let chunk = self.chunks.start + unit * UNIT;
        // SAFETY: the header of a chunk of this heap.
        let size = unsafe { racy_word(chunk + 8) } & !FLAGS;
        Some(Block { start: chunk + HEADER_BYTES, end: (chunk + size + 8).min(self.chunks.end) })
    }

    /// The last chunk that begins at this unit or before.
    fn last_before(&self, unit: usize) -> usize {
        let stretch = unit * UNIT / INDEX_BYTES;
        let begins = self.begins.as_slice();
        let lowest = stretch * INDEX_BYTES / UNIT / 64;
        let mut at = unit / 64;
        let mut word = begins[at] & (u64::MAX >> (63 - unit % 64));
        while word == 0 {
            if at == lowest {
                return self.index.as_slice()[stretch] as usize;
            }
            at -= 1;
            word = begins[at];
        }
        at * 64 + (63 - word.leading_zeros() as usize)
    }

    /// Notes that a block is done. False if it was before, or is free.
    pub(crate) fn take(&mut self, block: Block) -> bool {
        let unit = (block.start - HEADER_BYTES - self.chunks.start) / UNIT;
        let (word, bit) = (&mut self.done.as_mut_slice()[unit / 64], 1 << (unit % 64));
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }
}

/// Reads a word, if it can be read.
type Read<'a> = &'a mut dyn FnMut(usize) -> Option<usize>;

/// Goes along the chain. True if it leads exactly to the end.
fn walk(chunks: Range<usize>, read: Read<'_>, mut look: impl FnMut(usize, usize)) -> bool {
    let mut at = chunks.start;
    while at + HEADER_BYTES <= chunks.end {
        let Some(size) = read(at + 8).map(|word| word & !FLAGS) else { return false };
        // The heaps of an arena that are full end with such a chunk.
        if size == 0 && chunks.end - at <= 2 * UNIT {
            return true;
        }
        if size < UNIT || !size.is_multiple_of(UNIT) || size > chunks.end - at {
            return false;
        }
        look(at, size);
        at += size;
    }
    at == chunks.end
}

fn main_chunks(start: usize, end: usize, read: Read<'_>) -> Option<Range<usize>> {
    let chunks = start.next_multiple_of(UNIT)..end;
    walk(chunks.clone(), read, |_, _| ()).then_some(chunks)
}

fn arena_chunks(start: usize, end: usize, read: Read<'_>) -> Option<Range<usize>> {
    if !start.is_multiple_of(ARENA_BYTES) || end - start < FIRST_BEHIND_ARENA.end {
        return None;
    }
    let (arena, size) = (read(start + ARENA_AT)?, read(start + SIZE_AT)?);
    let open = read(start + OPEN_BYTES_AT)?;
    let is_plausible = size.is_multiple_of(memory::PAGE_MIN_BYTES)
        && size > FIRST_BEHIND_ARENA.end
        && size <= open
        && size <= (end - start).min(ARENA_BYTES);
    if !is_plausible {
        return None;
    }
    let is_first = (start..start + FIRST_BEHIND_HEAP.end).contains(&arena);
    let candidates = if is_first { FIRST_BEHIND_ARENA } else { FIRST_BEHIND_HEAP };
    for first in candidates.step_by(UNIT) {
        let chunks = start + first..start + size;
        let word = read(chunks.start + 8)?;
        // A chunk with a plausible size whose predecessor is in use, as the first one always is.
        let begins = word & PREVIOUS_IN_USE != 0 && word & !FLAGS >= 2 * UNIT;
        if begins && walk(chunks.clone(), read, |_, _| ()) {
            return Some(chunks);
        }
    }
    None
}

/// The places in a mapping at which further heaps may begin.
pub(crate) fn possible_starts(mapping: Range<usize>) -> impl Iterator<Item = usize> {
    let first = mapping.start.next_multiple_of(ARENA_BYTES);
    (first..mapping.end).step_by(ARENA_BYTES)
}

/// A block that was just freed: threads keep such blocks for reuse, and mark them with a number in
/// their second word.
pub(crate) struct JustFreed(usize);

impl JustFreed {
    /// A size that nothing else asks for at the same time.
    const BYTES: usize = 968;

    pub(crate) fn new() -> Self {
        // SAFETY: plain memory, which is freed at once. The address is kept as a number, and read
        // only while nothing runs, as all memory of the heap is.
        unsafe {
            let block = std::hint::black_box(libc::calloc(1, Self::BYTES));
            let address = block.addr();
            libc::free(block);
            Self(std::hint::black_box(address))
        }
    }

    /// The mark, if the block has one.
    pub(crate) fn mark(&self, read: Read<'_>) -> Option<usize> {
        read(self.0 + 8).filter(|&word| self.0 != 0 && word != 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn direct(at: usize) -> Option<usize> {
        // SAFETY: the memory is of the test.
        Some(unsafe { racy_word(at) })
    }

    /// Writes chunks of these sizes, each in use or not, into a buffer.
    fn made(chunks: &[(usize, bool)]) -> Vec<u128> {
        let bytes: usize = chunks.iter().map(|(size, _)| size).sum();
        let mut memory = vec![0u128; bytes / UNIT];
        let (mut at, mut previous) = (0, true);
        for &(size, in_use) in chunks {
            let word = size | usize::from(previous);
            memory[at / UNIT] = (word as u128) << 64;
            (at, previous) = (at + size, in_use);
        }
        memory
    }

    #[test]
    fn a_block_is_found_by_every_address_in_it() {
        let sizes =
            [(32, true), (48, false), (8192, true), (16384, true), (64, true), (4096, true)];
        let memory = made(&sizes);
        let start = memory.as_ptr().addr();
        let end = start + memory.len() * UNIT;
        let mut heap = Heap::at(start, end, true, None, &mut direct).expect("a whole chain");
        let mut at = start;
        for (nth, (size, in_use)) in sizes.into_iter().enumerate() {
            let expected = Block { start: at + 16, end: (at + size + 8).min(end) };
            for address in (at + 16..(at + size + 16).min(end)).step_by(8) {
                assert_eq!(heap.block_around(address), Some(expected), "{nth}, {address:#x}");
            }
            // The last one is what is left.
            assert_eq!(heap.take(expected), in_use && nth != sizes.len() - 1, "chunk {nth}");
            assert!(!heap.take(expected), "it is taken once");
            at += size;
        }
        assert_eq!(heap.block_around(end), None);
        assert_eq!(heap.block_around(start), None);
    }

    #[test]
    fn a_broken_chain_is_no_heap() {
        for broken in [[(32, true), (40, true)], [(32, true), (8, true)]] {
            let memory = {
                let mut memory = made(&[(32, true), (64, true)]);
                memory[2] = (broken[1].0 as u128) << 64;
                memory
            };
            let start = memory.as_ptr().addr();
            assert!(
                Heap::at(start, start + memory.len() * UNIT, true, None, &mut direct).is_none()
            );
        }
    }
}

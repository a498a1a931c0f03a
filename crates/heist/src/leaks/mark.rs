//! From the roots to everything that can be reached.

use super::candidates::Candidates;
use super::waits::Waits;
use crate::sys::heap::{Block, Heap};
use crate::sys::memory::Pages;
use crate::sys::registers::racy_word;
use heist_core::timer_heap::Store;
use std::ops::Range;

/// Programs store something else in the high bits of an address, or move it up.
const ADDRESS_BITS: u32 = 48;
const HIGH_BITS: u32 = usize::BITS - ADDRESS_BITS;

/// The heaps of the C library that were understood.
pub(super) struct Heaps {
    all: Vec<Heap>,
}

impl Heaps {
    /// Room for `n` heaps.
    pub(super) fn with_room_for(n: usize) -> Self {
        Self { all: Vec::with_capacity(n) }
    }

    /// Adds a heap if there is room: nothing may be allocated any more.
    pub(super) fn add(&mut self, heap: Heap) -> bool {
        let has_room = self.all.len() < self.all.capacity();
        if has_room {
            self.all.push(heap);
        }
        has_room
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Heap> {
        self.all.iter()
    }

    /// The block around an address.
    pub(super) fn block_around(&self, address: usize) -> Option<Block> {
        let heap = self.all.iter().find(|heap| heap.addresses().contains(&address))?;
        heap.block_around(address)
    }

    /// Notes that a block need not be looked at any more. False if that was known.
    pub(super) fn take(&mut self, block: Block) -> bool {
        let around = |heap: &&mut Heap| heap.addresses().contains(&block.start);
        self.all.iter_mut().find(around).is_some_and(|heap| heap.take(block))
    }

    fn bounds(&self) -> Range<usize> {
        let low = self.all.iter().map(|heap| heap.addresses().start).min();
        let high = self.all.iter().map(|heap| heap.addresses().end).max();
        low.zip(high).map_or(0..0, |(low, high)| low..high)
    }
}

/// The state of the search.
pub(super) struct Marker {
    pub(super) heaps: Heaps,
    pub(super) candidates: Candidates,
    pub(super) waits: Waits,
    /// Memory that was reached and has not been looked at.
    work: Pages<(usize, usize)>,
    /// All addresses that lead anywhere.
    heap_bounds: Range<usize>,
    candidate_bounds: Range<usize>,
    /// There was no memory for the work.
    has_failed: bool,
}

impl Marker {
    pub(super) fn new(heaps: Heaps) -> Self {
        Self {
            heaps,
            candidates: Candidates::new(),
            waits: Waits::new(),
            work: Pages::new(),
            heap_bounds: 0..0,
            candidate_bounds: 0..0,
            has_failed: false,
        }
    }

    /// The memory that this uses itself.
    pub(super) fn for_each_room(&self, mut look: impl FnMut(Range<usize>)) {
        self.heaps.iter().flat_map(Heap::rooms).for_each(&mut look);
        self.candidates.rooms().into_iter().for_each(&mut look);
        look(self.waits.room());
        look(self.work.mapped());
    }

    /// Whether there was memory for everything.
    pub(super) const fn is_complete(&self) -> bool {
        !self.has_failed
    }

    /// To be called when heaps, candidates and waits are known.
    pub(super) fn begin(&mut self) {
        self.heap_bounds = self.heaps.bounds();
        self.candidate_bounds = self.candidates.bounds();
    }

    /// A word of memory that can be reached.
    #[inline]
    pub(super) fn reach(&mut self, word: usize) {
        self.reach_address(word);
        if word >> ADDRESS_BITS != 0 {
            self.reach_address(word << HIGH_BITS >> HIGH_BITS);
            self.reach_address(word >> HIGH_BITS);
        }
    }

    #[inline]
    fn reach_address(&mut self, address: usize) {
        if self.heap_bounds.contains(&address)
            && let Some(block) = self.heaps.block_around(address)
        {
            if self.heaps.take(block) {
                self.push(block.start..block.end);
                self.reached(block.start);
            }
        } else if self.candidate_bounds.contains(&address) {
            self.reach_candidate(address);
        }
    }

    fn reach_candidate(&mut self, address: usize) {
        if let Some(nth) = self.candidates.with_stack_around(address) {
            self.mark_stack(nth);
        } else if let Some(nth) = self.candidates.with_record_around(address)
            && self.candidates.as_slice()[nth].has_handle
        {
            self.can_run(nth);
        }
    }

    /// The stack of a candidate can be reached, and with it all that is on it.
    fn mark_stack(&mut self, nth: usize) {
        let candidate = self.candidates.get_mut(nth);
        if std::mem::replace(&mut candidate.is_marked, true) {
            return;
        }
        let (frames, place) = (candidate.frames(), candidate.stack.0);
        self.push(frames);
        self.reached(place);
    }

    /// A candidate can run.
    pub(super) fn can_run(&mut self, nth: usize) {
        let candidate = self.candidates.get_mut(nth);
        if std::mem::replace(&mut candidate.can_run, true) {
            return;
        }
        let record = candidate.record;
        self.mark_stack(nth);
        // It may end, so a goroutine that waits for that can run.
        self.reached(record);
    }

    /// What is at a place can be reached: those that wait for it can run.
    fn reached(&mut self, place: usize) {
        for position in self.waits.at(place) {
            self.can_run(self.waits.who(position));
        }
    }

    /// Memory that can be reached.
    pub(super) fn push(&mut self, memory: Range<usize>) {
        if !self.work.push((memory.start, memory.end)) {
            self.has_failed = true;
        }
    }

    /// Looks at all memory that was reached, until there is no more.
    pub(super) fn finish(&mut self) {
        while let Some(&(start, end)) = self.work.lines().last() {
            self.work.truncate(self.work.lines().len() - 1);
            let start = start.next_multiple_of(size_of::<usize>());
            for at in (start..end & !(size_of::<usize>() - 1)).step_by(size_of::<usize>()) {
                // SAFETY: a block of the heap, a part of a stack, or of a record: all of them are
                // mapped, and no thread runs that could unmap them.
                self.reach(unsafe { racy_word(at) });
            }
        }
    }
}

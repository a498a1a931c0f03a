//! The memory that code can use without anything being reached before.

use super::mark::Marker;
use super::search::Threads;
use crate::coro::slabs;
use crate::gmp::flags::Flag;
use crate::gmp::{G, M, P, pool};
use crate::sched::Sched;
use crate::sys::heap::{self, Heap, JustFreed};
use crate::sys::maps::{self, Copier, Kind, Mapping};
use crate::sys::memory::Pages;
use heist_core::status::Status;
use heist_core::timer_heap::Store;
use std::ops::Range;
use std::sync::Arc;

/// Code may use so many bytes below its stack pointer.
const RED_ZONE_BYTES: usize = 128;

/// The mappings of the process, without what is known to hold no reference, or is looked at in
/// another way.
pub(super) struct Roots {
    mappings: Pages<Mapping>,
    /// Sorted. They may overlap.
    left_out: Pages<(usize, usize)>,
    copier: Copier,
    freed: JustFreed,
}

impl Roots {
    /// None if the system has no memory for this, or does not copy memory.
    pub(super) fn new() -> Option<Self> {
        let copier = Copier::new()?;
        let freed = JustFreed::new();
        Some(Self { mappings: Pages::new(), left_out: Pages::new(), copier, freed })
    }

    /// Finds the mappings, and the heaps in them. False if that fails.
    pub(super) fn find(&mut self, marker: &mut Marker) -> bool {
        if !maps::list(&mut self.mappings) {
            return false;
        }
        let Self { mappings, copier, freed, .. } = self;
        let read: &mut dyn FnMut(usize) -> Option<usize> = &mut |at| copier.word(at);
        let freed = freed.mark(read);
        for mapping in mappings.lines() {
            let Mapping { start, end, kind } = *mapping;
            // A heap for which there is no room counts as memory that is not understood.
            let mut add = |start, is_main| {
                if let Some(heap) = Heap::at(start, end, is_main, freed, read) {
                    let _ = marker.heaps.add(heap);
                }
            };
            match kind {
                Kind::Heap => add(start, true),
                Kind::Anonymous => {
                    heap::possible_starts(start..end).for_each(|start| add(start, false));
                }
                Kind::File | Kind::Shared => {}
            }
        }
        true
    }

    /// Leaves out a part of the memory. False if there is no memory to note that.
    pub(super) fn leave_out(&mut self, part: Range<usize>) -> bool {
        part.is_empty() || self.left_out.push((part.start, part.end))
    }

    /// Leaves out what is known: the records and stacks of goroutines, the records of Ms and Ps,
    /// the stacks on which the scheduler runs, the heaps, and what the search itself uses.
    pub(super) fn leave_out_known(
        &mut self,
        runtimes: &[Arc<Sched>],
        threads: &Threads,
        marker: &mut Marker,
    ) -> bool {
        let mut is_complete = self.leave_out(self.copier.room());
        let mut out = |part: Range<usize>| is_complete &= self.leave_out(part);
        threads.meaningless().for_each(&mut out);
        slabs::for_each(&mut out);
        pool::for_each_slab(&mut out);
        for sched in runtimes {
            for m in sched.threads.all_ms().iter() {
                out(addresses_of::<M>(m));
                // No user code runs there while the thread runs goroutines.
                if m.stack_end.get() != 0 && threads.is_scheduling(m) {
                    out(m.stack_end.get()..m.stack_base.get());
                }
            }
            for pp in sched.world.all_made() {
                out(addresses_of::<P>(pp));
                if let Some(block) = marker.heaps.block_around(std::ptr::from_ref(pp).addr()) {
                    marker.heaps.take(block);
                }
            }
        }
        marker.heaps.iter().for_each(|heap| out(heap.whole()));
        marker.for_each_room(&mut out);
        is_complete
    }

    /// Marks all that the mappings refer to.
    pub(super) fn mark(&mut self, marker: &mut Marker) {
        let own = [self.mappings.mapped(), self.left_out.mapped()];
        for room in own {
            // There was memory for the ones before.
            let _ = self.leave_out(room);
        }
        self.left_out.lines_mut().sort_unstable();
        for nth in 0..self.mappings.lines().len() {
            let Mapping { start, end, kind } = self.mappings.lines()[nth];
            let mut at = start;
            for &(out_start, out_end) in self.left_out.lines() {
                if out_end <= at || out_start >= end {
                    continue;
                }
                if out_start > at {
                    self.copier.for_each_word(at..out_start, kind, |word| marker.reach(word));
                    marker.finish();
                }
                at = at.max(out_end);
            }
            if at < end {
                self.copier.for_each_word(at..end, kind, |word| marker.reach(word));
                marker.finish();
            }
        }
    }
}

fn addresses_of<T>(record: &T) -> Range<usize> {
    let start = std::ptr::from_ref(record).addr();
    start..start + size_of::<T>()
}

/// Marks all that the goroutines refer to which are no candidates. An error says why nothing can be
/// said.
pub(super) fn mark_goroutines(marker: &mut Marker, threads: &Threads) -> Result<(), &'static str> {
    threads.other_stacks().for_each(|stack| marker.push(stack));
    let mut result = Ok(());
    pool::for_each(|gp| {
        if let Err(why) = mark_goroutine(marker, threads, gp) {
            result = Err(why);
        }
    });
    marker.finish();
    result
}

fn mark_goroutine(marker: &mut Marker, threads: &Threads, gp: &G) -> Result<(), &'static str> {
    let status = gp.status.get();
    let record = addresses_of::<G>(gp);
    if status == Status::Dead {
        if gp.join.is_finished() && !gp.join.is_detached() {
            // It holds the result.
            marker.push(record);
        }
        return Ok(());
    }
    if marker.candidates.with_record_around(record.start).is_some() {
        return Ok(());
    }
    // The closure, before it runs, or the result, or the future of a task; or nothing, if it waits.
    let waits = gp.has_started() && status == Status::Waiting;
    if !waits || gp.flags.has(Flag::UNBORN | Flag::TASK) {
        marker.push(record);
    }
    if !gp.has_started() {
        return Ok(());
    }
    let Some((stack, saved)) = gp.coro.extent() else {
        // It has not run yet: its closure is still in the record.
        marker.push(addresses_of::<G>(gp));
        return Ok(());
    };
    // A thread is on its stack, or it left its stack there, or neither is known.
    let low = match threads.lowest_on(&stack) {
        Some(sp) => sp.saturating_sub(RED_ZONE_BYTES).max(stack.start),
        None if status == Status::Running => stack.start,
        None if stack.contains(&saved) => saved,
        None => stack.start,
    };
    let is_elsewhere = |other: Range<usize>| other != stack && status != Status::Running;
    if slabs::stack_around(saved).is_some_and(is_elsewhere)
        && !threads.other_stacks().any(|other| other.contains(&saved))
    {
        return Err("a goroutine waits on another stack than its own");
    }
    marker.push(low..stack.end);
    Ok(())
}

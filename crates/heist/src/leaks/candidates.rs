//! The goroutines that may be leaked: those that wait, without a deadline, for an object of this
//! library.

use crate::gmp::G;
use crate::gmp::flags::Flag;
use crate::gmp::g::WaitReason;
use crate::sys::memory::Pages;
use heist_core::status::Status;
use heist_core::timer_heap::{NEVER, Store};
use std::ops::Range;

/// A goroutine that waits.
#[derive(Clone, Copy, Debug)]
pub(super) struct Candidate {
    /// The address of its record.
    pub(super) record: usize,
    pub(super) id: u64,
    /// Its stack, and the lowest address in use.
    pub(super) stack: (usize, usize),
    pub(super) stack_pointer: usize,
    /// Whether a handle exists, by which it could be cancelled.
    pub(super) has_handle: bool,
    /// Whether it was reached.
    pub(super) can_run: bool,
    /// Whether its stack was looked at.
    pub(super) is_marked: bool,
}

impl Candidate {
    /// The candidate, if the goroutine is one. All threads stand still.
    pub(super) fn of(gp: &G) -> Option<Self> {
        let waits = gp.status.get() == Status::Waiting
            && gp.has_started()
            && gp.due() == NEVER
            && !gp.flags.has(Flag::CANCELLED | Flag::UNBORN | Flag::ABANDONED)
            // Any of its wakers may be anywhere.
            && !gp.flags.has(Flag::TASK);
        let is_of_this_library = !matches!(
            gp.wait_reason(),
            WaitReason::IoWait
                | WaitReason::Sleep
                | WaitReason::BlockOn
                | WaitReason::Task
                | WaitReason::Fork
        );
        if !waits || !is_of_this_library {
            return None;
        }
        let (stack, stack_pointer) = gp.coro.extent()?;
        stack.contains(&stack_pointer).then(|| Self {
            record: std::ptr::from_ref(gp).addr(),
            id: gp.id.get(),
            stack: (stack.start, stack.end),
            stack_pointer,
            has_handle: !gp.join.is_detached(),
            can_run: false,
            is_marked: false,
        })
    }

    /// Its record.
    pub(super) const fn gp(&self) -> &'static G {
        // SAFETY: records are never unmapped.
        unsafe { &*(self.record as *const G) }
    }

    /// The part of its stack that is in use.
    pub(super) const fn frames(&self) -> Range<usize> {
        self.stack_pointer..self.stack.1
    }
}

/// All candidates, found by the address of the record and by an address of the stack.
pub(super) struct Candidates {
    /// By record.
    all: Pages<Candidate>,
    /// The beginning of each stack, and whose it is.
    by_stack: Pages<(usize, usize)>,
}

impl Candidates {
    pub(super) fn new() -> Self {
        Self { all: Pages::new(), by_stack: Pages::new() }
    }

    /// The memory that this uses itself.
    pub(super) fn rooms(&self) -> [Range<usize>; 2] {
        [self.all.mapped(), self.by_stack.mapped()]
    }

    /// Adds one. False if there is no memory.
    pub(super) fn push(&mut self, candidate: Candidate) -> bool {
        self.all.push(candidate)
    }

    /// Makes them searchable, after the last one was added. False if there is no memory.
    pub(super) fn sort(&mut self) -> bool {
        self.all.lines_mut().sort_unstable_by_key(|candidate| candidate.record);
        let all = self.all.lines().iter().enumerate();
        for (nth, candidate) in all {
            if !self.by_stack.push((candidate.stack.0, nth)) {
                return false;
            }
        }
        self.by_stack.lines_mut().sort_unstable();
        true
    }

    pub(super) fn as_slice(&self) -> &[Candidate] {
        self.all.lines()
    }

    pub(super) fn get_mut(&mut self, nth: usize) -> &mut Candidate {
        &mut self.all.lines_mut()[nth]
    }

    /// The candidate in whose record an address is.
    pub(super) fn with_record_around(&self, address: usize) -> Option<usize> {
        let all = self.all.lines();
        let nth = all.partition_point(|candidate| candidate.record <= address).checked_sub(1)?;
        (address < all[nth].record + size_of::<G>()).then_some(nth)
    }

    /// The candidate on whose stack an address is.
    pub(super) fn with_stack_around(&self, address: usize) -> Option<usize> {
        let stacks = self.by_stack.lines();
        let before = stacks.partition_point(|&(start, _)| start <= address).checked_sub(1)?;
        let nth = stacks[before].1;
        (address < self.all.lines()[nth].stack.1).then_some(nth)
    }

    /// The addresses between which all their records and stacks are.
    pub(super) fn bounds(&self) -> Range<usize> {
        let all = self.all.lines();
        let low = all.iter().map(|candidate| candidate.record.min(candidate.stack.0)).min();
        let high = all
            .iter()
            .map(|candidate| (candidate.record + size_of::<G>()).max(candidate.stack.1))
            .max();
        low.zip(high).map_or(0..0, |(low, high)| low..high)
    }
}

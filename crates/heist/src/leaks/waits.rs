//! What the candidates wait for.

use super::candidates::{Candidate, Candidates};
use super::mark::Heaps;
use crate::gmp::g::WaitReason;
use crate::sys::memory::Pages;
use crate::sys::registers::racy_word;
use heist_core::timer_heap::Store;
use std::ops::Range;

/// A select has no more cases than this.
const CASES_MAX: usize = 1 << 16;

/// Which candidate waits for what: the place of the object, and the candidate. A place is the
/// beginning of a block or of a stack, or the address of a record.
pub(super) struct Waits {
    by_place: Pages<(usize, usize)>,
}

/// Whether a candidate can be leaked at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Noted {
    /// All places that it waits for are noted.
    Yes,
    /// It waits for something that any code can reach.
    CanRun,
    /// There is no memory.
    Failed,
}

impl Waits {
    pub(super) fn new() -> Self {
        Self { by_place: Pages::new() }
    }

    /// The memory that this uses itself.
    pub(super) fn room(&self) -> Range<usize> {
        self.by_place.mapped()
    }

    /// Notes what the `nth` candidate waits for.
    pub(super) fn note(&mut self, nth: usize, all: &Candidates, heaps: &Heaps) -> Noted {
        let candidate = all.as_slice()[nth];
        let mut noted = Noted::Yes;
        let mut add = |place: Option<usize>| {
            noted = match place {
                None => Noted::CanRun,
                Some(place) if self.by_place.push((place, nth)) => return true,
                Some(_) => Noted::Failed,
            };
            false
        };
        for_each_object(&candidate, heaps, |object| {
            add(match object {
                Object::Goroutine(record) => {
                    let target = all.with_record_around(record);
                    target.map(|target| all.as_slice()[target].record)
                }
                Object::Lock(address) => place_of(address, all, heaps),
                Object::Unknown => None,
            })
        });
        noted
    }

    /// Makes it searchable, after the last one was noted.
    pub(super) fn sort(&mut self) {
        self.by_place.lines_mut().sort_unstable();
    }

    /// The candidates that wait for something at a place.
    pub(super) fn at(&self, place: usize) -> Range<usize> {
        let all = self.by_place.lines();
        let first = all.partition_point(|&(at, _)| at < place);
        let n = all[first..].partition_point(|&(at, _)| at == place);
        first..first + n
    }

    /// The candidate that waits, at a position of the list.
    pub(super) fn who(&self, position: usize) -> usize {
        self.by_place.lines()[position].1
    }
}

/// Where an object is. None if it may be anybody's.
fn place_of(address: usize, all: &Candidates, heaps: &Heaps) -> Option<usize> {
    if let Some(block) = heaps.block_around(address) {
        return Some(block.start);
    }
    all.with_stack_around(address).map(|nth| all.as_slice()[nth].stack.0)
}

/// An object for which a goroutine waits.
enum Object {
    /// The end of a goroutine.
    Goroutine(usize),
    /// Something that has a lock at this address.
    Lock(usize),
    Unknown,
}

/// Calls `look` with each object that a candidate waits for, until that returns false.
fn for_each_object(candidate: &Candidate, heaps: &Heaps, mut look: impl FnMut(Object) -> bool) {
    let gp = candidate.gp();
    // SAFETY: it waits, so it has run and has not ended.
    let what = unsafe { gp.coro.waits_on() };
    let on_own_stack = candidate.frames().contains(&what);
    match gp.wait_reason() {
        // Nothing ends these waits.
        WaitReason::ChanReceiveNil | WaitReason::ChanSendNil | WaitReason::SelectNoCases => {}
        WaitReason::Join => drop(look(Object::Goroutine(what))),
        WaitReason::Select if on_own_stack => {
            // SAFETY: the two words of a list of locks (`chan::select::Locks`), in a stack.
            let [first, n] = unsafe { [racy_word(what), racy_word(what + 8)] };
            let list = first..first.saturating_add(n.saturating_mul(size_of::<usize>()));
            let holds = |around: Range<usize>| around.start <= list.start && list.end <= around.end;
            let is_readable = n <= CASES_MAX
                && (holds(candidate.frames())
                    || heaps
                        .block_around(first)
                        .is_some_and(|block| holds(block.start..block.end)));
            if !is_readable {
                look(Object::Unknown);
                return;
            }
            for at in list.step_by(size_of::<usize>()) {
                // SAFETY: in a stack, or in a block of the heap.
                if !look(Object::Lock(unsafe { racy_word(at) })) {
                    return;
                }
            }
        }
        WaitReason::Select => drop(look(Object::Unknown)),
        // It may also be a pair of locks, on the stack, of which one is elsewhere (`wait::Both`).
        WaitReason::Semaphore if on_own_stack => drop(look(Object::Unknown)),
        _ => drop(look(Object::Lock(what))),
    }
}

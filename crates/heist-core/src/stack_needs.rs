//! Predicts which kinds of goroutine need larger stacks than others, as `block_predictor` does for
//! blocking.
//!
//! If a goroutine came near the end of its stack, the next one of its kind, that is, with the same
//! code, gets a stack of twice the size, up to a bound. The table is small and two kinds may share
//! a slot, where the later one evicts the earlier: then the earlier one has to be seen again.
//!
//! # Ordering
//! None: a slot is one word, and nothing else depends on it.

use crate::block_predictor::{KIND_ALIGN, place};
use crate::policy::STACK_STEPS_MAX;
use crate::sync::{AtomicUsize, Ordering};

const N_SLOTS: usize = 64;
/// The bits of a slot that say how many sizes larger; an address leaves them free.
const STEPS_MASK: usize = KIND_ALIGN - 1;
const _: () = assert!(STACK_STEPS_MAX as usize <= STEPS_MASK);

/// The predictions for the goroutines of one runtime.
#[derive(Debug)]
pub struct StackNeeds {
    /// How many kinds were found to need more. Most programs have none, and their lookups end here.
    n_found: AtomicUsize,
    slots: [AtomicUsize; N_SLOTS],
}

impl StackNeeds {
    /// A predictor that knows no kind.
    #[must_use]
    pub fn new() -> Self {
        let n_found = AtomicUsize::new(0);
        Self { n_found, slots: std::array::from_fn(|_| AtomicUsize::new(0)) }
    }

    /// How many sizes larger than usual the stack of a goroutine of this kind should be.
    #[inline]
    #[must_use]
    pub fn steps(&self, kind: usize) -> u32 {
        if self.n_found() == 0 { 0 } else { self.known_steps(kind) }
    }

    fn known_steps(&self, kind: usize) -> u32 {
        let known = self.slots[place(kind, N_SLOTS)].load(Ordering::Relaxed);
        if known & !STEPS_MASK == kind { (known & STEPS_MASK) as u32 } else { 0 }
    }

    /// Records that a goroutine of this kind came near the end of its stack, which was `steps`
    /// sizes larger than usual.
    pub fn came_near(&self, kind: usize, steps: u32) {
        let known = self.known_steps(kind);
        let next = (steps + 1).min(STACK_STEPS_MAX);
        if next > known {
            self.slots[place(kind, N_SLOTS)].store(kind | next as usize, Ordering::Relaxed);
        }
        if known == 0 {
            self.n_found.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How many kinds were found to need more.
    #[inline]
    #[must_use]
    pub fn n_found(&self) -> usize {
        self.n_found.load(Ordering::Relaxed)
    }
}

impl Default for StackNeeds {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: usize = 0x5555_0000_1230;

    #[test]
    fn each_time_it_gets_the_next_size_up_to_a_bound() {
        let needs = StackNeeds::new();
        assert_eq!((needs.steps(KIND), needs.n_found()), (0, 0));
        for steps in 0..2 * STACK_STEPS_MAX {
            needs.came_near(KIND, needs.steps(KIND));
            assert_eq!(needs.steps(KIND), (steps + 1).min(STACK_STEPS_MAX));
            assert_eq!(needs.steps(KIND + KIND_ALIGN), 0);
        }
        assert_eq!(needs.n_found(), 1);
    }

    /// Goroutines that began before the prediction end later and change nothing.
    #[test]
    fn a_later_end_does_not_shrink_the_prediction() {
        let needs = StackNeeds::new();
        needs.came_near(KIND, 2);
        needs.came_near(KIND, 0);
        assert_eq!(needs.steps(KIND), 3);
    }
}

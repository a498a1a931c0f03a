//! Predicts which kinds of goroutine block, as a CPU predicts its branches.
//!
//! A goroutine that blocks without announcing it keeps its P until sysmon has checked it twice. Of
//! a thousand goroutines that do the same, the first is a surprise and the others are not: the M
//! that starts the next one may give its P away beforehand.
//!
//! The prediction is made from the code of a goroutine, by an address that all goroutines with that
//! code have in common. A kind that was seen to block twice is expected to block. If it then does
//! not, it has to be seen twice again. The table is small and two kinds may share a slot, where the
//! later one evicts the earlier: a wrong or a missing prediction costs time and nothing else.
//!
//! # Ordering
//! None: a slot is one word, and nothing else depends on it.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

const N_SLOTS: usize = 64;
/// The bits of a slot that count how often its kind has blocked. An address leaves them free.
const COUNT_MASK: usize = KEEPS_THREAD - 1;
/// Set if a goroutine of this kind has kept its thread.
const KEEPS_THREAD: usize = KIND_ALIGN / 2;
/// With this count, the highest, the kind is expected to block.
const EXPECTED: usize = 2;

/// The address of a kind is a multiple of this.
pub const KIND_ALIGN: usize = 8;

/// The prediction for a kind of goroutine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// It is expected to block.
    pub blocks: bool,
    /// A goroutine of this kind was found blocked or was preempted by a signal: either way it kept
    /// its thread.
    pub keeps_thread: bool,
}

impl Prediction {
    const UNKNOWN: Self = Self { blocks: false, keeps_thread: false };
}

/// The predictions for the goroutines of one runtime.
#[derive(Debug)]
pub struct BlockPredictor {
    /// Not zero if any kind is known. Most programs have none, and their lookups end here.
    n_known: AtomicU32,
    slots: [AtomicUsize; N_SLOTS],
}

impl BlockPredictor {
    /// A predictor that knows no kind.
    #[must_use]
    pub fn new() -> Self {
        let n_known = AtomicU32::new(0);
        Self { n_known, slots: std::array::from_fn(|_| AtomicUsize::new(0)) }
    }

    /// The prediction for goroutines of this kind.
    #[inline]
    #[must_use]
    pub fn of(&self, kind: usize) -> Prediction {
        if self.n_known.load(Ordering::Relaxed) == 0 {
            Prediction::UNKNOWN
        } else {
            self.look_up(kind)
        }
    }

    #[cold]
    fn look_up(&self, kind: usize) -> Prediction {
        let seen = self.slot(kind).load(Ordering::Relaxed);
        if kind_of(seen) != kind {
            return Prediction::UNKNOWN;
        }
        Prediction { blocks: seen & COUNT_MASK == EXPECTED, keeps_thread: seen & KEEPS_THREAD != 0 }
    }

    /// Records that a goroutine of this kind was preempted by a signal.
    pub fn stopped(&self, kind: usize) {
        self.learn(kind, 0);
    }

    /// Records that a goroutine of this kind has blocked.
    pub fn blocked(&self, kind: usize) {
        self.learn(kind, 1);
    }

    fn learn(&self, kind: usize, blocks: usize) {
        let slot = self.slot(kind);
        let seen = slot.load(Ordering::Relaxed);
        let count = if kind_of(seen) == kind { seen & COUNT_MASK } else { 0 };
        let learned = kind | (count + blocks).min(EXPECTED) | KEEPS_THREAD;
        if learned != seen {
            slot.store(learned, Ordering::Relaxed);
            self.n_known.store(1, Ordering::Relaxed);
        }
    }

    /// Records that a goroutine of this kind was expected to block and did not.
    pub fn went_on(&self, kind: usize) {
        let slot = self.slot(kind);
        let seen = slot.load(Ordering::Relaxed);
        if kind_of(seen) == kind {
            slot.store(seen & !COUNT_MASK, Ordering::Relaxed);
        }
    }

    #[inline]
    fn slot(&self, kind: usize) -> &AtomicUsize {
        &self.slots[place(kind, N_SLOTS)]
    }
}

/// The kind that a slot holds.
const fn kind_of(slot: usize) -> usize {
    slot & !(KIND_ALIGN - 1)
}

/// The slot of a kind in a table whose size is a power of two.
#[inline]
pub(crate) fn place(kind: usize, n_slots: usize) -> usize {
    debug_assert!(kind.is_multiple_of(KIND_ALIGN), "an address with free bits");
    // The golden ratio spreads neighbouring addresses.
    let hash = (kind as u64 / KIND_ALIGN as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (hash >> (u64::BITS - n_slots.ilog2())) as usize
}

impl Default for BlockPredictor {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: usize = 0x5555_0000_1230;

    #[test]
    fn a_kind_that_blocked_twice_is_expected_to_block() {
        let predictor = BlockPredictor::new();
        assert!(!predictor.of(KIND).blocks);
        predictor.blocked(KIND);
        assert!(!predictor.of(KIND).blocks);
        for _ in 0..100 {
            predictor.blocked(KIND);
            assert!(predictor.of(KIND).blocks);
        }
    }

    #[test]
    fn a_wrong_guess_is_not_made_again_soon() {
        let predictor = BlockPredictor::new();
        (0..9).for_each(|_| predictor.blocked(KIND));
        predictor.went_on(KIND);
        assert!(!predictor.of(KIND).blocks);
        predictor.blocked(KIND);
        assert!(!predictor.of(KIND).blocks);
        predictor.blocked(KIND);
        assert!(predictor.of(KIND).blocks);
    }

    #[test]
    fn a_kind_that_kept_a_thread_is_known_for_that() {
        let predictor = BlockPredictor::new();
        predictor.stopped(KIND);
        assert_eq!(predictor.of(KIND), Prediction { blocks: false, keeps_thread: true });
        (0..2).for_each(|_| predictor.blocked(KIND));
        assert_eq!(predictor.of(KIND), Prediction { blocks: true, keeps_thread: true });
        predictor.went_on(KIND);
        assert_eq!(predictor.of(KIND), Prediction { blocks: false, keeps_thread: true });
        assert!(!predictor.of(KIND + KIND_ALIGN).keeps_thread);
    }

    #[test]
    fn kinds_are_told_apart() {
        let predictor = BlockPredictor::new();
        (0..2).for_each(|_| predictor.blocked(KIND));
        for other in (0..1000).map(|n| n * KIND_ALIGN).filter(|&other| other != KIND) {
            assert!(!predictor.of(other).blocks, "{other:#x}");
            predictor.went_on(other);
        }
        assert!(predictor.of(KIND).blocks);
    }

    /// Two kinds that share a slot are not mistaken for each other.
    #[test]
    fn the_later_of_two_kinds_in_one_slot_evicts_the_earlier() {
        let predictor = BlockPredictor::new();
        let other = (1..1_000_000)
            .map(|n| KIND + n * KIND_ALIGN)
            .find(|&other| std::ptr::eq(predictor.slot(other), predictor.slot(KIND)))
            .expect("the table is smaller than that");
        (0..2).for_each(|_| predictor.blocked(KIND));
        predictor.blocked(other);
        assert!(!predictor.of(KIND).blocks && !predictor.of(other).blocks);
        predictor.blocked(other);
        assert!(!predictor.of(KIND).blocks && predictor.of(other).blocks);
    }

    #[test]
    fn neighbours_are_spread_over_the_table() {
        let predictor = BlockPredictor::new();
        let mut used: Vec<_> =
            (0..64).map(|n| std::ptr::from_ref(predictor.slot(KIND + n * 24)) as usize).collect();
        used.sort_unstable();
        used.dedup();
        assert!(used.len() >= 40, "{}", used.len());
    }
}

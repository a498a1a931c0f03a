//! Which kinds of goroutine block as a habit: a predictor, as a CPU has one for its branches.
//!
//! A goroutine that blocks without a word keeps its P until sysmon has looked at it twice. One of a
//! thousand that do the same is a surprise, the others are not: whoever starts the next of them may give
//! its P away beforehand.
//!
//! What a goroutine is going to do is guessed from its code, by an address that all goroutines with that
//! code have in common. A kind that was seen to block twice is expected to; once it was expected to and did
//! not, it has to be seen twice again. The table is small and two kinds may share a place in it, where the
//! later one drives out the earlier: a guess that is wrong, or not made, costs time and nothing else.
//!
//! # Ordering
//! None: a slot is one word, and nothing else hangs on it.

use crate::sync::{AtomicU32, AtomicUsize, Ordering};

const N_SLOTS: usize = 64;
/// The bits of a slot that count how often its kind has blocked; an address leaves them free.
const COUNT_MASK: usize = KEEPS_THREAD - 1;
/// Set if one of its kind has kept its thread.
const KEEPS_THREAD: usize = KIND_ALIGN / 2;
/// With this count, the highest, it is expected to.
const EXPECTED: usize = 2;

/// What the address of a kind is a multiple of.
pub const KIND_ALIGN: usize = 8;

/// What is known of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prediction {
    /// It is expected to block.
    pub blocks: bool,
    /// One of this kind was found blocked, or was stopped by force: either way it kept its thread.
    pub keeps_thread: bool,
}

impl Prediction {
    const UNKNOWN: Self = Self { blocks: false, keeps_thread: false };
}

/// The block_predictor of the goroutines of one runtime.
#[derive(Debug)]
pub struct BlockPredictor {
    /// Not zero if any kind is known. Most programs have none, and look no further.
    n_known: AtomicU32,
    slots: [AtomicUsize; N_SLOTS],
}

impl BlockPredictor {
    /// Nothing is known of anybody.
    #[must_use]
    pub fn new() -> Self {
        let n_known = AtomicU32::new(0);
        Self { n_known, slots: std::array::from_fn(|_| AtomicUsize::new(0)) }
    }

    /// What is known of goroutines of this kind.
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

    /// One of this kind was stopped by force.
    pub fn stopped(&self, kind: usize) {
        self.learn(kind, 0);
    }

    /// One of this kind has blocked.
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

    /// One of this kind was expected to block, and did not.
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

/// The kind that a slot is about.
const fn kind_of(slot: usize) -> usize {
    slot & !(KIND_ALIGN - 1)
}

/// The place of a kind in a table with so many, a power of two.
#[inline]
pub(crate) fn place(kind: usize, n_slots: usize) -> usize {
    debug_assert!(kind.is_multiple_of(KIND_ALIGN), "an address with free bits");
    // The golden ratio spreads addresses that are near each other.
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
    fn who_blocked_twice_is_expected_to() {
        let block_predictor = BlockPredictor::new();
        assert!(!block_predictor.of(KIND).blocks);
        block_predictor.blocked(KIND);
        assert!(!block_predictor.of(KIND).blocks);
        for _ in 0..100 {
            block_predictor.blocked(KIND);
            assert!(block_predictor.of(KIND).blocks);
        }
    }

    #[test]
    fn a_wrong_guess_is_not_made_again_soon() {
        let block_predictor = BlockPredictor::new();
        (0..9).for_each(|_| block_predictor.blocked(KIND));
        block_predictor.went_on(KIND);
        assert!(!block_predictor.of(KIND).blocks);
        block_predictor.blocked(KIND);
        assert!(!block_predictor.of(KIND).blocks);
        block_predictor.blocked(KIND);
        assert!(block_predictor.of(KIND).blocks);
    }

    #[test]
    fn a_kind_that_kept_a_thread_is_known_for_that() {
        let block_predictor = BlockPredictor::new();
        block_predictor.stopped(KIND);
        assert_eq!(block_predictor.of(KIND), Prediction { blocks: false, keeps_thread: true });
        (0..2).for_each(|_| block_predictor.blocked(KIND));
        assert_eq!(block_predictor.of(KIND), Prediction { blocks: true, keeps_thread: true });
        block_predictor.went_on(KIND);
        assert_eq!(block_predictor.of(KIND), Prediction { blocks: false, keeps_thread: true });
        assert!(!block_predictor.of(KIND + KIND_ALIGN).keeps_thread);
    }

    #[test]
    fn kinds_are_told_apart() {
        let block_predictor = BlockPredictor::new();
        (0..2).for_each(|_| block_predictor.blocked(KIND));
        for other in (0..1000).map(|n| n * KIND_ALIGN).filter(|&other| other != KIND) {
            assert!(!block_predictor.of(other).blocks, "{other:#x}");
            block_predictor.went_on(other);
        }
        assert!(block_predictor.of(KIND).blocks);
    }

    /// Wherever two kinds share a place, neither is taken for the other.
    #[test]
    fn the_later_of_two_in_one_place_drives_out_the_earlier() {
        let block_predictor = BlockPredictor::new();
        let other = (1..1_000_000)
            .map(|n| KIND + n * KIND_ALIGN)
            .find(|&other| std::ptr::eq(block_predictor.slot(other), block_predictor.slot(KIND)))
            .expect("the table is smaller than that");
        (0..2).for_each(|_| block_predictor.blocked(KIND));
        block_predictor.blocked(other);
        assert!(!block_predictor.of(KIND).blocks && !block_predictor.of(other).blocks);
        block_predictor.blocked(other);
        assert!(!block_predictor.of(KIND).blocks && block_predictor.of(other).blocks);
    }

    #[test]
    fn neighbours_are_spread_over_the_table() {
        let block_predictor = BlockPredictor::new();
        let mut used: Vec<_> = (0..64)
            .map(|n| std::ptr::from_ref(block_predictor.slot(KIND + n * 24)) as usize)
            .collect();
        used.sort_unstable();
        used.dedup();
        assert!(used.len() >= 40, "{}", used.len());
    }
}

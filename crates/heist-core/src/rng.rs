//! The scheduler's random numbers: small, fast, seeded.
//!
//! Not for secrets. Each P has its own generator, so nothing is shared, and a run with a given seed
//! draws the same numbers per P.
//!
//! GO: rand.go cheaprand.

/// A wyrand generator.
#[derive(Clone, Debug)]
pub struct Rng {
    state: u64,
}

impl Rng {
    /// A generator whose stream depends on `seed` alone.
    #[must_use]
    pub const fn new(seed: u64) -> Self {
        // Neighbouring seeds (P ids) must not give neighbouring streams.
        Self { state: (seed ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xd1b5_4a32_d192_ed03) }
    }

    /// The next number.
    #[doc(alias = "cheaprand")]
    pub const fn next_u32(&mut self) -> u32 {
        self.state = self.state.wrapping_add(0xa076_1d64_78bd_642f);
        let wide = (self.state as u128).wrapping_mul((self.state ^ 0xe703_7ed1_a0b4_28db) as u128);
        ((wide >> 64) as u64 ^ wide as u64) as u32
    }

    /// A number below `bound` by Lemire's reduction; the bias is below one in 2^32 / bound.
    #[doc(alias = "cheaprandn")]
    pub const fn below(&mut self, bound: u32) -> u32 {
        ((self.next_u32() as u64 * bound as u64) >> 32) as u32
    }

    /// Puts `items` into a uniformly random order.
    pub const fn shuffle<T>(&mut self, items: &mut [T]) {
        let mut end = items.len();
        while end > 1 {
            let pick = self.below(end as u32) as usize;
            end -= 1;
            items.swap(end, pick);
        }
    }
}

//! Maps and sets of numbers that are dense, or that a damaged file makes up.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// A map by number. It costs a multiplication to hash a number.
pub type Map<K, V> = HashMap<K, V, BuildHasherDefault<NumberHasher>>;

/// Hashes one number.
#[derive(Clone, Copy, Debug, Default)]
pub struct NumberHasher(u64);

impl Hasher for NumberHasher {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.write_u64(byte.into());
        }
    }

    fn write_u32(&mut self, value: u32) {
        self.write_u64(value.into());
    }

    fn write_u64(&mut self, value: u64) {
        // The upper bits of the product depend on all bits, the table uses the lower ones.
        let product = (self.0 ^ value).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        self.0 = product.rotate_left(26);
    }
}

/// A set of numbers: a bit each, if they are dense.
#[derive(Clone, Debug, Default)]
pub struct IdSet {
    words: Map<u64, u64>,
}

impl IdSet {
    /// Adds a number, and answers whether it was new.
    pub fn insert(&mut self, id: u64) -> bool {
        let word = self.words.entry(id / 64).or_default();
        let bit = 1 << (id % 64);
        let is_new = *word & bit == 0;
        *word |= bit;
        is_new
    }

    /// Removes a number.
    pub fn remove(&mut self, id: u64) {
        if let Some(word) = self.words.get_mut(&(id / 64)) {
            *word &= !(1 << (id % 64));
        }
    }

    /// Whether the number is in the set.
    #[must_use]
    pub fn contains(&self, id: u64) -> bool {
        self.words.get(&(id / 64)).is_some_and(|word| word & 1 << (id % 64) != 0)
    }
}

#[test]
fn a_set_holds_what_was_put_in() {
    let mut set = IdSet::default();
    assert!(set.insert(5) && set.insert(1 << 47) && !set.insert(5));
    assert!(set.contains(5) && set.contains(1 << 47) && !set.contains(6));
    set.remove(5);
    assert!(!set.contains(5));
}

//! How a loop that may be split goes through its items.
//!
//! Items are done in blocks, and between blocks the loop looks whether it should split. A look
//! costs some tens of nanoseconds, so blocks of cheap items are large; but a block must not take
//! long, or an idle processor waits for the end of it.

/// A block takes about this long.
const BLOCK_NS: u64 = 2_000;

/// A loop is not split before it has run for this long: a fork that is taken costs about as much.
pub const SPLIT_AFTER_NS: u64 = 5_000;

/// A slice with fewer items is sorted as a whole: that takes tens of microseconds.
pub const SORT_SPLIT_MIN: usize = 4096;

/// The blocks of one part of a loop.
#[derive(Debug)]
pub struct Blocks {
    size: usize,
    began_ns: u64,
    last_ns: u64,
}

impl Blocks {
    /// The blocks of a part that begins now.
    #[must_use]
    pub const fn new(now_ns: u64) -> Self {
        Self { size: 1, began_ns: now_ns, last_ns: now_ns }
    }

    /// How many items the next block has, at most.
    #[must_use]
    pub const fn size(&self) -> usize {
        self.size
    }

    /// Notes that a block has ended, and returns whether the part may be split now.
    pub const fn may_split(&mut self, now_ns: u64) -> bool {
        let took_ns = now_ns.saturating_sub(self.last_ns);
        self.last_ns = now_ns;
        if took_ns < BLOCK_NS / 2 {
            self.size = self.size.saturating_mul(2);
        } else if took_ns > BLOCK_NS * 2 && self.size > 1 {
            self.size /= 2;
        }
        now_ns.saturating_sub(self.began_ns) >= SPLIT_AFTER_NS
    }
}

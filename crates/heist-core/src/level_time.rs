//! A level over time: how long how many of something were there, added up.
//!
//! The clock comes from outside; whoever changes the level says when.

/// The sum, over all moments so far, of how many there were.
#[derive(Clone, Copy, Debug)]
pub struct LevelTime {
    n: u32,
    /// Since when there are so many.
    since_ns: u64,
    /// What was added up until then.
    before_ns: u64,
}

impl LevelTime {
    /// So many from now on.
    #[must_use]
    pub const fn new(n: u32, now_ns: u64) -> Self {
        Self { n, since_ns: now_ns, before_ns: 0 }
    }

    /// From now on there are `n`.
    pub const fn set(&mut self, n: u32, now_ns: u64) {
        self.before_ns = self.total_ns(now_ns);
        self.n = n;
        // Clocks of different CPUs may disagree by a little.
        if now_ns > self.since_ns {
            self.since_ns = now_ns;
        }
    }

    /// What it adds up to until now.
    #[must_use]
    pub const fn total_ns(&self, now_ns: u64) -> u64 {
        self.before_ns + self.n as u64 * now_ns.saturating_sub(self.since_ns)
    }
}

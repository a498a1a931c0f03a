//! The integral of a level over time: a level of 3 for two seconds adds up to 6 s.
//!
//! There is no clock here: the caller that changes the level passes the time.

/// The integral so far.
#[derive(Clone, Copy, Debug)]
pub struct LevelTime {
    n: u32,
    /// When the level last changed.
    since_ns: u64,
    /// The integral until then.
    before_ns: u64,
}

impl LevelTime {
    /// A level that starts now.
    #[must_use]
    pub const fn new(n: u32, now_ns: u64) -> Self {
        Self { n, since_ns: now_ns, before_ns: 0 }
    }

    /// The level is `n` from now on.
    pub const fn set(&mut self, n: u32, now_ns: u64) {
        self.before_ns = self.total_ns(now_ns);
        self.n = n;
        // Clocks of different CPUs may differ a little.
        if now_ns > self.since_ns {
            self.since_ns = now_ns;
        }
    }

    /// The integral until now.
    #[must_use]
    pub const fn total_ns(&self, now_ns: u64) -> u64 {
        self.before_ns + self.n as u64 * now_ns.saturating_sub(self.since_ns)
    }
}

//! Work and span: the two numbers that say how parallel a computation is.
//!
//! A fork-join computation is a series-parallel graph. A strand, which has no fork in it, has its
//! duration as work and as span. Two computations one after the other add both. Two halves of a
//! fork add their work, and the longer one is the span. So one pass over the graph is enough, in
//! whatever order it is executed.
//!
//! A wait for something outside of the computation is latency: it is part of the span, because
//! nothing that comes after it can begin sooner, and no work, because no processor is needed.

/// What is known about a computation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tally {
    /// The time that one processor needs.
    pub work_ns: u64,
    /// The time that infinitely many processors need.
    pub span_ns: u64,
    /// All waits together.
    pub latency_ns: u64,
    /// The time that the measurement itself took. It is in none of the others.
    pub books_ns: u64,
    /// How many forks there were.
    pub n_forks: u64,
    /// How many second halves were taken by a thief.
    pub n_taken: u64,
    /// The forks on the longest chain of forks: a fork on it follows the one before.
    pub chain: u64,
    /// The forks that are open at the same time if one processor executes the computation.
    pub depth: u64,
}

impl Tally {
    /// This computation and then another one.
    #[must_use]
    pub const fn then(self, next: Self) -> Self {
        Self {
            span_ns: self.span_ns + next.span_ns,
            chain: self.chain + next.chain,
            ..self.with(next)
        }
    }

    /// A fork whose halves are this computation and another one.
    #[must_use]
    pub const fn beside(self, other: Self) -> Self {
        let both = self.with(other);
        Self {
            span_ns: max(self.span_ns, other.span_ns),
            chain: max(self.chain, other.chain) + 1,
            depth: both.depth + 1,
            n_forks: both.n_forks + 1,
            ..both
        }
    }

    /// The part that does not depend on the order.
    const fn with(self, other: Self) -> Self {
        Self {
            work_ns: self.work_ns + other.work_ns,
            latency_ns: self.latency_ns + other.latency_ns,
            books_ns: self.books_ns + other.books_ns,
            n_forks: self.n_forks + other.n_forks,
            n_taken: self.n_taken + other.n_taken,
            depth: max(self.depth, other.depth),
            ..self
        }
    }
}

const fn max(a: u64, b: u64) -> u64 {
    if a > b { a } else { b }
}

/// The constant `c` with which `T_P = work / P + c * span` holds, for a run that took `elapsed_ns`
/// on `procs` processors. Zero if the run took no longer than its share of the work.
#[must_use]
pub fn constant(work_ns: u64, span_ns: u64, elapsed_ns: u64, procs: u32) -> f64 {
    let share = work_ns as f64 / f64::from(procs.max(1));
    let beyond = elapsed_ns as f64 - share;
    if span_ns == 0 { 0.0 } else { (beyond / span_ns as f64).max(0.0) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn strand(ns: u64) -> Tally {
        Tally { work_ns: ns, span_ns: ns, ..Tally::default() }
    }

    fn wait(ns: u64) -> Tally {
        Tally { span_ns: ns, latency_ns: ns, ..Tally::default() }
    }

    #[test]
    fn a_chain_has_as_much_span_as_work() {
        let chain = (1..=10).map(strand).fold(Tally::default(), Tally::then);
        assert_eq!((chain.work_ns, chain.span_ns), (55, 55));
        assert_eq!((chain.n_forks, chain.chain, chain.depth), (0, 0, 0));
    }

    #[test]
    fn a_balanced_tree_has_the_span_of_a_path() {
        let mut tree = strand(7);
        for _ in 0..10 {
            tree = strand(1).then(tree.beside(tree)).then(strand(1));
        }
        assert_eq!(tree.work_ns, 7 * 1024 + 2 * 1023);
        assert_eq!(tree.span_ns, 7 + 2 * 10);
        assert_eq!((tree.n_forks, tree.chain, tree.depth), (1023, 10, 10));
    }

    #[test]
    fn forks_in_a_row_are_a_long_chain_and_not_deep() {
        let row = (0..5).fold(Tally::default(), |row, _| row.then(strand(3).beside(strand(2))));
        assert_eq!((row.work_ns, row.span_ns), (25, 15));
        assert_eq!((row.n_forks, row.chain, row.depth), (5, 5, 1));
    }

    #[test]
    fn latency_is_span_and_no_work() {
        let both = strand(2).then(wait(100)).beside(strand(2).then(wait(100)));
        assert_eq!((both.work_ns, both.span_ns, both.latency_ns), (4, 102, 200));
    }

    #[test]
    fn the_constant_is_what_is_left_after_the_share_of_the_work() {
        assert!((constant(1000, 100, 550, 2) - 0.5).abs() < 1e-9);
        assert!(constant(1000, 100, 400, 2) == 0.0 && constant(0, 0, 10, 0) == 0.0);
    }
}

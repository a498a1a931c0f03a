//! Programs made of many goroutines that wait for each other: all of them end.

use crate::matrix;

use heist::sync::WaitGroup;
use heist::{go, yield_now};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// RQ-11: chains in which every goroutine spawns the next, one chain and one per processor.
#[test]
fn chains_of_spawns_reach_their_end() {
    fn link(left: u32, group: WaitGroup) {
        match left {
            0 => group.done(),
            _ => drop(go(move || link(left - 1, group))),
        }
    }
    matrix::each(|case, rt| {
        rt.run(|| {
            for n_chains in [1, case.procs] {
                let group = WaitGroup::new();
                group.add(n_chains);
                for _ in 0..n_chains {
                    let group = group.clone();
                    go(move || link(1000, group));
                }
                group.wait();
            }
        });
    });
}

/// RQ-11: groups of four goroutines that carry different things.
#[test]
fn closures_keep_what_they_captured() {
    matrix::run(|| {
        for round in 0..100_u64 {
            let text = format!("round {round}");
            let big = [round; 40];
            let shared = Arc::new(round);
            let other = Arc::clone(&shared);
            let (a, b) = (go(move || round), go(move || text.len()));
            let (c, d) = (go(move || big[39]), go(move || *other));
            assert_eq!(a.join().unwrap(), round);
            assert_eq!(b.join().unwrap(), format!("round {round}").len());
            assert_eq!((c.join().unwrap(), d.join().unwrap()), (round, round));
            assert_eq!(Arc::strong_count(&shared), 1);
        }
    });
}

/// RQ-11: one producer feeds all processors.
#[test]
fn one_producer_feeds_all_processors() {
    matrix::run(|| {
        let n = Arc::new(AtomicU64::new(0));
        let group = WaitGroup::new();
        group.add(3000);
        for i in 0..3000 {
            let (n, group) = (Arc::clone(&n), group.clone());
            go(move || {
                n.fetch_add(i, Ordering::Relaxed);
                group.done();
            });
        }
        group.wait();
        assert_eq!(n.load(Ordering::Relaxed), 2999 * 3000 / 2);
    });
}

/// A square matrix in one piece, for the multiplication below.
struct Matrix {
    n: usize,
    cells: Vec<AtomicU64>,
}

impl Matrix {
    fn new(n: usize, cell: impl Fn(usize, usize) -> u64) -> Arc<Self> {
        let cells = (0..n * n).map(|at| AtomicU64::new(cell(at / n, at % n)));
        Arc::new(Self { n, cells: cells.collect() })
    }

    fn cell(&self, row: usize, column: usize) -> &AtomicU64 {
        &self.cells[row * self.n + column]
    }
}

/// The rows, columns and inner indices that one goroutine works on.
#[derive(Clone, Copy)]
struct Block([(usize, usize); 3]);

/// `c += a * b`, halving the longest side until blocks have at most 8 of everything.
fn multiply(a: &Arc<Matrix>, b: &Arc<Matrix>, c: &Arc<Matrix>, block: Block) {
    let lengths = block.0.map(|(from, to)| to - from);
    let longest = (0..3).max_by_key(|&side| lengths[side]).unwrap();
    if lengths[longest] > 8 {
        let (from, to) = block.0[longest];
        let middle = from.midpoint(to);
        let (mut left, mut right) = (block, block);
        left.0[longest] = (from, middle);
        right.0[longest] = (middle, to);
        let (a2, b2, c2) = (Arc::clone(a), Arc::clone(b), Arc::clone(c));
        let half = go(move || multiply(&a2, &b2, &c2, left));
        multiply(a, b, c, right);
        half.join().unwrap();
        return;
    }
    let [rows, columns, inner] = block.0.map(|(from, to)| from..to);
    for row in rows {
        for column in columns.clone() {
            let sum: u64 = inner
                .clone()
                .map(|k| {
                    a.cell(row, k).load(Ordering::Relaxed)
                        * b.cell(k, column).load(Ordering::Relaxed)
                })
                .sum();
            c.cell(row, column).fetch_add(sum, Ordering::Relaxed);
        }
    }
}

/// RQ-12: a recursive matrix multiplication with a goroutine for every split is right.
#[test]
fn recursive_fork_join_multiplies_matrices() {
    matrix::run(|| {
        let n = 32;
        let a = Matrix::new(n, |row, column| (row + 2 * column) as u64);
        let b = Matrix::new(n, |row, column| (3 * row + column) as u64);
        let c = Matrix::new(n, |_, _| 0);
        multiply(&a, &b, &c, Block([(0, n); 3]));
        for row in 0..n {
            for column in 0..n {
                let expected: u64 = (0..n).map(|k| ((row + 2 * k) * (3 * k + column)) as u64).sum();
                assert_eq!(c.cell(row, column).load(Ordering::Relaxed), expected);
            }
        }
    });
}

/// RQ-12: recursive halving sets every processor to work: each keeps its first block until all the
/// others have one, so that a processor without work is a hang.
#[test]
fn recursive_fork_join_reaches_every_processor() {
    fn halve(levels: u32, all: u32, seen: &Arc<AtomicU32>) {
        if levels > 0 {
            let theirs = Arc::clone(seen);
            let half = go(move || halve(levels - 1, all, &theirs));
            halve(levels - 1, all, seen);
            return half.join().unwrap();
        }
        let (_, p) = heist::testing::m_and_p().unwrap();
        seen.fetch_or(1 << p, Ordering::Relaxed);
        let until = Instant::now() + Duration::from_secs(60);
        while seen.load(Ordering::Relaxed) != all {
            assert!(Instant::now() < until, "idle: {:#b}", all & !seen.load(Ordering::Relaxed));
            std::hint::spin_loop();
        }
    }
    for procs in [1, 2, 4, 16] {
        let all = (1 << procs) - 1;
        matrix::plain(procs).run(move || halve(8, all, &Arc::new(AtomicU32::new(0))));
    }
}

/// RQ-12: a very uneven tree, which only stealing can spread.
#[test]
fn an_uneven_tree_is_counted_completely() {
    fn grow(seed: u64, depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let n_children = seed % 4;
        let children: Vec<_> = (0..n_children)
            .map(|i| {
                let seed = seed.wrapping_mul(6_364_136_223_846_793_005) >> (i + 7);
                go(move || grow(seed | 1, depth - 1))
            })
            .collect();
        if seed.is_multiple_of(3) {
            yield_now();
        }
        1 + children.into_iter().map(|child| child.join().unwrap()).sum::<u64>()
    }
    let expected = matrix::plain(1).run(|| grow(0x9e37_79b9_7f4a_7c15, 9));
    assert!(expected > 100, "the tree is too small: {expected}");
    matrix::run(move || assert_eq!(grow(0x9e37_79b9_7f4a_7c15, 9), expected));
}

/// RQ-11: a ring of a thousand goroutines in which each waits for the one before.
#[test]
fn a_ring_of_joins_unwinds_from_its_end() {
    matrix::run(|| {
        let mut last = go(|| 0_u64);
        for _ in 0..1000 {
            let before = last;
            last = go(move || before.join().unwrap() + 1);
        }
        assert_eq!(last.join().unwrap(), 1000);
    });
}

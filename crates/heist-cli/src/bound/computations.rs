//! Computations of different shapes, each with the same result if nothing is forked.

use crate::demo::steps::mixer;
use heist::join;
use std::time::Duration;

/// A computation by fork and join.
pub struct Computation {
    /// Its name in the table.
    pub name: &'static str,
    /// Runs it, with forks, at a size.
    pub run: fn(Size) -> u64,
    /// Its result, found without forks.
    pub alone: fn(Size) -> u64,
}

/// How much there is to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// Some milliseconds.
    Quick,
    /// A tenth of a second or so.
    Full,
}

impl Size {
    const fn pick<T: Copy>(self, quick: T, full: T) -> T {
        match self {
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

pub const ALL: [Computation; 6] = [
    Computation {
        name: "fib",
        run: |size| fib(size.pick(26, 36)),
        alone: |size| fib_alone(size.pick(26, 36)),
    },
    Computation {
        name: "nqueens",
        run: |size| queens(Board::new(size.pick(10, 13))),
        alone: |size| queens_alone(Board::new(size.pick(10, 13))),
    },
    Computation {
        name: "matrix",
        run: |size| multiply(size.pick(48, 384), rows),
        alone: |size| multiply(size.pick(48, 384), rows_alone),
    },
    Computation {
        name: "quicksort",
        run: |size| sorted(size.pick(20_000, 1_000_000), sort),
        alone: |size| sorted(size.pick(20_000, 1_000_000), <[u64]>::sort_unstable),
    },
    Computation {
        name: "tree",
        run: |size| walk(1, size.pick(500, 20_000)),
        alone: |size| walk_alone(1, size.pick(500, 20_000)),
    },
    Computation {
        name: "sleeps",
        run: |size| sleeps(1, size.pick(4, 7)),
        alone: |size| sleeps_alone(1, size.pick(4, 7)),
    },
];

/// Below this `fib` does not fork: a strand takes 20 microseconds or so, much longer than its
/// measurement.
const FIB_ALONE: u32 = 20;

fn fib(n: u32) -> u64 {
    if n < FIB_ALONE {
        return fib_alone(n);
    }
    let (a, b) = join(|| fib(n - 1), || fib(n - 2));
    a + b
}

fn fib_alone(n: u32) -> u64 {
    if n < 2 { n.into() } else { fib_alone(n - 1) + fib_alone(n - 2) }
}

/// Queens in the first rows, as bits: the columns and the diagonals that they hold.
#[derive(Clone, Copy)]
struct Board {
    n: u32,
    row: u32,
    columns: u32,
    left: u32,
    right: u32,
}

impl Board {
    const fn new(n: u32) -> Self {
        Self { n, row: 0, columns: 0, left: 0, right: 0 }
    }

    const fn free(self) -> u32 {
        !(self.columns | self.left | self.right) & ((1 << self.n) - 1)
    }

    const fn with(self, queen: u32) -> Self {
        Self {
            n: self.n,
            row: self.row + 1,
            columns: self.columns | queen,
            left: (self.left | queen) << 1,
            right: (self.right | queen) >> 1,
        }
    }
}

/// So many last rows are not forked.
const QUEENS_ALONE: u32 = 8;

fn queens(board: Board) -> u64 {
    if board.row + QUEENS_ALONE >= board.n {
        return queens_alone(board);
    }
    try_queens(board, board.free())
}

/// Tries these places of the next row, in two halves.
fn try_queens(board: Board, places: u32) -> u64 {
    if places.count_ones() < 2 {
        return if places == 0 { 0 } else { queens(board.with(places)) };
    }
    let one = places & places.wrapping_neg();
    let (a, b) = join(|| queens(board.with(one)), || try_queens(board, places ^ one));
    a + b
}

fn queens_alone(board: Board) -> u64 {
    if board.row == board.n {
        return 1;
    }
    let (mut n, mut places) = (0, board.free());
    while places != 0 {
        let queen = places & places.wrapping_neg();
        n += queens_alone(board.with(queen));
        places ^= queen;
    }
    n
}

/// Rows of a product that are computed in one strand.
const ROWS_ALONE: usize = 4;

type Rows = fn(&[u64], &[u64], &mut [u64], usize);

/// The product of two matrices of `n` rows, as a checksum.
fn multiply(n: usize, rows: Rows) -> u64 {
    let matrix = |seed: u64| (0..n * n).map(|i| mixer::mix(seed + i as u64)).collect::<Vec<_>>();
    let (a, b, mut c) = (matrix(1), matrix(2), vec![0; n * n]);
    rows(&a, &b, &mut c, n);
    c.iter().fold(0, |sum, &x| mixer::mix(sum ^ x))
}

/// Computes the rows `c` from the rows `a`.
fn rows(a: &[u64], b: &[u64], c: &mut [u64], n: usize) {
    let half = c.len() / n / 2;
    if half < ROWS_ALONE {
        return rows_alone(a, b, c, n);
    }
    let (above, below) = c.split_at_mut(half * n);
    let (a_above, a_below) = a.split_at(half * n);
    join(|| rows(a_above, b, above, n), || rows(a_below, b, below, n));
}

fn rows_alone(a: &[u64], b: &[u64], c: &mut [u64], n: usize) {
    for (a, c) in a.chunks(n).zip(c.chunks_mut(n)) {
        for (a, b) in a.iter().zip(b.chunks(n)) {
            for (c, b) in c.iter_mut().zip(b) {
                *c = c.wrapping_add(a.wrapping_mul(*b));
            }
        }
    }
}

/// Below this a part is not split.
const SORT_ALONE: usize = 1000;

fn sorted(n: u64, sort: fn(&mut [u64])) -> u64 {
    let mut numbers: Vec<u64> = (0..n).map(mixer::mix).collect();
    sort(&mut numbers);
    numbers.iter().fold(0, |sum, &x| mixer::mix(sum ^ x))
}

/// Splits in one strand and sorts both sides: the first split takes a good part of the span.
fn sort(numbers: &mut [u64]) {
    if numbers.len() < SORT_ALONE {
        return numbers.sort_unstable();
    }
    let middle = numbers.len() / 2;
    let ends = [numbers[0], numbers[middle], numbers[numbers.len() - 1]];
    let pivot = ends[0].max(ends[1]).min(ends[0].min(ends[1]).max(ends[2]));
    let mut n_less = 0;
    for at in 0..numbers.len() {
        if numbers[at] < pivot {
            numbers.swap(at, n_less);
            n_less += 1;
        }
    }
    let (less, rest) = numbers.split_at_mut(n_less);
    join(|| sort(less), || sort(rest));
}

/// Steps of work at each node of the tree.
const NODE_ROUNDS: u32 = 5000;

/// Seven eighths of the nodes below a node are on its left.
const fn below(weight: u64) -> (u64, u64) {
    let light = (weight - 1) / 8;
    (weight - 1 - light, light)
}

fn walk(seed: u64, weight: u64) -> u64 {
    if weight == 0 {
        return 0;
    }
    let here = mixer::churn(seed, NODE_ROUNDS);
    let (heavy, light) = below(weight);
    let (a, b) = join(|| walk(2 * seed, heavy), || walk(2 * seed + 1, light));
    here.wrapping_add(a).wrapping_add(b)
}

fn walk_alone(seed: u64, weight: u64) -> u64 {
    if weight == 0 {
        return 0;
    }
    let (heavy, light) = below(weight);
    let (a, b) = (walk_alone(2 * seed, heavy), walk_alone(2 * seed + 1, light));
    mixer::churn(seed, NODE_ROUNDS).wrapping_add(a).wrapping_add(b)
}

/// How long each leaf waits, and how much it computes then.
const LEAF_SLEEP: Duration = Duration::from_millis(5);
const LEAF_ROUNDS: u32 = 20_000;

fn sleeps(seed: u64, depth: u32) -> u64 {
    if depth == 0 {
        heist::time::sleep(LEAF_SLEEP);
        return mixer::churn(seed, LEAF_ROUNDS);
    }
    let (a, b) = join(|| sleeps(2 * seed, depth - 1), || sleeps(2 * seed + 1, depth - 1));
    a.wrapping_add(b)
}

fn sleeps_alone(seed: u64, depth: u32) -> u64 {
    let leaves = seed << depth..(seed + 1) << depth;
    leaves.map(|leaf| mixer::churn(leaf, LEAF_ROUNDS)).fold(0, u64::wrapping_add)
}

#[test]
fn eight_queens_have_92_solutions() {
    assert_eq!((queens(Board::new(8)), queens_alone(Board::new(8))), (92, 92));
}

#[test]
fn every_computation_has_the_result_of_a_serial_one() {
    for Computation { name, run, alone } in &ALL {
        assert_eq!(run(Size::Quick), alone(Size::Quick), "{name}");
    }
}

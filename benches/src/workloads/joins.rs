//! join_*: computations that divide themselves, by each peer's own fork-join primitive.
//!
//! `fib_join` and `uneven_tree` make a task of each fork; here a fork that nobody takes is a call.
//! There is no cut-off but the one that the sequential algorithm needs as well.

use std::hint::black_box;
use std::time::Instant;

use super::fork_join::{fib, n_forks};
use super::uneven_tree::{ROOT_CHILDREN, child_seed, mix, visit};
use super::{ms, ns_each};
use crate::contract::joins::Joins;
use crate::reading::{Figures, Outcome};

pub const FIB_N: u32 = 30;
pub const SORT_N: usize = 10_000_000;
/// Shorter slices are sorted by std.
pub const SORT_CUT: usize = 1000;
pub const MATRIX_N: usize = 512;
/// A block of so many rows and columns is multiplied by three loops.
pub const MATRIX_CUT: usize = 32;
pub const QUEENS_N: u32 = 13;
pub const QUEENS: u64 = 73_712;
/// The depth of a tree with 1023 nodes.
pub const SMALL_DEPTH: u32 = 10;
pub const SMALL_ROUNDS: usize = 1000;

fn fib_node<J: Joins>(cx: &mut J::Cx<'_>, n: u32) -> u64 {
    if n < 2 {
        return u64::from(n);
    }
    let (a, b) = J::join(cx, |cx| fib_node::<J>(cx, n - 1), |cx| fib_node::<J>(cx, n - 2));
    a + b
}

fn random_numbers() -> Vec<u64> {
    (0..SORT_N as u64).map(mix).collect()
}

/// Puts the items below a pivot in front, and returns how many these are.
fn partition(items: &mut [u64]) -> usize {
    let last = items.len() - 1;
    let mut three = [items[0], items[last / 2], items[last]];
    three.sort_unstable();
    let pivot = three[1];
    let mut n_below = 0;
    for i in 0..items.len() {
        items.swap(i, n_below);
        n_below += usize::from(items[n_below] < pivot);
    }
    n_below
}

fn quicksort<J: Joins>(cx: &mut J::Cx<'_>, items: &mut [u64]) {
    if items.len() <= SORT_CUT {
        return items.sort_unstable();
    }
    let n_below = partition(items);
    if n_below == 0 {
        // The pivot is the smallest item.
        return items.sort_unstable();
    }
    let (left, right) = items.split_at_mut(n_below);
    J::join(cx, |cx| quicksort::<J>(cx, left), |cx| quicksort::<J>(cx, right));
}

fn mergesort<J: Joins>(cx: &mut J::Cx<'_>, items: &mut [u64], room: &mut [u64]) {
    if items.len() <= SORT_CUT {
        return items.sort_unstable();
    }
    let half = items.len() / 2;
    let (left, right) = items.split_at_mut(half);
    let (room_left, room_right) = room.split_at_mut(half);
    J::join(
        cx,
        |cx| mergesort::<J>(cx, left, room_left),
        |cx| mergesort::<J>(cx, right, room_right),
    );
    merge::<J>(cx, left, right, room);
    items.copy_from_slice(room);
}

/// Merges two sorted slices, dividing the longer one in the middle.
fn merge<J: Joins>(cx: &mut J::Cx<'_>, left: &[u64], right: &[u64], to: &mut [u64]) {
    if left.len() < right.len() {
        return merge::<J>(cx, right, left, to);
    }
    if to.len() <= 8 * SORT_CUT {
        let (mut left, mut right) = (left.iter().peekable(), right.iter().peekable());
        for place in to {
            let from = match (left.peek(), right.peek()) {
                (Some(a), Some(b)) if a <= b => &mut left,
                (Some(_), None) => &mut left,
                _ => &mut right,
            };
            *place = *from.next().expect("as many as places");
        }
        return;
    }
    let (left_low, left_high) = left.split_at(left.len() / 2);
    let (right_low, right_high) = right.split_at(right.partition_point(|n| *n < left_high[0]));
    let (to_low, to_high) = to.split_at_mut(left_low.len() + right_low.len());
    J::join(
        cx,
        |cx| merge::<J>(cx, left_low, right_low, to_low),
        |cx| merge::<J>(cx, left_high, right_high, to_high),
    );
}

/// Adds rows of `a` times `b` to the rows of `c`, dividing the rows.
fn multiply<J: Joins>(cx: &mut J::Cx<'_>, a: &[f64], b: &[f64], c: &mut [f64]) {
    let n_rows = c.len() / MATRIX_N;
    if n_rows <= MATRIX_CUT {
        for (a_row, c_row) in a.chunks(MATRIX_N).zip(c.chunks_mut(MATRIX_N)) {
            for (factor, b_row) in a_row.iter().zip(b.chunks(MATRIX_N)) {
                c_row.iter_mut().zip(b_row).for_each(|(c, b)| *c += factor * b);
            }
        }
        return;
    }
    let half = n_rows / 2 * MATRIX_N;
    let (a_top, a_bottom) = a.split_at(half);
    let (c_top, c_bottom) = c.split_at_mut(half);
    J::join(
        cx,
        |cx| multiply::<J>(cx, a_top, b, c_top),
        |cx| multiply::<J>(cx, a_bottom, b, c_bottom),
    );
}

/// The solutions of a board.
pub fn count_queens<J: Joins>(cx: &mut J::Cx<'_>, board: u32) -> u64 {
    let all = (1 << board) - 1;
    queens::<J>(cx, all, all, 0, 0, 0)
}

/// The solutions with a queen in one of the columns `free`, in the next row.
fn queens<J: Joins>(
    cx: &mut J::Cx<'_>,
    all: u32,
    free: u32,
    columns: u32,
    up: u32,
    down: u32,
) -> u64 {
    if free == 0 {
        return 0;
    }
    let queen = free & free.wrapping_neg();
    let others = free ^ queen;
    let below = |cx: &mut J::Cx<'_>| {
        let (columns, up, down) = (columns | queen, (up | queen) << 1, (down | queen) >> 1);
        if columns == all {
            return 1;
        }
        queens::<J>(cx, all, all & !(columns | up | down), columns, up, down)
    };
    if others == 0 {
        return below(cx);
    }
    let (a, b) = J::join(cx, below, |cx| queens::<J>(cx, all, others, columns, up, down));
    a + b
}

/// The nodes below children of a node of the uneven tree.
fn uneven<J: Joins>(cx: &mut J::Cx<'_>, seed: u64, children: std::ops::Range<u64>) -> u64 {
    match children.end - children.start {
        0 => 0,
        1 => {
            let seed = child_seed(seed, children.start);
            1 + uneven::<J>(cx, seed, 0..visit(seed))
        }
        n => {
            let middle = children.start + n / 2;
            let (a, b) = J::join(
                cx,
                |cx| uneven::<J>(cx, seed, children.start..middle),
                |cx| uneven::<J>(cx, seed, middle..children.end),
            );
            a + b
        }
    }
}

fn small<J: Joins>(cx: &mut J::Cx<'_>, depth: u32) -> u64 {
    if depth == 1 {
        return black_box(1);
    }
    let (a, b) = J::join(cx, |cx| small::<J>(cx, depth - 1), |cx| small::<J>(cx, depth - 1));
    a + b + black_box(1)
}

/// Runs a workload of this file. None if the name is that of another one.
pub fn run<J: Joins>(workload: &str, procs: usize) -> Option<Outcome> {
    let timed_ms = |body: &(dyn Fn(&mut J::Cx<'_>) + Sync)| {
        J::run(procs, |cx| {
            let start = Instant::now();
            body(cx);
            ms(start.elapsed())
        })
    };
    let figure = match workload {
        "join_fib" => J::run(procs, |cx| {
            fib_node::<J>(cx, FIB_N - 7);
            let start = Instant::now();
            assert_eq!(fib_node::<J>(cx, FIB_N), fib(FIB_N), "join_fib: wrong result");
            ns_each(start.elapsed(), n_forks(FIB_N))
        }),
        "join_sort" | "join_merge" => J::run(procs, |cx| {
            let (mut numbers, mut room) = (random_numbers(), vec![1; SORT_N]);
            let start = Instant::now();
            match workload {
                "join_sort" => quicksort::<J>(cx, &mut numbers),
                _ => mergesort::<J>(cx, &mut numbers, &mut room),
            }
            let took = start.elapsed();
            assert!(numbers.is_sorted(), "{workload}: wrong order");
            ms(took)
        }),
        "join_matrix" => {
            let of = |seed| {
                (0..MATRIX_N as u64 * MATRIX_N as u64).map(move |i| (mix(i ^ seed) % 10) as f64)
            };
            let (a, b): (Vec<f64>, Vec<f64>) = (of(1).collect(), of(2).collect());
            timed_ms(&|cx| {
                let mut c = vec![0.0; MATRIX_N * MATRIX_N];
                multiply::<J>(cx, &a, &b, &mut c);
                black_box(c);
            })
        }
        "join_nqueens" => timed_ms(&|cx| {
            let n = count_queens::<J>(cx, QUEENS_N);
            assert_eq!(n, QUEENS, "join_nqueens: wrong number");
        }),
        "join_uneven" => timed_ms(&|cx| {
            black_box(uneven::<J>(cx, 1, 0..ROOT_CHILDREN));
        }),
        "join_small" => J::run(procs, |cx| {
            let nodes = (1 << SMALL_DEPTH) - 1;
            let round = |cx: &mut J::Cx<'_>| assert_eq!(small::<J>(cx, SMALL_DEPTH), nodes);
            round(cx);
            let start = Instant::now();
            (0..SMALL_ROUNDS).for_each(|_| round(cx));
            ns_each(start.elapsed(), SMALL_ROUNDS) / 1e3
        }),
        _ => return None,
    };
    Some(Ok(Figures::one(figure)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::heist::Heist;

    /// Every workload computes what it should; they check it themselves.
    #[test]
    fn the_algorithms_are_right() {
        Heist::run(2, |cx: &mut ()| {
            assert_eq!(count_queens::<Heist>(cx, QUEENS_N), QUEENS);
            let numbers: Vec<u64> = (0..50_000).map(mix).collect();
            let mut sorted = numbers.clone();
            sorted.sort_unstable();
            let (mut quick, mut merged) = (numbers.clone(), numbers);
            quicksort::<Heist>(cx, &mut quick);
            let mut room = vec![0; merged.len()];
            mergesort::<Heist>(cx, &mut merged, &mut room);
            assert!(quick == sorted && merged == sorted);
            let identity: Vec<f64> = (0..MATRIX_N * MATRIX_N)
                .map(|i| f64::from(u8::from(i % (MATRIX_N + 1) == 0)))
                .collect();
            let a: Vec<f64> = (0..MATRIX_N * MATRIX_N).map(|i| (i % 7) as f64).collect();
            let mut c = vec![0.0; MATRIX_N * MATRIX_N];
            multiply::<Heist>(cx, &a, &identity, &mut c);
            assert!(a == c);
            assert_eq!(small::<Heist>(cx, SMALL_DEPTH), 1023);
        });
    }
}

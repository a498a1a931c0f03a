//! Adds up a large vector: each half is given to a goroutine until the pieces are small.
//!
//! ```console
//! cargo run --release -p heist --example parallel_sum
//! ```

use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

const LEN: usize = 20_000_000;
/// Small enough that all Ps get something, large enough that a goroutine pays.
const PIECE: usize = 50_000;

fn sum(numbers: &Arc<Vec<u64>>, range: Range<usize>) -> u64 {
    if range.len() <= PIECE {
        return numbers[range].iter().map(|n| n.count_ones() as u64 * n).sum();
    }
    let middle = range.start + range.len() / 2;
    let left = {
        let numbers = Arc::clone(numbers);
        heist::go(move || sum(&numbers, range.start..middle))
    };
    let right = sum(numbers, middle..range.end);
    left.join().expect("adding does not panic") + right
}

#[heist::main(unsafe)]
fn main() {
    let numbers: Arc<Vec<u64>> = Arc::new((0..LEN as u64).collect());

    let start = Instant::now();
    let alone: u64 = numbers.iter().map(|n| n.count_ones() as u64 * n).sum();
    println!("one goroutine:  {alone} in {:?}", start.elapsed());

    let start = Instant::now();
    let together = sum(&numbers, 0..LEN);
    println!("many of them:   {together} in {:?}", start.elapsed());
    assert_eq!(alone, together);
}

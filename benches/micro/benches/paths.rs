//! The time of one operation of every path.
//!
//! A sample is a million operations, so that the milliseconds in the table read as nanoseconds for
//! each, and the cost of starting a goroutine for them is negligible.

use divan::Bencher;
use divan::counter::ItemsCount;
use heist_micro::{PATHS, Path};

const N: usize = 1_000_000;

fn main() {
    divan::main();
}

#[divan::bench(args = PATHS, sample_count = 10, sample_size = 1)]
fn path(bencher: Bencher<'_, '_>, path: &Path) {
    let mut repeat = (path.prepare)();
    repeat(N / 10);
    bencher.counter(ItemsCount::new(N)).bench_local(|| repeat(N));
}

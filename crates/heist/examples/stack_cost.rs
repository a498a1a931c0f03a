//! The cost of parked goroutines by the size of their stacks: `stack_cost BYTES N`.
//!
//! Prints the time until all are parked, the time until all have ended, and for each goroutine the
//! resident bytes, the bytes of page tables and those of address space. The table in
//! docs/design/stacks.md comes from it.

use heist::Runtime;
use heist::sync::WaitGroup;
use std::time::Instant;

fn main() {
    let number = |n| std::env::args().nth(n).and_then(|arg| arg.parse::<usize>().ok());
    let (bytes, n) = (number(1).unwrap_or(256 << 10), number(2).unwrap_or(100_000));
    // SAFETY: the goroutines hold nothing but the groups.
    let rt = unsafe { Runtime::builder().stack_size(bytes).build() }.expect("it starts");
    let before = ["VmRSS", "VmPTE", "VmSize"].map(status);
    rt.run(move || {
        let (arrived, gate, ended) = (WaitGroup::new(), WaitGroup::new(), WaitGroup::new());
        gate.add(1);
        let start = Instant::now();
        for _ in 0..n {
            arrived.add(1);
            let (arrived, gate) = (arrived.clone(), gate.clone());
            ended.go(move || {
                arrived.done();
                gate.wait();
            });
        }
        arrived.wait();
        let parked = start.elapsed();
        let after = ["VmRSS", "VmPTE", "VmSize"].map(status);
        let [resident, tables, mapped] =
            std::array::from_fn(|i| (after[i] - before[i]) * 1024 / n as u64);
        let start = Instant::now();
        gate.done();
        ended.wait();
        let ended = start.elapsed();
        println!(
            "stack {bytes} n {n}: parked in {parked:.2?} ({:.0} ns each), ended in {ended:.2?}; each {resident} bytes resident, \
             {tables} of page tables, {mapped} of address space",
            parked.as_nanos() as f64 / n as f64,
        );
    });
}

/// A size of this process in KiB.
fn status(field: &str) -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").expect("proc is mounted");
    let line = text.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
    let value = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    value.expect("the kernel says it")
}

//! skynet and fib_join: trees of tasks whose results are carried up.

use std::time::Instant;

use super::{ms, ns_each};
use crate::contract::blocking;
use crate::reading::{Figures, Outcome, cannot};

pub const LEAVES: u64 = 1_000_000;
pub const FIB_N: u32 = 27;

/// The sum of the leaves 0..n.
pub fn leaf_sum(n: u64) -> u64 {
    n * (n - 1) / 2
}

/// fib(n) and, as it happens, one more than the number of forks of fib(n - 1).
pub fn fib(n: u32) -> u64 {
    let (mut a, mut b) = (0, 1);
    for _ in 0..n {
        (a, b) = (b, a + b);
    }
    a
}

/// A call with n >= 2 forks once, so forks(n) = fib(n + 1) - 1.
pub fn n_forks(n: u32) -> usize {
    usize::try_from(fib(n + 1) - 1).expect("small")
}

/// The largest fib argument, up to heist's, whose forks a peer can afford.
fn affordable_fib(max_tasks: usize) -> u32 {
    (2..=FIB_N).rev().find(|&n| n_forks(n) <= max_tasks).unwrap_or(2)
}

pub fn skynet_blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    fn node<R: blocking::Tasks>(first: u64, leaves: u64) -> u64 {
        if leaves == 1 {
            return first;
        }
        let share = leaves / 10;
        let child = |i| R::fork(move || node::<R>(first + i * share, share));
        let children: [_; 10] = std::array::from_fn(|i| child(i as u64));
        children.into_iter().map(R::join).sum()
    }
    if (R::MAX_TASKS as u64) < LEAVES {
        return cannot(R::LIMIT_NOTE.unwrap_or("too many tasks"));
    }
    let took = R::run(procs, || {
        node::<R>(0, LEAVES / 100);
        let start = Instant::now();
        assert_eq!(node::<R>(0, LEAVES), leaf_sum(LEAVES), "skynet: wrong sum");
        start.elapsed()
    });
    Ok(Figures::one(ms(took)))
}

pub fn fib_blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    fn node<R: blocking::Tasks>(n: u32) -> u64 {
        if n < 2 {
            return u64::from(n);
        }
        let left = R::fork(move || node::<R>(n - 1));
        let right = node::<R>(n - 2);
        R::join(left) + right
    }
    let n = affordable_fib(R::MAX_TASKS);
    let took = R::run(procs, move || {
        node::<R>(n - 7.min(n - 2));
        let start = Instant::now();
        assert_eq!(node::<R>(n), fib(n), "fib_join: wrong result");
        start.elapsed()
    });
    Ok(Figures::one(ns_each(took, n_forks(n))).with_note(R::LIMIT_NOTE))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{fib_futures, skynet_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use std::future::Future;

    use super::*;
    use crate::contract::futures::Tasks;

    pub fn skynet_futures<R: Tasks>(procs: usize) -> Outcome {
        #[expect(clippy::manual_async_fn, reason = "the recursion needs Send spelled out")]
        fn node<R: Tasks>(first: u64, leaves: u64) -> impl Future<Output = u64> + Send {
            async move {
                if leaves == 1 {
                    return first;
                }
                let share = leaves / 10;
                let child = |i| R::fork(node::<R>(first + i * share, share));
                let children: [_; 10] = std::array::from_fn(|i| child(i as u64));
                let mut sum = 0;
                for child in children {
                    sum += R::join(child).await;
                }
                sum
            }
        }
        let took = R::run(procs, async {
            node::<R>(0, LEAVES / 100).await;
            let start = Instant::now();
            assert_eq!(node::<R>(0, LEAVES).await, leaf_sum(LEAVES), "skynet: wrong sum");
            start.elapsed()
        });
        Ok(Figures::one(ms(took)))
    }

    pub fn fib_futures<R: Tasks>(procs: usize) -> Outcome {
        #[expect(clippy::manual_async_fn, reason = "the recursion needs Send spelled out")]
        fn node<R: Tasks>(n: u32) -> impl Future<Output = u64> + Send {
            async move {
                if n < 2 {
                    return u64::from(n);
                }
                let left = R::fork(node::<R>(n - 1));
                // A future cannot contain itself, so the inline branch goes on the heap.
                let right = Box::pin(node::<R>(n - 2)).await;
                R::join(left).await + right
            }
        }
        let took = R::run(procs, async {
            node::<R>(FIB_N - 7).await;
            let start = Instant::now();
            assert_eq!(node::<R>(FIB_N).await, fib(FIB_N), "fib_join: wrong result");
            start.elapsed()
        });
        Ok(Figures::one(ns_each(took, n_forks(FIB_N))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn forks_are_counted_right() {
        fn forks(n: u32) -> usize {
            if n < 2 { 0 } else { 1 + forks(n - 1) + forks(n - 2) }
        }
        for n in 0..15 {
            assert_eq!(n_forks(n), forks(n));
        }
    }

    #[test]
    fn a_poor_peer_gets_a_smaller_fib() {
        assert_eq!(affordable_fib(usize::MAX), FIB_N);
        assert!(n_forks(affordable_fib(5000)) <= 5000);
    }
}

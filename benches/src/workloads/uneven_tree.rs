//! uneven_tree: a random tree that only stealing can balance, a task per node.
//!
//! The root has many children; every other node has `CHILDREN` or none, by a hash of its own seed,
//! so that subtrees differ in size by orders of magnitude and it is not known which is large before
//! walking it. The hash makes the tree the same for all peers.

use std::hint::black_box;
use std::time::Instant;

use super::ms;
use crate::contract::blocking::{self, Group as _};
use crate::reading::{Figures, Outcome};

pub const ROOT_CHILDREN: u64 = 8000;
pub const CHILDREN: u64 = 8;
/// A node has children with this chance in 1000; the expected family stays below one
/// child a node, so the tree ends.
pub const FERTILE_PER_MILLE: u64 = 124;
pub const WORK_ROUNDS: u32 = 50;

/// One step of splitmix64.
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Does a node's work and returns the number of its children.
pub fn visit(seed: u64) -> u64 {
    let mut state = seed;
    for _ in 0..WORK_ROUNDS {
        state = mix(state);
    }
    black_box(state);
    if mix(seed) % 1000 < FERTILE_PER_MILLE { CHILDREN } else { 0 }
}

pub fn child_seed(seed: u64, index: u64) -> u64 {
    mix(seed ^ (index + 1).wrapping_mul(0xD6E8_FEB8_6659_FD93))
}

pub fn blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    fn grow<R: blocking::Tasks>(group: &R::Group, seed: u64, n_children: u64) {
        group.add(n_children as usize);
        for index in 0..n_children {
            let group = group.clone();
            R::spawn(move || {
                let seed = child_seed(seed, index);
                grow::<R>(&group, seed, visit(seed));
                group.done();
            });
        }
    }
    fn round<R: blocking::Tasks>(seed: u64, root_children: u64) -> f64 {
        let start = Instant::now();
        let group = R::Group::new();
        grow::<R>(&group, seed, root_children);
        group.wait();
        ms(start.elapsed())
    }
    let took = R::run(procs, || {
        round::<R>(2, ROOT_CHILDREN / 10);
        round::<R>(1, ROOT_CHILDREN)
    });
    Ok(Figures::one(took))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize) -> Outcome {
    use std::future::Future;

    use crate::contract::futures::{Group as _, Tasks};

    #[expect(clippy::manual_async_fn, reason = "the recursion needs Send spelled out")]
    fn node<R: Tasks>(group: R::Group, seed: u64) -> impl Future<Output = ()> + Send {
        async move {
            grow::<R>(&group, seed, visit(seed));
            group.done();
        }
    }
    fn grow<R: Tasks>(group: &R::Group, seed: u64, n_children: u64) {
        group.add(n_children as usize);
        for index in 0..n_children {
            R::spawn(node::<R>(group.clone(), child_seed(seed, index)));
        }
    }
    async fn round<R: Tasks>(seed: u64, root_children: u64) -> f64 {
        let start = Instant::now();
        let group = R::Group::new();
        grow::<R>(&group, seed, root_children);
        group.wait().await;
        ms(start.elapsed())
    }
    let took = R::run(procs, async {
        round::<R>(2, ROOT_CHILDREN / 10).await;
        round::<R>(1, ROOT_CHILDREN).await
    });
    Ok(Figures::one(took))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The Go twin must walk the same tree; its test pins the same number.
    #[test]
    fn the_tree_is_the_one_we_know() {
        fn count(seed: u64) -> u64 {
            (0..visit(seed)).map(|i| 1 + count(child_seed(seed, i))).sum()
        }
        let nodes: u64 = (0..ROOT_CHILDREN).map(|i| 1 + count(child_seed(1, i))).sum();
        assert_eq!(nodes, N_NODES);
    }

    const N_NODES: u64 = 705_352;
}

//! Thieves on machines with several NUMA nodes, simulated.

use crate::matrix;
use heist::{Builder, Runtime, StealPolicy};

/// A tree of goroutines; returns how many there were.
fn tree(depth: u32) -> u64 {
    if depth == 0 {
        return 1;
    }
    let left = heist::go(move || tree(depth - 1));
    let right = heist::go(move || tree(depth - 1));
    1 + left.join().unwrap() + right.join().unwrap()
}

fn far(rt: &Runtime) -> u64 {
    rt.metrics().get("/heist/steal/far:goroutines").unwrap()
}

/// Whatever the nodes, every goroutine runs once.
#[test]
fn nothing_is_lost_between_nodes() {
    for procs in [1, 2, 4, 16] {
        for nodes in [1, 2, 3, 16] {
            for policy in [StealPolicy::go(), StealPolicy::gentle()] {
                let builder = Builder::new().procs(procs).fake_nodes(nodes).steal_policy(policy);
                let rt = matrix::start(builder);
                assert_eq!(rt.run(|| tree(9)), 1023, "procs={procs} nodes={nodes}");
            }
        }
    }
}

/// A goroutine alone on its node is found by a thief of another one.
#[test]
fn a_thief_without_work_on_its_node_goes_to_the_others() {
    let rt = matrix::start(Builder::new().procs(2).fake_nodes(2));
    matrix::eventually("a theft from another node", || {
        rt.run(|| tree(9));
        far(&rt) > 0
    });
}

/// A runtime that regards all Ps alike counts no nodes.
#[test]
fn nodes_can_be_ignored() {
    let policy = StealPolicy::go().with_near_first(false);
    let rt = matrix::start(Builder::new().procs(4).fake_nodes(4).steal_policy(policy));
    rt.run(|| tree(9));
    assert_eq!(far(&rt), 0);
}

//! Tests of the walks over the Ps: complete, and different for different seeds.
#![cfg(not(loom))]

use heist_core::policy::Order;
use heist_core::steal_order::StealOrder;
use std::collections::HashSet;

const PROCS: std::ops::RangeInclusive<u32> = 1..=64;

/// RQ-04, IN-13: every walk visits each P once and then ends, for every step there is.
#[test]
fn walk_visits_every_p_once() {
    for procs in PROCS {
        let order = StealOrder::new(procs);
        for kind in [Order::Coprime, Order::Ring] {
            for seed in 0..procs * order.n_steps() {
                let mut walk = order.walk(kind, seed);
                let mut seen: Vec<u32> = walk.by_ref().collect();
                assert_eq!(walk.next(), None, "a walk that ended goes on");
                seen.sort_unstable();
                assert_eq!(seen, (0..procs).collect::<Vec<_>>(), "{kind:?}, seed {seed}");
            }
        }
    }
}

/// RQ-04: with three or more Ps there are at least two steps to choose from.
#[test]
fn three_ps_have_two_steps() {
    for procs in PROCS.filter(|&procs| procs >= 3) {
        assert!(StealOrder::new(procs).n_steps() >= 2, "{procs} Ps");
    }
}

/// RQ-04: as many seeds as there are pairs of start and step give all pairs.
#[test]
fn seeds_do_not_collapse() {
    for procs in PROCS.filter(|&procs| procs >= 2) {
        let order = StealOrder::new(procs);
        let n_pairs = procs * order.n_steps();
        let pairs: HashSet<_> =
            (0..n_pairs).map(|seed| order.walk(Order::Coprime, seed).start_and_step()).collect();
        assert_eq!(pairs.len() as u32, n_pairs, "{procs} Ps");
    }
}

/// IN-13: start is the seed modulo the Ps; the rest of the seed picks the step.
#[test]
fn seed_picks_start_and_step() {
    let order = StealOrder::new(10);
    let coprimes = [1, 3, 7, 9];
    assert_eq!(order.n_steps(), 4);
    for seed in [0, 1, 9, 10, 27, 39, 40, 12_345, u32::MAX] {
        let expected = (seed % 10, coprimes[(seed / 10) as usize % 4]);
        assert_eq!(order.walk(Order::Coprime, seed).start_and_step(), expected);
        assert_eq!(order.walk(Order::Ring, seed).start_and_step(), (seed % 10, 1));
    }
}

/// IN-13: the step is the distance between two visits.
#[test]
fn walk_goes_by_its_step() {
    let walk = StealOrder::new(10).walk(Order::Coprime, 24);
    assert_eq!(walk.start_and_step(), (4, 7));
    assert_eq!(walk.collect::<Vec<_>>(), [4, 1, 8, 5, 2, 9, 6, 3, 0, 7]);
}

/// A walk in two rounds visits each P once, the near ones first, and otherwise keeps the order.
#[test]
fn near_ps_come_first_and_none_is_left_out() {
    for procs in PROCS {
        let order = StealOrder::new(procs);
        for n_nodes in 1..=procs.min(5) {
            for seed in (0..procs * order.n_steps()).step_by(3) {
                let is_near = |id: u32| id * n_nodes / procs == 0;
                let walk = || order.walk(Order::Coprime, seed);
                let (near, far): (Vec<u32>, Vec<u32>) = walk().partition(|&id| is_near(id));
                let visited: Vec<u32> = walk().near_first(is_near).collect();
                assert_eq!(visited, [near, far].concat(), "{procs} Ps, seed {seed}");
            }
        }
    }
}

/// On a machine with one node the order is the usual one.
#[test]
fn one_node_changes_nothing() {
    let walk = StealOrder::new(10).walk(Order::Coprime, 24);
    assert!(walk.clone().near_first(|_| true).eq(walk.clone()));
    assert!(walk.clone().near_first(|_| false).eq(walk));
}

/// A runtime has at least one P.
#[test]
#[should_panic(expected = "no Ps to walk")]
fn no_ps_cannot_be_walked() {
    let _ = StealOrder::new(0);
}

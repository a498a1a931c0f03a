//! Tests of the random numbers: uniform, repeatable, and different per P.
#![cfg(not(loom))]

use heist_core::rng::Rng;
use std::collections::{HashMap, HashSet};

/// The chi-square statistic of `counts` against a uniform distribution.
fn chi_square(counts: &[u32]) -> f64 {
    let total: u32 = counts.iter().sum();
    let expected = f64::from(total) / counts.len() as f64;
    counts.iter().map(|&n| (f64::from(n) - expected).powi(2) / expected).sum()
}

/// Far beyond chance for `cells` cells: mean plus six standard deviations.
fn limit(cells: usize) -> f64 {
    let freedom = cells as f64 - 1.0;
    freedom + 6.0 * (2.0 * freedom).sqrt()
}

/// Numbers below the bounds that the scheduler uses are uniform, for the seeds of many Ps.
#[test]
fn numbers_below_a_bound_are_uniform() {
    for bound in [2, 3, 7, 61, 256] {
        for seed in 0..20 {
            let mut rng = Rng::new(seed);
            let mut counts = vec![0; bound as usize];
            for _ in 0..20_000 {
                counts[rng.below(bound) as usize] += 1;
            }
            let chi = chi_square(&counts);
            assert!(chi < limit(counts.len()), "bound {bound}, seed {seed}: {chi}");
        }
    }
}

/// No number reaches its bound, the extreme ones included.
#[test]
fn numbers_stay_below_their_bound() {
    let mut rng = Rng::new(5);
    for bound in [1, 2, 3, 1 << 16, u32::MAX] {
        assert!((0..10_000).all(|_| rng.below(bound) < bound), "bound {bound}");
    }
}

/// Every bit is set about half of the time: stealing takes the seed modulo the number of Ps.
#[test]
fn every_bit_is_fair() {
    let mut rng = Rng::new(1);
    let mut ones = [0; 32];
    for _ in 0..20_000 {
        let number = rng.next_u32();
        for (bit, ones) in ones.iter_mut().enumerate() {
            *ones += number >> bit & 1;
        }
    }
    assert!(ones.iter().all(|&n| (9_500..10_500).contains(&n)), "{ones:?}");
}

/// The same seed gives the same numbers, and a clone continues with the same numbers.
#[test]
fn stream_depends_on_the_seed_alone() {
    let draw = |mut rng: Rng| -> Vec<u32> { (0..100).map(|_| rng.next_u32()).collect() };
    for seed in [0, 1, 2, u64::MAX] {
        assert_eq!(draw(Rng::new(seed)), draw(Rng::new(seed)));
        let mut half_way = Rng::new(seed);
        half_way.next_u32();
        assert_eq!(draw(half_way.clone()), draw(half_way));
    }
}

/// Neighbouring seeds, which are the Ps, give streams that have nothing in common.
#[test]
fn neighbouring_seeds_give_different_streams() {
    let mut seen = HashSet::new();
    for seed in 0..256 {
        let mut rng = Rng::new(seed);
        let opening: Vec<u32> = (0..4).map(|_| rng.next_u32()).collect();
        assert!(seen.insert(opening), "seed {seed}");
    }
    // The first numbers of all Ps are uniform as well: thieves that start together spread out.
    let mut counts = [0; 16];
    for seed in 0..4096 {
        counts[Rng::new(seed).below(16) as usize] += 1;
    }
    assert!(chi_square(&counts) < limit(16), "{counts:?}");
}

/// A shuffle loses and doubles nothing, whatever the length.
#[test]
fn shuffle_is_a_permutation() {
    let mut rng = Rng::new(3);
    for n in (0..20).chain([129, 1000]) {
        let mut items: Vec<u32> = (0..n).collect();
        rng.shuffle(&mut items);
        items.sort_unstable();
        assert_eq!(items, (0..n).collect::<Vec<_>>());
    }
}

/// All orders of four items are equally likely.
#[test]
fn shuffle_is_uniform() {
    let mut rng = Rng::new(4);
    let mut counts = HashMap::new();
    for _ in 0..24_000 {
        let mut items = [0, 1, 2, 3];
        rng.shuffle(&mut items);
        *counts.entry(items).or_insert(0) += 1;
    }
    let counts: Vec<u32> = counts.into_values().collect();
    assert_eq!(counts.len(), 24);
    assert!(chi_square(&counts) < limit(24), "{counts:?}");
}

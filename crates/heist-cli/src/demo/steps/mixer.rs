//! Work that takes time and whose result can be checked.

/// One step of splitmix64.
pub fn mix(seed: u64) -> u64 {
    let mut z = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// `n` steps, each of which needs the one before.
pub fn churn(seed: u64, n_rounds: u32) -> u64 {
    (0..n_rounds).fold(seed, |state, _| mix(state))
}

#[test]
fn rounds_add_up() {
    assert_eq!(churn(churn(7, 20), 30), churn(7, 50));
    assert_ne!(mix(1), mix(2));
}

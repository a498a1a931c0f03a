//! The order of measurements: repetitions outermost, peers interleaved and rotated.
//!
//! A drift during a run (temperature, a neighbour's load) then affects all peers alike, and no peer
//! is always first or always after the same one.

/// The peers of one repetition of one workload, rotated by both.
pub fn order<T: Copy>(peers: &[T], rep: usize, workload_index: usize) -> Vec<T> {
    let mut turn = peers.to_vec();
    if !turn.is_empty() {
        turn.rotate_left((rep + workload_index) % peers.len());
    }
    turn
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_peer_is_first_once_in_as_many_repetitions() {
        let peers = ["heist", "go", "tokio"];
        let mut firsts: Vec<_> = (0..3).map(|rep| order(&peers, rep, 5)[0]).collect();
        firsts.sort_unstable();
        assert_eq!(firsts, ["go", "heist", "tokio"]);
    }

    #[test]
    fn every_turn_holds_every_peer() {
        for rep in 0..7 {
            let mut turn = order(&[1, 2, 3, 4], rep, 2);
            turn.sort_unstable();
            assert_eq!(turn, [1, 2, 3, 4]);
        }
    }

    #[test]
    fn an_empty_rotation_is_fine() {
        assert!(order::<u8>(&[], 3, 1).is_empty());
    }
}

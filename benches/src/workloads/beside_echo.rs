//! join_beside_echo: a server with 1000 busy connections, and a batch of fork-join work beside it.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use super::joins::count_queens;
use super::servers::{Listening, Service, under_load};
use crate::contract::joins::Joins;
use crate::reading::{Figures, Outcome};

/// A board that takes about a millisecond.
const BOARD: u32 = 10;

pub const SERVICE: Service = Service::Echo { n_connections: 1000 };

static N_BOARDS: AtomicU64 = AtomicU64::new(0);

/// The batch: counts queens until the process ends.
pub fn batch<J: Joins>(cx: &mut J::Cx<'_>) {
    loop {
        assert_eq!(count_queens::<J>(cx, BOARD), 724, "join_beside_echo: wrong number");
        N_BOARDS.fetch_add(1, Ordering::Relaxed);
    }
}

/// Puts a server under load that has started a batch.
pub fn measure(server_with_batch: impl FnOnce(Listening) + Send + 'static) -> Outcome {
    let start = Instant::now();
    let figures = under_load(SERVICE, server_with_batch)?;
    let rate = N_BOARDS.load(Ordering::Relaxed) as f64 / start.elapsed().as_secs_f64();
    let [_, _, p99_us, _] = figures.values[..] else { unreachable!("the rows of tcp_echo") };
    Ok(Figures::many(vec![p99_us, rate]))
}

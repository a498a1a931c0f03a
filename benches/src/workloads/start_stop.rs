//! start_stop: build a runtime, run an empty task, shut it down.

use std::time::{Duration, Instant};

use crate::reading::{Figures, Outcome};
use crate::stats::quantile;

const N_CYCLES: usize = 200;
const N_WARM_UP: usize = 20;

pub fn measure(cycle: impl Fn()) -> Outcome {
    (0..N_WARM_UP).for_each(|_| cycle());
    let timed = |_| {
        let start = Instant::now();
        cycle();
        start.elapsed().as_nanos() as u64
    };
    let mut cycles_ns: Vec<u64> = (0..N_CYCLES).map(timed).collect();
    let median = Duration::from_nanos(quantile(&mut cycles_ns, 0.5));
    Ok(Figures::one(median.as_secs_f64() * 1e6))
}

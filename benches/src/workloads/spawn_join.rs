//! spawn_join: one task spawns many empty ones and waits for all.

use std::time::Instant;

use super::ns_each;
use crate::contract::blocking::{self, Group as _};
use crate::reading::{Figures, Outcome};

pub const N_TASKS: usize = 1_000_000;

/// Go's tasks capture a pointer to their group. A counted reference for each would measure that
/// count, which two cores fight over, instead of the spawn.
fn leaked<T>(group: T) -> &'static T {
    Box::leak(Box::new(group))
}

/// Nanoseconds for each of `n` tasks.
pub fn round<R: blocking::Tasks>(n: usize) -> f64 {
    let group = leaked(R::Group::new());
    let start = Instant::now();
    group.add(n);
    for _ in 0..n {
        R::spawn(move || group.done());
    }
    group.wait();
    ns_each(start.elapsed(), n)
}

pub fn blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    let n = N_TASKS.min(R::MAX_TASKS);
    let ns = R::run(procs, move || {
        round::<R>(n / 10);
        round::<R>(n)
    });
    Ok(Figures::one(ns).with_note(R::LIMIT_NOTE))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub use stackless::{futures, round_futures};

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
mod stackless {
    use super::*;
    use crate::contract::futures::{Group as _, Tasks};

    pub async fn round_futures<R: Tasks>(n: usize) -> f64 {
        let group = leaked(R::Group::new());
        let start = Instant::now();
        group.add(n);
        for _ in 0..n {
            R::spawn(async move { group.done() });
        }
        group.wait().await;
        ns_each(start.elapsed(), n)
    }

    pub fn futures<R: Tasks>(procs: usize) -> Outcome {
        let ns = R::run(procs, async {
            round_futures::<R>(N_TASKS / 10).await;
            round_futures::<R>(N_TASKS).await
        });
        Ok(Figures::one(ns))
    }
}

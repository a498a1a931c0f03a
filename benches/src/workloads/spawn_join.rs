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

pub fn blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    fn round<R: blocking::Tasks>(n: usize) -> f64 {
        let group = leaked(R::Group::new());
        let start = Instant::now();
        group.add(n);
        for _ in 0..n {
            R::spawn(move || group.done());
        }
        group.wait();
        ns_each(start.elapsed(), n)
    }
    let n = N_TASKS.min(R::MAX_TASKS);
    let ns = R::run(procs, move || {
        round::<R>(n / 10);
        round::<R>(n)
    });
    Ok(Figures::one(ns).with_note(R::LIMIT_NOTE))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize) -> Outcome {
    use crate::contract::futures::{Group as _, Tasks};

    async fn round<R: Tasks>(n: usize) -> f64 {
        let group = leaked(R::Group::new());
        let start = Instant::now();
        group.add(n);
        for _ in 0..n {
            R::spawn(async move { group.done() });
        }
        group.wait().await;
        ns_each(start.elapsed(), n)
    }
    let ns = R::run(procs, async {
        round::<R>(N_TASKS / 10).await;
        round::<R>(N_TASKS).await
    });
    Ok(Figures::one(ns))
}

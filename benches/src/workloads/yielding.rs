//! yield: two tasks per proc that do nothing but yield.

use std::time::Instant;

use super::ns_each;
use crate::contract::blocking::{self, Group as _};
use crate::reading::{Figures, Outcome};

pub const N_YIELDS: usize = 1_000_000;
pub const TASKS_PER_PROC: usize = 2;

pub fn blocking<R: blocking::Tasks>(procs: usize) -> Outcome {
    fn round<R: blocking::Tasks>(n_tasks: usize, n_yields: usize) -> f64 {
        let group = R::Group::new();
        let start = Instant::now();
        group.add(n_tasks);
        for _ in 0..n_tasks {
            let group = group.clone();
            R::spawn(move || {
                for _ in 0..n_yields {
                    R::yield_now();
                }
                group.done();
            });
        }
        group.wait();
        ns_each(start.elapsed(), n_tasks * n_yields)
    }
    let n_tasks = TASKS_PER_PROC * procs;
    let ns = R::run(procs, move || {
        round::<R>(n_tasks, N_YIELDS / 10);
        round::<R>(n_tasks, N_YIELDS)
    });
    Ok(Figures::one(ns))
}

#[cfg(any(feature = "peer-tokio", feature = "peer-smol"))]
pub fn futures<R: crate::contract::futures::Tasks>(procs: usize) -> Outcome {
    use crate::contract::futures::{Group as _, Tasks};

    async fn round<R: Tasks>(n_tasks: usize, n_yields: usize) -> f64 {
        let group = R::Group::new();
        let start = Instant::now();
        group.add(n_tasks);
        for _ in 0..n_tasks {
            let group = group.clone();
            R::spawn(async move {
                for _ in 0..n_yields {
                    R::yield_now().await;
                }
                group.done();
            });
        }
        group.wait().await;
        ns_each(start.elapsed(), n_tasks * n_yields)
    }
    let n_tasks = TASKS_PER_PROC * procs;
    let ns = R::run(procs, async move {
        round::<R>(n_tasks, N_YIELDS / 10).await;
        round::<R>(n_tasks, N_YIELDS).await
    });
    Ok(Figures::one(ns))
}

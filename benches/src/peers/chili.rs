//! chili: fork-join by heartbeat. It has nothing but `join`.

use std::num::NonZero;

use chili::{Config, Scope, ThreadPool};

use crate::catalog;
use crate::contract::joins::Joins;
use crate::job::Job;
use crate::reading::{Outcome, cannot};
use crate::workloads::joins;

struct Chili;

impl Joins for Chili {
    type Cx<'a> = Scope<'a>;

    fn run<T: Send>(procs: usize, main: impl FnOnce(&mut Scope<'_>) -> T + Send) -> T {
        // The calling thread is one of them.
        let config = Config { thread_count: NonZero::new(procs), ..Config::default() };
        main(&mut ThreadPool::with_config(config).scope())
    }

    fn join<A: Send, B: Send>(
        cx: &mut Scope<'_>,
        a: impl FnOnce(&mut Scope<'_>) -> A + Send,
        b: impl FnOnce(&mut Scope<'_>) -> B + Send,
    ) -> (A, B) {
        cx.join(a, b)
    }
}

pub fn run(job: Job<'_>) -> Outcome {
    joins::run::<Chili>(job.workload, job.procs).unwrap_or_else(|| match job.workload {
        other if catalog::workload(other).is_some() => cannot("it has nothing but join"),
        other => super::unknown(other),
    })
}

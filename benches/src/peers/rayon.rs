//! rayon: fork-join on a pool. Its tasks may not block, so half of the workloads have no
//! place here.

use std::time::Instant;

use rayon::{Scope, ThreadPool, ThreadPoolBuilder};

use crate::catalog;
use crate::contract::joins::Joins;
use crate::job::Job;
use crate::reading::{Figures, Outcome, cannot};
use crate::workloads::fork_join::{FIB_N, LEAVES, fib, leaf_sum, n_forks};
use crate::workloads::probe::Probe;
use crate::workloads::spawn_join::N_TASKS;
use crate::workloads::steal::{self, Behind, Thief};
use crate::workloads::uneven_tree::{ROOT_CHILDREN, child_seed, visit};
use crate::workloads::yielding::{N_YIELDS, TASKS_PER_PROC};
use crate::workloads::{idle_cpu, joins, ms, ns_each, start_stop};

const FORK_JOIN_ONLY: &str = "a fork-join pool: its tasks must not block";

fn pool(procs: usize) -> ThreadPool {
    ThreadPoolBuilder::new().num_threads(procs).build().expect("rayon pool")
}

pub struct Rayon;

impl Joins for Rayon {
    type Cx<'a> = ();

    fn run<T: Send>(procs: usize, main: impl FnOnce(&mut ()) -> T + Send) -> T {
        pool(procs).install(|| main(&mut ()))
    }

    fn join<A: Send, B: Send>(
        (): &mut (),
        a: impl FnOnce(&mut ()) -> A + Send,
        b: impl FnOnce(&mut ()) -> B + Send,
    ) -> (A, B) {
        rayon::join(|| a(&mut ()), || b(&mut ()))
    }
}

fn spawn_join(procs: usize) -> Outcome {
    let round = |n: usize| {
        let start = Instant::now();
        rayon::scope(|scope| (0..n).for_each(|_| scope.spawn(|_| ())));
        ns_each(start.elapsed(), n)
    };
    let ns = pool(procs).install(|| {
        round(N_TASKS / 10);
        round(N_TASKS)
    });
    Ok(Figures::one(ns))
}

fn skynet(procs: usize) -> Outcome {
    fn node(first: u64, leaves: u64) -> u64 {
        if leaves == 1 {
            return first;
        }
        let share = leaves / 10;
        let mut sums = [0; 10];
        rayon::scope(|scope| {
            for (i, sum) in sums.iter_mut().enumerate() {
                scope.spawn(move |_| *sum = node(first + i as u64 * share, share));
            }
        });
        sums.iter().sum()
    }
    let took = pool(procs).install(|| {
        node(0, LEAVES / 100);
        let start = Instant::now();
        assert_eq!(node(0, LEAVES), leaf_sum(LEAVES), "skynet: wrong sum");
        start.elapsed()
    });
    Ok(Figures::one(ms(took)))
}

fn fib_join(procs: usize) -> Outcome {
    fn node(n: u32) -> u64 {
        if n < 2 {
            return u64::from(n);
        }
        let (left, right) = rayon::join(|| node(n - 1), || node(n - 2));
        left + right
    }
    let took = pool(procs).install(|| {
        node(FIB_N - 7);
        let start = Instant::now();
        assert_eq!(node(FIB_N), fib(FIB_N), "fib_join: wrong result");
        start.elapsed()
    });
    Ok(Figures::one(ns_each(took, n_forks(FIB_N))))
}

fn yielding(procs: usize) -> Outcome {
    let n_tasks = TASKS_PER_PROC * procs;
    let round = |n_yields: usize| {
        let start = Instant::now();
        rayon::scope(|scope| {
            for _ in 0..n_tasks {
                scope.spawn(move |_| {
                    for _ in 0..n_yields {
                        rayon::yield_now();
                    }
                });
            }
        });
        ns_each(start.elapsed(), n_tasks * n_yields)
    };
    let ns = pool(procs).install(|| {
        round(N_YIELDS / 10);
        round(N_YIELDS)
    });
    let note = "a yield runs another task on top of this one; it never switches back";
    Ok(Figures::one(ns).with_note(Some(note)))
}

fn uneven_tree(procs: usize) -> Outcome {
    fn grow<'s>(scope: &Scope<'s>, seed: u64, n_children: u64) {
        for index in 0..n_children {
            scope.spawn(move |scope| {
                let seed = child_seed(seed, index);
                grow(scope, seed, visit(seed));
            });
        }
    }
    let round = |seed, root_children| {
        let start = Instant::now();
        rayon::scope(|scope| grow(scope, seed, root_children));
        ms(start.elapsed())
    };
    let took = pool(procs).install(|| {
        round(2, ROOT_CHILDREN / 10);
        round(1, ROOT_CHILDREN)
    });
    Ok(Figures::one(took))
}

fn steal(procs: usize, thief: Thief, behind: Behind) -> Outcome {
    if procs < 2 {
        return cannot("needs two procs");
    }
    pool(procs).install(|| {
        let spawn = |probe: Probe| rayon::spawn(move || probe.ran());
        let spawn_behind = |probe: Probe| rayon::spawn(move || probe.behind_ran());
        let give_way = || {
            rayon::yield_now();
        };
        let round = |n| steal::tally(thief, behind, n, spawn, spawn_behind, give_way);
        round(thief.n_samples() / 10);
        round(thief.n_samples()).into_outcome()
    })
}

pub fn run(job: Job<'_>) -> Outcome {
    let procs = job.procs;
    match job.workload {
        "spawn_join" => spawn_join(procs),
        "skynet" => skynet(procs),
        "fib_join" => fib_join(procs),
        "yield" => yielding(procs),
        "uneven_tree" => uneven_tree(procs),
        "steal_hot" => steal(procs, Thief::Hot, Behind::Another),
        "steal_idle" => steal(procs, Thief::Idle, Behind::Another),
        "steal_hot_single" => steal(procs, Thief::Hot, Behind::Nothing),
        "steal_idle_single" => steal(procs, Thief::Idle, Behind::Nothing),
        "idle_cpu" => idle_cpu::watch(move || {
            let pool = pool(procs);
            pool.install(|| ());
            std::thread::park();
            drop(pool);
        }),
        "start_stop" => start_stop::measure(|| pool(procs).install(|| ())),
        other => joins::run::<Rayon>(other, procs).unwrap_or_else(|| {
            let known = catalog::workload(other).is_some();
            if known { cannot(FORK_JOIN_ONLY) } else { super::unknown(other) }
        }),
    }
}
